// The attention_sm80 engine: knobs and tiles, which groups it takes, and the kernel's text: the
// configuration of the skeleton, its numbers, and its functions, of which some load and store.
#include "compiler/engines/attention_sm80.h"

#include <algorithm>

#include "compiler/engines/attention_functions.h"
#include "compiler/engines/attention_problem.h"
#include "compiler/engines/contract_mma.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/sm90_functions.h"
#include "compiler/engines/vectors.h"
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
constexpr KnobRow kKnobs[] = {
    {.name = "tile_rows", .cudnn_type = kKnobTileRows, .domain = kRowsDomain},
    {.name = "tile_keys", .cudnn_type = kKnobTileN, .domain = kKeysDomain},
    {.name = "stages", .cudnn_type = kKnobStages, .domain = kStagesDomain},
    {.name = "warps", .cudnn_type = kKnobBlockSize, .domain = kWarpsDomain},
};

constexpr int kPanel = 32;       // elements: columns of operands are whole ones
constexpr int kMostDepth = 256;  // of q and k, of v: accumulators end there
constexpr int kVector = 8;       // neighbours of 16 bits that are loaded and stored at once
constexpr int kAlignment = 128;  // bytes, of what the skeleton lays out
constexpr int kWarpRows = 16;

struct AttentionTile {
  int rows = 0, keys = 0, stages = 0, warps = 0;
  int row_tiles() const { return rows / (kWarpRows * warps); }  // of a warp
};
// By the deeper of the two operands; `reading` is for graphs whose scores or weights have operands
// in memory, one each, whose addresses take registers.
struct TileRow {
  int depth;
  AttentionTile plain, reading;
};
constexpr TileRow kTiles[] = {{64, {128, 64, 2, 4}, {64, 64, 2, 4}},
                              {128, {128, 64, 2, 4}, {64, 64, 2, 4}},
                              {192, {128, 64, 2, 8}, {128, 32, 2, 8}},
                              {256, {128, 64, 2, 8}, {128, 32, 2, 8}}};
// Where these have no room: the first that has.
constexpr AttentionTile kSmallTiles[] = {{128, 32, 2, 8}, {64, 64, 2, 4}, {64, 32, 2, 4},
                                         {64, 32, 1, 4},  {32, 32, 2, 2}, {32, 32, 1, 2},
                                         {16, 32, 1, 1},  {16, 16, 1, 1}};

struct Plan {
  AttentionProblem problem = {};
  int depth = 0, width = 0;  // of q and k, of v, in whole panels
  AttentionTile tile = {};
};

int64_t SharedElements(const Plan& p) {
  return int64_t{p.tile.rows} * std::max(p.depth, p.width) +
         int64_t{p.tile.stages} * p.tile.keys * (p.depth + p.width) + kAlignment / 2;
}
int64_t SharedBytes(const Plan& p) { return 2 * SharedElements(p); }

// Registers of a thread that results and scores take, and what there is for them beside addresses
// and fragments.
int Accumulators(const Plan& p) { return p.tile.row_tiles() * (p.width + p.tile.keys) / 2; }
int MostAccumulators(const Plan& p) { return p.problem.reads_by_element ? 160 : 192; }
// Whether there is room for the fragments of q beside them.
bool HoldsQueries(const Plan& p) {
  return Accumulators(p) + p.tile.row_tiles() * p.depth / 4 <= 160 && !p.problem.reads_by_element;
}

bool IsPossible(const AttentionTile& t) {
  return t.warps > 0 && t.rows % (kWarpRows * t.warps) == 0 && t.row_tiles() >= 1 &&
         t.row_tiles() <= 2;
}

// Without a tile.
Result<Plan> PlanOf(const Group& group) {
  Plan p;
  ASSIGN_OR_RETURN(p.problem, AttentionProblemOf(group, kMostDepth));
  p.depth = static_cast<int>(AlignUp(p.problem.depth, kPanel));
  p.width = static_cast<int>(AlignUp(p.problem.width, kPanel));
  return p;
}

