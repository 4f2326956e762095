// KernelBuilder and ValueScope: see the header. Used by every engine's lowering; decides nothing
// about schedules, only how tensors are addressed and how elementwise operations become
// expressions.
#include "compiler/kernel/kernel_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <unordered_set>

#include "compiler/kernel/prune.h"
#include "compiler/kernel/window_taps.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"
#include "ir/tile/visit.h"

namespace kiln::compiler {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using tile::Expr;

namespace {

// Largest index that 32-bit arithmetic takes, with room for the overhang of a last tile.
constexpr int64_t kNarrowLimit = (int64_t{1} << 31) - (int64_t{1} << 24);

uint64_t ScalarBits(DType type, double value) {
  switch (type) {
    case DType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kF64:
      return std::bit_cast<uint64_t>(value);
    case DType::kI32:
      return static_cast<uint32_t>(static_cast<int32_t>(RoundTo(DType::kI32, value)));
    default:
      return static_cast<uint64_t>(static_cast<int64_t>(RoundTo(DType::kI64, value)));
  }
}

Expr Literal(DType type, double value) {
  if (type == DType::kBool) return tile::Bool(value != 0);
  if (IsFloat(type)) return tile::Float(value, type);
  return tile::Int(static_cast<int64_t>(RoundTo(type, value)), type);
}

// Scalars travel as f32, f64, i32 or i64.
DType ParamType(DType type) {
  const DType arithmetic = ArithmeticType(type);
  return arithmetic == DType::kBool ? DType::kI32 : arithmetic;
}

bool IsLiteral(const Tensor& t) { return t.is_constant() && t.uid == kLiteralUid; }

// Dims of extent above 1, outermost first.
std::vector<int64_t> RowMajor(const Tensor& t) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < t.rank(); ++d)
    if (t.dims[d] != 1) dims.push_back(d);
  return dims;
}

}  // namespace

DType IndexType(const Graph& graph) {
  const bool wide = std::ranges::any_of(graph.tensors, [](const Tensor& t) {
    return SpanElements(t.dims, t.strides) > kNarrowLimit || NumElements(t.dims) > kNarrowLimit;
  });
  return wide ? DType::kI64 : DType::kI32;
}

Expr RoundThrough(DType type, Expr value) {
  return tile::Cast(ArithmeticType(type), tile::Cast(type, std::move(value)));
}

Index BroadcastIndex(const KernelBuilder& b, const Tensor& operand, const Index& index) {
  CHECK(static_cast<size_t>(operand.rank()) <= index.size(),
        "operand {} of rank {} read at rank {}", operand.name, operand.rank(), index.size());
  Index result(index.end() - operand.rank(), index.end());
  for (int64_t d = 0; d < operand.rank(); ++d)
    if (operand.dims[d] == 1) result[d] = b.Idx(0);
  return result;
}

// ---- KernelBuilder

KernelBuilder::KernelBuilder(const Group& group, const Target& target, std::string engine,
                             DType index_type)
    : group_(group),
      target_(target),
      engine_(std::move(engine)),
      index_type_(index_type),
      producers_(graph::Producers(group.graph)) {}

std::string KernelBuilder::Name(const std::string& wish) {
  const int n = names_[wish]++;
  if (n == 0) return wish;
  // "x_2" may itself have been wished for: ask again until the name is new.
  return Name(fmt::format("{}_{}", wish, n + 1));
}

Expr KernelBuilder::ScalarParam(const std::string& name, DType type, LoweredArg arg) {
  params_.push_back({.name = Name(name), .type = type});
  args_.push_back(arg);
  return tile::Var(params_.back().name, type);
}

Expr KernelBuilder::Arg(const std::string& name, int64_t value) {
  return ScalarParam(name, index_type_,
                     {.kind = LoweredArg::Kind::kScalar,
                      .bits = ScalarBits(index_type_, static_cast<double>(value))});
}

Expr KernelBuilder::WideArg(const std::string& name, int64_t value) {
  return ScalarParam(name, DType::kI64,
                     {.kind = LoweredArg::Kind::kScalar, .bits = static_cast<uint64_t>(value)});
}

