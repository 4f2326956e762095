// Questions that a client asks before it convolves: which algorithms there are, what workspace they
// want, and which is the fastest, by the model (Get…_v7) or by the clock (Find…). Reference 5.2.13
// to 5.2.16, 5.2.19 to 5.2.24, 6.2.9, 6.2.10 and 6.2.12 to 6.2.14.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <vector>

#include "api/legacy/calls/convolution.h"
#include "api/legacy/functions.h"
#include "api/spec/generation.h"
#include "ir/base/log.h"
#include "ir/base/threads.h"

namespace kiln::api::legacy {
namespace {

// The three structs of results differ in the type of `algo` alone.
using Perf = cudnnConvolutionFwdAlgoPerf_t;
static_assert(sizeof(Perf) == sizeof(cudnnConvolutionBwdDataAlgoPerf_t) &&
              sizeof(Perf) == sizeof(cudnnConvolutionBwdFilterAlgoPerf_t));

// Find says this where the workspace is too small, as the reference has it (5.1.2.2).
constexpr Code kTooLittle = Code::kDeviceAllocationFailed;

struct Finding {
  int algorithm = 0;
  Code code = Code::kOk;
  float milliseconds = -1;  // -1: not measured
  int64_t workspace_bytes = 0;
};

// The finding as the client's struct of this generation, whose statuses have numbers of their own.
Perf PerfOf(const Finding& finding, int math) {
  Perf perf = {};
  const int status = ThisGeneration().PublicStatus(finding.code);
  std::memcpy(&perf.algo, &finding.algorithm, sizeof perf.algo);
  std::memcpy(&perf.status, &status, sizeof perf.status);
  std::memcpy(&perf.mathType, &math, sizeof perf.mathType);
  perf.time = finding.milliseconds;
  perf.memory = static_cast<size_t>(finding.workspace_bytes);
  // Every engine that is chosen without being asked for sums in a fixed order.
  perf.determinism = finding.code == Code::kOk ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
  return perf;
}

// Checks the places of the answer. Get_v7 takes a count of none, and NULL for the count, which it
// fills up to.
Status CheckAnswer(int wanted, const void* results) {
  RETURN_IF_ERROR(NotNull(results, "perfResults"));
  if (wanted >= 0) return {};
  return Status::Error(Code::kBadParam, "requestedAlgoCount is {}", wanted);
}

// The best first; what failed behind.
Status Report(std::vector<Finding> findings, const ConvProblem& p, int wanted, int* returned,
              void* results) {
  RETURN_IF_ERROR(CheckAnswer(wanted, results));
  std::ranges::stable_sort(findings, {}, [](const Finding& f) {
    return std::pair(f.code != Code::kOk, f.milliseconds);
  });
  const size_t count = std::min(findings.size(), static_cast<size_t>(wanted));
  for (size_t i = 0; i < count; ++i) {
    const Perf perf = PerfOf(findings[i], p.conv.math);
    std::memcpy(static_cast<char*>(results) + i * sizeof perf, &perf, sizeof perf);
  }
  Store(returned, count);
  return {};
}

// A call of the algorithm as Run has it, with factors of 1 and 0.
class Candidate {
 public:
  Candidate(Handle& handle, const ConvProblem& problem, int algorithm, const ConvPointers& pointers)
      : problem_(problem), algorithm_(algorithm), call_(handle, RowOf(problem.direction).function) {
    operands_ = AddTo(call_, problem, algorithm, pointers);
  }

