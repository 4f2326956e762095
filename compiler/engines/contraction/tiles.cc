#include "compiler/engines/contraction/tiles.h"

#include <algorithm>
#include <utility>

#include "compiler/kernel/vectors.h"
#include "compiler/machine/machine.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Node;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

const Node& ContractionOf(const Group& group) {
  return *std::ranges::find_if(group.graph.nodes,
                               [](const Node& n) { return Has(n, graph::kContraction); });
}

double TiledSeconds(const Group& group, const Target& target, const TileShape& shape,
                    double flops_per_multiprocessor) {
  const ContractionSizes size = SizesOf(group.graph, ContractionOf(group));
  const int64_t tiles = CeilDiv(size.m, shape.m) * CeilDiv(size.n, shape.n) * size.batch;
  const int64_t waves = CeilDiv(tiles, std::max(target.multiprocessors, 1));
  const double tile_flops =
      2.0 * shape.m * shape.n * static_cast<double>(AlignUp(std::max<int64_t>(size.k, 1), shape.k));
  return static_cast<double>(waves) * tile_flops / flops_per_multiprocessor;
}

double ScatteredSeconds(const Group& group, const Target& target, bool channels_last) {
  // An estimate: a warp's store or load touches 8 sectors of 32 bytes, and fills 8 bytes of each.
  constexpr double kClocks = 0.35, kShareOfClock = 0.94;
  const graph::Graph& g = group.graph;
  const graph::Node& anchor = ContractionOf(group);
  if (anchor.op == graph::GraphOp::kMatmul) return 0;
  double elements = 0;
  const auto add = [&](graph::TensorId id) {
    const graph::Tensor& t = g[id];
    if (t.dims == g[anchor.outputs[0]].dims && ChannelsLast(t) != channels_last)
      elements += static_cast<double>(NumElements(t.dims));
  };
  for (const graph::TensorId id : graph::Outputs(g)) add(id);
  for (const graph::TensorId id : graph::Inputs(g))
    if (std::ranges::find(anchor.inputs, id) == anchor.inputs.end()) add(id);
  return elements * kClocks /
         (std::max(target.multiprocessors, 1) * MachineOf(target).clock * kShareOfClock);
}

ContractTiles::ContractTiles(const Group& group, const Target& target, const TileShape& shape,
                             const std::string& description, bool swapped)
    : group_(group), shape_(shape), b_(group, target, description) {
  for (const char* reserved : {"bx", "by", "bz", "tx", "step"}) b_.Name(reserved);
  c_ = DescribeContraction(b_, ContractionOf(group));
  const ContractionSizes size = SizesOf(group.graph, ContractionOf(group));
  CHECK(size.batch == c_.batch.size() && size.m == c_.m.size() && size.n == c_.n.size() &&
            size.k == c_.k.size(),
        "sizes {} {} {} {} are not those of the axes", size.batch, size.m, size.n, size.k);
  if (swapped) c_ = Swapped(std::move(c_));
  tiles_m_ = CeilDiv(c_.m.size(), shape.m);
  tiles_n_ = CeilDiv(c_.n.size(), shape.n);
}

Block ContractTiles::Prepare() {
  Block body;
  m_size_ = b_.Arg("m_size", c_.m.size());
  n_size_ = b_.Arg("n_size", c_.n.size());
  k_size_ = b_.Arg("k_size", c_.k.size());
  const auto where = b_.Divide(body, Var("bx"), b_.Arg("tiles_m", tiles_m_),
                               std::max<int64_t>(tiles_m_, 1), "tile_row");
  batch_number_ = where.quotient;
  batch_ = b_.Unravel(body, where.quotient, c_.batch.extents, c_.batch.values, "batch");
  tile_row_ = where.remainder;
  first_m_ = b_.Let(body, "first_m", tile_row_ * b_.Idx(shape_.m));
  first_n_ = b_.Let(body, "first_n", Var("by") * b_.Idx(shape_.n));
  return body;
}

