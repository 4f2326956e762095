// attention_sm90: softmax(q k) v as one kernel on Hopper, with scores in registers.
//
// Takes: on sm_90, attention with f16 or bf16 operands that tensor maps can read, or that lie 16
// bytes at a time in pages or one sequence behind another; rows of up to 256; any masks, biases,
// sinks, lengths and dropout that the pattern has (patterns/attention.h).
//
// How: both products on wgmma; a factor of all scores is part of the exponential; blocks of keys
// that masks hide are skipped. Sequences one behind another and pages of 8 places and more are read
// and written by maps of runs of rows; where no map reads, two warps copy keys and two values,
// whose rows' places are asked a block ahead. Knobs say groups of warps and keys a block. Here is
// the kernel's text: the configuration of the skeleton, its numbers and its functions; the
// skeletons are attention_sm90.cuh, attention_runs_sm90.cuh and attention_loaded_sm90.cuh.
//
// Wins: for 16-bit attention on Hopper: cuDNN 9.19 takes 1.32 times as long in the geometric mean
// of 26 combinations of masks at two shapes, and 0.92 at least (H200).
//
// Declines: other GPUs and types; operands that tensor maps do not reach and that are computed; a
// result that is scattered by elements; rows longer than 256.
#include <algorithm>
#include <ranges>

#include "compiler/engines/attention/engines.h"
#include "compiler/engines/attention/family.h"
#include "compiler/engines/attention/functions.h"
#include "compiler/engines/attention/moves.h"
#include "compiler/engines/attention/places.h"
#include "compiler/engines/attention/problem.h"
#include "compiler/engines/attention/runs.h"
#include "compiler/engines/attention/wgmma.h"
#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/group_checks.h"
#include "compiler/kernel/map_dims.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::TensorId;
using tile::Call;

// 0: what the table says for the depth.
constexpr int kKeysDomain[] = {0, 32, 48, 64, 80, 96, 112, 128, 160, 176};
constexpr KnobRow kKnobRows[] = {
    {.name = "groups", .cudnn_type = kKnobTileRows, .domain = kWgmmaGroupsDomain},
    {.name = "tile_keys", .cudnn_type = kKnobTileN, .domain = kKeysDomain},
    {.name = "ping_pong", .cudnn_type = kKnobWarpSpecialisation, .domain = kWgmmaTurnsDomain},
};
enum { kGroupsKnob, kKeysKnob, kTurnsKnob };

constexpr int kPanel = 64;  // elements of one 128-byte row
constexpr int kLeastKeys = 32;
constexpr int kStages = 2;        // of k and of v: one would be a deadlock
constexpr int kLoadedStages = 3;  // where they fit: copies by threads take longer to arrive
constexpr int kPanelBytes = 64 * 2 * kPanel;  // of what lies beside the scores of a group

// By the number of consumer groups.
constexpr RegisterSplit kRegisters[] = {{}, {0, 0, 192}, {24, 240, 176}, {32, 160, 128}};
// Two groups whose producer has panels beside the scores to ask for, too.
constexpr RegisterSplit kBesideRegisters = {40, 232, 176};
// Registers where the producer's threads find rows or copy them, which takes addresses. What they
// spill costs up to a fifth of the time (H100), so that two groups of consumers leave them what
// they can.
constexpr RegisterSplit kLoadedRegisters[] = {{}, {0, 0, 192}, {56, 224, 160}, {32, 160, 128}};
constexpr RegisterSplit kLoadedFreely = {104, 200, 136};
// Registers where the producer may have to move rows by pieces, which spills with 56.
constexpr RegisterSplit kRaggedRegisters = {88, 208, 160};
constexpr int kLoadedAlignment = 1024;  // bytes, of what the skeleton lays out

// The ways in which operands come and results go.
enum class Moves : uint8_t { kMaps, kRuns, kThreads };  // by maps; by maps of runs; by threads

// By the deeper of the two operands; `reading` is for graphs whose scores or weights have operands
// in memory, one each, whose addresses take registers.
// `loaded` is for operands that threads copy, into three stages if possible; `beside` for a tensor
// that is copied in panels beside the scores.
struct TileRow {
  int depth;
  WgmmaTile plain, reading, loaded, beside;
};
constexpr TileRow kTiles[] = {
    {64, {3, 128, true}, {2, 128, false}, {2, 128, true}, {3, 128, true}},
    {128, {2, 128, true}, {2, 80, false}, {2, 96, true}, {2, 128, true}},
    {192, {2, 96, false}, {2, 64, false}, {2, 80, false}, {2, 64, false}},
    {256, {2, 64, false}, {2, 32, false}, {2, 32, false}, {2, 64, false}}};

