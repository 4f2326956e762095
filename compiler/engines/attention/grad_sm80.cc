// attention_grad_sm80, attention_grad_sm80_atomic, attention_grad_sm80_tf32,
// attention_grad_sm80_f32: gradients of attention on mma.sync.
//
// Takes: from sm_80 on, operands of 16 or 8 bits with any strides, also computed ones, as many
// heads of k and v as of each other, with the gradient of a bias; rows of up to 256, those of v as
// wide as they like. The last two take f32 operands, rounded to TF32 or exact, with rows as long as
// shared memory allows.
//
// How: five products. A block has 64 or 128 keys, a warp 32 of them and half of the queries (a
// quarter beyond rows of 128), then as much of the columns, for which two or four warps exchange
// weights and slopes. It adds to dq in the order of keys or in any order (_atomic); kernels beside
// its own are those of `attention_grad_sm90`. In f32, sums of dq are rows with the scale in them,
// which lie in dq itself where it has whole rows one behind another, and one tile that has all keys
// stores dq with no zeroes before.
//
// Wins: on sm_80 to sm_89 and on Blackwell, for f32, and for layouts that tensor maps do not read.
//
// Declines: unequal types; rows longer than 256; tiles that registers or shared memory do not hold.
#include <algorithm>
#include <limits>

#include "compiler/engines/attention/engines.h"
#include "compiler/engines/attention/family.h"
#include "compiler/engines/attention/grad_functions.h"
#include "compiler/engines/attention/grad_sums.h"
#include "compiler/engines/attention/moves.h"
#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/machine/machine.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using tile::Block;
using tile::Call;

// 0: what the device has room for.
constexpr int kWarpsDomain[] = {0, 4, 8};
constexpr int kStagesDomain[] = {0, 1, 2};
constexpr KnobRow kKnobRows[] = {
    {.name = "warps", .cudnn_type = kKnobBlockSize, .domain = kWarpsDomain},
    {.name = "stages", .cudnn_type = kKnobStages, .domain = kStagesDomain},
};

constexpr int kPanel = 64, kMostDepth = 256, kWarpKeys = 32;
constexpr int kLeastColumns = 16;            // of a product
constexpr int kAlignment = 128;              // bytes, of what the skeleton lays out
constexpr int64_t kSectionBytes = 32 << 20;  // of q, dy and sums of the heads that run at one time

using Arithmetic = AttentionArithmetic;

struct GradSm80 {
  static constexpr std::span<const KnobRow> kKnobs = kKnobRows;
  static constexpr auto kRunsOn = RunsOnMma;

  struct Plan : AttentionGradProblem {
    int warps = 8, stages = 2, share = 2;
    Arithmetic arithmetic = Arithmetic::k16;
    int element_bytes() const { return is_wide ? 4 : 2; }  // in shared memory
  };
  static Result<Plan> PlanOf(const Group& group, Arithmetic arithmetic);
  static Status TakeTile(Plan& p, const Target& target, std::span<const int> knobs);
  static int64_t SharedBytes(const Plan& p);
  static std::vector<std::vector<int>> Others(const Plan&) {
    return {{8, 2}, {8, 1}, {4, 2}, {4, 1}};
  }
};
using Plan = GradSm80::Plan;

int64_t Elements(const Plan& p) {
  const int64_t keys = p.keys_tile, queries = p.queries_tile;
  // k and v, q and dy, weights that warps exchange, and the slopes of two steps.
  return (keys + p.stages * queries) * (p.depth + p.width) +
         (p.share > 1 ? 3 : 2) * keys * queries + kAlignment / p.element_bytes();
}
// Two of each row, and flags (kOfStage of the skeleton).
int64_t Statistics(const Plan& p) { return int64_t{p.stages} * (2 * p.queries_tile + 4); }
// Bytes of a step, or first of all k or v, before they are widened.
int64_t ByteElements(const Plan& p) {
  if (!p.has_bytes) return 0;
  return std::max<int64_t>(int64_t{p.keys_tile} * std::max(p.depth, p.width),
                           int64_t{p.queries_tile} * (p.depth + p.width));
}
int64_t GradSm80::SharedBytes(const Plan& p) {
  return AlignUp(p.element_bytes() * Elements(p), 16) + AlignUp(4 * Statistics(p), 16) + 16 +
         ByteElements(p);
}

// Tiles to choose from by what has room, the fastest first. Blocks of 128 queries need the
// registers that columns of dk and dv take at depth 128; beyond that more warps share them.
struct GradTile {
  int warps, stages, queries, most_depth, share;
};
constexpr GradTile kTiles[] = {{8, 2, 128, 64, 2}, {8, 2, 64, 128, 2}, {8, 1, 64, 128, 2},
                               {4, 2, 64, 128, 2}, {4, 1, 64, 128, 2}, {8, 2, 64, 256, 4},
                               {8, 1, 64, 256, 4}};
// Tiles for f32, whose rows are twice as long.
constexpr GradTile kWideTiles[] = {{4, 1, 32, 64, 1},  {8, 1, 64, 64, 2},  {4, 1, 32, 64, 2},
                                   {8, 1, 32, 128, 2}, {8, 1, 64, 128, 4}, {4, 1, 64, 128, 4},
                                   {2, 1, 32, 128, 2}, {4, 1, 64, 256, 4}, {2, 1, 32, 256, 2}};

