#include "compiler/engines/attention/moves.h"

#include <algorithm>
#include <optional>

#include "compiler/engines/attention/functions.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

namespace {

// The neighbours that are moved together.
int VectorOf(DType type) { return SizeOf(type) == 4 ? 4 : 8; }

bool IsVectorised(const graph::Graph& g, TensorId id, int64_t dim) {
  const int vector = VectorOf(g[id].dtype);
  return g[id].dims[static_cast<size_t>(dim)] % vector == 0 && WidestVector(g, {id}, dim) >= vector;
}

// The change of a value from one place along a dim to the next: 0, whatever it is, or a whole
// number by 1, or in another way.
std::optional<int> SlopeOf(const graph::Graph& g, const std::vector<graph::NodeId>& producers,
                           TensorId id, int64_t dim) {
  const Tensor& t = g[id];
  // Dims are counted from the last one: operands broadcast from there.
  if (dim >= t.rank() || t.dims[static_cast<size_t>(t.rank() - 1 - dim)] == 1) return 0;
  const graph::NodeId n = producers[static_cast<size_t>(id)];
  if (n < 0) return std::nullopt;
  const graph::Node& node = g.nodes[static_cast<size_t>(n)];
  if (node.op == GraphOp::kIota)
    return node.As<graph::IotaAttrs>().axis == t.rank() - 1 - dim ? 1 : 0;
  if (node.op != GraphOp::kMap) return std::nullopt;
  const auto& map = node.As<graph::MapAttrs>();
  std::vector<std::optional<int>> slopes;
  for (const TensorId input : node.inputs) slopes.push_back(SlopeOf(g, producers, input, dim));
  if (std::ranges::all_of(slopes, [](const std::optional<int>& slope) { return slope == 0; }))
    return 0;
  if (map.identity && IsInteger(t.dtype)) return slopes[0];
  if (map.identity || (map.op != ScalarOp::kAdd && map.op != ScalarOp::kMul)) return std::nullopt;
  const std::optional<int> a = slopes[0], b = slopes[1];
  if (!a || !b) return std::nullopt;
  if (map.op == ScalarOp::kAdd) return *a + *b <= 1 ? std::optional(*a + *b) : std::nullopt;
  const auto is_one = [&](TensorId x) { return g[x].is_constant() && *g[x].value == 1; };
  if (*b == 0 && is_one(node.inputs[1])) return a;
  if (*a == 0 && is_one(node.inputs[0])) return b;
  return std::nullopt;
}

// The dim of a reshape's operand that is a dim of its result: as many places, and as many elements
// behind each.
std::optional<int64_t> KeptDim(const Dims& to, int64_t dim, const Dims& from) {
  const auto behind = [](const Dims& dims, int64_t d) {
    return NumElements(Dims(dims.begin() + d + 1, dims.end()));
  };
  for (int64_t d = 0; d < static_cast<int64_t>(from.size()); ++d)
    if (from[static_cast<size_t>(d)] == to[static_cast<size_t>(dim)] &&
        behind(from, d) == behind(to, dim))
      return d;
  return std::nullopt;
}

// select(place < end, place, -1) of places that lie together along the last dim but `dim`.
bool ArePlaces(const graph::Graph& g, const std::vector<graph::NodeId>& producers, TensorId id,
               int64_t dim) {
  const graph::NodeId n = producers[static_cast<size_t>(id)];
  const auto is_map = [&](graph::NodeId node, ScalarOp op) {
    return node >= 0 && g.nodes[static_cast<size_t>(node)].op == GraphOp::kMap &&
           !g.nodes[static_cast<size_t>(node)].As<graph::MapAttrs>().identity &&
           g.nodes[static_cast<size_t>(node)].As<graph::MapAttrs>().op == op;
  };
  if (!is_map(n, ScalarOp::kSelect)) return false;
  const std::vector<TensorId>& select = g.nodes[static_cast<size_t>(n)].inputs;
  const graph::NodeId below = producers[static_cast<size_t>(select[0])];
  if (!is_map(below, ScalarOp::kLt) || !g[select[2]].is_constant() || *g[select[2]].value != -1)
    return false;
  const std::vector<TensorId>& less = g.nodes[static_cast<size_t>(below)].inputs;
  return less[0] == select[1] && SlopeOf(g, producers, less[0], dim) == 1 &&
         SlopeOf(g, producers, less[1], dim) == 0;
}

}  // namespace