AttentionTile DefaultTile(Plan p, const Target& target) {
  const auto* row = std::ranges::find_if(
      kTiles, [&](const TileRow& r) { return std::max(p.depth, p.width) <= r.depth; });
  const AttentionTile whole = p.problem.reads_by_element ? row->reading : row->plain;
  p.tile = whole;
  if (p.problem.queries <= 64 && whole.rows > 64) p.tile.rows = 64, p.tile.warps = 4;
  if (SharedBytes(p) <= target.shared_limit()) return p.tile;
  for (const AttentionTile& small : kSmallTiles) {
    p.tile = small;
    if (SharedBytes(p) <= target.shared_limit()) break;
  }
  return p.tile;
}

Status TakeTile(Plan& p, const Target& target, std::span<const int> knobs) {
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
  return {};
}

Result<Plan> PlanOf(const Group& group, const Target& target, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(Plan p, PlanOf(group));
  RETURN_IF_ERROR(TakeTile(p, target, knobs));
  return p;
}

// ---- the kernel
// --------------------------------------------------------------------------------------------

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, Plan plan)
      : g_(group.graph),
        plan_(std::move(plan)),
        a_(plan_.problem.attention),
        producers_(graph::Producers(group.graph)),
        b_(group, target,
           fmt::format("attention_sm80: {} queries, blocks of {} keys in {} stages, {} warps",
                       plan_.tile.rows, plan_.tile.keys, plan_.tile.stages, plan_.tile.warps),
           IndexTypeInMemory(group.graph)) {
    for (const char* reserved :
         {"bx", "shape", "query", "key", "value", "score", "inside", "factor", "limits", "weight",
          "weight_of_none", "finish", "rows", "store"})
      b_.Name(reserved);
    memory_ = b_.Name("memory");
  }

  void Lower(Lowered& lowered) {
    const DType type = g_[a_.q].dtype;
    const int64_t rank = g_[a_.score].rank();
    Call call{.skeleton = "attention_sm80", .maps = {}, .buffers = {memory_}};
    const bool async[] = {AddLoad(call, "query", a_.q, rank - 2, rank - 1),
                          AddLoad(call, "key", a_.k, rank - 1, rank - 2),
                          AddLoad(call, "value", a_.v, rank - 2, rank - 1)};
    call.config = {{"kRowTiles", plan_.tile.row_tiles()},
                   {"kWarps", plan_.tile.warps},
                   {"kKeys", plan_.tile.keys},
                   {"kDepth", plan_.depth},
                   {"kWidth", plan_.width},
                   {"kStages", plan_.tile.stages},
                   {"kAsync", async[0] + 2 * async[1] + 4 * async[2]},
                   {"kHeld", HoldsQueries(plan_) ? 1 : 0},
                   {"kReads", plan_.problem.reads_by_place ? 1 : 0},
                   {"kPackBf16", type == DType::kBF16 ? 1 : 0}};
    const int64_t blocks = AddAttentionShape(b_, plan_.problem, plan_.tile.rows, call);
    AttentionFunctions(b_, a_).Add(call);
    AddStore(call);
    Block shared;
    shared.push_back({tile::Alloc{memory_, type, tile::Space::kShared, SharedElements(plan_)}});
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call), std::move(shared)), {blocks, 1, 1},
              32 * plan_.tile.warps, lowered);
  }

 private:
  DType t() const { return b_.index_type(); }

  // The place of an operand's element, for a head of the result.
  Index PlaceOf(Block& out, TensorId id, const Expr& batch, int64_t places, const Expr& row,
                int64_t depth, const Expr& column) {
    Index at = ScoreIndex(b_, out, a_.score, batch, row, column);
    for (size_t d = 0; d + 2 < at.size(); ++d) {
      const int64_t sharing = HeadsSharing(g_, a_, id, static_cast<int64_t>(at.size() - d));
      if (g_[id].dims[d] == 1)
        at[d] = b_.Idx(0);
      else if (sharing > 1)
        at[d] = b_.Divide(out, at[d], b_.Arg("sharing", sharing), sharing, "head").quotient;
    }
    at[static_cast<size_t>(places)] = row;
    at[static_cast<size_t>(depth)] = column;
    return at;
  }

  bool IsVectorised(TensorId id, int64_t dim) const {
    return g_[id].dims[static_cast<size_t>(dim)] % kVector == 0 &&
           WidestVector(g_, {id}, dim) >= kVector;
  }

  // Returns whether copies are asynchronous: of neighbours that lie together, as they are.
  bool AddLoad(Call& call, const char* name, TensorId id, int64_t places, int64_t depth) {
    const DType type = g_[id].dtype;
    Call::Function f{.name = name, .params = {}, .body = {}};
    const Expr to = AddScalar(b_, f, "to", t()), batch = AddScalar(b_, f, "batch", t()),
               row = AddScalar(b_, f, "row", t()), column = AddScalar(b_, f, "column", t());
    const Index at = PlaceOf(f.body, id, batch, places, row, depth, column);
    const auto inside = [&](const Expr& c) {
      return tile::And(tile::Lt(row, b_.Extent(id, places)), tile::Lt(c, b_.Extent(id, depth)));
    };
    const bool is_async = producers_[static_cast<size_t>(id)] < 0 && IsVectorised(id, depth);
    if (is_async) {
      f.body.push_back({tile::CopyAsync{memory_, to, b_.Pointer(id), b_.Offset(id, at), kVector,
                                        inside(column)}});
    } else {
      const std::string x = b_.Name("elements");
      f.body.push_back({tile::Alloc{x, type, tile::Space::kReg, kVector}});
      for (int i = 0; i < kVector; ++i) {
        Block there, none;
        Index place = at;
        place[static_cast<size_t>(depth)] = column + b_.Idx(i);
        ValueScope values(b_, there);
        there.push_back({tile::Store{x, b_.Idx(i), tile::Cast(type, values.Value(id, place))}});
        none.push_back({tile::Store{x, b_.Idx(i), tile::Cast(type, tile::Float(0))}});
        f.body.push_back({tile::If{inside(column + b_.Idx(i)), std::move(there), std::move(none)}});
      }
      WideCopy(f.body, type, memory_, to, x, b_.Idx(0), kVector);
    }
    call.functions.push_back(std::move(f));
    return is_async;
  }

  void AddStore(Call& call) {
    const DType type = g_[a_.result].dtype;
    const int64_t last = g_[a_.result].rank() - 1;
    Call::Function f{.name = "store", .params = {}, .body = {}};
    const std::string values = AddArray(b_, f, "values", type, kVector);
    const Expr batch = AddScalar(b_, f, "batch", t()), row = AddScalar(b_, f, "row", t()),
               column = AddScalar(b_, f, "column", t());
    Index at = ScoreIndex(b_, f.body, a_.result, batch, row, column);
    if (IsVectorised(a_.result, last)) {
      WideCopy(f.body, type, b_.Pointer(a_.result), b_.Offset(a_.result, at), values, b_.Idx(0),
               kVector);
    } else {
      for (int i = 0; i < kVector; ++i) {
        at.back() = column + b_.Idx(i);
        Block there;
        there.push_back({tile::Store{b_.Pointer(a_.result), b_.Offset(a_.result, at),
                                     tile::Load(values, type, b_.Idx(i))}});
        f.body.push_back(
            {tile::If{tile::Lt(at.back(), b_.Extent(a_.result, last)), std::move(there), {}}});
      }
    }
    call.functions.push_back(std::move(f));
  }

  const Graph& g_;
  const Plan plan_;
  const Attention& a_;
  const std::vector<graph::NodeId> producers_;
  KernelBuilder b_;
  std::string memory_;
};