struct Sm90 {
  static constexpr const char* kName = "attention_sm90";
  static constexpr int kVersion = 8;
  static constexpr auto kArithmetic = AttentionArithmetic::k16;
  static constexpr std::span<const KnobRow> kKnobs = kKnobRows;
  static constexpr auto kRunsOn = RunsOnWgmma;
  static constexpr decltype(Engine::any_order) kAnyOrder = nullptr;

  struct Plan {
    AttentionProblem problem = {};
    int depth = 0, width = 0;  // of q and k, of v, in whole panels
    WgmmaTile tile = {};
    int64_t shared_limit = 0;
    Moves moves = Moves::kMaps;
    TensorMapSpec q = {}, k = {}, v = {}, out = {}, beside_map = {};
    RowRun q_run = {}, k_run = {}, v_run = {}, out_run = {};
    bool has_ragged_runs() const {
      return q_run.is_ragged() || k_run.is_ragged() || v_run.is_ragged() || out_run.is_ragged();
    }
    bool is_loaded() const { return moves == Moves::kThreads; }
    bool has_beside() const { return problem.beside != graph::kAbsent; }
    const char* skeleton() const {
      return is_loaded()             ? "attention_loaded_sm90"
             : moves == Moves::kRuns ? "attention_runs_sm90"
                                     : "attention_sm90";
    }
    // Registers of a thread that hold O, S and weights.
    int used() const { return width / 2 + tile.keys / 2 + tile.keys / 4; }
    const RegisterSplit& registers() const {
      if (moves == Moves::kMaps)
        return has_beside() && tile.groups == 2 ? kBesideRegisters : kRegisters[tile.groups];
      const bool is_free = tile.groups == 2 && used() <= kLoadedFreely.most;
      if (is_free) return kLoadedFreely;
      return tile.groups == 2 && has_ragged_runs() ? kRaggedRegisters
                                                   : kLoadedRegisters[tile.groups];
    }
    int64_t bytes(int stages) const;  // of shared memory, without what lies beside scores
    int stages() const;
    int beside_stages() const;
  };
  static Result<Plan> PlanOf(const Group& group);
  static Status TakeTile(Plan& p, const Target& target, std::span<const int> knobs);
  static int64_t SharedBytes(const Plan& p);
  static double Seconds(const Plan& p, const Target& target, bool is_default);
  static std::vector<std::vector<int>> Others(const Plan& p);
  static void Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered);
};
using Plan = Sm90::Plan;

int64_t Sm90::Plan::bytes(int stages) const {
  const int64_t block = int64_t{tile.keys} * 2 * (depth + width);
  return int64_t{tile.groups} * (64 * depth * 2 + 64 * 128) + stages * block +
         2 * kWgmmaSlotBytes * tile.groups + 8 * (4 * stages + 2 * tile.groups) +
         (moves != Moves::kMaps ? kLoadedAlignment : 0);
}

int Sm90::Plan::stages() const {
  return is_loaded() && bytes(kLoadedStages) <= shared_limit ? kLoadedStages : kStages;
}

// Panels beside the scores of a group, and a barrier that says which tile it makes.
int64_t BesideBytes(const Plan& p, int panels) {
  return int64_t{p.tile.groups} * (panels * (kPanelBytes + 16) + 8);
}

// As many panels as fit, those of two blocks at most; none if not those of one.
int Sm90::Plan::beside_stages() const {
  if (!has_beside() || tile.keys % kPanel != 0) return 0;
  const int of_block = tile.keys / kPanel;
  for (int panels = 2 * of_block; panels >= of_block && panels > 0; --panels)
    if (bytes(stages()) + BesideBytes(*this, panels) <= shared_limit) return panels;
  return 0;
}

int64_t Sm90::SharedBytes(const Plan& p) {
  const int panels = p.beside_stages();
  return p.bytes(p.stages()) + (panels > 0 ? BesideBytes(p, panels) : 0);
}

bool FitsRegisters(const Plan& p) { return p.used() <= p.registers().most; }

constexpr int kMostLoadedGroups = 2;  // more leave the producer too few registers

