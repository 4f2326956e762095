// attention_sm80, attention_sm80_tf32, attention_sm80_f32: attention as one kernel on mma.sync.
//
// Takes: from sm_80 on, attention of 16-bit or 8-bit operands with any strides, also where operands
// are computed (casts, pages, offsets); the second engine takes f32 operands and rounds them to
// TF32, for clients who allow it, the third keeps their bits by three products for one.
//
// How: blocks of keys come by asynchronous copies where neighbours lie together, also through pages
// and offsets, else element by element, with what computes them. A thread's work on its rows is
// shared with `attention_sm90` (attention_rows.cuh). Rows of f32 across the summed dim, for which
// ldmatrix has no transposed form, are read 8 bytes a lane in the order in which accumulators lie
// (attention_products.cuh).
//
// Wins: on sm_80 to sm_89 and on Blackwell, for f32, and on Hopper for layouts that tensor maps do
// not read.
//
// Declines: rows longer than 256; tiles that registers do not hold; types of operands, weights and
// result that differ.
#include <algorithm>

#include "compiler/engines/attention/engines.h"
#include "compiler/engines/attention/family.h"
#include "compiler/engines/attention/functions.h"
#include "compiler/engines/attention/moves.h"
#include "compiler/engines/attention/problem.h"
#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

// 0: what the table says for depth and device.
constexpr int kRowsDomain[] = {0, 16, 32, 64, 128, 256};
constexpr int kKeysDomain[] = {0, 16, 32, 48, 64, 80, 96, 128};
constexpr int kStagesDomain[] = {0, 1, 2, 3};
constexpr int kWarpsDomain[] = {0, 1, 2, 4, 8};
constexpr KnobRow kKnobRows[] = {
    {.name = "tile_rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "tile_keys", .cudnn_type = kKnobTileN, .domain = kKeysDomain},
    {.name = "stages", .cudnn_type = kKnobStages, .domain = kStagesDomain},
    {.name = "warps", .cudnn_type = kKnobBlockSize, .domain = kWarpsDomain},
};

constexpr int kPanel = 32;       // elements: columns of operands are whole ones
constexpr int kMostDepth = 256;  // of q and k, of v: accumulators end there
constexpr int kAlignment = 128;  // bytes, of what the skeleton lays out
constexpr int kWarpRows = 16;
constexpr int kMostByteStages = 2;  // a third one is the bytes
using Arithmetic = AttentionArithmetic;

// By arithmetic.
constexpr const char* kNames[] = {"attention_sm80", "attention_sm80_tf32", "attention_sm80_f32"};

struct AttentionTile {
  int rows = 0, keys = 0, stages = 0, warps = 0;
  int row_tiles() const { return rows / (kWarpRows * warps); }  // of a warp
};
// By the deeper of the two operands; `masked` is for graphs with masks that hide blocks, `reading`
// for those whose scores or weights have operands in memory, one each, whose addresses take
// registers.
struct TileRow {
  int depth;
  AttentionTile plain, masked, reading;
};
constexpr TileRow kTiles[] = {{64, {128, 128, 2, 4}, {128, 64, 2, 4}, {64, 64, 2, 4}},
                              {128, {128, 64, 2, 4}, {128, 64, 2, 4}, {64, 64, 2, 4}},
                              {192, {128, 64, 2, 8}, {128, 64, 2, 8}, {128, 32, 2, 8}},
                              {256, {128, 64, 2, 8}, {128, 64, 2, 8}, {128, 32, 2, 8}}};
// Tiles for f32, whose rows are twice as long.
constexpr TileRow kWideTiles[] = {{64, {128, 64, 2, 4}, {128, 64, 2, 4}, {64, 64, 2, 4}},
                                  {128, {128, 32, 1, 4}, {128, 32, 1, 4}, {64, 32, 2, 4}},
                                  {256, {64, 32, 1, 4}, {64, 32, 1, 4}, {64, 32, 1, 4}}};
// Tiles for shapes where these have no room: the first that has.
constexpr AttentionTile kSmallTiles[] = {{128, 32, 2, 8}, {64, 64, 2, 4}, {64, 32, 2, 4},
                                         {64, 32, 1, 4},  {32, 32, 2, 2}, {32, 32, 1, 2},
                                         {16, 32, 1, 1},  {16, 16, 1, 1}};

// Members that the three engines share.
struct Sm80 {
  static constexpr std::span<const KnobRow> kKnobs = kKnobRows;
  static constexpr auto kRunsOn = RunsOnMma;
  static constexpr decltype(Engine::any_order) kAnyOrder = nullptr;

  struct Plan {
    AttentionProblem problem = {};
    int depth = 0, width = 0;  // of q and k, of v, in whole panels
    AttentionTile tile = {};
    Arithmetic arithmetic = Arithmetic::k16;
    bool is_wide() const { return arithmetic != Arithmetic::k16; }
    int element_bytes() const { return is_wide() ? 4 : 2; }  // in shared memory
  };
  static Result<Plan> PlanOf(const Group& group, Arithmetic arithmetic);
  static Status TakeTile(Plan& p, const Target& target, std::span<const int> knobs);
  static int64_t SharedBytes(const Plan& p);
  static double Seconds(const Plan& p, const Target& target, bool is_default);
  static std::vector<std::vector<int>> Others(const Plan& p);
  static void Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered);
};
using Plan = Sm80::Plan;