Expr KernelBuilder::Extent(TensorId tensor, int64_t dim) {
  const int64_t value = graph()[tensor].dims[dim];
  if (value == 1) return Idx(1);
  Expr& known = extents_[{tensor, dim}];
  if (!known) known = Arg(fmt::format("{}_n{}", graph()[tensor].name, dim), value);
  return known;
}

Expr KernelBuilder::Stride(TensorId tensor, int64_t dim) {
  const Tensor& t = graph()[tensor];
  if (t.dims[dim] == 1 || t.strides[dim] == 0) return Idx(0);
  if (t.strides[dim] == 1) return Idx(1);
  Expr& known = strides_[{tensor, dim}];
  if (!known) known = Arg(fmt::format("{}_s{}", t.name, dim), t.strides[dim]);
  return known;
}

const std::string& KernelBuilder::Pointer(TensorId tensor) {
  std::string& name = pointers_[tensor];
  if (!name.empty()) return name;
  const Tensor& t = graph()[tensor];
  name = Name(t.name);
  params_.push_back({.name = name,
                     .type = t.dtype,
                     .is_pointer = true,
                     .is_const = producers_[tensor] < 0,
                     .alignment = static_cast<int>(std::min<int64_t>(t.alignment, 16))});
  args_.push_back({.kind = LoweredArg::Kind::kTensor, .id = tensor});
  return name;
}

std::string KernelBuilder::Map(const std::string& name, TensorId tensor, const TensorMapSpec& map) {
  return AddMap(name, LoweredArg::Kind::kTensorMap, tensor, map);
}

std::string KernelBuilder::ScratchMap(const std::string& name, int scratch,
                                      const TensorMapSpec& map) {
  return AddMap(name, LoweredArg::Kind::kScratchMap, scratch, map);
}

std::string KernelBuilder::AddMap(const std::string& name, LoweredArg::Kind kind, int id,
                                  const TensorMapSpec& map) {
  params_.push_back({.name = Name(name), .is_map = true});
  args_.push_back({.kind = kind, .id = id, .bits = tensor_maps_.size()});
  tensor_maps_.push_back(map);
  return params_.back().name;
}

std::string KernelBuilder::Scratch(int scratch, DType type, bool is_const) {
  std::string name = Name(fmt::format("scratch{}", scratch));
  params_.push_back(
      {.name = name, .type = type, .is_pointer = true, .is_const = is_const, .alignment = 16});
  args_.push_back({.kind = LoweredArg::Kind::kScratch, .id = scratch});
  return name;
}

std::string KernelBuilder::SharedPointer(TensorId tensor) {
  const Tensor& t = graph()[tensor];
  params_.push_back({.name = Name(t.name),
                     .type = t.dtype,
                     .is_pointer = true,
                     .alignment = static_cast<int>(std::min<int64_t>(t.alignment, 16))});
  args_.push_back({.kind = LoweredArg::Kind::kTensor, .id = tensor});
  return params_.back().name;
}

Expr KernelBuilder::PeerRank(int count) {
  CHECK(params_.size() >= static_cast<size_t>(count), "{} parameters, {} of them peers'",
        params_.size(), count);
  return ScalarParam("rank", DType::kI32,
                     {.kind = LoweredArg::Kind::kPeerRank, .bits = static_cast<uint64_t>(count)});
}

Expr KernelBuilder::PeerLimit() {
  return ScalarParam("limit", DType::kI64, {.kind = LoweredArg::Kind::kPeerLimit});
}

std::string KernelBuilder::Fault() {
  params_.push_back({.name = Name("fault"), .type = DType::kI32, .is_pointer = true});
  args_.push_back({.kind = LoweredArg::Kind::kFault});
  return params_.back().name;
}

Expr KernelBuilder::Let(tile::Block& out, const std::string& name, Expr value) {
  if (value->kind == tile::ExprKind::kVar || value->kind == tile::ExprKind::kInt ||
      value->kind == tile::ExprKind::kFloat) {
    return value;
  }
  std::string unique = Name(name);
  Expr var = tile::Var(unique, value->type);
  out.push_back({tile::Let{.name = std::move(unique), .value = std::move(value)}});
  return var;
}

