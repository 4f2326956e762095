// Every plan that a library offers for a problem, made ahead of timing by many threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/contract/list.h"
#include "tests/support/client.h"
#include "tests/support/device_memory.h"

namespace kiln::bench {

enum class Side : uint8_t { kOurs, kNvidia };

struct Candidate {
  std::string label;  // engine and knobs
  std::string mode;   // which list offered it first: A, B, FALLBACK, or engine for none
  const testing::Cudnn* cudnn = nullptr;
  std::unique_ptr<testing::Plan> plan;
};

// Plans that one library offers for one problem. The first candidate is the first plan of mode A,
// which is what a program gets that asks once.
struct Offer {
  std::unique_ptr<testing::Graph> graph;
  std::vector<Candidate> candidates;
  int offered = 0;      // configs
  int refused = 0;      // of them, those that make no plan
  int left_out = 0;     // beyond the limit, or not allowed: TF32 in a section that keeps f32
  std::string refusal;  // the first; what to report where there is no candidate
};

// The graph as it is offered: 1-D convolutions are images of one row for NVIDIA's library, which
// takes no tensors of rank 3 there. Memory and meaning are the same.
testing::Case FormFor(Side side, const testing::Case& c);

// Opened libraries, one handle a thread and library. A plan keeps the handle of its maker.
class PlanMakers {
 public:
  struct Settings {
    std::string ours, nvidia;  // paths; nvidia may be empty
    int threads = 1;
    size_t most_ours = 32, most_nvidia = 48;  // plans a problem
    bool every_engine = true;                 // NVIDIA's engines beyond those of the heuristics
  };
  static std::unique_ptr<PlanMakers> Open(testing::GpuDevice& device, const Settings& settings,
                                          std::string* error);

  const testing::Cudnn& ours() const { return *makers_[0].ours; }
  const testing::Cudnn* nvidia() const { return makers_[0].nvidia.get(); }

  struct Offers {
    Offer ours, nvidia;
  };
  // `progress` is called from any thread after each problem and library, with the number done.
  std::vector<Offers> Make(const std::vector<const Problem*>& problems,
                           const std::function<void(int64_t, int64_t)>& progress);

 private:
  struct Maker {
    std::unique_ptr<testing::Cudnn> nvidia, ours;
  };
  PlanMakers(testing::GpuDevice& device, Settings settings)
      : device_(device), settings_(std::move(settings)) {}
  void MakeOffer(Side side, const testing::Cudnn& cudnn, const Problem& problem,
                 Offer& offer) const;

  testing::GpuDevice& device_;
  Settings settings_;
  std::vector<Maker> makers_;
};

}  // namespace kiln::bench