int64_t SharedElements(const Plan& p) {
  return int64_t{p.tile.rows} * std::max(p.depth, p.width) +
         int64_t{p.tile.stages} * p.tile.keys * (p.depth + p.width) +
         kAlignment / p.element_bytes();
}
// Bytes of a block of k and v, or first of all q, before they are widened.
int64_t ByteElements(const Plan& p) {
  if (!p.problem.has_bytes) return 0;
  return std::max<int64_t>(int64_t{p.tile.rows} * p.depth,
                           int64_t{p.tile.keys} * (p.depth + p.width));
}
int64_t Sm80::SharedBytes(const Plan& p) {
  return p.element_bytes() * SharedElements(p) + ByteElements(p);
}

// Registers of a thread that results and scores take, and what there is for them beside addresses
// and fragments.
int Accumulators(const Plan& p) { return p.tile.row_tiles() * (p.width + p.tile.keys) / 2; }
int MostAccumulators(const Plan& p) { return p.problem.reads_by_element ? 160 : 192; }
// True if there is room for the fragments of q beside them.
bool HoldsQueries(const Plan& p) {
  const int held = p.tile.row_tiles() * p.depth * p.element_bytes() / 8;
  return Accumulators(p) + held <= 160 && !p.problem.reads_by_element &&
         p.arithmetic != Arithmetic::k3xTf32;  // two terms each
}

bool IsPossible(const AttentionTile& t) {
  return t.warps > 0 && t.rows % (kWarpRows * t.warps) == 0 && t.row_tiles() >= 1 &&
         t.row_tiles() <= 2;
}

Result<Plan> Sm80::PlanOf(const Group& group, Arithmetic arithmetic) {
  Plan p{.arithmetic = arithmetic};
  ASSIGN_OR_RETURN(
      p.problem,
      AttentionProblemOf(group, kMostDepth, p.is_wide() ? OperandBits::k32 : OperandBits::k16Or8));
  p.depth = static_cast<int>(AlignUp(p.problem.depth, kPanel));
  p.width = static_cast<int>(AlignUp(p.problem.width, kPanel));
  return p;
}

AttentionTile DefaultTile(Plan p, const Target& target) {
  const std::span<const TileRow> tiles =
      p.is_wide() ? std::span<const TileRow>(kWideTiles) : std::span<const TileRow>(kTiles);
  const auto row = std::ranges::find_if(
      tiles, [&](const TileRow& r) { return std::max(p.depth, p.width) <= r.depth; });
  p.tile = p.problem.reads_by_element ? row->reading
           : p.problem.hides_blocks   ? row->masked
                                      : row->plain;
  if (p.problem.queries <= 64 && p.tile.rows > 64) p.tile.rows = 64, p.tile.warps = 4;
  if (Sm80::SharedBytes(p) <= target.shared_limit()) return p.tile;
  for (const AttentionTile& small : kSmallTiles) {
    p.tile = small;
    if (Sm80::SharedBytes(p) <= target.shared_limit()) break;
  }
  return p.tile;
}

