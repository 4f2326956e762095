#include "compiler/engines/window/nest.h"

#include <algorithm>
#include <limits>

#include "compiler/engines/window/links.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::Node;
using graph::PaddingTap;
using graph::ResampleMode;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;
using Place = WindowNest::Place;

class NestKernel {
 public:
  NestKernel(const Group& group, const Target& target, const WindowNest& nest, int threads)
      : g_(group.graph),
        nest_(nest),
        threads_(threads),
        producers_(graph::Producers(group.graph)),
        inputs_(MemoryInputs(group.graph)),
        lead_(graph::Outputs(group.graph)[0]),
        b_(group, target, fmt::format("window, nest of {}, threads={}", TileText(nest), threads)),
        t_(b_.index_type()) {
    for (const char* reserved : {"bx", "tx", "i"}) b_.Name(reserved);
  }

  Lowered Lower() {
    const Tensor& y = g_[lead_];
    const Dims order = MemoryOrder(y.strides);
    Index extents;
    Dims counts;
    for (const int64_t d : order) {
      const int tile = TileOf(d);
      counts.push_back(CeilDiv(y.dims[d], int64_t{tile}));
      extents.push_back(tile == 1 ? b_.Extent(lead_, d) : b_.Arg("tiles", counts.back()));
    }
    Block body;
    const Index split = b_.Unravel(body, tile::Var("i", t_), extents, counts, "i");
    tile_at_.resize(order.size());
    for (size_t k = 0; k < order.size(); ++k) tile_at_[order[k]] = b_.Let(body, "at", split[k]);
    ValueScope values(b_, body);
    Load(body, values);
    for (const auto& [id, at] : nest_.values) {
      const Node* node = ProducerOf(id);
      if (node != nullptr && Has(*node, graph::kWindow)) Window(body, values, *node, at);
    }
    Store(body, values);
    return LaunchItems(b_, std::move(body), NumElements(counts), threads_);
  }

 private:
  static std::string TileText(const WindowNest& nest) {
    std::string text;
    for (const WindowNest::Axis& axis : nest.axes)
      text += fmt::format("{}{}", text.empty() ? "" : "x", axis.tile);
    return text;
  }
  int TileOf(int64_t dim) const {
    const auto it = std::ranges::find(nest_.axes, dim, &WindowNest::Axis::dim);
    return it == nest_.axes.end() ? 1 : it->tile;
  }
  const Node* ProducerOf(TensorId id) const {
    const graph::NodeId producer = producers_[static_cast<size_t>(id)];
    return producer < 0 ? nullptr : &g_.nodes[static_cast<size_t>(producer)];
  }
  size_t inner() const { return nest_.axes.size() - 1; }

  // ---- places

  // The element at offset 0 of a tensor of that scale.
  const Expr& Base(Block& out, size_t axis, int scale) {
    Expr& base = bases_[{axis, scale}];
    if (!base) base = b_.Let(out, "from", tile_at_[nest_.axes[axis].dim] * b_.Idx(scale));
    return base;
  }
  // Equal places have equal expressions: values are known by them.
  Index IndexOf(Block& out, TensorId id, const Place& at) {
    Index index = tile_at_;
    for (size_t k = 0; k < at.size(); ++k) {
      const Expr& base = Base(out, k, nest_.scales.at(id)[k]);
      index[nest_.axes[k].dim] = at[k] == 0 ? base : base + b_.Idx(at[k]);
    }
    for (size_t d = 0; d < index.size(); ++d)
      if (g_[id].dims[d] == 1) index[d] = b_.Idx(0);
    return index;
  }
  // Whether a place, or all of a row of them, lies in the tensor; null for always.
  Expr Inside(Block& out, TensorId id, const Place& at, int count = 1) {
    Expr inside;
    for (size_t k = 0; k < at.size(); ++k) {
      const int64_t d = nest_.axes[k].dim, extent = g_[id].dims[d];
      if (extent == 1) continue;
      const Expr here = InsideAxis(out, id, k, at[k], k == inner() ? count : 1);
      if (here) inside = inside ? tile::And(inside, here) : here;
    }
    if (!inside || inside->kind == tile::ExprKind::kVar) return inside;
    Expr& known = inside_[{id, at}];
    if (!known) known = b_.Let(out, "exists", inside);
    return known;
  }
  Expr InsideAxis(Block& out, TensorId id, size_t k, int offset, int count) {
    const int64_t d = nest_.axes[k].dim, extent = g_[id].dims[d];
    const int scale = nest_.scales.at(id)[k];
    const int64_t tiles = CeilDiv(g_[lead_].dims[d], int64_t{nest_.axes[k].tile});
    Expr& known = inside_axis_[{k, scale, offset, extent}];
    if (known) return known;
    const Expr at = Base(out, k, scale) + b_.Idx(offset);
    Expr inside;
    if (offset < 0) inside = tile::Ge(at, b_.Idx(0));
    if ((tiles - 1) * scale + offset + count > extent) {
      const Expr below = tile::Lt(at, b_.Extent(id, d));
      inside = inside ? tile::And(inside, below) : below;
    }
    if (inside) known = b_.Let(out, "inside", inside);
    return known;
  }

