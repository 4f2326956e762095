#include "compiler/engines/contract_grouped/plan.h"

#include <algorithm>
#include <cmath>

#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/contract_members.h"
#include "compiler/kernel/group_checks.h"
#include "compiler/kernel/map_dims.h"
#include "compiler/machine/machine.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::kAbsent;
using graph::Tensor;
using graph::TensorId;

constexpr int64_t kAlignment = 1024, kOnesBytes = 1024;
constexpr int kBuffers = 2;  // boxes of a consumer group
constexpr int kMostStages = 8, kLeastStages = 3;
constexpr int64_t kMostShares = 4;                        // who adds them reads as many tiles
constexpr int kMostAccumulators = 128, kMostFolded = 96;  // of a thread

// A tensor one of whose dims (`along`) lies together, and whose others are rows of one stride.
Result<GroupedMatrix> MatrixOf(const graph::Graph& g, TensorId id, int64_t along,
                               int64_t rows_of_box) {
  const Tensor& t = g[id];
  std::vector<int64_t> outer;
  for (int64_t d = t.rank(); d-- > 0;)
    if (d != along) outer.push_back(d);
  if (!IsLinear(t, outer))
    return Status::Error(Code::kUnsupportedShape, "rows of {} do not lie at one distance", t.name);
  const int64_t columns = t.dims[along], rows = NumElements(t.dims) / columns;
  ASSIGN_OR_RETURN(TensorMapSpec map,
                   MakeMap(t, TensorMapSpec::Kind::kTiled,
                           {{columns, t.strides[along]}, {rows, LinearStride(t, outer)}, {}, {}}));
  map.box = {64, static_cast<int32_t>(rows_of_box), 1, 1, 1};
  return GroupedMatrix{id, map};
}

Status CheckInMemory(const graph::Graph& g, const std::vector<graph::NodeId>& producers,
                     TensorId id) {
  if (id == kAbsent || (producers[id] < 0 && !g[id].by_value)) return {};
  return Status::Error(Code::kUnsupportedGraphPattern,
                       "{} is computed; tensor maps read memory as it is", g[id].name);
}

class Planner {
 public:
  explicit Planner(const Group& group)
      : g_(group.graph), producers_(graph::Producers(group.graph)) {}

  Result<GroupedPlan> Run() {
    const std::vector<GroupedProduct> products = FindGroupedProducts(g_);
    RETURN_IF_ERROR(CheckWhole(products));
    plan_.type = g_[products[0].left].dtype;
    plan_.adds = products[0].result.before != kAbsent;
    for (const GroupedProduct& product : products) {
      Status status = Add(product);
      RETURN_IF_ERROR(std::move(status));
    }
    return std::move(plan_);
  }

 private:
  // Nothing of the group may be left out.
  Status CheckWhole(const std::vector<GroupedProduct>& products) const {
    size_t members = 0;
    for (const GroupedProduct& product : products) members += product.members.size();
    const auto computed =
        static_cast<size_t>(std::ranges::count_if(g_.nodes, [](const graph::Node& node) {
          return !Has(node, graph::kView) && node.op != graph::GraphOp::kConcat;
        }));
    if (products.empty() || products.size() > GroupedPlan::kMostProducts || members != computed)
      return Status::Error(
          Code::kUnsupportedGraphPattern,
          "of {} operations {} belong to {} products that need nothing of one another; it takes 1 "
          "to {}",
          computed, members, products.size(), GroupedPlan::kMostProducts);
    return {};
  }

  Status Add(const GroupedProduct& from) {
    const Tensor& left = g_[from.left];
    if (left.dtype != plan_.type || (from.result.before != kAbsent) != plan_.adds)
      return Status::Error(Code::kUnsupportedGraphPattern,
                           "products differ in their types, or in whether they are added to "
                           "something: {} is {}",
                           left.name, Info(left.dtype).text);
    const int64_t along = from.is_turned ? 1 : 2, depth = left.dims[3 - along];
    GroupedPlan::Product product{
        .rows = left.dims[along], .columns = g_[from.result.stored].dims[2], .sums = from.sums};
    RETURN_IF_ERROR(CheckInMemory(g_, producers_, from.left));
    RETURN_IF_ERROR(CheckInMemory(g_, producers_, from.result.before));
    ASSIGN_OR_RETURN(const GroupedMatrix all_of_left,
                     MatrixOf(g_, from.left, along, GroupedPlan::kDepth));
    int64_t row = 0;
    for (const TensorId right : from.rights) {
      RETURN_IF_ERROR(CheckInMemory(g_, producers_, right));
      if (g_[right].dtype != plan_.type)
        return Status::Error(Code::kUnsupportedDataType, "{} is {}, {} is {}", g_[right].name,
                             Info(g_[right].dtype).text, left.name, Info(plan_.type).text);
      GroupedPlan::Part part{.left = all_of_left, .left_row = row};
      ASSIGN_OR_RETURN(part.right, MatrixOf(g_, right, 2, GroupedPlan::kDepth));
      part.rows = part.right.map.dims[1];
      row += part.rows;
      // Elements behind the part in its left operand are multiplied by the zeroes behind it in the
      // right one, which is NaN where they are no numbers: left ends there, too.
      if (row < depth && part.rows % GroupedPlan::kDepth != 0) part.left.map.dims[1] = row;
      product.parts.push_back(std::move(part));
    }
    if (row != depth)
      return Status::Error(Code::kUnsupportedShape, "{} has {} rows, what it is multiplied by {}",
                           left.name, depth, row);
    RETURN_IF_ERROR(AddResult(from.result, product));
    for (const GroupedResult& sum : from.sums)
      RETURN_IF_ERROR(CheckInMemory(g_, producers_, sum.before));
    plan_.products.push_back(std::move(product));
    return {};
  }