Status Sm80::TakeTile(Plan& p, const Target& target, std::span<const int> knobs) {
  p.tile = DefaultTile(p, target);
  int* const values[] = {&p.tile.rows, &p.tile.keys, &p.tile.stages, &p.tile.warps};
  for (size_t i = 0; i < std::size(values); ++i)
    if (knobs[i] > 0) *values[i] = knobs[i];
  if (!IsPossible(p.tile))
    return Status::Error(Code::kUnsupportedShape, "{} warps have no 16 or 32 of {} rows each",
                         p.tile.warps, p.tile.rows);
  if (Accumulators(p) > MostAccumulators(p))
    return Status::Error(Code::kUnsupportedShape,
                         "{} rows a warp and blocks of {} keys have too few registers for rows of "
                         "{}",
                         p.tile.row_tiles() * kWarpRows, p.tile.keys, p.width);
  if (p.problem.has_bytes && p.tile.stages > kMostByteStages)
    return Status::Error(Code::kUnsupportedShape,
                         "operands of 8 bits have at most {} stages, not {}", kMostByteStages,
                         p.tile.stages);
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
           fmt::format("{}: {} queries, blocks of {} keys in {} stages, {} warps",
                       kNames[static_cast<size_t>(plan_.arithmetic)], plan_.tile.rows,
                       plan_.tile.keys, plan_.tile.stages, plan_.tile.warps),
           IndexTypeInMemory(group.graph)) {
    for (const char* reserved :
         {"bx", "shape", "query", "key", "value", "score", "inside", "factor", "limits", "weight",
          "random", "finish", "rows", "first", "store"})
      b_.Name(reserved);
    memory_ = to_load_ = b_.Name("memory");
  }

  void Lower(Lowered& lowered) {
    const bool has_bytes = plan_.problem.has_bytes;
    const DType type = has_bytes ? DType::kF16 : g_[a_.q].dtype;
    const int64_t rank = g_[a_.score].rank();
    Call call{.skeleton = "attention_sm80", .maps = {}, .buffers = {memory_}};
    if (has_bytes) AddBytes(call, lowered);
    const bool async[] = {AddLoad(call, "query", {a_.q, rank - 2, rank - 1}),
                          AddLoad(call, "key", {a_.k, rank - 1, rank - 2}),
                          AddLoad(call, "value", {a_.v, rank - 2, rank - 1})};
    call.config = {{attention::kRowTiles, plan_.tile.row_tiles()},
                   {attention::kWarps, plan_.tile.warps},
                   {attention::kKeys, plan_.tile.keys},
                   {attention::kDepth, plan_.depth},
                   {attention::kWidth, plan_.width},
                   {attention::kStages, plan_.tile.stages},
                   {attention::kAsync, async[0] + 2 * async[1] + 4 * async[2]},
                   {attention::kHeld, HoldsQueries(plan_) ? 1 : 0},
                   {attention::kReads, plan_.problem.reads_by_place ? 1 : 0},
                   {attention::kF32, static_cast<int>(plan_.arithmetic)},
                   {attention::kPackBf16, type == DType::kBF16 ? 1 : 0}};
    const int64_t blocks =
        AddAttentionShape(b_, plan_.problem, plan_.tile.rows, target_, false, call);
    AttentionFunctions(b_, a_).Add(call);
    AddRowsStore(b_, call, "store", a_.result, ScatterOf(g_, a_, a_.result));
    Block shared;
    shared.push_back({tile::Alloc{memory_, type, tile::Space::kShared, SharedElements(plan_)}});
    if (has_bytes)
      shared.push_back(
          {tile::Alloc{to_load_, g_[a_.q].dtype, tile::Space::kShared, ByteElements(plan_)}});
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call), std::move(shared)), {blocks, 1, 1},
              32 * plan_.tile.warps, lowered);
  }

 private:
  bool AddLoad(Call& call, const char* name, const OperandRows& rows) {
    return AddRowsLoad(b_, call, name, to_load_, rows, SharedHeads(b_, a_, rows.id));
  }
  // Adds the buffer where bytes come to, and the largest absolute values of weights and results;
  // the buffer stands for those that nobody asks for.
  void AddBytes(Call& call, Lowered& lowered) {
    to_load_ = b_.Name("bytes");
    call.buffers.push_back(to_load_);
    for (const auto& largest : {a_.largest_weight, a_.largest_result})
      call.buffers.push_back(largest ? b_.Pointer(largest->result) : to_load_);
    AddLargestStart(group_, target_, LargestStarts(a_), "attention_sm80", lowered);
  }

  const Group& group_;
  const Graph& g_;
  const Target& target_;
  const Plan plan_;
  const Attention& a_;
  KernelBuilder b_;
  std::string memory_, to_load_;  // panels, and what operands are copied to
};

