// The attention_grad_sm80 engines: which groups they take, tiles, and the skeleton's text.
#include "compiler/engines/attention_grad_sm80.h"

#include <algorithm>

#include "compiler/engines/attention_functions.h"
#include "compiler/engines/attention_grad_problem.h"
#include "compiler/engines/attention_moves.h"
#include "compiler/engines/contract_mma.h"
#include "compiler/engines/knob_types.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using tile::Block;
using tile::Call;

// 0: what the device has room for.
constexpr int kWarpsDomain[] = {0, 4, 8};
constexpr int kStagesDomain[] = {0, 1, 2};
constexpr KnobRow kKnobs[] = {
    {.name = "warps", .cudnn_type = kKnobBlockSize, .domain = kWarpsDomain},
    {.name = "stages", .cudnn_type = kKnobStages, .domain = kStagesDomain},
};

constexpr int kPanel = 64, kMostDepth = 128, kQueries = 64, kWarpKeys = 16;
constexpr int kAlignment = 128;              // bytes, of what the skeleton lays out
constexpr int64_t kSectionBytes = 32 << 20;  // of q, dy and sums of the heads that run at one time

struct Plan : AttentionGradProblem {
  int warps = 8, stages = 2;
};

int64_t Elements(const Plan& p) {
  return 2 * int64_t{p.keys_tile} * p.depth + p.stages * 2 * int64_t{kQueries} * p.depth +
         int64_t{p.keys_tile} * kQueries + kAlignment / 2;
}
int64_t Statistics(const Plan& p) { return int64_t{p.stages} * 2 * kQueries; }
int64_t SharedBytes(const Plan& p) {
  return AlignUp(2 * Elements(p), 16) + AlignUp(4 * Statistics(p), 16) + 16;
}

void TakeTile(Plan& p, int warps, int stages) {
  p.warps = warps;
  p.stages = stages;
  p.keys_tile = kWarpKeys * warps;
}

Result<Plan> PlanOf(const Group& group, const Target& target, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(AttentionGradProblem problem, AttentionGradProblemOf(group, kMostDepth, kPanel));
  Plan p{std::move(problem)};
  p.queries_tile = kQueries;
  for (const auto& [warps, stages] : {std::pair{8, 2}, {4, 2}, {4, 1}}) {
    TakeTile(p, knobs[0] > 0 ? knobs[0] : warps, knobs[1] > 0 ? knobs[1] : stages);
    if (SharedBytes(p) <= target.shared_limit()) break;
  }
  return p;
}

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, Plan plan, bool is_ordered)
      : group_(group),
        g_(group.graph),
        target_(target),
        plan_(std::move(plan)),
        a_(plan_.grad),
        is_ordered_(is_ordered),
        b_(group, target,
           fmt::format("attention_grad_sm80: {} keys, blocks of {} queries{}", plan_.keys_tile,
                       kQueries, is_ordered ? ", in order" : ""),
           IndexTypeInMemory(group.graph)) {
    for (const char* reserved :
         {"bx", "shape", "query", "grad", "key", "value", "score", "inside", "factor", "limits",
          "weight", "scale", "rows", "store_keys", "store_values"})
      b_.Name(reserved);
    memory_ = b_.Name("memory");
    TakeSection(plan_, kSectionBytes, target_);
  }

  void Lower(Lowered& lowered) {
    const AttentionGradSums sums(group_, target_, plan_, "attention_grad_sm80", is_ordered_,
                                 Zeroes::kAll);
    sums.AddScratch(lowered);
    sums.AddZeroes(lowered);
    AddSkeleton(lowered);
    sums.AddConversion(lowered);
  }

 private:
  void AddSkeleton(Lowered& lowered) {
    const DType type = g_[a_.q].dtype;
    const int64_t rank = g_[a_.exp].rank();
    const std::string statistics = b_.Name("statistics"), next = b_.Name("next");
    Call call{.skeleton = "attention_grad_sm80",
              .maps = {},
              .buffers = {memory_, statistics, next,
                          b_.Scratch(AttentionGradSums::kSums, DType::kF32, false),
                          b_.Scratch(AttentionGradSums::kTurns, DType::kI32, false)}};
    const bool async[] = {AddLoad(call, "query", {a_.q, rank - 2, rank - 1}),
                          AddLoad(call, "grad", {a_.dy, rank - 2, rank - 1}),
                          AddLoad(call, "key", {a_.k, rank - 1, rank - 2}),
                          AddLoad(call, "value", {a_.v, rank - 1, rank - 2})};
    call.config = {{"kWarps", plan_.warps},
                   {"kQueries", kQueries},
                   {"kDepth", plan_.depth},
                   {"kStages", plan_.stages},
                   {"kAsync", async[0] + 2 * async[1] + 4 * async[2] + 8 * async[3]},
                   {"kReads", plan_.reads ? 1 : 0},
                   {"kOrdered", is_ordered_ ? 1 : 0},
                   {"kPackBf16", type == DType::kBF16 ? 1 : 0}};
    AddAttentionGradShape(b_, plan_, call);
    AttentionGradFunctions(b_, a_).Add(call);
    AddRowsStore(b_, call, "store_keys", a_.dk);
    AddRowsStore(b_, call, "store_values", a_.dv);
    const int64_t blocks = plan_.heads() * plan_.key_tiles();
    Block shared;
    shared.push_back({tile::Alloc{memory_, type, tile::Space::kShared, Elements(plan_)}});
    shared.push_back(
        {tile::Alloc{statistics, DType::kF32, tile::Space::kShared, Statistics(plan_)}});
    shared.push_back({tile::Alloc{next, DType::kI32, tile::Space::kShared, 1}});
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call), std::move(shared)), {blocks, 1, 1},
              32 * plan_.warps, lowered);
  }

  bool AddLoad(Call& call, const char* name, const OperandRows& rows) {
    return AddRowsLoad(b_, call, name, memory_, rows, OwnHeads(b_, rows.id));
  }

  const Group& group_;
  const Graph& g_;
  const Target& target_;
  Plan plan_;
  const AttentionGrad& a_;
  const bool is_ordered_;
  KernelBuilder b_;
  std::string memory_;
};

