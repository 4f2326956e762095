// GroupBench: one group on a device, as tuning measures it. Inputs are random, every buffer stands
// between red zones, and outputs must agree with those of the generic engine, which is the first in
// the registry that takes the group. Called by tuner.h and `kiln tune`.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "compiler/tune/search.h"
#include "ir/graph/eval.h"
#include "runtime/device.h"
#include "runtime/red_zones.h"

namespace kiln::api {

// A second opinion on an output's elements, in row-major order.
using Judge = std::function<Status(graph::TensorId output, const std::vector<double>& got)>;

struct BenchOptions {
  double seconds_per_time = 0.06;  // of repeated runs and flushes behind one time, about
  int rounds = 3;                  // whose median is the time, and whose distance is the spread
  // Makes the judge of a small group from its inputs; null for none.
  std::function<Result<Judge>(const graph::Graph& graph, graph::TensorValues inputs)> judge = {};
  // Elements that are computed times the lengths of their sums, above which there is no judge.
  int64_t judged_work = int64_t{1} << 22;
  // Outputs are compared whole up to here; of larger ones about so much, in windows.
  int64_t compared_bytes = int64_t{128} << 20;
};

class GroupBench final : public compiler::Bench {
 public:
  // `device` and `group` must outlive the result.
  static Result<std::unique_ptr<GroupBench>> Make(runtime::Device& device,
                                                  const compiler::Group& group,
                                                  const BenchOptions& options);

  // The program whose results others are compared with: the generic engine's.
  static Result<Program> ReferenceOf(const compiler::Group& group, const Target& target);

  // Results may differ as much from now on as those of rounded inputs do.
  void Expect(compiler::Inputs inputs);
  Result<std::shared_ptr<compiler::Trial>> Prepare(const Program& program) override;
  bool IsCompiled(const Program& program) override;
  double Now() override { return Clock(); }
  static double Clock();  // seconds, steady

 private:
  friend class GroupTrial;

  // A slot is what a caller of the group passes for one uid: memory that is read, written, or both
  // (scatter).
  struct Slot {
    graph::TensorId input = -1, output = -1;               // -1: is none
    std::vector<std::byte> scalar = {};                    // where the host passes it by value
    std::map<int64_t, std::vector<std::byte>> right = {};  // an output's windows, by their places
    double typical = 0;                                    // root mean square of those
    std::unique_ptr<runtime::GuardedBuffer> memory = {};   // none for host scalars
  };

  GroupBench(runtime::Device& device, const compiler::Group& group, const BenchOptions& options)
      : device_(device), group_(group), options_(options) {}

  Status AddSlots();
  Status WriteRandom(const Slot& slot);
  Status MakeReference();
  Status MakeJudge();
  Status Poison();
  Result<std::vector<void*>> PointersFor(const Program& program) const;
  Status CheckOutputs(int64_t trial);
  // Places of the windows that a trial looks at, and the bytes from there on.
  std::vector<int64_t> WindowsOf(int64_t bytes, int64_t trial) const;
  Result<std::vector<std::byte>> Window(const Slot& slot, int64_t first) const;
  Status KeepRightOutputs();
  Status CompareOutput(const Slot& slot, int64_t trial) const;
  Status CompareSpan(const Slot& slot, int64_t first, std::span<const std::byte> got) const;
  Status JudgeOutput(const Slot& slot) const;

  runtime::Device& device_;
  const compiler::Group& group_;
  const BenchOptions options_;
  std::map<int64_t, Slot> slots_;  // by uid
  compiler::Inputs inputs_ = compiler::Inputs::kExact;
  double relative_error_ = 0;  // that two right results may differ by
  Judge judge_;
  std::atomic<int64_t> trials_ = 0;
};

}  // namespace kiln::api