Neighbours NeighboursOf(const graph::Graph& g, TensorId id, int64_t dim) {
  const int vector = VectorOf(g[id].dtype);
  if (g[id].dims[static_cast<size_t>(dim)] % vector != 0 || !AreCopied(g[id].dtype))
    return Neighbours::kApart;
  const std::vector<graph::NodeId> producers = graph::Producers(g);
  while (producers[static_cast<size_t>(id)] >= 0) {
    const graph::Node& node = g.nodes[static_cast<size_t>(producers[static_cast<size_t>(id)])];
    const int64_t back = g[id].rank() - 1 - dim;
    const auto varies = [&](TensorId x) {
      return back < g[x].rank() && g[x].dims[static_cast<size_t>(g[x].rank() - 1 - back)] != 1;
    };
    TensorId source = node.inputs.empty() ? graph::kAbsent : node.inputs[0];
    if (node.op == GraphOp::kMap) {
      const auto& map = node.As<graph::MapAttrs>();
      if (!map.identity && map.op != ScalarOp::kSelect) return Neighbours::kApart;
      if (!map.identity) {
        if (SlopeOf(g, producers, node.inputs[0], back) != 0) return Neighbours::kApart;
        source = node.inputs[1];
      }
    } else if (node.op == GraphOp::kTranspose) {
      dim = node.As<graph::TransposeAttrs>().permutation[static_cast<size_t>(dim)];
    } else if (node.op == GraphOp::kSlice) {
      const auto& slice = node.As<graph::SliceAttrs>();
      if (slice.step[static_cast<size_t>(dim)] != 1 || slice.start[static_cast<size_t>(dim)] != 0)
        return Neighbours::kApart;
    } else if (node.op == GraphOp::kReshape) {
      const std::optional<int64_t> kept = KeptDim(g[id].dims, dim, g[source].dims);
      if (!kept) return Neighbours::kApart;
      dim = *kept;
    } else if (node.op == GraphOp::kGather) {
      const bool is_flat = NumElements(g[source].dims) == g[source].dims[0] &&
                           node.As<graph::GatherAttrs>().axis == 0 &&
                           producers[static_cast<size_t>(source)] < 0;
      if (is_flat)
        return ArePlaces(g, producers, node.inputs[1], back) && g[source].strides[0] == 1 &&
                       g[source].alignment % 16 == 0
                   ? Neighbours::kTogether
                   : Neighbours::kApart;
      if (node.As<graph::GatherAttrs>().axis == dim || varies(node.inputs[1]))
        return Neighbours::kApart;
    } else {
      return Neighbours::kApart;
    }
    id = source;
  }
  return WidestVector(g, {id}, dim) >= vector ? Neighbours::kAligned : Neighbours::kApart;
}

bool AreStoredTogether(const graph::Graph& g, TensorId id) {
  return SizeOf(g[id].dtype) == 2 && IsVectorised(g, id, g[id].rank() - 1);
}

bool AreScatteredTogether(const graph::Graph& g, const graph::Node& scatter) {
  const Tensor &x = g[scatter.inputs[0]], &y = g[scatter.outputs[0]];
  return x.dims.back() % VectorOf(y.dtype) == 0 && y.strides[0] == 1 && y.alignment % 16 == 0 &&
         AreCopied(y.dtype) && ArePlaces(g, graph::Producers(g), scatter.inputs[1], 0);
}

ScatterPlace ScatterPlaceOf(KernelBuilder& b, ValueScope& values, Block& out,
                            const graph::Node& scatter, const Index& at) {
  const TensorId places = scatter.inputs[1], y = scatter.outputs[0];
  const Expr place = values.Value(places, BroadcastIndex(b, b.graph()[places], at));
  const Expr offset = b.Let(out, "place", tile::Cast(b.index_type(), place));
  Index to(b.graph()[y].dims.size(), b.Idx(0));
  to[0] = offset;
  return {b.Offset(y, to), tile::And(tile::Ge(offset, b.Idx(0)), tile::Lt(offset, b.Extent(y, 0)))};
}