  // ---- sources

  // What windows that alone read a tensor take for what lies outside; nothing where others read it,
  // too, or its type has no such number.
  std::optional<double> PaddingOf(TensorId id) const {
    const DType type = g_[id].dtype;
    if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16) return std::nullopt;
    std::optional<double> padding;
    for (const Node& node : g_.nodes) {
      if (std::ranges::find(node.inputs, id) == node.inputs.end()) continue;
      if (!Has(node, graph::kWindow) || node.inputs[0] != id) return std::nullopt;
      const double value = Beyond(node);
      if (padding && *padding != value) return std::nullopt;
      padding = value;
    }
    return padding;
  }
  static double Beyond(const Node& window) {
    const PaddingTap padding = graph::PaddingTapOf(window.As<graph::ResampleAttrs>());
    const bool lowest = IsForward(window) && (padding == PaddingTap::kNegInf ||
                                              (IsMax(window) && padding == PaddingTap::kSkipped));
    return lowest ? -std::numeric_limits<double>::infinity() : 0;
  }

  // Neighbours that one copy brings: a power of two to which every tile's first place is aligned.
  int WidthOf(TensorId id) const {
    const int64_t d = nest_.axes[inner()].dim;
    if (g_[id].dims[d] == 1 || WalkOf(g_[id], d) != Walk::kContiguous) return 1;
    const int scale = nest_.scales.at(id)[inner()];
    int width = std::min(WidestVector(g_, {id}, d), 16 / SizeOf(g_[id].dtype));
    while (width > 1 && (scale % width != 0 || g_[id].dims[d] % width != 0)) width /= 2;
    return width;
  }

  void Load(Block& out, ValueScope& values) {
    struct Row {
      TensorId id;
      Place first;
      std::vector<int> lanes;
    };
    std::vector<Row> rows;
    for (const auto& [id, at] : nest_.values) {
      if (std::ranges::find(inputs_, id) == inputs_.end()) continue;
      const int width = WidthOf(id);
      Place first = at;
      const int lane = ((at[inner()] % width) + width) % width;
      first[inner()] -= lane;
      auto row =
          std::ranges::find_if(rows, [&](const Row& r) { return r.id == id && r.first == first; });
      if (row == rows.end()) row = rows.insert(rows.end(), {.id = id, .first = first, .lanes = {}});
      row->lanes.push_back(lane);
    }
    for (Row& row : rows) {
      std::ranges::sort(row.lanes);
      if (row.lanes.size() == 1) {
        row.first[inner()] += row.lanes[0];
        row.lanes[0] = 0;
        Fetch(out, values, row.id, row.first, row.lanes, 1);
      } else {
        Fetch(out, values, row.id, row.first, row.lanes, WidthOf(row.id));
      }
    }
  }
  void Fetch(Block& out, ValueScope& values, TensorId id, const Place& first,
             const std::vector<int>& lanes, int width) {
    const Tensor& t = g_[id];
    const std::string regs = b_.Name(t.name + "_r");
    const Expr inside = Inside(out, id, first, width);
    const Expr offset = b_.Offset(id, IndexOf(out, id, first));
    out.push_back({tile::Alloc{regs, t.dtype, tile::Space::kReg, width}});
    Block read, fill;
    if (width > 1)
      WideCopy(read, t.dtype, regs, b_.Idx(0), b_.Pointer(id), offset, width);
    else
      read.push_back({tile::Store{regs, b_.Idx(0), tile::Load(b_.Pointer(id), t.dtype, offset)}});
    if (inside) {
      const double padding = PaddingOf(id).value_or(0);
      const Expr value = IsFloat(t.dtype) ? tile::Float(padding) : tile::Int(0);
      for (int l = 0; l < width; ++l)
        fill.push_back({tile::Store{regs, b_.Idx(l), tile::Cast(t.dtype, value)}});
      out.push_back({tile::If{inside, std::move(read), std::move(fill)}});
    } else {
      std::ranges::move(read, std::back_inserter(out));
    }
    for (const int l : lanes) {
      Place at = first;
      at[inner()] += l;
      const Expr value = tile::Load(regs, t.dtype, b_.Idx(l));
      values.Bind(id, IndexOf(out, id, at),
                  b_.Let(out, t.name + "_v", tile::Cast(ArithmeticType(t.dtype), value)));
    }
  }

  // ---- windows

  void Window(Block& out, ValueScope& values, const Node& node, const Place& at) {
    const std::vector<WindowLink> links = LinksOf(g_, nest_, node, at);
    Expr result;
    if (IsForward(node) && IsMax(node))
      result = Largest(out, values, node, at, links);
    else
      result = Sum(out, values, node, at, links);
    Keep(out, values, node.outputs[0], at, result);
  }
  void Keep(Block& out, ValueScope& values, TensorId id, const Place& at, const Expr& value) {
    const Expr kept = b_.Let(out, g_[id].name + "_w", RoundThrough(g_[id].dtype, value));
    values.Bind(id, IndexOf(out, id, at), kept);
  }

  // Null where a source is always inside.
  Expr ValueOf(Block& out, ValueScope& values, const Node& node, TensorId x, const Place& at) {
    const Expr value = tile::Cast(DType::kF32, values.Value(x, IndexOf(out, x, at)));
    const bool is_padded = ProducerOf(x) == nullptr && PaddingOf(x).has_value();
    const Expr inside = is_padded ? nullptr : Inside(out, x, at);
    return inside ? b_.Let(out, "tap", tile::Select(inside, value, tile::Float(Beyond(node))))
                  : value;
  }

  Expr Sum(Block& out, ValueScope& values, const Node& node, const Place& at,
           const std::vector<WindowLink>& links) {
    const auto& attrs = node.As<graph::ResampleAttrs>();
    Expr sum;
    for (const WindowLink& link : links) {
      Expr value = ValueOf(out, values, node, node.inputs[0], link.source);
      if (!IsForward(node)) value = Divided(out, node, value, link.source);
      if (!IsForward(node) && IsMax(node)) {
        const TensorId index = node.inputs[1];
        const Expr found = values.Value(index, IndexOf(out, index, link.source));
        const Expr is_it =
            tile::Op(ScalarOp::kEq, {found, tile::Cast(found->type, tile::Int(link.tap))});
        value = tile::Select(is_it, value, tile::Float(0));
      }
      sum = sum ? b_.Let(out, "sum", sum + value) : value;
    }
    if (!sum) return tile::Float(0);
    if (!IsForward(node)) return sum;
    if (attrs.mode == ResampleMode::kAvgExcludePadding) return Divided(out, node, sum, at);
    return DividedBy(node, sum);
  }
  // By all taps of the window.
  Expr DividedBy(const Node& node, const Expr& value) const {
    double taps = 1;
    for (const int64_t n : node.As<graph::ResampleAttrs>().window) taps *= static_cast<double>(n);
    if (taps == 1) return value;
    return RoundsMore(node) ? value * tile::Float(1 / taps) : value / tile::Float(taps);
  }
  // An average's part of one window, by the taps that count of it.
  Expr Divided(Block& out, const Node& node, const Expr& value, const Place& window) {
    if (IsMax(node)) return value;
    const auto& attrs = node.As<graph::ResampleAttrs>();
    if (attrs.mode != ResampleMode::kAvgExcludePadding) return DividedBy(node, value);
    const TensorId x = IsForward(node) ? node.inputs[0] : node.outputs[0],
                   y = IsForward(node) ? node.outputs[0] : node.inputs[0];
    Expr taps = b_.Idx(1);
    const Index index = IndexOf(out, y, window);
    for (const graph::ResampleAxis& a : AxesOf(g_, node)) {
      if (a.taps == 1) continue;
      const auto d = static_cast<int64_t>(a.dim);
      const Expr start = index[d] * b_.Idx(a.step) + b_.Idx(a.offset);
      const Expr end = tile::Op(ScalarOp::kMin, {start + b_.Idx(a.taps), b_.Extent(x, d)});
      taps = taps * tile::Op(ScalarOp::kMax,
                             {end - tile::Op(ScalarOp::kMax, {start, b_.Idx(0)}), b_.Idx(0)});
    }
    Expr& weight = weights_[{y, window}];
    if (!weight)
      weight =
          b_.Let(out, "taps", tile::Cast(DType::kF32, tile::Op(ScalarOp::kMax, {taps, b_.Idx(1)})));
    return value / weight;
  }
  // Where results do not tell a product from a quotient, or are rounded again on their way.
  bool RoundsMore(const Node& node) const {
    const Tensor& y = g_[node.outputs[0]];
    return y.is_virtual || SizeOf(y.dtype) <= 2;
  }

  // The largest value, then the first tap that has it.
  Expr Largest(Block& out, ValueScope& values, const Node& node, const Place& at,
               const std::vector<WindowLink>& links) {
    const auto& attrs = node.As<graph::ResampleAttrs>();
    const TensorId x = node.inputs[0];
    const ScalarOp op = attrs.propagate_nan ? ScalarOp::kMaxNan : ScalarOp::kMax;
    Expr largest = tile::Float(-std::numeric_limits<double>::infinity());
    std::vector<Expr> taps;
    for (const WindowLink& link : links) {
      taps.push_back(ValueOf(out, values, node, x, link.source));
      largest = b_.Let(out, "largest", tile::Op(op, {largest, taps.back()}));
    }
    if (node.outputs.size() < 2 || node.outputs[1] == graph::kAbsent) return largest;
    const bool skips = graph::PaddingTapOf(attrs) == PaddingTap::kSkipped;
    Expr number = tile::Int(0);
    for (size_t p = links.size(); p-- > 0;) {
      Expr has = tile::Op(ScalarOp::kEq, {taps[p], largest});
      if (attrs.propagate_nan)
        has = tile::Op(ScalarOp::kOr, {has, tile::Op(ScalarOp::kNe, {taps[p], taps[p]})});
      if (skips)
        if (const Expr inside = Inside(out, x, links[p].source)) has = tile::And(inside, has);
      number = b_.Let(out, "number", tile::Select(has, tile::Int(links[p].tap), number));
    }
    Keep(out, values, node.outputs[1], at, number);
    return largest;
  }

  // ---- results

  void Store(Block& out, ValueScope& values) {
    for (const TensorId id : graph::Outputs(g_)) StoreRows(out, values, id, {});
  }
  void StoreRows(Block& out, ValueScope& values, TensorId id, const Place& at) {
    if (at.size() < inner()) {
      for (int i = 0; i < nest_.axes[at.size()].tile; ++i) {
        Place next = at;
        next.push_back(i);
        StoreRows(out, values, id, next);
      }
      return;
    }
    const Tensor& t = g_[id];
    const int64_t d = nest_.axes[inner()].dim;
    const int count = nest_.axes[inner()].tile;
    const bool wide = WalkOf(t, d) == Walk::kContiguous && t.dims[d] % count == 0 &&
                      WidestVector(g_, {id}, d) >= std::min(count, 16 / SizeOf(t.dtype));
    const std::string regs = b_.Name(t.name + "_w");
    out.push_back({tile::Alloc{regs, t.dtype, tile::Space::kReg, count}});
    Place place = at;
    place.push_back(0);
    for (int l = 0; l < count; ++l) {
      place.back() = l;
      const Expr value = values.Value(id, IndexOf(out, id, place));
      out.push_back({tile::Store{regs, b_.Idx(l), tile::Cast(t.dtype, value)}});
    }
    for (int l = 0; l < (wide ? 1 : count); ++l) {
      place.back() = l;
      const Expr exists = Inside(out, id, place, wide ? count : 1);
      const Expr offset = b_.Offset(id, IndexOf(out, id, place));
      Block store;
      if (wide && count > 1)
        WideCopy(store, t.dtype, b_.Pointer(id), offset, regs, b_.Idx(0), count);
      else
        store.push_back(
            {tile::Store{b_.Pointer(id), offset, tile::Load(regs, t.dtype, b_.Idx(l))}});
      if (exists)
        out.push_back({tile::If{exists, std::move(store), {}}});
      else
        std::ranges::move(store, std::back_inserter(out));
    }
  }

  const Graph& g_;
  const WindowNest& nest_;
  const int threads_;
  const std::vector<graph::NodeId> producers_;
  const std::vector<TensorId> inputs_;
  const TensorId lead_;
  KernelBuilder b_;
  const DType t_;
  Index tile_at_;  // the tile's number along each axis, the place along other dims
  std::map<std::pair<size_t, int>, Expr> bases_;
  std::map<WindowNest::Value, Expr> inside_, weights_;
  std::map<std::tuple<size_t, int, int, int64_t>, Expr> inside_axis_;
};

}  // namespace

Lowered LowerWindowNest(const Group& group, const Target& target, const WindowNest& nest,
                        int threads) {
  return NestKernel(group, target, nest, threads).Lower();
}

}  // namespace kiln::compiler