KernelBuilder::DivMod KernelBuilder::Divide(tile::Block& out, const Expr& numerator,
                                            const Expr& extent, int64_t value,
                                            const std::string& name) {
  if (tile::IsConst(extent, 1)) return {numerator, Idx(0)};
  Expr quotient;
  if (index_type_ == DType::kI64 || extent->kind == tile::ExprKind::kInt) {
    quotient = numerator / extent;
  } else {
    auto& [mul, shift] = magics_[extent->name];
    if (!mul) {
      const Magic magic = MagicFor(std::max<int64_t>(value, 1));
      mul = Arg(extent->name + "_mul", static_cast<int32_t>(magic.mul));
      shift = Arg(extent->name + "_shift", magic.shift);
    }
    quotient = tile::Op(ScalarOp::kFastDiv, {numerator, mul, shift});
  }
  quotient = Let(out, name + "_q", quotient);
  return {quotient, Let(out, name, numerator - quotient * extent)};
}

Index KernelBuilder::Unravel(tile::Block& out, Expr linear, const Index& extents,
                             const Dims& values, const std::string& name) {
  Index index(extents.size());
  // The outermost dim that is not 1 takes what is left, undivided.
  size_t first = 0;
  while (first < extents.size() && tile::IsConst(extents[first], 1)) index[first++] = Idx(0);
  for (size_t d = extents.size(); d-- > first;) {
    if (d == first) {
      index[d] = linear;
      break;
    }
    DivMod split = Divide(out, linear, extents[d], values[d], fmt::format("{}{}", name, d));
    index[d] = split.remainder;
    linear = split.quotient;
  }
  return index;
}

Expr KernelBuilder::Offset(TensorId tensor, const Index& index) {
  const Tensor& t = graph()[tensor];
  CHECK(index.size() == t.dims.size(), "tensor {} of rank {} addressed at rank {}", t.name,
        t.rank(), index.size());
  Expr offset = Idx(0);
  for (int64_t d = 0; d < t.rank(); ++d) offset = offset + index[d] * Stride(tensor, d);
  return offset;
}

// Parameters are made where they may be needed; an outermost extent, say, is often not.
void KernelBuilder::DropUnused(const tile::Block& body) {
  std::unordered_set<std::string_view> used;
  tile::Walk(body, [&](const tile::Stmt& stmt) {
    tile::ForEachBuffer(stmt,
                        [&](const std::string& buffer, tile::Access) { used.insert(buffer); });
    if (const auto* call = std::get_if<tile::Call>(&stmt.node))
      used.insert(call->maps.begin(), call->maps.end());
  });
  tile::WalkExprs(body, [&](const Expr& e) {
    if (e->kind == tile::ExprKind::kVar || e->kind == tile::ExprKind::kLoad) used.insert(e->name);
  });
  size_t kept = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!used.contains(params_[i].name)) continue;
    if (kept != i) {
      params_[kept] = std::move(params_[i]);
      args_[kept] = args_[i];
    }
    ++kept;
  }
  params_.resize(kept);
  args_.resize(kept);
}

void KernelBuilder::Finish(tile::Block body, std::array<int64_t, 3> grid, int threads,
                           Lowered& lowered, int min_blocks) {
  tile::Kernel kernel;
  kernel.name = "kiln_kernel";  // until emit knows the hash of the text
  kernel.comment.push_back(engine_);
  for (const Node& node : group_.graph.nodes) {
    std::string line;
    for (TensorId id : node.outputs) {
      if (id == graph::kAbsent) continue;
      line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", graph()[id].name,
                          Info(graph()[id].dtype).text);
    }
    line += fmt::format(" = {}(", graph::Info(node.op).mnemonic);
    if (node.op == GraphOp::kMap) {
      const auto& map = node.As<graph::MapAttrs>();
      line.replace(line.size() - 4, 4,
                   fmt::format("{}(", map.identity ? "identity" : Info(map.op).text));
    }
    bool first = true;
    for (TensorId id : node.inputs) {
      if (id == graph::kAbsent) continue;
      const Tensor& t = graph()[id];
      line += fmt::format("{}{}", first ? "" : ", ",
                          IsLiteral(t) ? fmt::format("{}", *t.value) : t.name);
      first = false;
    }
    kernel.comment.push_back(line + fmt::format(") in {}", Info(node.compute).text));
  }
  Prune(body);
  DropUnused(body);
  kernel.params = std::move(params_);
  kernel.threads = threads;
  kernel.min_blocks = min_blocks;
  kernel.body = std::move(body);
  lowered.launches.push_back({.kernel = static_cast<int>(lowered.kernels.size()),
                              .grid = grid,
                              .args = std::move(args_),
                              .tensor_maps = std::move(tensor_maps_)});
  lowered.kernels.push_back(std::move(kernel));
}

