// The attention_sm90 engine: knobs, which groups it takes, and the kernel's text: the configuration
// of the skeleton, its numbers and its functions.
#include "compiler/engines/attention_sm90.h"

#include <algorithm>
#include <ranges>

#include "compiler/engines/attention_functions.h"
#include "compiler/engines/attention_problem.h"
#include "compiler/engines/knob_types.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::TensorId;
using tile::Call;

// 0: what the table says for the depth.
constexpr int kGroupsDomain[] = {0, 1, 2, 3};
constexpr int kKeysDomain[] = {0, 32, 48, 64, 80, 96, 112, 128, 160, 176};
constexpr int kTurnsDomain[] = {2, 0, 1};  // 2: as the table
constexpr KnobRow kKnobs[] = {
    {.name = "groups", .cudnn_type = kKnobTileRows, .domain = kGroupsDomain},
    {.name = "tile_keys", .cudnn_type = kKnobTileN, .domain = kKeysDomain},
    {.name = "ping_pong", .cudnn_type = kKnobWarpSpecialisation, .domain = kTurnsDomain},
};
enum { kGroupsKnob, kKeysKnob, kTurnsKnob };

constexpr int kPanel = 64;       // elements of one 128-byte row
constexpr int kMostDepth = 256;  // of q and k, of v: accumulators and shared memory end there
constexpr int kStages = 2;       // of k and of v: one would be a deadlock
constexpr int kSlotBytes = 48;   // where a group learns what tile it makes

// Registers of the producer's threads and of the others', by the number of consumer groups; 0 is
// what a thread has from the start. `most` is what accumulators and weights may take of them.
struct RegisterSplit {
  int producer, consumer, most;
};
constexpr RegisterSplit kRegisters[] = {{}, {0, 0, 192}, {24, 240, 176}, {32, 160, 128}};

struct AttentionTile {
  int groups = 2, keys = 128;
  bool ping_pong = false;
};
// By the deeper of the two operands; `reading` is for graphs whose scores or weights have operands
// in memory, one each, whose addresses take registers.
struct TileRow {
  int depth;
  AttentionTile plain, reading;
};
constexpr TileRow kTiles[] = {{64, {3, 128, true}, {2, 128, false}},
                              {128, {2, 128, true}, {2, 80, false}},
                              {192, {2, 96, false}, {2, 64, false}},
                              {256, {2, 64, false}, {2, 32, false}}};

struct Plan {
  AttentionProblem problem = {};
  int depth = 0, width = 0;  // of q and k, of v, in whole panels
  AttentionTile tile = {};
  TensorMapSpec q = {}, k = {}, v = {}, out = {};
};

int64_t SharedBytes(const Plan& p) {
  const int64_t block = int64_t{p.tile.keys} * 2 * (p.depth + p.width);
  return int64_t{p.tile.groups} * (64 * p.depth * 2 + 64 * 128) + kStages * block +
         kSlotBytes * p.tile.groups + 8 * (4 * kStages + 2 * p.tile.groups);
}

bool FitsRegisters(const Plan& p) {
  const int used = p.width / 2 + p.tile.keys / 2 + p.tile.keys / 4;
  return used <= kRegisters[p.tile.groups].most;
}

AttentionTile TileOf(int depth, bool reads, std::span<const int> knobs) {
  const auto* row =
      std::ranges::find_if(kTiles, [&](const TileRow& r) { return depth <= r.depth; });
  AttentionTile tile = reads ? row->reading : row->plain;
  if (knobs[kGroupsKnob] > 0) tile.groups = knobs[kGroupsKnob];
  if (knobs[kKeysKnob] > 0) tile.keys = knobs[kKeysKnob];
  if (knobs[kTurnsKnob] < 2) tile.ping_pong = knobs[kTurnsKnob] == 1;
  tile.ping_pong &= tile.groups > 1;  // one group has nobody to take turns with
  return tile;
}

// Without a tile.
Result<Plan> PlanOf(const Group& group) {
  const Graph& g = group.graph;
  Plan p;
  ASSIGN_OR_RETURN(p.problem, AttentionProblemOf(group, kMostDepth));
  const Attention& a = p.problem.attention;
  RETURN_IF_ERROR(CheckInMemory(g, {a.q, a.k, a.v}));
  const int64_t rank = g[a.score].rank();
  p.depth = static_cast<int>(AlignUp(p.problem.depth, kPanel));
  p.width = static_cast<int>(AlignUp(p.problem.width, kPanel));
  ASSIGN_OR_RETURN(p.q, AttentionMapOf(g[a.q], rank - 2, rank - 1, 64));
  ASSIGN_OR_RETURN(p.k, AttentionMapOf(g[a.k], rank - 1, rank - 2, 64));
  ASSIGN_OR_RETURN(p.v, AttentionMapOf(g[a.v], rank - 2, rank - 1, 64));
  ASSIGN_OR_RETURN(p.out, AttentionMapOf(g[a.result], rank - 2, rank - 1, 64));
  return p;
}

