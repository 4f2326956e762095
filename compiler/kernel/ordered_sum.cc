#include "compiler/kernel/ordered_sum.h"

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

void LowerOrderedSum(const Group& group, const Target& target, const std::string& description,
                     const OrderedSum& size, const StoreSum& store, Lowered& lowered) {
  // Threads that share a column: fewer where each had next to nothing to add.
  constexpr int kThreads = 256;
  const int walkers = size.splits >= 32 ? 8 : size.splits >= 16 ? 2 : 1;
  const int lanes = kThreads / walkers;
  KernelBuilder b(group, target, description);
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  const DType type = b.index_type();
  const Expr bx = tile::Var("bx", type), tx = tile::Var("tx", type);
  const int64_t column_blocks = CeilDiv(size.columns, int64_t{lanes});
  Block body;
  const auto where =
      b.Divide(body, bx, b.Arg("column_blocks", column_blocks), column_blocks, "column_block");
  const Expr lane = b.Let(body, "lane", tx % b.Idx(lanes));
  const Expr walker = b.Let(body, "walker", tx / b.Idx(lanes));
  const Expr column = b.Let(body, "column", where.remainder * b.Idx(lanes) + lane);
  const std::string sums = b.Scratch(0, DType::kF32, true), sum = b.Name("sum");
  body.push_back({tile::Alloc{sum, DType::kF32, tile::Space::kReg, 1}});
  body.push_back({tile::Store{sum, b.Idx(0), tile::Float(0)}});
  const auto mine = [&] { return tile::Load(sum, DType::kF32, b.Idx(0)); };
  const Expr pitch = b.Arg("sums_pitch", size.columns);
  const Expr splits = b.Arg("splits", size.splits);
  {
    const std::string i = b.Name("i");
    Block one, add;
    const Expr split = b.Let(one, "split", tile::Var(i, type) * b.Idx(walkers) + walker);
    const Expr row = split * b.Idx(size.rows) + where.quotient;
    add.push_back(
        {tile::Store{sum, b.Idx(0), mine() + tile::Load(sums, DType::kF32, row * pitch + column)}});
    Expr exists = tile::Lt(split, splits);
    if (size.columns % lanes != 0) exists = tile::And(exists, tile::Lt(column, pitch));
    one.push_back({tile::If{exists, std::move(add), {}}});
    body.push_back(
        {tile::For{i, type, CeilDivExpr(splits, walkers), Bind::kSerial, std::move(one)}});
  }
  Expr total = mine();
  if (walkers > 1) {
    const std::string shared = b.Name("walkers");
    body.push_back({tile::Alloc{shared, DType::kF32, tile::Space::kShared, kThreads}});
    body.push_back({tile::Store{shared, tx, mine()}});
    body.push_back({tile::Barrier{}});
    total = tile::Load(shared, DType::kF32, lane);
    for (int w = 1; w < walkers; ++w)
      total = total + tile::Load(shared, DType::kF32, lane + b.Idx(w * lanes));
  }
  const Expr first = tile::Op(ScalarOp::kEq, {walker, b.Idx(0)});
  store(b, body, where.quotient, column, first, total);
  const int64_t blocks = size.rows * column_blocks;
  body = BlockAndThread(type, b.Arg("grid", blocks), kThreads, std::move(body));
  b.Finish(std::move(body), {blocks, 1, 1}, kThreads, lowered);
}

void StoreTotal(KernelBuilder& b, Block& out, const graph::Graph& g, graph::TensorId result,
                const Index& index, const Expr& guard, const Expr& sum) {
  Block inside;
  ValueScope values(b, inside);
  values.Bind(result, index, RoundThrough(g[result].dtype, b.Let(inside, "total", sum)));
  for (const graph::TensorId id : graph::Outputs(g))
    inside.push_back({tile::Store{b.Pointer(id), b.Offset(id, index),
                                  tile::Cast(g[id].dtype, values.Value(id, index))}});
  out.push_back({tile::If{guard, std::move(inside), {}}});
}

}  // namespace kiln::compiler