  // Made where it is not there.
  Result<std::shared_ptr<const CallPlan>> Plan() {
    RETURN_IF_ERROR(Scale());
    return call_.BestPlan(Make());
  }
  Result<int64_t> WorkspaceBytes() {
    ASSIGN_OR_RETURN(const std::shared_ptr<const CallPlan> plan, Plan());
    return plan->workspace_bytes();
  }
  Status Prepare() {
    RETURN_IF_ERROR(Scale());
    return call_.Prepare(Make());
  }
  // True if an engine computes as the algorithm is called.
  bool IsAsNamed() {
    const auto plan = Plan();
    return plan.ok() && (*plan)->is_as_wished();
  }
  Result<int64_t> MinReportedWorkspace() {
    RETURN_IF_ERROR(Scale());
    return call_.MinReportedWorkspace(Make());
  }
  // True if there are new records.
  bool Explore() {
    if (!Scale().ok()) return false;
    const Result<bool> found = call_.Explore(Make());
    return found.ok() && *found;
  }
  // Plans for the algorithm and x, of any alignment and factors.
  void Forget() {
    call_.Forget(sizeof(uintptr_t) + sizeof(ConvolutionDesc) + sizeof(int) + sizeof(TensorDesc));
  }
  Result<double> Seconds(const Workspace& workspace) {
    RETURN_IF_ERROR(Scale());
    return call_.Time(workspace, Make());
  }

 private:
  Status Scale() {
    if (scaled_) return {};
    static constexpr double kOne = 1, kZero = 0;
    static constexpr float kOneF = 1, kZeroF = 0;
    const Operand& result = problem_.direction == ConvDirection::kForward        ? operands_.y
                            : problem_.direction == ConvDirection::kBackwardData ? operands_.x
                                                                                 : operands_.w;
    const bool doubles = ComputeType(*result.desc) == DType::kF64;
    ASSIGN_OR_RETURN(blend_,
                     call_.Scaling(doubles ? static_cast<const void*>(&kOne) : &kOneF,
                                   doubles ? static_cast<const void*>(&kZero) : &kZeroF, result));
    scaled_ = true;
    return {};
  }
  MakeGraph Make() {
    return [this](CallGraph& g) {
      return MakeConvolution(g, problem_, algorithm_, operands_, blend_);
    };
  }

  const ConvProblem& problem_;
  const int algorithm_;
  Call call_;
  ConvOperands operands_;
  Blend blend_;
  bool scaled_ = false;
};

// True if the algorithm takes the problem with plans that no other algorithm has.
bool HasOwnPlans(Handle& handle, const ConvProblem& p, int algorithm) {
  if (!Check(p, algorithm).ok() || PlannedAs(p, algorithm) != algorithm) return false;
  return algorithm != RowOf(p.direction).winograd ||
         Candidate(handle, p, algorithm, {}).IsAsNamed();
}

// One finding for each algorithm. `ask` fills those that have plans of their own; names that share
// plans have what was found of them, behind them.
template <class Ask>
std::vector<Finding> FindingsOf(Handle& handle, const ConvProblem& p, Ask&& ask) {
  const DirectionRow& row = RowOf(p.direction);
  std::vector<Finding> findings;
  for (int algorithm = 0; algorithm < row.algorithms; ++algorithm) {
    Finding finding = {.algorithm = algorithm};
    if (const Status status = Check(p, algorithm); !status.ok()) {
      finding.code = status.code();
    } else if (HasOwnPlans(handle, p, algorithm)) {
      finding.code = ask(finding).code();
    } else {
      finding = findings.at(static_cast<size_t>(row.any_workspace));
      finding.algorithm = algorithm;
    }
    findings.push_back(finding);
  }
  return findings;
}

// Ranks by the model and the records: the algorithm with any workspace comes first, since its plan
// is the best one.
Status RankWithin(Handle& handle, const ConvProblem& p, int64_t workspace_bytes, int wanted,
                  int* returned, void* results) {
  const DirectionRow& row = RowOf(p.direction);
  RETURN_IF_ERROR(Check(p, row.any_workspace));
  std::vector<Finding> findings = FindingsOf(handle, p, [&](Finding& finding) -> Status {
    Candidate candidate(handle, p, finding.algorithm, {});
    ASSIGN_OR_RETURN(finding.workspace_bytes, candidate.WorkspaceBytes());
    if (finding.workspace_bytes <= workspace_bytes) return {};
    return Status::Error(kTooLittle, "{} bytes", finding.workspace_bytes);
  });
  std::ranges::stable_partition(findings, [&](const Finding& f) {
    return f.algorithm == row.any_workspace && f.code == Code::kOk;
  });
  return Report(std::move(findings), p, wanted, returned, results);
}

Status Rank(void* handle, ConvDirection direction, void* x, void* w, void* conv, void* y,
            int wanted, int* returned, void* results) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ConvProblem p, ProblemOf(direction, x, w, conv, y));
  return RankWithin(*h, p, INT64_MAX, wanted, returned, results);
}

