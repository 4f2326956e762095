#include "compiler/kernel/accumulation.h"

#include <utility>

#include "ir/graph/ops.h"

namespace kiln::compiler {

using tile::Block;
using tile::Expr;

int64_t MostProducts(DType operand) { return SizeOf(operand) == 4 ? 4096 : 8192; }

int64_t MostProductsAlone(DType operand, DType result) {
  if (SizeOf(operand) == 4) return 8192;
  return SizeOf(result) == 2 ? 24576 : MostProducts(operand);
}

DType WidestOutput(const graph::Graph& graph) {
  DType widest = DType::kBool;
  for (const graph::TensorId id : graph::Outputs(graph))
    if (SizeOf(graph[id].dtype) > SizeOf(widest)) widest = graph[id].dtype;
  return widest;
}

void Totals::Each(Block& out, const std::function<void(Block&, const Expr&)>& emit) {
  const std::string name = b_.Name("z");
  Block body;
  emit(body, tile::Var(name, b_.index_type()));
  out.push_back({tile::For{name, b_.index_type(), b_.Idx(size_), bind_, std::move(body)}});
}

void Totals::Declare(Block& out, int64_t size, tile::Bind bind) {
  if (!exist()) return;
  size_ = size;
  bind_ = bind;
  totals_ = b_.Name("totals");
  out.push_back({tile::Alloc{totals_, type_, tile::Space::kReg, size}});
  Each(out, [&](Block& one, const Expr& z) {
    one.push_back({tile::Store{totals_, z, tile::Float(0, type_)}});
  });
}

void Totals::AfterStep(Block& loop, const Expr& step, const std::string& acc) {
  if (!exist()) return;
  Block fold;
  Each(fold, [&](Block& one, const Expr& z) {
    one.push_back(
        {tile::Store{totals_, z, tile::Load(totals_, type_, z) + tile::Load(acc, type_, z)}});
    one.push_back({tile::Store{acc, z, tile::Float(0, type_)}});
  });
  const Expr is_last = tile::Op(ScalarOp::kEq, {step % b_.Idx(every_), b_.Idx(every_ - 1)});
  loop.push_back({tile::If{is_last, std::move(fold), {}}});
}

void Totals::Finish(Block& out, const std::string& acc) {
  if (!exist()) return;
  Each(out, [&](Block& one, const Expr& z) {
    one.push_back({tile::Store{acc, z, tile::Load(acc, type_, z) + tile::Load(totals_, type_, z)}});
  });
}

}  // namespace kiln::compiler
