#include "compiler/engines/attention_moves.h"

#include "compiler/engines/attention_functions.h"
#include "compiler/engines/sm90_functions.h"
#include "compiler/engines/vectors.h"

namespace kiln::compiler {

using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

namespace {

constexpr int kVector = 8;  // neighbours of 16 bits

bool IsVectorised(const graph::Graph& g, TensorId id, int64_t dim) {
  return g[id].dims[static_cast<size_t>(dim)] % kVector == 0 &&
         WidestVector(g, {id}, dim) >= kVector;
}

}  // namespace

HeadIndex OwnHeads(KernelBuilder& b, TensorId id) {
  return [&b, id](Block& out, const Expr& head) {
    return ScoreIndex(b, out, id, head, b.Idx(0), b.Idx(0));
  };
}

bool AddRowsLoad(KernelBuilder& b, Call& call, const char* name, const std::string& memory,
                 const OperandRows& rows, const HeadIndex& heads) {
  const graph::Graph& g = b.graph();
  const TensorId id = rows.id;
  const DType t = b.index_type(), type = g[id].dtype;
  const auto places = static_cast<size_t>(rows.places), depth = static_cast<size_t>(rows.depth);
  Call::Function f{.name = name, .params = {}, .body = {}};
  const Expr to = AddScalar(b, f, "to", t), head = AddScalar(b, f, "head", t),
             row = AddScalar(b, f, "row", t), column = AddScalar(b, f, "column", t);
  Index at = heads(f.body, head);
  at[places] = row;
  at[depth] = column;
  const auto inside = [&](const Expr& c) {
    return tile::And(tile::Lt(row, b.Extent(id, rows.places)),
                     tile::Lt(c, b.Extent(id, rows.depth)));
  };
  const bool is_computed = graph::Producers(g)[static_cast<size_t>(id)] >= 0;
  const bool is_async = !is_computed && IsVectorised(g, id, rows.depth);
  if (is_async) {
    f.body.push_back(
        {tile::CopyAsync{memory, to, b.Pointer(id), b.Offset(id, at), kVector, inside(column)}});
  } else {
    const std::string x = b.Name("elements");
    f.body.push_back({tile::Alloc{x, type, tile::Space::kReg, kVector}});
    for (int i = 0; i < kVector; ++i) {
      Block there, none;
      at[depth] = column + b.Idx(i);
      ValueScope values(b, there);
      there.push_back({tile::Store{x, b.Idx(i), tile::Cast(type, values.Value(id, at))}});
      none.push_back({tile::Store{x, b.Idx(i), tile::Cast(type, tile::Float(0))}});
      f.body.push_back({tile::If{inside(at[depth]), std::move(there), std::move(none)}});
    }
    WideCopy(f.body, type, memory, to, x, b.Idx(0), kVector);
  }
  call.functions.push_back(std::move(f));
  return is_async;
}

void AddRowsStore(KernelBuilder& b, Call& call, const char* name, TensorId id) {
  const graph::Graph& g = b.graph();
  const DType t = b.index_type(), type = g[id].dtype;
  const int64_t last = g[id].rank() - 1;
  Call::Function f{.name = name, .params = {}, .body = {}};
  const std::string values = AddArray(b, f, "values", type, kVector);
  const Expr head = AddScalar(b, f, "head", t), row = AddScalar(b, f, "row", t),
             column = AddScalar(b, f, "column", t);
  Index at = ScoreIndex(b, f.body, id, head, row, column);
  if (IsVectorised(g, id, last)) {
    Block there;
    WideCopy(there, type, b.Pointer(id), b.Offset(id, at), values, b.Idx(0), kVector);
    f.body.push_back({tile::If{tile::Lt(column, b.Extent(id, last)), std::move(there), {}}});
  } else {
    for (int i = 0; i < kVector; ++i) {
      at.back() = column + b.Idx(i);
      Block there;
      there.push_back(
          {tile::Store{b.Pointer(id), b.Offset(id, at), tile::Load(values, type, b.Idx(i))}});
      f.body.push_back({tile::If{tile::Lt(at.back(), b.Extent(id, last)), std::move(there), {}}});
    }
  }
  call.functions.push_back(std::move(f));
}

}  // namespace kiln::compiler