Status WorkspaceSize(void* handle, ConvDirection direction, void* x, void* w, void* conv, void* y,
                     int algorithm, size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  ASSIGN_OR_RETURN(const ConvProblem p, ProblemOf(direction, x, w, conv, y));
  RETURN_IF_ERROR(Check(p, algorithm));
  Candidate candidate(*h, p, algorithm, {});
  ASSIGN_OR_RETURN(const int64_t wanted, candidate.WorkspaceBytes());
  *bytes = static_cast<size_t>(wanted);
  return {};
}

// False with KILN_LAUNCH=minimal, where nothing is timed, and no memory is allocated: Find ranks as
// Get does.
bool HasClock(const Handle& handle) { return !handle.session->target().minimal_launch; }

// The deadline of a small problem's Find, which may take 0.25 s: kernels that are there are loaded
// and timed in 0.07 at most (an H100's host).
using Deadline = std::chrono::steady_clock::time_point;
constexpr auto kWaitForCompilers = std::chrono::milliseconds(180);
Deadline SmallFindDeadline() { return std::chrono::steady_clock::now() + kWaitForCompilers; }

// FindPlan decides what a Find compiles and times. A small problem has little to give: where the
// algorithm that may take any workspace, whose plan is the model's best, is small and the client
// can run it, others that would have to be compiled are not, unless the model has them before it;
// and what is not compiled by the deadline is not waited for. The compilers go on, and the next
// Find, or the first run, has their kernels. What is said of algorithms that are not timed is the
// model's: as many times slower than the leading one.
class FindPlan {
 public:
  FindPlan(Handle& handle, const ConvProblem& p, const ConvPointers& pointers,
           int64_t workspace_bytes, Deadline deadline)
      : handle_(handle),
        problem_(p),
        pointers_(pointers),
        deadline_(deadline),
        leading_(RowOf(p.direction).any_workspace) {
    const auto lead = CandidateOf(leading_).Plan();
    if (!lead.ok() || (*lead)->workspace_bytes() > workspace_bytes) return;
    if (!handle.session->target().is_cuda()) return;  // compiling counts for nothing
    if ((*lead)->modelled_seconds() >= kSmallProblem) return;
    lead_seconds_ = (*lead)->modelled_seconds();
  }

  // True if its kernels are there, or compiled for this Find.
  bool IsWorthCompiling(int algorithm) {
    if (lead_seconds_ <= 0 || algorithm == leading_) return true;
    const auto plan = CandidateOf(algorithm).Plan();
    return !plan.ok() || (*plan)->modelled_seconds() < lead_seconds_ || (*plan)->is_compiled();
  }

  // Each algorithm's kernels are compiled by threads of their own, so that compilers work side by
  // side. What fails says so again when it is asked.
  void Compile() {
    std::vector<int> algorithms;
    for (int algorithm = 0; algorithm < RowOf(problem_.direction).algorithms; ++algorithm)
      if (HasOwnPlans(handle_, problem_, algorithm) && IsWorthCompiling(algorithm))
        algorithms.push_back(algorithm);
    if (lead_seconds_ > 0) {
      CompileUntilDeadline(algorithms);
    } else {
      const auto all = static_cast<int64_t>(algorithms.size());
      ForEachTogether(algorithms.size(), all,
                      [&](size_t i) { (void)CandidateOf(algorithms[i]).Prepare(); });
    }
  }

