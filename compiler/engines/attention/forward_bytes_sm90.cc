// attention_bytes_sm90: attention of 8-bit floats on Hopper.
//
// Takes: on sm_90, q, k, v and weights of e4m3 or e5m2 that tensor maps can read, results of 8 bits
// or f16, absolute maxima of weights and results; rows of up to 256.
//
// How: both products on wgmma of 8 bits. Weights are rounded behind the division by the sum, as the
// graph says, so that scores are multiplied twice. wgmma wants v with keys side by side: two warps
// of the producer turn it around in shared memory, in the order in which weights lie in registers.
// Skeleton: attention_bytes_sm90.cuh.
//
// Wins: over `attention_sm80`, which widens operands to f16: 206 us for 466 at (2,16,2048,128),
// full (H200 and H100; cuDNN 9.19, which rounds weights before the division, 107).
//
// Declines: other types; operands that are not in memory; other GPUs.
#include <algorithm>

#include "compiler/engines/attention/engines.h"
#include "compiler/engines/attention/family.h"
#include "compiler/engines/attention/functions.h"
#include "compiler/engines/attention/moves.h"
#include "compiler/engines/attention/problem.h"
#include "compiler/engines/attention/wgmma.h"
#include "compiler/kernel/group_checks.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using tile::Call;

// 0: what the table says for the depth.
constexpr int kKeysDomain[] = {0, 32, 64, 128};  // a swizzle has these widths
constexpr int kStagesDomain[] = {0, 2, 3};
constexpr KnobRow kKnobRows[] = {
    {.name = "groups", .cudnn_type = kKnobTileRows, .domain = kWgmmaGroupsDomain},
    {.name = "tile_keys", .cudnn_type = kKnobTileN, .domain = kKeysDomain},
    {.name = "stages", .cudnn_type = kKnobStages, .domain = kStagesDomain},
    {.name = "ping_pong", .cudnn_type = kKnobWarpSpecialisation, .domain = kWgmmaTurnsDomain},
};
enum { kGroupsKnob, kKeysKnob, kStagesKnob, kTurnsKnob };

constexpr int kRow = 128;   // bytes of a panel's row: of q and k, and of v as it lies
constexpr int kPanel = 64;  // columns of results that are whole
constexpr int kAlignment = 1024;
constexpr int kStagingBytes = 64 * 32 * 4;  // of a group's results

// By the number of consumer groups.
constexpr RegisterSplit kRegisters[] = {{}, {0, 0, 176}, {40, 232, 176}, {32, 160, 112}};

// By the deeper of the two operands.
struct TileRow {
  int depth;
  WgmmaTile tile;
};
constexpr TileRow kTiles[] = {
    {64, {3, 128, true}}, {128, {2, 128, true}}, {192, {2, 128, true}}, {256, {2, 64, true}}};
constexpr int kStages = 2;

struct BytesSm90 {
  static constexpr const char* kName = "attention_bytes_sm90";
  static constexpr int kVersion = 1;
  static constexpr auto kArithmetic = AttentionArithmetic::k16;
  static constexpr std::span<const KnobRow> kKnobs = kKnobRows;
  static constexpr auto kRunsOn = RunsOnWgmma;
  static constexpr decltype(Engine::any_order) kAnyOrder = nullptr;

  struct Plan {
    AttentionProblem problem = {};
    int depth = 0, width = 0;  // of q and k, in whole rows; of v, in whole panels
    WgmmaTile tile = {};
    int stages = kStages;
    TensorMapSpec q = {}, k = {}, v = {};
    // Registers of a thread that hold O, S and weights.
    int used() const { return width / 2 + tile.keys / 2 + tile.keys / 8; }
    const RegisterSplit& registers() const { return kRegisters[tile.groups]; }
  };
  static Result<Plan> PlanOf(const Group& group);
  static Status TakeTile(Plan& p, const Target& target, std::span<const int> knobs);
  static int64_t SharedBytes(const Plan& p);
  static double Seconds(const Plan& p, const Target& target, bool is_default);
  static std::vector<std::vector<int>> Others(const Plan& p);
  static void Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered);
};
using Plan = BytesSm90::Plan;

int64_t BytesSm90::SharedBytes(const Plan& p) {
  const int64_t groups = p.tile.groups, stages = p.stages, keys = p.tile.keys;
  const int64_t turned = groups * (64 * p.depth + kStagingBytes + kWgmmaSlotBytes) +
                         stages * keys * (p.depth + p.width) + 8 * (4 * stages + 2 * groups);
  const int64_t lying = stages * keys * AlignUp(p.width, kRow);
  return AlignUp(turned, kAlignment) + lying + 16 * stages + kAlignment;
}

Result<Plan> BytesSm90::PlanOf(const Group& group) {
  const Graph& g = group.graph;
  Plan p;
  ASSIGN_OR_RETURN(p.problem, AttentionProblemOf(group, kMostWgmmaDepth, OperandBits::k16Or8));
  const Attention& a = p.problem.attention;
  for (const graph::TensorId id : {a.q, a.weight, a.result})
    if (EightBits(g[id].dtype) == 0)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}; it would have 8 bits", g[id].name,
                           Info(g[id].dtype).text);
  RETURN_IF_ERROR(CheckInMemory(g, {a.q, a.k, a.v}));
  p.depth = static_cast<int>(AlignUp(p.problem.depth, kRow));
  p.width = static_cast<int>(AlignUp(p.problem.width, kPanel));
  const int64_t rank = g[a.score].rank();
  ASSIGN_OR_RETURN(p.q, AttentionMapOf(g[a.q], rank - 2, rank - 1, 64));
  ASSIGN_OR_RETURN(p.k, AttentionMapOf(g[a.k], rank - 1, rank - 2, 64));
  ASSIGN_OR_RETURN(p.v, AttentionMapOf(g[a.v], rank - 2, rank - 1, 64));
  return p;
}