  Status AddResult(const GroupedResult& result, GroupedPlan::Product& product) const {
    ASSIGN_OR_RETURN(product.result, MatrixOf(g_, result.stored, 2, 64));
    RETURN_IF_ERROR(CheckStores(product.result.map, g_[result.stored]));
    if (result.before != kAbsent) {
      ASSIGN_OR_RETURN(product.before, MatrixOf(g_, result.before, 2, 64));
    }
    return {};
  }

  const graph::Graph& g_;
  const std::vector<graph::NodeId> producers_;
  GroupedPlan plan_;
};

int AccumulatorsOf(const GroupedTile& tile) {
  return tile.left / 64 / GroupedPlan::kGroups * tile.right / 2;
}
int64_t StageBytes(const GroupedTile& tile) {
  return int64_t{tile.left + tile.right} * GroupedPlan::kDepth * 2;
}
int64_t StagingBytes() { return GroupedPlan::kGroups * kBuffers * contract::kBoxBytes; }
// Barriers of a stage; of the boxes.
constexpr int64_t kStageBarriers = 16, kBoxBarriers = 8 * kBuffers * GroupedPlan::kGroups;

}  // namespace

int64_t GroupedPlan::Product::steps() const {
  int64_t steps = 0;
  for (const Part& part : parts) steps += CeilDiv(part.rows, int64_t{kDepth});
  return steps;
}

bool GroupedPlan::has_sums() const {
  return std::ranges::any_of(products, [](const Product& p) { return !p.sums.empty(); });
}
int64_t GroupedPlan::tiles(const Product& product, const GroupedTile& tile) const {
  return CeilDiv(product.rows, int64_t{tile.left} * tile.cluster) *
         CeilDiv(product.columns, int64_t{tile.right});
}
int64_t GroupedPlan::tiles(const GroupedTile& tile) const {
  int64_t sum = 0;
  for (const Product& product : products) sum += tiles(product, tile);
  return sum;
}

int GroupedPlan::folds(const GroupedTile& tile) const {
  int64_t steps = 0;
  for (const Product& product : products) steps = std::max(steps, product.steps());
  const int64_t sum = CeilDiv(steps, int64_t{tile.split}) * kDepth;
  const bool has_room = AccumulatorsOf(tile) <= kMostFolded;
  const int64_t most = has_room ? MostProducts(type) : MostProductsAlone(type, type);
  return sum <= most ? 0 : static_cast<int>(MostProducts(type) / kDepth);
}

int GroupedPlan::stages(const GroupedTile& tile, const Target& target) const {
  const int64_t room =
      target.shared_bytes_per_block - StagingBytes() - kAlignment - kOnesBytes - kBoxBarriers;
  return static_cast<int>(
      std::min<int64_t>(room / (StageBytes(tile) + kStageBarriers), kMostStages));
}
int64_t GroupedPlan::shared_bytes(const GroupedTile& tile, const Target& target) const {
  const int64_t count = stages(tile, target);
  return AlignUp(count * StageBytes(tile), kAlignment) + StagingBytes() + kOnesBytes +
         count * kStageBarriers + kBoxBarriers;
}

int64_t GroupedPlan::clusters(const GroupedTile& tile, const Target& target) const {
  // A cluster that sums has no room for the stages of another tile.
  if (tile.split > 1) return tiles(tile);
  return std::min<int64_t>(tiles(tile), std::max(1, target.multiprocessors / tile.cluster));
}

int64_t GroupedPlan::shared_tiles(const GroupedTile& tile, const Target& target) const {
  const int64_t workers = clusters(tile, target), all = tiles(tile), last = all % workers;
  return tile.tail != 0 && tile.split == 1 && all > workers && last * 2 <= workers ? last : 0;
}
int64_t GroupedPlan::shares(const GroupedTile& tile, const Target& target) const {
  const int64_t last = shared_tiles(tile, target);
  if (last == 0) return 1;
  int64_t most = kMostShares;
  for (const Product& product : products) most = std::min(most, product.steps());
  return std::min(clusters(tile, target) / last, most);
}

Result<GroupedPlan> GroupedPlanOf(const Group& group) {
  if (group.kind != GroupKind::kProducts)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group is not one of products that need nothing of one another");
  return Planner(group).Run();
}