  Status Time(const Workspace& workspace, Finding& finding) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const CallPlan> plan,
                     CandidateOf(finding.algorithm).Plan());
    finding.workspace_bytes = plan->workspace_bytes();
    if (finding.workspace_bytes > workspace.bytes)
      return Status::Error(kTooLittle, "{} bytes", finding.workspace_bytes);
    ASSIGN_OR_RETURN(const double seconds,
                     IsLate(finding.algorithm) || !IsWorthCompiling(finding.algorithm)
                         ? Modelled(*plan, workspace)
                         : Measured(finding.algorithm, workspace));
    finding.milliseconds = static_cast<float>(seconds * 1e3);
    return {};
  }

 private:
  Candidate CandidateOf(int algorithm) const { return {handle_, problem_, algorithm, pointers_}; }

  bool IsLate(int algorithm) const { return std::ranges::count(late_, algorithm) > 0; }

  void CompileUntilDeadline(const std::vector<int>& algorithms) {
    std::vector<std::pair<int, std::shared_future<void>>> compiled;
    for (const int algorithm : algorithms)
      if (const auto plan = CandidateOf(algorithm).Plan(); plan.ok())
        compiled.emplace_back(algorithm, (*plan)->CompileBeside());
    for (const auto& [algorithm, done] : compiled)
      if (done.valid() && done.wait_until(deadline_) != std::future_status::ready)
        late_.push_back(algorithm);
    if (!late_.empty())
      LOG(kInfo,
          "Find answers before the kernels of {} algorithms are compiled, which goes on: their "
          "times are the model's",
          late_.size());
  }

  Result<double> Measured(int algorithm, const Workspace& workspace) {
    if (algorithm == leading_ && lead_measured_) return *lead_measured_;
    ASSIGN_OR_RETURN(const double seconds, CandidateOf(algorithm).Seconds(workspace));
    if (algorithm == leading_) lead_measured_ = seconds;
    return seconds;
  }
  Result<double> Modelled(const CallPlan& plan, const Workspace& workspace) {
    if (IsLate(leading_)) return plan.modelled_seconds();
    ASSIGN_OR_RETURN(const double seconds, Measured(leading_, workspace));
    return seconds * plan.modelled_seconds() / lead_seconds_;
  }

  Handle& handle_;
  const ConvProblem& problem_;
  const ConvPointers pointers_;
  const Deadline deadline_;
  const int leading_;
  double lead_seconds_ = 0;  // by the model; 0: all algorithms are compiled and timed
  std::vector<int> late_;    // not compiled by the deadline
  std::optional<double> lead_measured_;
};

// Configurations that are not on record are measured and recorded, while the kernels of the other
// algorithms are compiled; plans that were made before give way to what is faster.
void Explore(Handle& handle, const ConvProblem& p, FindPlan& find) {
  const DirectionRow& row = RowOf(p.direction);
  std::future<void> plans = Async([&] { find.Compile(); });
  bool is_news = false;
  for (const int algorithm : {row.any_workspace, row.winograd})
    if (HasOwnPlans(handle, p, algorithm) && find.IsWorthCompiling(algorithm))
      is_news |= Candidate(handle, p, algorithm, {}).Explore();
  plans.get();
  if (!is_news) return;
  for (int algorithm = 0; algorithm < row.algorithms; ++algorithm)
    Candidate(handle, p, algorithm, {}).Forget();
}

// Ranks by the clock, on the client's memory.
Status Find(Handle& handle, const ConvProblem& p, const ConvPointers& pointers,
            const Workspace& workspace, Deadline deadline, int wanted, int* returned,
            void* results) {
  RETURN_IF_ERROR(Check(p, RowOf(p.direction).any_workspace));
  FindPlan find(handle, p, pointers, workspace.bytes, deadline);
  find.Compile();
  std::vector<Finding> findings =
      FindingsOf(handle, p, [&](Finding& finding) { return find.Time(workspace, finding); });
  return Report(std::move(findings), p, wanted, returned, results);
}

