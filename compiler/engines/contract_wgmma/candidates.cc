#include "compiler/engines/contract_wgmma/candidates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/skeleton_functions.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/map_dims.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using graph::TensorId;

namespace {

constexpr int kMostStreamSplit = 4;  // workers a tile: who finishes it adds all their parts
enum {
  kLeftKnob,
  kRightKnob,
  kClusterKnob,
  kPingPongKnob,
  kSplitKnob,
  kSplitClusterKnob,
  kRasterKnob,
  kStreamKnob,
  kFillKnob
};

// The tile with every split of k that is legal and fills no more than two waves, and with its empty
// phases filled.
void AddSplits(const Sm90Plan& plan, const Target& target, const Sm90TileModel& model,
               Sm90Tile tile, std::vector<Sm90Tile>& all) {
  const int64_t tiles =
      CeilDiv(plan.left_size, tile.left) * CeilDiv(plan.right_size, tile.right) * plan.batches;
  // A stream pays where whole tiles leave multiprocessors idle in their last wave: its workers read
  // other places of k at a time, and the L2 is asked more often.
  constexpr double kMuch = 0.15;
  const double waves = static_cast<double>(TilesOf(plan, tile)) * tile.cluster /
                       static_cast<double>(target.multiprocessors);
  const bool leaves_idle = waves / std::ceil(waves) < 1 - kMuch;
  Sm90Tile filled = tile;
  filled.fill = true;
  const auto add_legal = [&] {
    if (IsLegal(plan, model.Tile(tile), target)) all.push_back(tile);
  };
  for (const int split : kSm90SplitDomain) {
    if (split > 1 && (split * 4 > plan.k_steps || tiles * split > 2 * target.multiprocessors))
      break;
    tile.split_k = split;
    for (const int parts : kSm90SplitClusterDomain) {
      tile.split_cluster = parts;
      add_legal();
    }
    if (split > kMostStreamSplit || !leaves_idle) continue;
    tile.split_cluster = 1;
    tile.stream = true;
    add_legal();
    tile.stream = false;
  }
  if (plan.has_empty_phases() && IsLegal(plan, model.Tile(filled), target)) all.push_back(filled);
}

// The narrowest tile that there is: of an operand that is contiguous along its own axis, a panel.
int LeastRight(const Sm90Plan& plan) {
  const int least = plan.terms == 2 ? 32 : 8;
  return plan.right.is_outer ? std::max(plan.panel(), least) : least;
}

// The tiles that convolutions share where they cost little more than the best, found from the
// layers of ResNet-50 at batch sizes of 16 to 256 (docs/compile-cost.md).
struct SharedTile {
  int left, right, cluster;
  bool ping_pong, splits, stream = false;

  bool operator==(const SharedTile&) const = default;
};
constexpr SharedTile kForwardTiles[] = {
    {128, 256, 2, false, false}, {64, 192, 2, true, false}, {64, 128, 2, true, false}};
constexpr SharedTile kUnevenTiles[] = {
    {256, 128, 1, false, false}, {128, 128, 1, true, false}, {64, 192, 2, true, false}};
constexpr SharedTile kPhasedTiles[] = {
    {128, 128, 2, true, false}, {64, 192, 2, true, false}, {128, 256, 2, false, false}};
constexpr SharedTile kWgradTiles[] = {{64, 128, 2, true, true},
                                      {64, 128, 2, true, false},
                                      {64, 64, 1, true, true},
                                      {128, 256, 2, false, true},
                                      {128, 128, 2, false, false, true}};
constexpr SharedTile kTurningTiles[] = {{256, 128, 1, false, true}, {256, 128, 1, false, false}};

}  // namespace

bool StoresAlongRight(const Sm90Plan& plan, const Sm90Tile& tile) {
  return plan.along_right && (tile.direct || (!tile.splits() && tile.reductions == 0));
}

int64_t LeftDim(const Group& group, const Sm90Plan& plan) {
  const int64_t rank = group.graph[ContractionOf(group).outputs[0]].rank();
  if (plan.is_conv) return plan.left_is_a ? rank - 1 : 1;
  return plan.left_is_a ? rank - 2 : rank - 1;
}

// `group` is what tiles make; it has no output where only reductions of its tiles are asked for.
void Sm90TileModel::AddMaps(const Group& group, const Sm90Plan& plan, Context& context) {
  const std::vector<TensorId> outputs = graph::Outputs(group.graph);
  if (outputs.empty()) return;
  const graph::Node& anchor = ContractionOf(group);
  const graph::Tensor& y = group.graph[outputs[0]];
  const DType type = y.dtype;
  const bool plain = context.reductions == 0;
  // Results of 4 bytes, and phases, lie along left.
  if (SizeOf(type) == 4 && plan.along_right) return;
  if (plain && !plan.along_right && IsBoxType(type) &&
      AppliesByRow(group.graph, anchor, LeftDim(group, plan)) && PlanSm90Phases(y, plan).ok()) {
    context.stores_by_map = true;
    context.result_bytes = SizeOf(type);
    return;
  }
  const auto has_map = [&](TensorId id) { return PlanSm90Matrix(group, id, plan).ok(); };
  const auto is_stored_by_map = [&](TensorId id) {
    const Result<TensorMapSpec> map = PlanSm90Matrix(group, id, plan);
    return map.ok() && CheckStores(*map, group.graph[id]).ok();
  };
  if (!std::ranges::all_of(outputs, is_stored_by_map)) return;
  // Reductions and full operands go with 16-bit results of sums in f32.
  const bool has_pairs = SizeOf(type) == 2 && plan.type != DType::kI8;
  if (!plain && !has_pairs) return;
  context.result_bytes = SizeOf(type);
  const int64_t dim = LeftDim(group, plan);
  context.stores_by_map = AppliesByRow(group.graph, anchor, dim);
  if (context.stores_by_map || !plain || !has_pairs || plan.prepares_right() ||
      plan.left_in_registers() || !AppliesByRow(group.graph, anchor, dim, true))
    return;
  const std::vector<TensorId> full = FullOperands(group.graph, anchor, dim);
  context.full = static_cast<int>(full.size());
  context.stores_by_map = context.full <= kMostFullOperands && std::ranges::all_of(full, has_map);
  context.results = static_cast<int>(outputs.size());
}