Status TakeTile(Plan& p, std::span<const int> knobs) {
  p.tile = TileOf(std::max(p.depth, p.width), p.problem.reads_by_element, knobs);
  if (!FitsRegisters(p))
    return Status::Error(Code::kUnsupportedShape,
                         "{} groups with blocks of {} keys have too few registers for rows of {}",
                         p.tile.groups, p.tile.keys, p.width);
  for (TensorMapSpec* map : {&p.k, &p.v}) map->box[1] = p.tile.keys;
  return {};
}

Result<Plan> PlanOf(const Group& group, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(Plan p, PlanOf(group));
  RETURN_IF_ERROR(TakeTile(p, knobs));
  return p;
}

// ---- the kernel
// --------------------------------------------------------------------------------------------

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
    for (const char* reserved : {"bx", "shape", "score", "inside", "factor", "limits", "weight",
                                 "weight_of_none", "finish", "rows"})
      b_.Name(reserved);
  }

  void Lower(Lowered& lowered) {
    const Attention& a = plan_.problem.attention;
    const DType type = g_[a.q].dtype;
    Call call{.skeleton = "attention_sm90"};
    call.maps = {b_.Map("q_map", a.q, plan_.q), b_.Map("k_map", a.k, plan_.k),
                 b_.Map("v_map", a.v, plan_.v), b_.Map("out_map", a.result, plan_.out)};
    call.wgmma = {.columns = plan_.tile.keys, .type = type, .right_type = type};
    call.second = Call::Wgmma{.columns = plan_.width,
                              .type = type,
                              .right_type = type,
                              .right_is_outer = true,
                              .left_in_registers = true};
    call.shared_bytes = SharedBytes(plan_);
    const RegisterSplit& registers = kRegisters[plan_.tile.groups];
    call.config = {{"kGroups", plan_.tile.groups},
                   {"kKeys", plan_.tile.keys},
                   {"kDepth", plan_.depth},
                   {"kWidth", plan_.width},
                   {"kStages", kStages},
                   {"kPingPong", plan_.tile.ping_pong ? 1 : 0},
                   {"kReads", plan_.problem.reads_by_place ? 1 : 0},
                   {"kProducerRegisters", registers.producer},
                   {"kConsumerRegisters", registers.consumer},
                   {"kPackBf16", type == DType::kBF16 ? 1 : 0}};
    const int64_t tiles = AddAttentionShape(b_, plan_.problem, 64 * plan_.tile.groups, call);
    AddSharing(call);
    AttentionFunctions(b_, a).Add(call);
    const int64_t blocks = std::min<int64_t>(tiles, target_.multiprocessors);
    b_.Finish(CallOfBlocks(b_, blocks, std::move(call)), {blocks, 1, 1},
              128 * (plan_.tile.groups + 1), lowered, 1);
  }

 private:
  void AddSharing(Call& call) {
    const Attention& a = plan_.problem.attention;
    for (const auto& [name, id] : {std::pair{"q", a.q}, {"k", a.k}, {"v", a.v}})
      for (const auto& [dim, back] : {std::pair{"outer", 4}, {"inner", 3}}) {
        const int64_t sharing = HeadsSharing(g_, a, id, back);
        const std::string member = fmt::format("{}_{}", name, dim);
        if (sharing != 1) call.shape.push_back({member, b_.Arg(member, sharing)});
      }
  }

  const Graph& g_;
  const Target& target_;
  const Plan plan_;
  KernelBuilder b_;
};

// ---- the engine's row
// --------------------------------------------------------------------------------------

Status Supports(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kAttention)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no attention");
  if (!target.is_cuda() || target.sm_version != 90)
    return Status::Error(Code::kArchMismatch, "wgmma needs sm_90a, the target is {}", target.arch);
  if (target.minimal_launch)
    return Status::Error(Code::kArchMismatch, "KILN_LAUNCH=minimal allows no tensor maps");
  return PlanOf(group, DefaultKnobs(kAttentionSm90Engine)).status();
}

Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(Plan plan, PlanOf(group, knobs));
  Lowered lowered;
  Schedule(group, target, std::move(plan)).Lower(lowered);
  return lowered;
}