Status FindOn(void* handle, ConvDirection direction, void* x_desc, const void* x, void* w_desc,
              const void* w, void* conv, void* y_desc, const void* y, int wanted, int* returned,
              void* results, void* workspace, size_t workspace_bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  for (const void* memory : {x, w, y}) RETURN_IF_ERROR(NotNull(memory, "memory of a tensor"));
  ASSIGN_OR_RETURN(const ConvProblem p, ProblemOf(direction, x_desc, w_desc, conv, y_desc));
  const int64_t bytes = workspace == nullptr ? 0 : static_cast<int64_t>(workspace_bytes);
  if (!HasClock(*h)) return RankWithin(*h, p, bytes, wanted, returned, results);
  RETURN_IF_ERROR(CheckAnswer(wanted, results));
  const ConvPointers pointers = {.x = x, .w = w, .y = y};
  const Deadline deadline = SmallFindDeadline();
  FindPlan find(*h, p, pointers, bytes, deadline);
  Explore(*h, p, find);
  return Find(*h, p, pointers, {.data = workspace, .bytes = bytes, .is_parameter = true}, deadline,
              wanted, returned, results);
}

// Finds on memory of its own, which the reference has it allocate.
Status FindAlone(void* handle, ConvDirection direction, void* x, void* w, void* conv, void* y,
                 int wanted, int* returned, void* results) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ConvProblem p, ProblemOf(direction, x, w, conv, y));
  if (!HasClock(*h)) return RankWithin(*h, p, INT64_MAX, wanted, returned, results);
  RETURN_IF_ERROR(Check(p, RowOf(direction).any_workspace));
  RETURN_IF_ERROR(CheckAnswer(wanted, results));
  const Deadline deadline = SmallFindDeadline();
  FindPlan find(*h, p, {}, INT64_MAX, deadline);
  Explore(*h, p, find);
  // As much as any of them wants.
  int64_t workspace_bytes = 0;
  for (int algorithm = 0; algorithm < RowOf(direction).algorithms; ++algorithm) {
    if (!HasOwnPlans(*h, p, algorithm)) continue;
    ASSIGN_OR_RETURN(const int64_t bytes, Candidate(*h, p, algorithm, {}).WorkspaceBytes());
    workspace_bytes = std::max(workspace_bytes, bytes);
  }
  std::vector<std::shared_ptr<void>> memory;
  for (const TensorDesc* tensor : {&p.x, &p.w, &p.y}) {
    ASSIGN_OR_RETURN(std::shared_ptr<void> lent,
                     h->session->AllocateForTiming(Span(*tensor) * ElementBytes(tensor->type)));
    memory.push_back(std::move(lent));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<void> workspace,
                   h->session->AllocateForTiming(std::max<int64_t>(workspace_bytes, 1)));
  return Find(*h, p, {.x = memory[0].get(), .w = memory[1].get(), .y = memory[2].get()},
              {.data = workspace.get(), .bytes = workspace_bytes, .is_parameter = true}, deadline,
              wanted, returned, results);
}

Status MaxCount(void* handle, ConvDirection direction, int* count) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  RETURN_IF_ERROR(NotNull(count, "the place for the count"));
  *count = RowOf(direction).results;
  return {};
}

}  // namespace

Result<int64_t> MinReportedWorkspace(Handle& handle, const ConvProblem& problem, int algorithm) {
  return Candidate(handle, problem, algorithm, {}).MinReportedWorkspace();
}

// ---- forward