Sm90TileModel::Context Sm90TileModel::ContextOf(const Group& group, const Sm90Plan& plan) {
  Context context{.reductions = CountReductions(group)};
  if (plan.along_right)
    context.right_lanes = PixelVectorsOf(group.graph, ContractionOf(group)).lanes;
  if (context.reductions > 0)
    AddMaps(EpilogueReductions(group).tile(), plan, context);
  else
    AddMaps(group, plan, context);
  return context;
}

Sm90TileModel::Sm90TileModel(const Group& group, const Target& target, Sm90Plan plan)
    : target_(target),
      plan_(std::move(plan)),
      context_(ContextOf(group, plan_)),
      floor_bytes_(static_cast<double>(FloorBytes(group))),
      scattered_(ScatteredSeconds(group, target)),
      scattered_operands_(ScatteredSeconds(group, target, false)) {}

Sm90Tile Sm90TileModel::Tile(Sm90Tile tile) const {
  tile.reductions = context_.reductions;
  // Pairs leave registers by stmatrix, which takes rows in their order.
  const bool rows_in_order = !plan_.moves_rows() || context_.result_bytes == 4;
  tile.direct = context_.stores_by_map && rows_in_order && !tile.splits() &&
                !(tile.stream && (context_.full > 0 || context_.results > 1)) &&
                tile.columns() % 16 == 0 && (!plan_.along_right || tile.columns() % 64 == 0);
  tile.full = tile.direct ? context_.full : 0;
  tile.results = tile.direct ? context_.results : 1;
  tile.result_bytes = tile.direct ? context_.result_bytes : 2;
  if (!tile.direct && StoresAlongRight(plan_, tile)) tile.right_lanes = context_.right_lanes;
  return tile;
}

double Sm90TileModel::Seconds(const Sm90Tile& tile) const {
  if (!IsLegal(plan_, tile, target_)) return kNoSeconds;
  return Sm90Seconds(plan_, tile, target_, floor_bytes_) + StoreSeconds(tile);
}

// The cost of results and operands of the epilogue that do not lie as the tile stores them.
double Sm90TileModel::StoreSeconds(const Sm90Tile& tile) const {
  if (tile.direct && plan_.along_right) return 0;
  return StoresAlongRight(plan_, tile) ? scattered_operands_ : scattered_;
}

std::vector<Sm90Tile> UsefulSm90Tiles(const Target& target, const Sm90TileModel& model) {
  const Sm90Plan& plan = model.plan();
  std::vector<Sm90Tile> all;
  for (const int left : kSm90LeftDomain) {
    if (left > 64 && left / 2 >= plan.left_size) continue;
    for (const int right : kSm90RightDomain) {
      if (right > LeastRight(plan) && right / 2 >= AlignUp(plan.right_size, 8)) continue;
      for (const int cluster : kSm90ClusterDomain) {
        if (cluster > 1 && plan.left_size <= left) continue;
        for (const int ping_pong : kSm90ScheduleDomain) {
          const Sm90Tile tile{
              .left = left, .right = right, .cluster = cluster, .ping_pong = ping_pong != 0};
          AddSplits(plan, target, model, tile, all);
        }
      }
    }
  }
  if (all.empty()) all.push_back(Sm90Tile{});
  return all;
}

int Sm90Preference(const Sm90Plan& plan, const Sm90Tile& tile) {
  if (!plan.is_conv || tile.split_cluster > 1 || tile.fill) return Proposal::kNotPreferred;
  std::span<const SharedTile> shared = kForwardTiles;
  if (plan.padded_channels != 0) shared = kWgradTiles;
  if (plan.has_uneven_phases()) shared = kUnevenTiles;
  // Narrow stores along right, too, want something to hide behind.
  else if (!plan.phases.empty() || tile.right_lanes > 0)
    shared = kPhasedTiles;
  if (plan.moves_rows() && plan.turns_right()) shared = kTurningTiles;
  const SharedTile form{tile.left,      tile.right,    tile.cluster,
                        tile.ping_pong, tile.splits(), tile.stream};
  const auto found = std::ranges::find(shared, form);
  return found == shared.end() ? Proposal::kNotPreferred : static_cast<int>(found - shared.begin());
}

Sm90Tile TileOf(std::span<const int> knobs) {
  return {.left = knobs[kLeftKnob],
          .right = knobs[kRightKnob],
          .cluster = knobs[kClusterKnob],
          .ping_pong = knobs[kPingPongKnob] != 0,
          .split_k = knobs[kSplitKnob],
          .split_cluster = knobs[kSplitClusterKnob],
          .raster = knobs[kRasterKnob],
          .stream = knobs[kStreamKnob] != 0,
          .fill = knobs[kFillKnob] != 0};
}

std::vector<int> KnobsOf(const Sm90Tile& tile) {
  return {tile.left,        tile.right,         tile.cluster, tile.ping_pong ? 1 : 0,
          tile.split_k,     tile.split_cluster, tile.raster,  tile.stream ? 1 : 0,
          tile.fill ? 1 : 0};
}

}  // namespace kiln::compiler