// Both products at two thirds of the tensor cores' speed, in whole waves; the blocks that masks
// hide count as half. The table's tiles are those that were measured: others are thought to be
// slower the smaller they are.
constexpr double kFlopsPerSecond = 650e12, kLaunchSeconds = 3e-6, kOtherTiles = 0.9;

double Seconds(const Target& target, const Plan& plan, std::span<const int> knobs) {
  const int64_t rows = 64 * plan.tile.groups;
  const AttentionProblem& p = plan.problem;
  const int64_t tiles = p.heads() * CeilDiv(p.queries, rows);
  const double waves = static_cast<double>(CeilDiv(tiles, target.multiprocessors));
  const double keys = static_cast<double>(AlignUp(p.keys, plan.tile.keys));
  const double area = static_cast<double>(rows * plan.tile.keys) / (128.0 * 128.0);
  const bool is_default = std::ranges::equal(knobs, DefaultKnobs(kAttentionSm90Engine));
  const double speed = is_default ? 1 : kOtherTiles * std::clamp(area, 0.4, 1.0);
  const double flops = 2.0 * static_cast<double>(rows) * keys * (plan.depth + plan.width);
  return kLaunchSeconds + waves * flops * (p.hides_blocks ? 0.5 : 1) * target.multiprocessors /
                              (kFlopsPerSecond * speed);
}

double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  const auto plan = PlanOf(group, knobs);
  return plan.ok() ? Seconds(target, *plan, knobs) : kNoSeconds;
}

int64_t SharedBytesOf(const Group& group, const Target&, std::span<const int> knobs) {
  const auto plan = PlanOf(group, knobs);
  return plan.ok() ? SharedBytes(*plan) : 0;
}

// The table's tile first, then those that have registers and shared memory for it. Where scores
// read memory one by one, others spill. The group is looked at once.
std::vector<Proposal> Proposals(const Group& group, const Target& target) {
  std::vector<Proposal> all;
  const Result<Plan> found = PlanOf(group);
  if (!found.ok()) return all;
  const auto add = [&](std::vector<int> knobs) {
    Plan plan = *found;
    if (!TakeTile(plan, knobs).ok()) return;
    const int64_t bytes = SharedBytes(plan);
    if (!all.empty() && bytes > target.shared_limit()) return;
    const double seconds = Seconds(target, plan, knobs);
    all.push_back({.knobs = std::move(knobs), .seconds = seconds, .shared_bytes = bytes});
  };
  add(DefaultKnobs(kAttentionSm90Engine));
  if (found->problem.reads_by_element) return all;
  for (const int groups : kGroupsDomain)
    for (const int keys : kKeysDomain)
      for (const int turns : {0, 1})
        if (groups != 0 && keys != 0 && turns < groups) add({groups, keys, turns});
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

const Engine kAttentionSm90Engine = {.name = "attention_sm90",
                                     .version = 2,
                                     .knobs = kKnobs,
                                     .notes = {.numerical = kNumerical, .behavioral = kBehavior},
                                     .supports = Supports,
                                     .cost = Cost,
                                     .lower = Lower,
                                     .shared_bytes = SharedBytesOf,
                                     .candidates = Candidates,
                                     .propose = Proposals};

Result<TensorMapSpec> AttentionMapOf(const Tensor& t, int64_t places, int64_t depth, int rows) {
  TensorMapSpec map{.type = t.dtype};
  if (t.alignment < 16)
    return Status::Error(Code::kUnsupportedLayout, "{} is aligned to {} bytes; tensor maps need 16",
                         t.name, t.alignment);
  if (t.dims[depth] > 1 && t.strides[depth] != 1)
    return Status::Error(Code::kUnsupportedLayout, "{} is not contiguous along dim {}", t.name,
                         depth);
  map.dims[0] = t.dims[depth];
  const int64_t others[] = {places, t.rank() - 3, t.rank() - 4};
  for (int i = 0; i < 3; ++i) {
    const int64_t d = others[i];
    const bool is_one = d < 0 || t.dims[d] == 1;
    map.dims[i + 1] = is_one ? 1 : t.dims[d];
    map.stride_bytes[i] = is_one ? 16 : t.strides[d] * SizeOf(t.dtype);
    if (map.stride_bytes[i] <= 0 || map.stride_bytes[i] % 16 != 0)
      return Status::Error(Code::kUnsupportedLayout,
                           "{} has rows {} bytes apart along dim {}; tensor maps need whole 16",
                           t.name, map.stride_bytes[i], d);
  }
  map.box = {kPanel, rows, 1, 1, 1};
  return map;
}

}  // namespace kiln::compiler