HeadIndex OwnHeads(KernelBuilder& b, TensorId id) {
  return [&b, id](Block& out, const Expr& head) {
    return ScoreIndex(b, out, id, head, b.Idx(0), b.Idx(0));
  };
}

namespace {

Expr Number(const Expr& condition) {
  return tile::Select(condition, tile::Int(1, DType::kI32), tile::Int(0, DType::kI32));
}

// Asynchronous copies of neighbours that lie together; where that does not hold of all, because
// of an end among them or of where they begin, one after the other.
void CopyRows(KernelBuilder& b, Block& out, const std::string& memory, const Expr& to, TensorId id,
              Index at, const OperandRows& rows, Neighbours neighbours,
              const std::function<Expr(const Expr&)>& inside) {
  const auto depth = static_cast<size_t>(rows.depth), places = static_cast<size_t>(rows.places);
  const Expr column = at[depth];
  // Tensors that are read on the way there (pages) are read for rows that there are.
  at[places] = b.Let(out, "row_of",
                     tile::Op(ScalarOp::kMin, {at[places], b.Extent(id, rows.places) - b.Idx(1)}));
  ValueScope values(b, out);
  const auto first = values.PlaceOf(id, at);
  const Expr is_column = inside(column);
  const Expr valid = first->inside ? tile::And(is_column, first->inside) : is_column;
  const DType type = b.graph()[id].dtype;
  const int vector = VectorOf(type);
  const tile::CopyAsync copy{memory, to, b.Pointer(first->tensor), first->offset, vector, valid};
  if (neighbours == Neighbours::kAligned) {
    out.push_back({copy});
    return;
  }
  Index last = at;
  last[depth] = column + b.Idx(vector - 1);
  const auto end = values.PlaceOf(id, last);
  const Expr alike = tile::Op(ScalarOp::kEq, {Number(first->inside), Number(end->inside)});
  const Expr aligned = tile::Op(ScalarOp::kEq, {first->offset % b.Idx(vector), b.Idx(0)});
  Block together, apart, element;
  together.push_back({copy});
  const std::string i = b.Name("i");
  at[depth] = column + tile::Var(i, b.index_type());
  ValueScope each(b, element);
  const Expr x = each.Value(id, at);
  element.push_back({tile::Store{
      memory, to + tile::Var(i, b.index_type()),
      tile::Cast(type, tile::Select(inside(at[depth]), x, tile::Cast(x->type, tile::Float(0))))}});
  // A number that the compiler does not know keeps this a loop: it is seldom run.
  apart.push_back({tile::For{i, b.index_type(), b.Arg("neighbours", vector), tile::Bind::kSerial,
                             std::move(element)}});
  out.push_back({tile::If{
      tile::Op(ScalarOp::kOr, {tile::Op(ScalarOp::kNot, {is_column}), tile::And(alike, aligned)}),
      std::move(together), std::move(apart)}});
}

}  // namespace

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
  const Neighbours neighbours = NeighboursOf(g, id, rows.depth);
  const bool is_computed = graph::Producers(g)[static_cast<size_t>(id)] >= 0;
  const bool is_async = neighbours != Neighbours::kApart;
  const int vector = VectorOf(type);
  if (is_async && !is_computed) {
    f.body.push_back(
        {tile::CopyAsync{memory, to, b.Pointer(id), b.Offset(id, at), vector, inside(column)}});
  } else if (is_async) {
    CopyRows(b, f.body, memory, to, id, at, rows, neighbours, inside);
  } else {
    const std::string x = b.Name("elements");
    f.body.push_back({tile::Alloc{x, type, tile::Space::kReg, vector}});
    for (int i = 0; i < vector; ++i) {
      Block there, none;
      at[depth] = column + b.Idx(i);
      ValueScope values(b, there);
      there.push_back({tile::Store{x, b.Idx(i), tile::Cast(type, values.Value(id, at))}});
      none.push_back({tile::Store{x, b.Idx(i), tile::Cast(type, tile::Float(0))}});
      f.body.push_back({tile::If{inside(at[depth]), std::move(there), std::move(none)}});
    }
    WideCopy(f.body, type, memory, to, x, b.Idx(0), vector);
  }
  call.functions.push_back(std::move(f));
  return is_async;
}