Result<Plan> GradSm80::PlanOf(const Group& group, Arithmetic arithmetic) {
  const bool is_wide = arithmetic != Arithmetic::k16;
  ASSIGN_OR_RETURN(AttentionGradProblem problem,
                   AttentionGradProblemOf(group, kMostDepth, kPanel,
                                          is_wide ? OperandBits::k32 : OperandBits::k16Or8));
  Plan p{std::move(problem)};
  p.arithmetic = arithmetic;
  if (p.key_pairs != p.value_pairs)
    return Status::Error(Code::kUnsupportedShape,
                         "{} and {} have {} and {} heads; tiles are of one",
                         group.graph[p.grad.k].name, group.graph[p.grad.v].name,
                         p.inner / p.key_pairs, p.inner / p.value_pairs);
  // Columns that a warp has lie in one panel.
  for (int* columns : {&p.depth, &p.width})
    if (*columns > 2 * kPanel) *columns = static_cast<int>(AlignUp(*columns, 2 * kPanel));
  return p;
}

Status GradSm80::TakeTile(Plan& p, const Target& target, std::span<const int> knobs) {
  const std::span<const GradTile> tiles =
      p.is_wide ? std::span<const GradTile>(kWideTiles) : std::span<const GradTile>(kTiles);
  bool is_one = false;
  for (const GradTile& tile : tiles) {
    if (std::max(p.depth, p.width) > tile.most_depth) continue;
    if (p.is_wide && knobs[0] > 0 && knobs[0] != tile.warps) continue;
    // Columns of dq that a warp makes of 32 queries.
    if (p.depth * (tile.queries / kWarpKeys) / tile.warps % kLeastColumns != 0) continue;
    is_one = true;
    p.warps = knobs[0] > 0 ? knobs[0] : tile.warps;
    p.stages = knobs[1] > 0 ? knobs[1] : tile.stages;
    p.queries_tile = tile.queries;
    p.share = tile.share;
    p.keys_tile = kWarpKeys * p.warps / p.share;
    if (SharedBytes(p) <= target.shared_limit()) break;
  }
  if (!is_one)
    return Status::Error(Code::kUnsupportedShape, "{} warps have no tile for rows of {}", knobs[0],
                         std::max(p.depth, p.width));
  return {};
}

// By arithmetic.
constexpr const char* kNames[] = {"attention_grad_sm80", "attention_grad_sm80_tf32",
                                  "attention_grad_sm80_f32"};