// ---- the engine's row

// Both products at half of what mma.sync reaches, in whole waves; the blocks that masks hide count
// as half. Other tiles than the table's are thought to be slower the smaller they are.
constexpr double kShare = 0.52, kPrologueCycles = 1700, kOtherTiles = 0.9;
// Until a tile's first operands have come, and from its last product to its results, where nothing
// runs beside; smaller tiles have others beside them.
constexpr double kTileCycles = 5100, kTileRows = 128;

double Sm80::Seconds(const Plan& plan, const Target& target, bool is_default) {
  const AttentionProblem& p = plan.problem;
  const Machine machine = MachineOf(target);
  const int64_t tiles = p.heads() * CeilDiv(p.queries, plan.tile.rows);
  const double waves = static_cast<double>(CeilDiv(tiles, std::max(target.multiprocessors, 1)));
  const double keys = static_cast<double>(AlignUp(p.keys, plan.tile.keys));
  const double area = static_cast<double>(plan.tile.rows * plan.tile.keys) / (128.0 * 64.0);
  const double speed = is_default ? 1 : kOtherTiles * std::clamp(area, 0.4, 1.0);
  const int times = p.has_bytes ? 2 : 1;  // that scores are computed
  const double products = plan.tile.rows * keys * (times * plan.depth + plan.width);
  const double cycles = products / (ProductsPerCycle(target, plan.arithmetic) * kShare * speed);
  const double of_tile = kTileCycles * plan.tile.rows / kTileRows;
  return machine.StartSeconds() +
         machine.Seconds(kPrologueCycles + waves * (of_tile + cycles * (p.hides_blocks ? 0.5 : 1)));
}

std::vector<std::vector<int>> Sm80::Others(const Plan&) {
  std::vector<std::vector<int>> all;
  for (const int rows : {64, 128, 256})
    for (const int keys : {32, 64, 128})
      for (const int stages : {1, 2, 3})
        for (const int warps : {4, 8}) all.push_back({rows, keys, stages, warps});
  return all;
}

void Sm80::Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered) {
  Schedule(group, target, std::move(plan)).Lower(lowered);
}

template <Arithmetic arithmetic>
struct Of : Sm80 {
  static constexpr const char* kName = kNames[static_cast<size_t>(arithmetic)];
  static constexpr int kVersion = arithmetic == Arithmetic::k16 ? 3 : 1;
  static constexpr auto kArithmetic = arithmetic;
  static Result<Plan> PlanOf(const Group& group) { return Sm80::PlanOf(group, arithmetic); }
};

}  // namespace

const Engine kAttentionSm80Engine = AttentionEngine<Of<Arithmetic::k16>>::Row();
const Engine kAttentionSm80Tf32Engine = AttentionEngine<Of<Arithmetic::kTf32>>::Row();
const Engine kAttentionSm80F32Engine = AttentionEngine<Of<Arithmetic::k3xTf32>>::Row();

}  // namespace kiln::compiler
