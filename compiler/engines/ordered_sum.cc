#include "compiler/engines/ordered_sum.h"

#include "compiler/engines/vectors.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

void LowerOrderedSum(const Group& group, const Target& target, const std::string& description,
                     const OrderedSum& size, const StoreSum& store, Lowered& lowered) {
  constexpr int kWalkers = 8, kLanes = 32;
  KernelBuilder b(group, target, description);
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  const DType type = b.index_type();
  const Expr bx = tile::Var("bx", type), tx = tile::Var("tx", type);
  const int64_t column_blocks = size.columns / kLanes;
  Block body;
  const auto where =
      b.Divide(body, bx, b.Arg("column_blocks", column_blocks), column_blocks, "column_block");
  const Expr lane = b.Let(body, "lane", tx % b.Idx(kLanes));
  const Expr walker = b.Let(body, "walker", tx / b.Idx(kLanes));
  const Expr column = b.Let(body, "column", where.remainder * b.Idx(kLanes) + lane);
  const std::string sums = b.Scratch(0, DType::kF32, true), sum = b.Name("sum");
  body.push_back({tile::Alloc{sum, DType::kF32, tile::Space::kReg, 1}});
  body.push_back({tile::Store{sum, b.Idx(0), tile::Float(0)}});
  const auto mine = [&] { return tile::Load(sum, DType::kF32, b.Idx(0)); };
  const Expr pitch = b.Arg("sums_pitch", size.columns);
  const Expr splits = b.Arg("splits", size.splits);
  {
    const std::string i = b.Name("i");
    Block one, add;
    const Expr split = b.Let(one, "split", tile::Var(i, type) * b.Idx(kWalkers) + walker);
    const Expr row = split * b.Idx(size.rows) + where.quotient;
    add.push_back(
        {tile::Store{sum, b.Idx(0), mine() + tile::Load(sums, DType::kF32, row * pitch + column)}});
    one.push_back({tile::If{tile::Lt(split, splits), std::move(add), {}}});
    body.push_back(
        {tile::For{i, type, CeilDivExpr(splits, kWalkers), Bind::kSerial, std::move(one)}});
  }
  const std::string shared = b.Name("walkers");
  body.push_back({tile::Alloc{shared, DType::kF32, tile::Space::kShared, kWalkers * kLanes}});
  body.push_back({tile::Store{shared, tx, mine()}});
  body.push_back({tile::Barrier{}});
  Expr total = tile::Load(shared, DType::kF32, lane);
  for (int w = 1; w < kWalkers; ++w)
    total = total + tile::Load(shared, DType::kF32, lane + b.Idx(w * kLanes));
  const Expr first = tile::Op(ScalarOp::kEq, {walker, b.Idx(0)});
  store(b, body, where.quotient, column, first, total);
  const int64_t blocks = size.rows * column_blocks;
  body = BlockAndThread(type, b.Arg("grid", blocks), kWalkers * kLanes, std::move(body));
  b.Finish(std::move(body), {blocks, 1, 1}, kWalkers * kLanes, lowered);
}

}  // namespace kiln::compiler