Status GetConvolutionForwardAlgorithmMaxCount(void* handle, int* count) {
  return MaxCount(handle, ConvDirection::kForward, count);
}
Status GetConvolutionForwardAlgorithm_v7(void* handle, void* x, void* w, void* conv, void* y,
                                         int wanted, int* returned, void* results) {
  return Rank(handle, ConvDirection::kForward, x, w, conv, y, wanted, returned, results);
}
Status GetConvolutionForwardWorkspaceSize(void* handle, void* x, void* w, void* conv, void* y,
                                          int algorithm, size_t* bytes) {
  return WorkspaceSize(handle, ConvDirection::kForward, x, w, conv, y, algorithm, bytes);
}
Status FindConvolutionForwardAlgorithm(void* handle, void* x, void* w, void* conv, void* y,
                                       int wanted, int* returned, void* results) {
  return FindAlone(handle, ConvDirection::kForward, x, w, conv, y, wanted, returned, results);
}
Status FindConvolutionForwardAlgorithmEx(void* handle, void* x_desc, const void* x, void* w_desc,
                                         const void* w, void* conv, void* y_desc, void* y,
                                         int wanted, int* returned, void* results, void* workspace,
                                         size_t workspace_bytes) {
  return FindOn(handle, ConvDirection::kForward, x_desc, x, w_desc, w, conv, y_desc, y, wanted,
                returned, results, workspace, workspace_bytes);
}

// ---- backward data

Status GetConvolutionBackwardDataAlgorithmMaxCount(void* handle, int* count) {
  return MaxCount(handle, ConvDirection::kBackwardData, count);
}
Status GetConvolutionBackwardDataAlgorithm_v7(void* handle, void* w, void* dy, void* conv, void* dx,
                                              int wanted, int* returned, void* results) {
  return Rank(handle, ConvDirection::kBackwardData, dx, w, conv, dy, wanted, returned, results);
}
Status GetConvolutionBackwardDataWorkspaceSize(void* handle, void* w, void* dy, void* conv,
                                               void* dx, int algorithm, size_t* bytes) {
  return WorkspaceSize(handle, ConvDirection::kBackwardData, dx, w, conv, dy, algorithm, bytes);
}
Status FindConvolutionBackwardDataAlgorithm(void* handle, void* w, void* dy, void* conv, void* dx,
                                            int wanted, int* returned, void* results) {
  return FindAlone(handle, ConvDirection::kBackwardData, dx, w, conv, dy, wanted, returned,
                   results);
}
Status FindConvolutionBackwardDataAlgorithmEx(void* handle, void* w_desc, const void* w,
                                              void* dy_desc, const void* dy, void* conv,
                                              void* dx_desc, void* dx, int wanted, int* returned,
                                              void* results, void* workspace,
                                              size_t workspace_bytes) {
  return FindOn(handle, ConvDirection::kBackwardData, dx_desc, dx, w_desc, w, conv, dy_desc, dy,
                wanted, returned, results, workspace, workspace_bytes);
}

// ---- backward filter

Status GetConvolutionBackwardFilterAlgorithmMaxCount(void* handle, int* count) {
  return MaxCount(handle, ConvDirection::kBackwardFilter, count);
}
Status GetConvolutionBackwardFilterAlgorithm_v7(void* handle, void* x, void* dy, void* conv,
                                                void* dw, int wanted, int* returned,
                                                void* results) {
  return Rank(handle, ConvDirection::kBackwardFilter, x, dw, conv, dy, wanted, returned, results);
}
Status GetConvolutionBackwardFilterWorkspaceSize(void* handle, void* x, void* dy, void* conv,
                                                 void* dw, int algorithm, size_t* bytes) {
  return WorkspaceSize(handle, ConvDirection::kBackwardFilter, x, dw, conv, dy, algorithm, bytes);
}
Status FindConvolutionBackwardFilterAlgorithm(void* handle, void* x, void* dy, void* conv, void* dw,
                                              int wanted, int* returned, void* results) {
  return FindAlone(handle, ConvDirection::kBackwardFilter, x, dw, conv, dy, wanted, returned,
                   results);
}
Status FindConvolutionBackwardFilterAlgorithmEx(void* handle, void* x_desc, const void* x,
                                                void* dy_desc, const void* dy, void* conv,
                                                void* dw_desc, void* dw, int wanted, int* returned,
                                                void* results, void* workspace,
                                                size_t workspace_bytes) {
  return FindOn(handle, ConvDirection::kBackwardFilter, x_desc, x, dw_desc, dw, conv, dy_desc, dy,
                wanted, returned, results, workspace, workspace_bytes);
}

}  // namespace kiln::api::legacy
