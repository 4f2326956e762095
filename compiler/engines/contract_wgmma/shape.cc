// The numbers of a launch of wgmma_sm90, members of the skeleton's shape: tiles and their order,
// the slices of k, the phases of a strided dgrad. See contract_wgmma/kernel.h.
#include <algorithm>
#include <string>

#include "compiler/engines/contract_wgmma/kernel.h"
#include "compiler/kernel/skeleton_call.h"
#include "ir/scalar.h"

namespace kiln::compiler {
namespace {

// The members of the shape, each an argument of the launch; divisors with their magic numbers.
class ShapeMembers {
 public:
  ShapeMembers(KernelBuilder& b, tile::Call& call) : b_(b), call_(call) {}

  void Add(const ShapeMember& member, int64_t value) {
    const std::string name(member.name);
    if (!member.is_divisor) return One(name, name, value);
    const Magic magic = MagicFor(std::max<int64_t>(value, 1));
    One(name + ".value", name, value);
    One(name + ".mul", name + "_mul", static_cast<int32_t>(magic.mul));
    One(name + ".shift", name + "_shift", magic.shift);
  }

 private:
  void One(const std::string& member, const std::string& name, int64_t value) {
    AddShapeMember(call_, {member}, b_.Arg(name, value));
  }

  KernelBuilder& b_;
  tile::Call& call_;
};

// All tiles' steps along k, dealt evenly to the workers.
void AddStream(const Sm90Context& x, ShapeMembers& shape) {
  const int64_t workers = StreamWorkers(x.plan, x.tile, x.target);
  const int64_t steps = TilesOf(x.plan, x.tile) * x.plan.k_steps;
  shape.Add(contract::workers, workers);
  shape.Add(contract::tile_steps, x.plan.k_steps);
  shape.Add(contract::worker_steps, steps / workers);
  shape.Add(contract::longer_workers, steps % workers);
  // The first and the last of `n` neighbouring steps may belong to tiles of others.
  shape.Add(contract::worker_tiles, CeilDiv(CeilDiv(steps, workers) - 1, x.plan.k_steps) + 1);
}

void AddPhases(const Sm90Context& x, ShapeMembers& shape) {
  const int64_t phases = NumElements(x.plan.phases);
  const int64_t clusters = std::max(1, x.target.multiprocessors / x.tile.cluster);
  shape.Add(contract::phases, phases);
  shape.Add(contract::turn, std::max<int64_t>(clusters / phases, 1));
  if (x.tile.fill) shape.Add(contract::fill_steps, x.plan.all_steps / (phases - x.plan.tap_phases));
}

}  // namespace

int64_t AddSm90Shape(const Sm90Context& x, tile::Call& call) {
  const Sm90Plan& plan = x.plan;
  const Sm90Tile& tile = x.tile;
  const int64_t left_tiles = CeilDiv(plan.left_size, int64_t{tile.left} * tile.cluster);
  const int64_t right_tiles = CeilDiv(plan.right_size, tile.right);
  const int64_t bands = CeilDiv(left_tiles, tile.raster);
  ShapeMembers shape(x.b, call);
  shape.Add(contract::left_tiles, left_tiles);
  shape.Add(contract::right_tiles, right_tiles);
  shape.Add(contract::band_tiles, tile.raster * right_tiles);
  shape.Add(contract::raster, tile.raster);
  shape.Add(contract::last_band, bands - 1);
  shape.Add(contract::last_raster, left_tiles - (bands - 1) * tile.raster);
  shape.Add(contract::k_steps, plan.k_steps);
  if (plan.batches > 1) {
    shape.Add(contract::batches, plan.batches);
    shape.Add(contract::batch_tiles, left_tiles * right_tiles);
  }
  if (tile.stream) AddStream(x, shape);
  if (tile.splits()) {
    shape.Add(contract::splits, tile.split_k);
    shape.Add(contract::slices, tile.slices());
    shape.Add(contract::whole_tiles, left_tiles * right_tiles * plan.batches);
  }
  if (!plan.phases.empty()) AddPhases(x, shape);
  for (const auto& [member, value] : plan.shape) shape.Add(member, value);
  return TilesOf(plan, tile) * tile.slices() * NumElements(plan.phases);
}

}  // namespace kiln::compiler