WgmmaTile TileOf(const Plan& p, std::span<const int> knobs) {
  const int depth = std::max(p.depth, p.width);
  const auto* row =
      std::ranges::find_if(kTiles, [&](const TileRow& r) { return depth <= r.depth; });
  // Random bits of 128 keys have no room in the registers of three groups.
  const bool is_loaded = p.is_loaded() || (p.problem.draws && depth <= kPanel);
  WgmmaTile tile = p.problem.reads_by_element ? row->reading
                   : is_loaded                ? row->loaded
                   : p.has_beside()           ? row->beside
                                              : row->plain;
  if (p.moves != Moves::kMaps) tile.groups = std::min(tile.groups, kMostLoadedGroups);
  tile.Take(knobs[kGroupsKnob], knobs[kKeysKnob], knobs[kTurnsKnob]);
  return tile;
}

// The tensor maps of all operands and the result; or why there are none.
Status TakeMaps(const Graph& g, Plan& p) {
  const Attention& a = p.problem.attention;
  RETURN_IF_ERROR(CheckInMemory(g, {a.q, a.k, a.v}));
  if (ScatterOf(g, a, a.result) != nullptr)
    return Status::Error(Code::kUnsupportedLayout, "{} is scattered; tensor maps write rows",
                         g[a.result].name);
  const int64_t rank = g[a.score].rank();
  ASSIGN_OR_RETURN(p.q, AttentionMapOf(g[a.q], rank - 2, rank - 1, 64));
  ASSIGN_OR_RETURN(p.k, AttentionMapOf(g[a.k], rank - 1, rank - 2, 64));
  ASSIGN_OR_RETURN(p.v, AttentionMapOf(g[a.v], rank - 2, rank - 1, 64));
  ASSIGN_OR_RETURN(p.out, AttentionMapOf(g[a.result], rank - 2, rank - 1, 64));
  RETURN_IF_ERROR(CheckStores(p.out, g[a.result]));
  return {};
}

// Operands that threads copy 16 bytes at a time, for which there are no maps.
bool AreLoaded(const Graph& g, const Attention& a) {
  const int64_t rank = g[a.score].rank();
  return NeighboursOf(g, a.q, rank - 1) != Neighbours::kApart &&
         NeighboursOf(g, a.k, rank - 2) != Neighbours::kApart &&
         NeighboursOf(g, a.v, rank - 1) != Neighbours::kApart;
}

OperandRows RowsOfQuery(const Graph& g, const Attention& a) {
  return {a.q, g[a.score].rank() - 2, g[a.score].rank() - 1};
}
OperandRows RowsOfKey(const Graph& g, const Attention& a) {
  return {a.k, g[a.score].rank() - 1, g[a.score].rank() - 2};
}
OperandRows RowsOfValue(const Graph& g, const Attention& a) {
  return {a.v, g[a.score].rank() - 2, g[a.score].rank() - 1};
}

// True if all rows lie in runs that maps read and write; the boxes of k and v follow the tile.
bool TakeRuns(const Graph& g, Plan& p) {
  const Attention& a = p.problem.attention;
  const auto q = RunOf(g, RowsOfQuery(g, a)), k = RunOf(g, RowsOfKey(g, a)),
             v = RunOf(g, RowsOfValue(g, a)),
             out = StoreRunOf(g, a.result, ScatterOf(g, a, a.result));
  if (!q || !k || !v || !out || q->is_paged) return false;
  p.q_run = *q;
  p.k_run = *k;
  p.v_run = *v;
  p.out_run = *out;
  for (const auto& [map, run, depth] : {std::tuple{&p.q, &p.q_run, p.problem.depth},
                                        {&p.k, &p.k_run, p.problem.depth},
                                        {&p.v, &p.v_run, p.problem.width},
                                        {&p.out, &p.out_run, p.problem.width}}) {
    const Result<TensorMapSpec> found = MapOfRun(g, *run, depth);
    if (!found.ok()) return false;
    *map = *found;
    SetBox(*map, *run, 64);
  }
  return CheckStores(p.out, g[a.result]).ok();
}

// A tensor beside scores is copied where a map reads it, and threads of the producer are left.
void TakeBeside(const Graph& g, Plan& p) {
  AttentionProblem& problem = p.problem;
  if (!p.has_beside()) return;
  const int64_t rank = g[problem.attention.score].rank();
  const auto map = AttentionMapOf(g[problem.beside], rank - 2, rank - 1, 64);
  if (!map.ok() || p.is_loaded()) {
    problem.beside = graph::kAbsent;
    return;
  }
  p.beside_map = *map;
  problem.reads_by_place = problem.reads_besides;
  problem.reads_by_element = false;
}