// ---- the engines' rows
// -------------------------------------------------------------------------------------

Status Supports(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kAttention)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no attention");
  if (!target.is_cuda() || target.sm_version < 80)
    return Status::Error(Code::kArchMismatch, "mma.m16n8k16 needs sm_80 or later, the target is {}",
                         target.arch);
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(group, target, DefaultKnobs(kAttentionGradSm80Engine)));
  if (SharedBytes(plan) > target.shared_limit())
    return Status::Error(Code::kSharedMemoryInsufficient,
                         "rows of {} take {} bytes of shared memory a block, {} has {}", plan.depth,
                         SharedBytes(plan), target.arch, target.shared_limit());
  return {};
}

template <bool is_ordered>
Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(Plan plan, PlanOf(group, target, knobs));
  Lowered lowered;
  Schedule(group, target, std::move(plan), is_ordered).Lower(lowered);
  return lowered;
}

// Five products at 0.45 of what mma.sync reaches.
constexpr double kClock = 1.6e9, kShare = 0.45, kBytesPerSecond = 2e12, kLaunchSeconds = 8e-6;
constexpr double kOrderedSpeed = 0.85, kOtherTiles = 0.9;

template <bool is_ordered>
double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  const auto plan = PlanOf(group, target, knobs);
  if (!plan.ok()) return kNoSeconds;
  const bool is_default = std::ranges::equal(knobs, DefaultKnobs(kAttentionGradSm80Engine));
  const double speed = 2 * MmaMultiplyAddsPerCycle(target) * target.multiprocessors * kClock *
                       kShare * (is_ordered ? kOrderedSpeed : 1) * (is_default ? 1 : kOtherTiles);
  return kLaunchSeconds + AttentionGradSeconds(*plan, speed, kBytesPerSecond);
}

int64_t SharedBytesOf(const Group& group, const Target& target, std::span<const int> knobs) {
  const auto plan = PlanOf(group, target, knobs);
  return plan.ok() ? SharedBytes(*plan) : 0;
}

std::vector<std::vector<int>> Candidates(const Group&, const Target&) {
  return {{0, 0}, {8, 2}, {8, 1}, {4, 2}, {4, 1}};
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};
constexpr int kNumerical[] = {kNoteTensorCore};
constexpr int kNumericalAtomic[] = {kNoteTensorCore, kNoteNondeterministic};

}  // namespace

const Engine kAttentionGradSm80Engine = {
    .name = "attention_grad_sm80",
    .version = 1,
    .knobs = kKnobs,
    .notes = {.numerical = kNumerical, .behavioral = kBehavior},
    .supports = Supports,
    .cost = Cost<true>,
    .lower = Lower<true>,
    .shared_bytes = SharedBytesOf,
    .candidates = Candidates};

const Engine kAttentionGradSm80AtomicEngine = {
    .name = "attention_grad_sm80_atomic",
    .version = 1,
    .knobs = kKnobs,
    .notes = {.numerical = kNumericalAtomic, .behavioral = kBehavior},
    .supports = Supports,
    .cost = Cost<false>,
    .lower = Lower<false>,
    .shared_bytes = SharedBytesOf,
    .candidates = Candidates,
    .any_order = KeepsSums};

}  // namespace kiln::compiler