// Batches lie on x with the row tiles: y is for column tiles, at most 65535 of them on a GPU.
Lowered ContractTiles::Finish(Block body, int threads, int64_t slices, int min_blocks) {
  const auto wrap = [&](const char* var, Expr extent, Bind bind) {
    Block out;
    out.push_back({tile::For{var, t(), std::move(extent), bind, std::move(body)}});
    body = std::move(out);
  };
  if (threads > 1) wrap("tx", b_.Idx(threads), Bind::kThreadX);
  if (slices > 1) wrap("bz", b_.Arg("slices", slices), Bind::kBlockZ);
  wrap("by", b_.Arg("tiles_n", tiles_n_), Bind::kBlockY);
  const int64_t blocks = tiles_m_ * c_.batch.size();
  wrap("bx", b_.Arg("blocks", blocks), Bind::kBlockX);
  Lowered lowered;
  b_.Finish(std::move(body), {blocks, tiles_n_, slices}, threads, lowered, min_blocks);
  return lowered;
}

Expr ContractTiles::InRange(bool is_a, const Expr& row, const Expr& k) const {
  return tile::And(tile::Lt(row, is_a ? m_size_ : n_size_), tile::Lt(k, k_size_));
}

Operand ContractTiles::Locate(Block& read, bool is_a, const Expr& row, const Expr& k) {
  const Index row_index = UnravelRow(read, is_a, row);
  return LocateAt(read, is_a, row_index, UnravelDepth(read, k));
}

Index ContractTiles::UnravelRow(Block& out, bool is_a, const Expr& row) {
  const Axis& axis = is_a ? c_.m : c_.n;
  return b_.Unravel(out, row, axis.extents, axis.values, is_a ? "m" : "n");
}

Index ContractTiles::UnravelDepth(Block& out, const Expr& k) {
  return b_.Unravel(out, k, c_.k.extents, c_.k.values, "k");
}

void ContractTiles::StageElement(Block& out, bool is_a, const Expr& row, const Expr& k, DType type,
                                 const std::string& buffer, const Expr& at) {
  out.push_back({tile::Store{buffer, at, Zero(type)}});
  Block read;
  const Operand operand = Locate(read, is_a, row, k);
  Block inside;
  Block& target = operand.guard ? inside : read;
  ValueScope values(b_, target);
  target.push_back(
      {tile::Store{buffer, at, tile::Cast(type, values.Value(is_a ? c_.a : c_.b, operand.index))}});
  if (operand.guard) read.push_back({tile::If{operand.guard, std::move(inside), {}}});
  out.push_back({tile::If{InRange(is_a, row, k), std::move(read), {}}});
}

void ContractTiles::StoreElement(Block& out, const Expr& m, const Expr& n, const Expr& accumulator,
                                 const Taken& taken) {
  Block inside;
  const Index mi = b_.Unravel(inside, m, c_.m.extents, c_.m.values, "om");
  const Index ni = b_.Unravel(inside, n, c_.n.extents, c_.n.values, "on");
  const Index at = c_.at_out(batch_, mi, ni);
  ValueScope values(b_, inside);
  StoreOutputs(b_, inside, values, c_.out, at, accumulator, taken);
  out.push_back(
      {tile::If{tile::And(tile::Lt(m, m_size_), tile::Lt(n, n_size_)), std::move(inside), {}}});
}

void StoreOutputs(KernelBuilder& b, Block& out, ValueScope& values, TensorId result,
                  const Index& at, const Expr& accumulator, const ElementVisitor& visit) {
  const graph::Graph& g = b.graph();
  values.Bind(result, at, RoundThrough(g[result].dtype, accumulator));
  if (visit) visit(out, values, at);
  for (TensorId y : graph::Outputs(g))
    out.push_back(
        {tile::Store{b.Pointer(y), b.Offset(y, at), tile::Cast(g[y].dtype, values.Value(y, at))}});
}