// ---- the engine's row
// --------------------------------------------------------------------------------------

Status Supports(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kAttention)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no attention");
  if (!target.is_cuda() || target.sm_version < 80)
    return Status::Error(Code::kArchMismatch, "mma.m16n8k16 needs sm_80 or later, the target is {}",
                         target.arch);
  return PlanOf(group, target, DefaultKnobs(kAttentionSm80Engine)).status();
}

Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(Plan plan, PlanOf(group, target, knobs));
  Lowered lowered;
  Schedule(group, target, std::move(plan)).Lower(lowered);
  return lowered;
}

// Both products at half of what mma.sync reaches, in whole waves; the blocks that masks hide count
// as half. Other tiles than the table's are thought to be slower the smaller they are.
constexpr double kClock = 1.6e9, kShare = 0.55, kLaunchSeconds = 3e-6, kOtherTiles = 0.9;

double Seconds(const Target& target, const Plan& plan, std::span<const int> knobs) {
  const AttentionProblem& p = plan.problem;
  const int64_t tiles = p.heads() * CeilDiv(p.queries, plan.tile.rows);
  const double waves = static_cast<double>(CeilDiv(tiles, std::max(target.multiprocessors, 1)));
  const double keys = static_cast<double>(AlignUp(p.keys, plan.tile.keys));
  const double area = static_cast<double>(plan.tile.rows * plan.tile.keys) / (128.0 * 64.0);
  const bool is_default = std::ranges::equal(knobs, DefaultKnobs(kAttentionSm80Engine));
  const double speed = is_default ? 1 : kOtherTiles * std::clamp(area, 0.4, 1.0);
  const double products = plan.tile.rows * keys * (plan.depth + plan.width);
  const double cycles = products / (MmaMultiplyAddsPerCycle(target) * kShare * speed);
  return kLaunchSeconds + waves * cycles * (p.hides_blocks ? 0.5 : 1) / kClock;
}