Status CheckGroupedTile(const GroupedPlan& plan, const GroupedTile& tile, const Target& target) {
  const auto decline = [&](const char* why, int64_t has, int64_t most) {
    return Status::Error(Code::kUnsupportedShape, "tile {}x{}, clusters of {}, {} parts: {} {}, {}",
                         tile.left, tile.right, tile.cluster, tile.split, why, has, most);
  };
  if (tile.split > 1 && tile.cluster > 1)
    return decline("blocks share operands or sums, not both:", tile.cluster, tile.split);
  for (const GroupedPlan::Product& product : plan.products)
    if (product.steps() < tile.split)
      return decline("steps along k and parts:", product.steps(), tile.split);
  const int most = plan.folds(tile) > 0 ? kMostFolded : kMostAccumulators;
  if (AccumulatorsOf(tile) > most)
    return decline("accumulators of a thread and the most:", AccumulatorsOf(tile), most);
  if (tile.tail != 0 && plan.shares(tile, target) < 2)
    return decline("tiles of the last turn and blocks:", plan.tiles(tile),
                   plan.clusters(tile, target));
  // Panels of 64 columns, of which each block of a cluster loads its share.
  if (tile.right % (64 * tile.cluster) != 0)
    return decline("columns are no multiple:", tile.right, 64 * tile.cluster);
  const int64_t stages = plan.stages(tile, target);
  if (stages < kLeastStages) return decline("stages and the least:", stages, kLeastStages);
  const int64_t sums = int64_t{tile.right + 5} * tile.left * 4;
  if (tile.split > 1 && sums > stages * StageBytes(tile))
    return decline("bytes of sums and of stages:", sums, stages * StageBytes(tile));
  return {};
}

// As the model of wgmma_sm90 (contract_wgmma/tile.cc): the slowest of tensor cores, the way from L2
// and shared memory is a step's time.
double GroupedSeconds(const GroupedPlan& plan, const GroupedTile& tile, const Target& target) {
  constexpr double kL2Share = 0.85;  // of what all multiprocessors together are given
  constexpr double kStoreClocks = 0.045, kTileClocks = 900, kClusterClocks = 600;
  // Costs of a shared tile, for each that makes a part: to leave it in memory, or to read and add
  // it, which waits for memory (an H100: 1.5 turns of 25 steps took 54 us, three turns of half
  // tiles 42; 3.03 turns of 100 steps 255, four 279).
  constexpr double kPartBytes = 16, kPartClocks = 1000;
  constexpr double kClusterBytes = 32, kPrologueClocks = 850, kSumsShare = 0.12;
  constexpr double kLeftByClusters =
      31.0 / 32;  // of the multiprocessors, where clusters are larger
  const Machine machine = MachineOf(target);
  const double left = tile.left, right = tile.right, depth = GroupedPlan::kDepth;
  const double tensor = left * right * depth / machine.wgmma.f16;
  const double l2 = (left + right / tile.cluster) * depth * 2 / (kL2Share * machine.l2_bytes);
  const double shared =
      (left / 64 * (64 + right) + left + right) * depth * 2 / machine.shared_bytes;
  const double step = std::max({tensor, l2, shared});
  double store = kStoreClocks * left * right + 0.4 * kTileClocks;
  if (tile.split > 1) store += 2000 + left * right * 4 / kClusterBytes;
  const double slots = tile.split > 2
                           ? std::max(1.0, target.multiprocessors * kLeftByClusters / tile.split)
                           : std::max(1, target.multiprocessors / tile.blocks());
  // Blocks take tiles in turns, in the order of the products.
  double sum = 0, longest = 0, tiles = 0;
  for (const GroupedPlan::Product& product : plan.products) {
    const auto count = static_cast<double>(plan.tiles(product, tile));
    const double steps = static_cast<double>(CeilDiv(product.steps(), int64_t{tile.split}));
    const double share =
        product.sums.empty() ? 1 : 1 + kSumsShare * right / static_cast<double>(product.columns);
    const double clocks = steps * step * share + store;
    sum += count * clocks;
    longest = std::max(longest, clocks);
    tiles += count;
  }
  double turns = std::ceil(tiles / slots);
  if (const auto shares = static_cast<double>(plan.shares(tile, target)); shares > 1) {
    const double part = left * right * 4 / kPartBytes + kPartClocks;
    turns = std::floor(tiles / slots) + 1 / shares + shares * part * tiles / sum;
  }
  const double waves = turns * sum / tiles;
  double clocks = std::max(waves, longest) + kTileClocks;
  if (tile.blocks() > 1) clocks += kClusterClocks;
  return machine.StartSeconds() + machine.Seconds(clocks + kPrologueClocks);
}

std::vector<GroupedTile> GroupedTiles(const GroupedPlan& plan, const Target& target) {
  std::vector<GroupedTile> all;
  for (const int left : kGroupedLeft)
    for (const int right : kGroupedRight)
      for (const int cluster : kGroupedClusters)
        for (const int split : kGroupedSplits)
          for (const int tail : kGroupedTails)
            if (const GroupedTile tile{left, right, cluster, split, tail};
                CheckGroupedTile(plan, tile, target).ok())
              all.push_back(tile);
  std::ranges::stable_sort(
      all, {}, [&](const GroupedTile& tile) { return GroupedSeconds(plan, tile, target); });
  return all;
}

}  // namespace kiln::compiler