const char* NameOf(const Plan& p) { return kNames[static_cast<size_t>(p.arithmetic)]; }

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
           fmt::format("{}: {} keys, blocks of {} queries{}", NameOf(plan_), plan_.keys_tile,
                       plan_.queries_tile, is_ordered ? ", in order" : ""),
           IndexTypeInMemory(group.graph)) {
    for (const char* reserved : {"bx", "shape", "query", "grad", "key", "value", "store_keys",
                                 "store_values", "finish_keys", "finish_values"})
      b_.Name(reserved);
    for (const char* reserved : kAttentionGradFunctions) b_.Name(reserved);
    memory_ = to_load_ = b_.Name("memory");
    TakeSumsPlace(plan_, g_);
    TakeSection(plan_, kSectionBytes, target_);
  }

  void Lower(Lowered& lowered) {
    const AttentionGradSums sums(group_, target_, plan_, NameOf(plan_), is_ordered_, Zeroes::kAll);
    sums.AddScratch(lowered);
    sums.AddZeroes(lowered);
    sums.AddLargestStarts(lowered);
    if (plan_.bias_sums > 0) sums.AddBiasZeroes(lowered);
    AddSkeleton(lowered);
    sums.AddConversion(lowered);
    if (plan_.bias_sums > 0) sums.AddBiasConversion(lowered);
    AddRowSums(group_, plan_.grad, target_, lowered);
  }

 private:
  void AddSkeleton(Lowered& lowered) {
    const DType type = plan_.has_bytes ? DType::kF16 : g_[a_.q].dtype;
    const int64_t rank = g_[a_.exp].rank();
    const std::string statistics = b_.Name("statistics"), next = b_.Name("next");
    Call call{.skeleton = "attention_grad_sm80", .maps = {}, .buffers = {memory_}};
    if (plan_.has_bytes) AddBytes(call);
    for (const std::string& buffer : {statistics, next, AttentionGradSums::Sums(b_, plan_, false),
                                      b_.Scratch(AttentionGradSums::kTurns, DType::kI32, false)})
      call.buffers.push_back(buffer);
    const bool async[] = {AddLoad(call, "query", {a_.q, rank - 2, rank - 1}),
                          AddLoad(call, "grad", {a_.dy, rank - 2, rank - 1}),
                          AddLoad(call, "key", {a_.k, rank - 1, rank - 2}),
                          AddLoad(call, "value", {a_.v, rank - 1, rank - 2})};
    call.config = {{attention::kWarps, plan_.warps},
                   {attention::kQueries, plan_.queries_tile},
                   {attention::kShare, plan_.share},
                   {attention::kDepth, plan_.depth},
                   {attention::kWidth, plan_.width},
                   {attention::kStages, plan_.stages},
                   {attention::kAsync, async[0] + 2 * async[1] + 4 * async[2] + 8 * async[3]},
                   {attention::kReads, plan_.reads ? 1 : 0},
                   {attention::kOrdered, is_ordered_ ? 1 : 0},
                   {attention::kAlone, plan_.is_alone ? 1 : 0},
                   {attention::kF32, static_cast<int>(plan_.arithmetic)},
                   {attention::kBeside, 0},
                   {attention::kBiasQuads, 0},
                   {attention::kPackBf16, type == DType::kBF16 ? 1 : 0}};
    AddAttentionGradShape(b_, plan_, call);
    AttentionGradFunctions(b_, a_).Add(
        call, plan_.bias_sums > 0 ? b_.Scratch(AttentionGradSums::kBiasSums, DType::kF32, false)
                                  : std::string());
    AddRowsStore(b_, call, "store_keys", a_.dk, ScatterOf(g_, a_, a_.dk));
    AddRowsStore(b_, call, "store_values", a_.dv, ScatterOf(g_, a_, a_.dv));
    if (plan_.has_bytes) AttentionGradFunctions(b_, a_).AddFinishes(call);
    const int64_t blocks = plan_.heads() * plan_.key_tiles();
    Block shared;
    shared.push_back({tile::Alloc{memory_, type, tile::Space::kShared, Elements(plan_)}});
    shared.push_back(
        {tile::Alloc{statistics, DType::kF32, tile::Space::kShared, Statistics(plan_)}});
    shared.push_back({tile::Alloc{next, DType::kI32, tile::Space::kShared, 1}});
    if (plan_.has_bytes)
      shared.push_back(
          {tile::Alloc{to_load_, g_[a_.q].dtype, tile::Space::kShared, ByteElements(plan_)}});
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call), std::move(shared)), {blocks, 1, 1},
              32 * plan_.warps, lowered);
  }

  bool AddLoad(Call& call, const char* name, const OperandRows& rows) {
    return AddRowsLoad(b_, call, name, to_load_, rows, OwnHeads(b_, rows.id));
  }
  // Adds the buffer where bytes come to, and the largest absolute values; the buffer stands for
  // those that nobody asks for.
  void AddBytes(Call& call) {
    to_load_ = b_.Name("bytes");
    call.buffers.push_back(to_load_);
    for (const auto& largest : {a_.largest_slope, a_.of_dk.largest, a_.of_dv.largest})
      call.buffers.push_back(largest ? b_.Pointer(largest->result) : to_load_);
  }

  const Group& group_;
  const Graph& g_;
  const Target& target_;
  Plan plan_;
  const AttentionGrad& a_;
  const bool is_ordered_;
  KernelBuilder b_;
  std::string memory_, to_load_;  // panels, and what operands are copied to
};

// ---- the engines' rows

// Five products at half of what mma.sync reaches, and half of a copy's rate for sums of dq.
constexpr double kShare = 0.47, kShareOfMemory = 0.49;
constexpr double kOrderedSpeed = 0.85, kOtherTiles = 0.9;

template <bool is_ordered, Arithmetic arithmetic = Arithmetic::k16>
struct Sums : GradSm80 {
  static constexpr const char* kName =
      is_ordered ? kNames[static_cast<size_t>(arithmetic)] : "attention_grad_sm80_atomic";
  static constexpr int kVersion = arithmetic == Arithmetic::k16 ? 5 : 1;
  static constexpr auto kArithmetic = arithmetic;
  static constexpr decltype(Engine::any_order) kAnyOrder = is_ordered ? nullptr : KeepsSums;

  static Result<Plan> PlanOf(const Group& group) { return GradSm80::PlanOf(group, arithmetic); }
  static double Seconds(const Plan& plan, const Target& target, bool is_default) {
    const Machine machine = MachineOf(target);
    const double speed = 2 * ProductsPerCycle(target, arithmetic) * machine.multiprocessors *
                         machine.clock * kShare * (is_ordered ? kOrderedSpeed : 1) *
                         (is_default ? 1 : kOtherTiles);
    return kAttentionGradKernels * machine.StartSeconds() +
           AttentionGradSeconds(plan, speed, machine.memory * kShareOfMemory);
  }
  static void Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered) {
    Schedule(group, target, std::move(plan), is_ordered).Lower(lowered);
  }
};

}  // namespace

const Engine kAttentionGradSm80Engine = AttentionEngine<Sums<true>>::Row();
const Engine kAttentionGradSm80AtomicEngine = AttentionEngine<Sums<false>>::Row();
const Engine kAttentionGradSm80Tf32Engine = AttentionEngine<Sums<true, Arithmetic::kTf32>>::Row();
const Engine kAttentionGradSm80F32Engine = AttentionEngine<Sums<true, Arithmetic::k3xTf32>>::Row();

}  // namespace kiln::compiler