Result<Plan> Sm90::PlanOf(const Group& group) {
  const Graph& g = group.graph;
  Plan p;
  ASSIGN_OR_RETURN(p.problem, AttentionProblemOf(group, kMostWgmmaDepth));
  p.depth = static_cast<int>(AlignUp(p.problem.depth, kPanel));
  p.width = static_cast<int>(AlignUp(p.problem.width, kPanel));
  const Status maps = TakeMaps(g, p);
  if (!maps.ok()) {
    if (!AreLoaded(g, p.problem.attention)) return maps;
    p.moves = TakeRuns(g, p) ? Moves::kRuns : Moves::kThreads;
  }
  TakeBeside(g, p);
  return p;
}

Status Sm90::TakeTile(Plan& p, const Target& target, std::span<const int> knobs) {
  p.shared_limit = target.shared_limit();
  p.tile = TileOf(p, knobs);
  // The table's tiles are for what one thread of the producer leaves.
  while (p.moves != Moves::kMaps && knobs[kKeysKnob] == 0 && !FitsRegisters(p) &&
         p.tile.keys > kLeastKeys)
    p.tile.keys -= 16;
  RETURN_IF_ERROR(CheckRegisters(p.tile, p.used(), p.width, p.registers()));
  if (p.has_beside() && p.beside_stages() == 0)
    return Status::Error(Code::kUnsupportedShape,
                         "blocks of {} keys of {} groups are no panels of {} that fit beside "
                         "operands",
                         p.tile.keys, p.tile.groups, kPanel);
  if (p.moves == Moves::kRuns) {
    SetBox(p.k, p.k_run, p.tile.keys);
    SetBox(p.v, p.v_run, p.tile.keys);
  } else {
    for (TensorMapSpec* map : {&p.k, &p.v}) map->box[1] = p.tile.keys;
  }
  return {};
}