Status BytesSm90::TakeTile(Plan& p, const Target&, std::span<const int> knobs) {
  const int depth = std::max(p.depth / 2, p.width);
  p.tile = std::ranges::find_if(kTiles, [&](const TileRow& r) { return depth <= r.depth; })->tile;
  p.tile.Take(knobs[kGroupsKnob], knobs[kKeysKnob], knobs[kTurnsKnob]);
  if (knobs[kStagesKnob] > 0) p.stages = knobs[kStagesKnob];
  RETURN_IF_ERROR(CheckRegisters(p.tile, p.used(), p.width, p.registers()));
  for (TensorMapSpec* map : {&p.k, &p.v}) map->box[1] = p.tile.keys;
  return {};
}

// ---- the kernel

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, Plan plan)
      : group_(group),
        g_(group.graph),
        target_(target),
        plan_(std::move(plan)),
        a_(plan_.problem.attention),
        b_(group, target,
           fmt::format("attention_bytes_sm90: {} x 64 queries, blocks of {} keys{}",
                       plan_.tile.groups, plan_.tile.keys,
                       plan_.tile.ping_pong ? ", in turns" : ""),
           IndexTypeInMemory(group.graph)) {
    for (const char* reserved : {"bx", "shape", "score", "inside", "factor", "limits", "weight",
                                 "random", "finish", "rows", "first", "store"})
      b_.Name(reserved);
  }

  void Lower(Lowered& lowered) {
    const int64_t bytes = BytesSm90::SharedBytes(plan_);
    const std::string memory = b_.Name("memory");
    Call call{.skeleton = "attention_bytes_sm90",
              .maps = {b_.Map("q_map", a_.q, plan_.q), b_.Map("k_map", a_.k, plan_.k),
                       b_.Map("v_map", a_.v, plan_.v)},
              .buffers = {memory}};
    // The memory stands for what nobody asks for.
    for (const auto& largest : {a_.largest_weight, a_.largest_result})
      call.buffers.push_back(largest ? b_.Pointer(largest->result) : memory);
    AddLargestStart(group_, target_, LargestStarts(a_), BytesSm90::kName, lowered);
    call.wgmma = {.columns = plan_.tile.keys, .type = g_[a_.q].dtype, .right_type = g_[a_.k].dtype};
    call.second = Call::Wgmma{.columns = plan_.width,
                              .type = g_[a_.weight].dtype,
                              .right_type = g_[a_.v].dtype,
                              .left_in_registers = true};
    AddWgmmaConfig(plan_.problem, plan_.tile, plan_.registers(),
                   {.depth = plan_.depth / 2,
                    .width = plan_.width,
                    .stages = plan_.stages,
                    .bytes = bytes,
                    .packed = DType::kF16},
                   call);
    const int64_t tiles =
        AddAttentionShape(b_, plan_.problem, 64 * plan_.tile.groups, target_, true, call);
    AddSharing(b_, a_, call);
    AttentionFunctions(b_, a_).Add(call);
    AddRowsStore(b_, call, "store", a_.result, ScatterOf(g_, a_, a_.result));
    tile::Block before;
    before.push_back({tile::Alloc{memory, DType::kF16, tile::Space::kShared, bytes / 2}});
    const int64_t blocks = std::min<int64_t>(tiles, target_.multiprocessors);
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call), std::move(before)), {blocks, 1, 1},
              128 * (plan_.tile.groups + 1), lowered, 1);
  }

 private:
  const Group& group_;
  const Graph& g_;
  const Target& target_;
  const Plan plan_;
  const Attention& a_;
  KernelBuilder b_;
};

// ---- the engine's row

// Products as one of 16 bits has them, though scores are multiplied twice: the exponentials of both
// times and what stands between bound the kernel. As measured.
constexpr WgmmaRates kRates = {.share = 0.4134, .start_cycles = 2720};

double BytesSm90::Seconds(const Plan& plan, const Target& target, bool is_default) {
  const double columns = plan.depth + plan.width;
  return WgmmaSeconds(plan.problem, plan.tile, columns, columns, kRates, target, is_default);
}

std::vector<std::vector<int>> BytesSm90::Others(const Plan&) {
  std::vector<std::vector<int>> all;
  for (const int groups : {1, 2, 3})
    for (const int keys : {64, 128})
      for (const int stages : {2, 3})
        for (const int turns : {0, 1})
          if (turns < groups) all.push_back({groups, keys, stages, turns});
  return all;
}

void BytesSm90::Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered) {
  Schedule(group, target, std::move(plan)).Lower(lowered);
}

}  // namespace

const Engine kAttentionBytesSm90Engine = AttentionEngine<BytesSm90>::Row();

}  // namespace kiln::compiler