// ---- ValueScope

void ValueScope::Bind(TensorId tensor, const Index& index, Expr value) {
  std::vector<Known>& known = known_[tensor];
  known.push_back({index, value});
  // Maps ask for place 0 along an extent of 1 (BroadcastIndex), however the engine computes it.
  const Tensor& t = b_.graph()[tensor];
  if (static_cast<size_t>(t.rank()) != index.size()) return;
  Index broadcast = BroadcastIndex(b_, t, index);
  if (!std::ranges::equal(broadcast, index, tile::Equal))
    known.push_back({std::move(broadcast), std::move(value)});
}

Expr ValueScope::Value(TensorId tensor, const Index& index) {
  for (const Known& k : known_[tensor])
    if (std::ranges::equal(k.index, index, tile::Equal)) return k.value;
  const graph::NodeId producer = b_.producers_[tensor];
  Expr value;
  if (producer < 0)
    value = Leaf(tensor, index);
  else if (const Node& node = b_.graph().nodes[producer]; node.op == GraphOp::kResampleFwd)
    value = WindowValue(node, tensor, index);
  else
    value = NodeValue(node, index);
  known_[tensor].push_back({index, value});
  return value;
}

Expr ValueScope::Leaf(TensorId tensor, const Index& index) {
  const Tensor& t = b_.graph()[tensor];
  const DType type = ArithmeticType(t.dtype);
  if (IsLiteral(t)) return Literal(type, RoundTo(t.dtype, *t.value));
  if (t.by_value) {
    Expr& param = b_.by_value_[tensor];
    if (!param) {
      const DType param_type = ParamType(t.dtype);
      LoweredArg arg{.kind = LoweredArg::Kind::kByValue, .id = tensor};
      if (t.is_constant())
        arg = {.kind = LoweredArg::Kind::kScalar,
               .bits = ScalarBits(param_type, RoundTo(t.dtype, *t.value))};
      param = b_.ScalarParam(t.name, param_type, arg);
    }
    return tile::Cast(type, param);
  }
  const std::string& pointer = b_.Pointer(tensor);
  Expr loaded = b_.Let(out_, t.name + "_v", tile::Load(pointer, t.dtype, b_.Offset(tensor, index)));
  return tile::Cast(type, loaded);
}

Expr ValueScope::NodeValue(const Node& node, const Index& index) {
  const Tensor& y = b_.graph()[node.outputs[0]];
  switch (node.op) {
    case GraphOp::kMap:
      return MapValue(node, index);
    case GraphOp::kIota:
      return RoundThrough(y.dtype, index[node.As<graph::IotaAttrs>().axis]);
    case GraphOp::kConcat:
      return ConcatValue(node, index);
    case GraphOp::kGather:
      return GatherValue(node, index);
    case GraphOp::kTranspose:
    case GraphOp::kSlice:
    case GraphOp::kReshape:
      return Moved(node, Value(node.inputs[0], SourceIndex(node, index, nullptr)));
    default:
      break;
  }
  CHECK(false, "{} ({}) must be bound by its engine", y.name, graph::Info(node.op).mnemonic);
}

// The result of an op that only moves elements: it may cast, as its output has a dtype of its own.
Expr ValueScope::Moved(const Node& node, Expr value) {
  const DType from = b_.graph()[node.inputs[0]].dtype, to = b_.graph()[node.outputs[0]].dtype;
  return from == to ? value : RoundThrough(to, std::move(value));
}