// ---- the kernel

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, Plan plan)
      : g_(group.graph),
        target_(target),
        plan_(std::move(plan)),
        b_(group, target,
           fmt::format("attention_sm90: {} x 64 queries, blocks of {} keys{}", plan_.tile.groups,
                       plan_.tile.keys, plan_.tile.ping_pong ? ", in turns" : ""),
           IndexTypeInMemory(group.graph)) {
    for (const char* reserved :
         {"bx", "shape", "query", "key", "value", "score", "inside", "factor", "limits", "weight",
          "random", "finish", "rows", "first", "store"})
      b_.Name(reserved);
    for (const char* moved : {"query", "key", "value", "store"})
      for (const char* part : {"place", "piece", "run"}) b_.Name(fmt::format("{}_{}", moved, part));
  }

  void Lower(Lowered& lowered) {
    const Attention& a = plan_.problem.attention;
    const DType type = g_[a.q].dtype;
    Call call{.skeleton = plan_.skeleton()};
    tile::Block before;
    if (plan_.moves == Moves::kMaps)
      call.maps = {b_.Map("q_map", a.q, plan_.q), b_.Map("k_map", a.k, plan_.k),
                   b_.Map("v_map", a.v, plan_.v), b_.Map("out_map", a.result, plan_.out)};
    else
      AddMoves(call, before);
    if (!plan_.is_loaded())  // without a tensor beside the scores, a map that nobody reads
      call.maps.push_back(plan_.has_beside()
                              ? b_.Map("beside_map", plan_.problem.beside, plan_.beside_map)
                              : call.maps[0]);
    call.wgmma = {.columns = plan_.tile.keys, .type = type, .right_type = type};
    call.second = Call::Wgmma{.columns = plan_.width,
                              .type = type,
                              .right_type = type,
                              .right_is_outer = true,
                              .left_in_registers = true};
    // The kernel itself allocates the memory that functions copy to.
    const int64_t bytes = Sm90::SharedBytes(plan_);
    if (plan_.moves == Moves::kMaps) call.shared_bytes = bytes;
    AddWgmmaConfig(plan_.problem, plan_.tile, plan_.registers(),
                   {.depth = plan_.depth,
                    .width = plan_.width,
                    .stages = plan_.stages(),
                    .bytes = bytes,
                    .packed = type,
                    .has_beside = plan_.has_beside(),
                    .beside_stages = plan_.beside_stages(),
                    .beside_heads = IsOfEach(g_, plan_.problem, 3),
                    .beside_images = IsOfEach(g_, plan_.problem, 4)},
                   call);
    const int64_t tiles =
        AddAttentionShape(b_, plan_.problem, 64 * plan_.tile.groups, target_, true, call);
    if (plan_.moves == Moves::kMaps) AddSharing(b_, a, call);
    AttentionFunctions(b_, a).Add(call, plan_.problem.beside, true, true);
    if (plan_.moves != Moves::kMaps) AddStore(call);
    const int64_t blocks = std::min<int64_t>(tiles, target_.multiprocessors);
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call), std::move(before)), {blocks, 1, 1},
              128 * (plan_.tile.groups + 1), lowered, 1);
  }

 private:
  // Shared memory, and functions that copy to it or say where runs begin.
  void AddMoves(Call& call, tile::Block& before) {
    const Attention& a = plan_.problem.attention;
    const std::string memory = b_.Name("memory");
    before.push_back(
        {tile::Alloc{memory, g_[a.q].dtype, tile::Space::kShared, Sm90::SharedBytes(plan_) / 2}});
    if (plan_.moves == Moves::kRuns) AddRunMaps(call);
    call.buffers = {memory};
    const std::tuple<const char*, OperandRows, const RowRun&, int> loads[] = {
        {"query", RowsOfQuery(g_, a), plan_.q_run, 64},
        {"key", RowsOfKey(g_, a), plan_.k_run, plan_.k.box[1]},
        {"value", RowsOfValue(g_, a), plan_.v_run, plan_.v.box[1]}};
    for (const auto& [name, rows, run, box] : loads) {
      const HeadIndex heads = SharedHeads(b_, a, rows.id);
      AddRowsLoad(b_, call, name, memory, rows, heads);
      if (plan_.is_loaded()) {
        AddPlaces(AddRowPlaces(b_, call, name, memory, rows, heads));
      } else {
        AddRun(b_, call, name, run, rows, heads, box);
        AddPlaces(run.has_pieces());
      }
    }
  }
  void AddRunMaps(Call& call) {
    call.maps = {b_.Map("q_map", plan_.q_run.tensor, plan_.q),
                 b_.Map("k_map", plan_.k_run.tensor, plan_.k),
                 b_.Map("v_map", plan_.v_run.tensor, plan_.v),
                 b_.Map("out_map", plan_.out_run.tensor, plan_.out)};
  }
  void AddStore(Call& call) {
    const Attention& a = plan_.problem.attention;
    const graph::Node* scatter = ScatterOf(g_, a, a.result);
    AddRowsStore(b_, call, "store", a.result, scatter);
    if (plan_.is_loaded()) {
      AddPlaces(AddStorePlaces(b_, call, "store", a.result, scatter));
      call.config.push_back({attention::kWidePlaces, b_.index_type() == DType::kI64 ? 1 : 0});
    } else {
      const int64_t rank = g_[a.result].rank();
      AddRun(b_, call, "store", plan_.out_run, {a.result, rank - 2, rank - 1},
             OwnHeads(b_, a.result), 64);
      AddPlaces(plan_.out_run.has_pieces());
      call.config.push_back({attention::kKeyBox, plan_.k.box[1]});
      call.config.push_back({attention::kValueBox, plan_.v.box[1]});
    }
    call.config.push_back({attention::kApart, apart_});
  }
  // q, k, v and the result have a bit each, in this order.
  void AddPlaces(bool has_apart) {
    apart_ |= has_apart ? next_ : 0;
    next_ *= 2;
  }

  const Graph& g_;
  const Target& target_;
  const Plan plan_;
  KernelBuilder b_;
  int apart_ = 0, next_ = 1;  // operands of which rows may be moved by pieces; the next one's bit
};

// ---- the engine's row

// Both products at 650 of the 919 TFLOP/s of an H100's wgmma at 1.7 GHz.
constexpr WgmmaRates kRates = {.share = 0.7072, .start_cycles = 0};

double Sm90::Seconds(const Plan& plan, const Target& target, bool is_default) {
  const double columns = plan.depth + plan.width;
  return WgmmaSeconds(plan.problem, plan.tile, columns, 2 * columns, kRates, target, is_default);
}

// Knobs beside the table's; none where scores read memory one by one, since others than the table's
// spill.
std::vector<std::vector<int>> Sm90::Others(const Plan& plan) {
  std::vector<std::vector<int>> all;
  if (plan.problem.reads_by_element) return all;
  for (const int groups : kWgmmaGroupsDomain)
    for (const int keys : kKeysDomain)
      for (const int turns : {0, 1})
        if (groups != 0 && keys != 0 && turns < groups) all.push_back({groups, keys, turns});
  return all;
}

void Sm90::Lower(const Group& group, const Target& target, Plan plan, Lowered& lowered) {
  Schedule(group, target, std::move(plan)).Lower(lowered);
}

}  // namespace

const Engine kAttentionSm90Engine = AttentionEngine<Sm90>::Row();

}  // namespace kiln::compiler