double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  const auto plan = PlanOf(group, target, knobs);
  return plan.ok() ? Seconds(target, *plan, knobs) : kNoSeconds;
}

int64_t SharedBytesOf(const Group& group, const Target& target, std::span<const int> knobs) {
  const auto plan = PlanOf(group, target, knobs);
  return plan.ok() ? SharedBytes(*plan) : 0;
}

// The table's tile first, then those that have registers and shared memory for it. The group is
// looked at once.
std::vector<Proposal> Proposals(const Group& group, const Target& target) {
  std::vector<Proposal> all;
  const Result<Plan> found = PlanOf(group);
  if (!found.ok()) return all;
  const auto add = [&](std::vector<int> knobs) {
    Plan plan = *found;
    if (!TakeTile(plan, target, knobs).ok()) return;
    const int64_t bytes = SharedBytes(plan);
    if (!all.empty() && bytes > target.shared_limit()) return;
    const double seconds = Seconds(target, plan, knobs);
    all.push_back({.knobs = std::move(knobs), .seconds = seconds, .shared_bytes = bytes});
  };
  add(DefaultKnobs(kAttentionSm80Engine));
  for (const int rows : {64, 128, 256})
    for (const int keys : {32, 64, 128})
      for (const int stages : {1, 2, 3})
        for (const int warps : {4, 8}) add({rows, keys, stages, warps});
  return all;
}

std::vector<std::vector<int>> Candidates(const Group& group, const Target& target) {
  std::vector<std::vector<int>> all;
  for (Proposal& p : Proposals(group, target)) all.push_back(std::move(p.knobs));
  return all;
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};
constexpr int kNumerical[] = {kNoteTensorCore};

}  // namespace

const Engine kAttentionSm80Engine = {.name = "attention_sm80",
                                     .version = 1,
                                     .knobs = kKnobs,
                                     .notes = {.numerical = kNumerical, .behavioral = kBehavior},
                                     .supports = Supports,
                                     .cost = Cost,
                                     .lower = Lower,
                                     .shared_bytes = SharedBytesOf,
                                     .candidates = Candidates,
                                     .propose = Proposals};

}  // namespace kiln::compiler