namespace {

// 8 neighbours to where a scatter puts them: at once where they lie together.
void ScatterRows(KernelBuilder& b, Block& out, const graph::Node& scatter, const std::string& from,
                 Index at) {
  const graph::Graph& g = b.graph();
  const TensorId x = scatter.inputs[0], y = scatter.outputs[0];
  const DType type = g[y].dtype;
  const int64_t last = g[x].rank() - 1;
  const Expr column = at.back();
  const bool is_together = AreScatteredTogether(g, scatter);
  const int vector = VectorOf(type);
  // A loop whose end the compiler does not know: what is seldom run stays small, and is part of the
  // skeleton and no call, around which accumulators would have to be in memory.
  const std::string i = b.Name("i");
  const Expr neighbour = tile::Var(i, b.index_type());
  Block apart, element, inside_row, there;
  at.back() = column + neighbour;
  ValueScope each(b, inside_row);
  const ScatterPlace to = ScatterPlaceOf(b, each, inside_row, scatter, at);
  there.push_back({tile::Store{b.Pointer(y), to.offset, tile::Load(from, type, neighbour)}});
  inside_row.push_back({tile::If{to.inside, std::move(there), {}}});
  element.push_back({tile::If{tile::Lt(at.back(), b.Extent(x, last)), std::move(inside_row), {}}});
  apart.push_back({tile::For{i, b.index_type(), b.Arg("neighbours", vector), tile::Bind::kSerial,
                             std::move(element)}});
  if (!is_together) {
    for (tile::Stmt& s : apart) out.push_back(std::move(s));
    return;
  }
  Block inside, together;
  ValueScope values(b, inside);
  at.back() = column;
  const ScatterPlace first = ScatterPlaceOf(b, values, inside, scatter, at);
  at.back() = column + b.Idx(vector - 1);
  const ScatterPlace end = ScatterPlaceOf(b, values, inside, scatter, at);
  WideCopy(together, type, b.Pointer(y), first.offset, from, b.Idx(0), vector);
  const Expr aligned = tile::Op(ScalarOp::kEq, {first.offset % b.Idx(vector), b.Idx(0)});
  inside.push_back({tile::If{tile::And(tile::And(first.inside, end.inside), aligned),
                             std::move(together), std::move(apart)}});
  out.push_back({tile::If{tile::Lt(column, b.Extent(x, last)), std::move(inside), {}}});
}

}  // namespace

void AddRowsStore(KernelBuilder& b, Call& call, const char* name, TensorId id,
                  const graph::Node* scatter) {
  const graph::Graph& g = b.graph();
  const DType t = b.index_type(), type = g[id].dtype;
  const int64_t last = g[id].rank() - 1;
  Call::Function f{.name = name, .params = {}, .body = {}};
  const int vector = VectorOf(type);
  const DType given = SizeOf(type) == 1 ? DType::kF16 : type;
  std::string values = AddArray(b, f, "values", given, vector);
  const Expr head = AddScalar(b, f, "head", t), row = AddScalar(b, f, "row", t),
             column = AddScalar(b, f, "column", t);
  if (given != type) {
    const std::string narrow = b.Name("narrow");
    f.body.push_back({tile::Alloc{narrow, type, tile::Space::kReg, vector}});
    for (int i = 0; i < vector; ++i)
      f.body.push_back(
          {tile::Store{narrow, b.Idx(i), tile::Cast(type, tile::Load(values, given, b.Idx(i)))}});
    values = narrow;
  }
  Index at = ScoreIndex(b, f.body, id, head, row, column);
  if (scatter != nullptr) {
    ScatterRows(b, f.body, *scatter, values, at);
  } else if (IsVectorised(g, id, last)) {
    Block there;
    WideCopy(there, type, b.Pointer(id), b.Offset(id, at), values, b.Idx(0), vector);
    f.body.push_back({tile::If{tile::Lt(column, b.Extent(id, last)), std::move(there), {}}});
  } else {
    for (int i = 0; i < vector; ++i) {
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