// ---- split-K

ContractCombine::ContractCombine(const Group& group, const Target& target, const char* engine,
                                 int64_t slices, bool columns_outside)
    : ContractTiles(group, target, {1, 1, 1}, fmt::format("{}: adds the slices of k", engine)),
      slices_(slices),
      columns_outside_(columns_outside) {}

void ContractCombine::Lower(Lowered& lowered) {
  constexpr int kThreads = 256;
  const int64_t total = c_.batch.size() * c_.m.size() * c_.n.size();
  const int scratch = static_cast<int>(lowered.scratch_bytes.size());
  lowered.scratch_bytes.push_back(slices_ * total * SizeOf(c_.accumulator));
  const std::string partial = b_.Scratch(scratch, c_.accumulator, true);

  Block body, inside;
  const Expr count = b_.Arg("count", total);
  const Expr i = b_.Let(body, "i", ThreadLinear(t(), kThreads));
  const std::string sum = b_.Name("sum");
  inside.push_back({tile::Alloc{sum, c_.accumulator, tile::Space::kReg, 1}});
  inside.push_back({tile::Store{sum, b_.Idx(0), tile::Load(partial, c_.accumulator, i)}});
  Loop(inside, "s", b_.Arg("slices", slices_) - b_.Idx(1), Bind::kSerial,
       [&](Block& one, const Expr& s) {
         const Expr slice = tile::Load(partial, c_.accumulator, (s + b_.Idx(1)) * count + i);
         one.push_back(
             {tile::Store{sum, b_.Idx(0), tile::Load(sum, c_.accumulator, b_.Idx(0)) + slice}});
       });
  Index extents = c_.batch.extents;
  Dims values = c_.batch.values;
  const Axis *second = &c_.m, *third = &c_.n;
  if (columns_outside_) std::swap(second, third);
  for (const Axis* axis : {second, third}) {
    extents.insert(extents.end(), axis->extents.begin(), axis->extents.end());
    values.insert(values.end(), axis->values.begin(), axis->values.end());
  }
  const Index place = b_.Unravel(inside, i, extents, values, "o");
  const auto part = [&](size_t from, size_t size) {
    return Index(place.begin() + static_cast<int64_t>(from),
                 place.begin() + static_cast<int64_t>(from + size));
  };
  const size_t batches = c_.batch.values.size();
  const Index two = part(batches, second->values.size());
  const Index three = part(batches + second->values.size(), third->values.size());
  const Index at = columns_outside_ ? c_.at_out(part(0, batches), three, two)
                                    : c_.at_out(part(0, batches), two, three);
  ValueScope scope(b_, inside);
  StoreOutputs(b_, inside, scope, c_.out, at, tile::Load(sum, c_.accumulator, b_.Idx(0)));
  body.push_back({tile::If{tile::Lt(i, count), std::move(inside), {}}});
  const int64_t blocks = CeilDiv(total, kThreads);
  b_.Finish(BlockAndThread(t(), b_.Arg("blocks", blocks), kThreads, std::move(body)),
            {blocks, 1, 1}, kThreads, lowered);
}

int64_t ChooseSlices(const Target& target, const ContractionSizes& size, int64_t blocks,
                     int64_t steps, int64_t least_steps, int wanted) {
  // Offsets into the scratch buffer stay within 31 bits.
  const int64_t elements = std::max<int64_t>(size.batch * size.m * size.n, 1);
  const int64_t most = std::max<int64_t>((int64_t{1} << 30) / elements, 1);
  const int64_t to_fill = target.multiprocessors / std::max<int64_t>(blocks, 1);
  int64_t slices = wanted > 0 ? wanted : std::min(to_fill, steps / least_steps);
  slices = std::clamp<int64_t>(slices, 1, std::max<int64_t>(std::min(steps, most), 1));
  return steps == 0 ? 1 : CeilDiv(steps, StepsOfSlice(steps, slices));
}

}  // namespace kiln::compiler
