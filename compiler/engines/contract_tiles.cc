#include "compiler/engines/contract_tiles.h"

#include <algorithm>

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

ContractTiles::ContractTiles(const Group& group, const Target& target, const TileShape& shape,
                             const std::string& description)
    : group_(group), shape_(shape), b_(group, target, description) {
  for (const char* reserved : {"bx", "by", "tx", "step"}) b_.Name(reserved);
  c_ = DescribeContraction(b_, ContractionOf(group));
  const ContractionSizes size = SizesOf(group.graph, ContractionOf(group));
  CHECK(size.batch == c_.batch.size() && size.m == c_.m.size() && size.n == c_.n.size() &&
            size.k == c_.k.size(),
        "sizes {} {} {} {} are not those of the axes", size.batch, size.m, size.n, size.k);
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
  batch_ = b_.Unravel(body, where.quotient, c_.batch.extents, c_.batch.values, "batch");
  first_m_ = b_.Let(body, "first_m", where.remainder * b_.Idx(shape_.m));
  first_n_ = b_.Let(body, "first_n", Var("by") * b_.Idx(shape_.n));
  return body;
}

// Batches lie on x with the row tiles: y is for column tiles, at most 65535 of them on a GPU.
Lowered ContractTiles::Finish(Block body, int threads) {
  const auto wrap = [&](const char* var, Expr extent, Bind bind) {
    Block out;
    out.push_back({tile::For{var, t(), std::move(extent), bind, std::move(body)}});
    body = std::move(out);
  };
  if (threads > 1) wrap("tx", b_.Idx(threads), Bind::kThreadX);
  wrap("by", b_.Arg("tiles_n", tiles_n_), Bind::kBlockY);
  const int64_t blocks = tiles_m_ * c_.batch.size();
  wrap("bx", b_.Arg("blocks", blocks), Bind::kBlockX);
  Lowered lowered;
  b_.Finish(std::move(body), {blocks, tiles_n_, 1}, threads, lowered);
  return lowered;
}

Expr ContractTiles::InRange(bool is_a, const Expr& row, const Expr& k) const {
  return tile::And(tile::Lt(row, is_a ? m_size_ : n_size_), tile::Lt(k, k_size_));
}

Operand ContractTiles::Locate(Block& read, bool is_a, const Expr& row, const Expr& k) {
  const Axis& axis = is_a ? c_.m : c_.n;
  const Index row_index = b_.Unravel(read, row, axis.extents, axis.values, is_a ? "m" : "n");
  const Index k_index = b_.Unravel(read, k, c_.k.extents, c_.k.values, "k");
  return is_a ? c_.at_a(read, batch_, row_index, k_index)
              : c_.at_b(read, batch_, k_index, row_index);
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

void ContractTiles::StoreElement(Block& out, const Expr& m, const Expr& n,
                                 const Expr& accumulator) {
  Block inside;
  const Index mi = b_.Unravel(inside, m, c_.m.extents, c_.m.values, "om");
  const Index ni = b_.Unravel(inside, n, c_.n.extents, c_.n.values, "on");
  const Index at = c_.at_out(batch_, mi, ni);
  ValueScope values(b_, inside);
  const graph::Graph& g = group_.graph;
  values.Bind(c_.out, at, RoundThrough(g[c_.out].dtype, accumulator));
  for (TensorId y : graph::Outputs(g))
    inside.push_back({tile::Store{b_.Pointer(y), b_.Offset(y, at),
                                  tile::Cast(g[y].dtype, values.Value(y, at))}});
  out.push_back(
      {tile::If{tile::And(tile::Lt(m, m_size_), tile::Lt(n, n_size_)), std::move(inside), {}}});
}

Expr ContractTiles::Zero(DType type) const {
  const DType arithmetic = ArithmeticType(type);
  return tile::Cast(type,
                    IsFloat(arithmetic) ? tile::Float(0, arithmetic) : tile::Int(0, arithmetic));
}

}  // namespace kiln::compiler