Expr ValueScope::MapValue(const Node& node, const Index& index) {
  const auto& map = node.As<graph::MapAttrs>();
  const Tensor& y = b_.graph()[node.outputs[0]];
  std::vector<Expr> operands;
  for (TensorId id : node.inputs)
    operands.push_back(Value(id, BroadcastIndex(b_, b_.graph()[id], index)));
  // The pointer of a stored tensor has its name; its value is another thing.
  const std::string name = y.is_virtual ? y.name : y.name + "_v";
  if (map.identity)
    return tile::Cast(ArithmeticType(y.dtype),
                      b_.Let(out_, name, tile::Cast(y.dtype, operands[0])));

  const DType compute = ArithmeticType(node.compute);
  const bool logical =
      map.op == ScalarOp::kAnd || map.op == ScalarOp::kOr || map.op == ScalarOp::kNot;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool condition = logical || (map.op == ScalarOp::kSelect && i == 0);
    operands[i] = tile::Cast(condition ? DType::kBool : compute, operands[i]);
  }
  // Named in the storage type, so that storing it needs no second conversion.
  Expr stored = b_.Let(out_, name, tile::Cast(y.dtype, tile::Op(map.op, std::move(operands))));
  return tile::Cast(ArithmeticType(y.dtype), stored);
}

// One select a part; every load stays in bounds because the index is clamped into its part.
//   axis index i, parts of a, b: select(i < na, a[min(i, na-1)], b[max(i-na, 0)])
Expr ValueScope::ConcatValue(const Node& node, const Index& index) {
  const int64_t axis = node.As<graph::ConcatAttrs>().axis;
  const Tensor& y = b_.graph()[node.outputs[0]];
  std::vector<TensorId> parts;
  for (TensorId id : node.inputs)
    if (NumElements(b_.graph()[id].dims) != 0) parts.push_back(id);
  if (parts.empty()) return Literal(ArithmeticType(y.dtype), 0);  // of no elements: never stored
  Expr begin = b_.Idx(0), value;
  for (size_t p = 0; p < parts.size(); ++p) {
    const Expr extent = b_.Extent(parts[p], axis);
    const Expr local = index[axis] - begin;
    Expr clamped = tile::Op(ScalarOp::kMax, {local, b_.Idx(0)});
    clamped = tile::Op(ScalarOp::kMin, {clamped, extent - b_.Idx(1)});
    Index source = index;
    source[axis] = b_.Let(out_, y.name + "_i", clamped);
    const Expr part = tile::Cast(ArithmeticType(y.dtype), Value(parts[p], source));
    value = value ? tile::Select(tile::Ge(index[axis], begin), part, value) : part;
    begin = b_.Let(out_, y.name + "_begin", begin + extent);
  }
  return RoundThrough(y.dtype, value);
}

// The load stays in bounds because its place is clamped:
//   let i = index[…];  select(0 <= i and i < n, x[…, min(max(i, 0), n - 1), …], 0)
Expr ValueScope::GatherValue(const Node& node, const Index& index) {
  const TensorId x = node.inputs[0];
  const Tensor& y = b_.graph()[node.outputs[0]];
  const DType type = ArithmeticType(y.dtype);
  if (NumElements(b_.graph()[x].dims) == 0) return Literal(type, 0);
  Expr inside;
  const Index source = SourceIndex(node, index, &inside);
  const Expr loaded = Moved(node, Value(x, source));
  return b_.Let(out_, y.name + "_v", tile::Select(inside, loaded, Literal(type, 0)));
}

