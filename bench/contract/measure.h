// One problem on both libraries: check, look at every plan, time the best in turns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/contract/blas.h"
#include "bench/contract/check.h"
#include "bench/contract/plans.h"
#include "bench/contract/row.h"
#include "bench/contract/time.h"

namespace kiln::bench {

struct MeasureSettings {
  double seconds = 1;    // a problem, for looking and timing
  int looks = 3;         // times for a first look at a plan
  int rounds = 20;       // of the finalists, at most
  size_t finalists = 2;  // best plans of a library after the looks
  double rest_us = 0;
  int64_t most_workspace = int64_t{8} << 30;
};

class Measurer {
 public:
  Measurer(testing::GpuDevice& device, Stopwatch& watch, Blas* blas,
           const MeasureSettings& settings)
      : device_(device), watch_(watch), blas_(blas), settings_(settings), buffers_(device) {}

  Row Measure(const Problem& problem, const PlanMakers::Offers& offers);

 private:
  struct Entry;    // a plan with its clock
  struct Contest;  // everything about one problem
  void Enter(Contest& contest, const Offer& offer, bool ours);
  void EnterBlas(Contest& contest);
  std::string RunOnce(Contest& contest, Entry& entry);
  void CheckOurs(Contest& contest);
  bool CheckOther(Contest& contest, Entry& entry);
  void LookAtAll(Contest& contest);
  std::vector<Entry*> Finalists(Contest& contest, int side);
  void Finish(Contest& contest);

  testing::GpuDevice& device_;
  Stopwatch& watch_;
  Blas* blas_;
  MeasureSettings settings_;
  BlockStore store_;
  CheckBuffers buffers_;
};

}  // namespace kiln::bench