Index ValueScope::SourceIndex(const Node& node, const Index& index, Expr* inside) {
  const TensorId x = node.inputs[0];
  const Tensor& y = b_.graph()[node.outputs[0]];
  Index source(index.size());
  switch (node.op) {
    case GraphOp::kTranspose: {
      const Dims& permutation = node.As<graph::TransposeAttrs>().permutation;
      for (size_t d = 0; d < index.size(); ++d) source[permutation[d]] = index[d];
      return source;
    }
    case GraphOp::kSlice: {
      const auto& slice = node.As<graph::SliceAttrs>();
      for (size_t d = 0; d < index.size(); ++d) {
        Expr scaled =
            slice.step[d] == 1 ? index[d] : index[d] * b_.Arg(y.name + "_step", slice.step[d]);
        source[d] =
            slice.start[d] == 0 ? scaled : scaled + b_.Arg(y.name + "_start", slice.start[d]);
      }
      return source;
    }
    case GraphOp::kReshape:
      return ReshapeIndex(node, index);
    default:
      break;
  }
  CHECK(node.op == GraphOp::kGather, "{} reads no other place", graph::Info(node.op).mnemonic);
  const int64_t axis = node.As<graph::GatherAttrs>().axis;
  const TensorId table = node.inputs[1];
  const Expr place = Value(table, BroadcastIndex(b_, b_.graph()[table], index));
  const DType wide = ArithmeticType(b_.graph()[table].dtype);
  const Expr extent = tile::Cast(wide, b_.Extent(x, axis)), zero = tile::Int(0, wide);
  const Expr clamped = tile::Op(
      ScalarOp::kMin, {tile::Op(ScalarOp::kMax, {place, zero}), extent - tile::Int(1, wide)});
  source = BroadcastIndex(b_, b_.graph()[x], index);
  source[axis] = b_.Let(out_, y.name + "_i", tile::Cast(b_.index_type(), clamped));
  *inside = tile::Op(ScalarOp::kAnd, {tile::Ge(place, zero), tile::Lt(place, extent)});
  return source;
}

// A window that is computed again where it is read.
Expr ValueScope::WindowValue(const Node& node, TensorId tensor, const Index& index) {
  WindowTaps taps(b_, node, 0, 1);
  taps.Emit(out_, index);
  const bool is_index = node.outputs.size() > 1 && tensor == node.outputs[1];
  return b_.Let(out_, b_.graph()[tensor].name,
                is_index ? taps.FoundIndex(b_.Idx(0)) : taps.Result(b_.Idx(0)));
}

// Both sides are lists of extents with the same product; where runs of them have equal
// products the index passes through, elsewhere the run is linearised and split again:
//   y [a, b*c] from x [a*b, c]:  one run, (a, b*c) → linear → (a*b, c);   y [a, b] from x [a, b]:
//                                two runs
Index ValueScope::ReshapeIndex(const Node& node, const Index& index) {
  const TensorId x_id = node.inputs[0], y_id = node.outputs[0];
  const Tensor &x = b_.graph()[x_id], &y = b_.graph()[y_id];
  const std::vector<int64_t> xs = RowMajor(x), ys = RowMajor(y);
  Index source(x.dims.size(), b_.Idx(0));
  if (NumElements(x.dims) == 0) return source;
  size_t xi = 0, yi = 0;
  while (xi < xs.size() && yi < ys.size()) {
    const size_t x0 = xi, y0 = yi;
    int64_t xp = x.dims[xs[xi++]], yp = y.dims[ys[yi++]];
    while (xp != yp) {
      if (xp < yp)
        xp *= x.dims[xs[xi++]];
      else
        yp *= y.dims[ys[yi++]];
    }
    if (xi - x0 == 1 && yi - y0 == 1) {
      source[xs[x0]] = index[ys[y0]];
      continue;
    }
    Expr linear = b_.Idx(0);
    for (size_t k = y0; k < yi; ++k) linear = linear * b_.Extent(y_id, ys[k]) + index[ys[k]];
    linear = b_.Let(out_, y.name + "_lin", linear);
    Index extents;
    Dims values;
    for (size_t k = x0; k < xi; ++k) {
      extents.push_back(b_.Extent(x_id, xs[k]));
      values.push_back(x.dims[xs[k]]);
    }
    Index split = b_.Unravel(out_, linear, extents, values, x.name + "_i");
    for (size_t k = x0; k < xi; ++k) source[xs[k]] = split[k - x0];
  }
  return source;
}

}  // namespace kiln::compiler
