#include "compiler/engines/contraction/contraction.h"

#include <algorithm>
#include <span>

#include "ir/base/check.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

void Append(Axis& axis, Expr extent, int64_t value) {
  axis.extents.push_back(std::move(extent));
  axis.values.push_back(value);
}

void AppendDim(KernelBuilder& b, Axis& axis, TensorId tensor, int64_t dim) {
  Append(axis, b.Extent(tensor, dim), b.graph()[tensor].dims[dim]);
}

// ---- matmul

// Index of a batch dim in an operand: 0 where it broadcasts, i / repeat where the output repeats
// each of the operand's matrices (grouped-query heads).
Index BatchIndex(KernelBuilder& b, Block& out, TensorId operand, TensorId result,
                 const Index& batch) {
  const Tensor &t = b.graph()[operand], &y = b.graph()[result];
  const int64_t batch_rank = t.rank() - 2, skipped = y.rank() - t.rank();
  Index index;
  for (int64_t d = 0; d < batch_rank; ++d) {
    const int64_t mine = t.dims[d], whole = y.dims[d + skipped];
    const Expr& i = batch[d + skipped];
    if (mine == 1) {
      index.push_back(b.Idx(0));
    } else if (mine == whole || mine == 0) {
      index.push_back(i);
    } else {
      const Expr repeat = b.Arg(t.name + "_repeat", whole / mine);
      index.push_back(b.Divide(out, i, repeat, whole / mine, t.name + "_batch").quotient);
    }
  }
  return index;
}

Contraction DescribeMatmul(KernelBuilder& b, const Node& node) {
  Contraction c{.a = node.inputs[0], .b = node.inputs[1], .out = node.outputs[0]};
  const Tensor &a = b.graph()[c.a], &bt = b.graph()[c.b], &y = b.graph()[c.out];
  const int64_t rank = y.rank(), ra = a.rank(), rb = bt.rank();
  for (int64_t d = 0; d + 2 < rank; ++d) AppendDim(b, c.batch, c.out, d);
  AppendDim(b, c.m, c.out, rank - 2);
  AppendDim(b, c.n, c.out, rank - 1);
  AppendDim(b, c.k, c.a, ra - 1);
  c.a_walks_k = a.strides[ra - 1] == 1 || a.strides[ra - 2] != 1;
  c.b_walks_k = bt.strides[rb - 2] == 1 && bt.strides[rb - 1] != 1;
  c.walks = {.a_m = {ra - 2},
             .a_k = {ra - 1},
             .b_k = {rb - 2},
             .b_n = {rb - 1},
             .out_m = {rank - 2},
             .out_n = {rank - 1}};
  const TensorId ai = c.a, bi = c.b, yi = c.out;
  c.at_a = [&b, ai, yi](Block& out, const Index& batch, const Index& m, const Index& k) {
    Operand o{.index = BatchIndex(b, out, ai, yi, batch), .guard = nullptr};
    o.index.push_back(m[0]);
    o.index.push_back(k[0]);
    o.index = BroadcastIndex(b, b.graph()[ai], o.index);
    return o;
  };
  c.at_b = [&b, bi, yi](Block& out, const Index& batch, const Index& k, const Index& n) {
    Operand o{.index = BatchIndex(b, out, bi, yi, batch), .guard = nullptr};
    o.index.push_back(k[0]);
    o.index.push_back(n[0]);
    o.index = BroadcastIndex(b, b.graph()[bi], o.index);
    return o;
  };
  c.at_out = [](const Index& batch, const Index& m, const Index& n) {
    Index index = batch;
    index.push_back(m[0]);
    index.push_back(n[0]);
    return index;
  };
  return c;
}

// ---- convolutions

// The tensors of a convolution by role, and its geometry as parameters. x is what fprop reads
// (dgrad writes), y what fprop writes (dgrad and wgrad read).
struct Channels {
  Expr per_group = {};
  int64_t value = 0;
};
struct Geometry {
  TensorId x = -1, w = -1, y = -1;
  int64_t spatial = 0, groups = 1;
  Channels channels = {}, filters = {};  // of x, of y
  std::vector<Expr> stride = {}, dilation = {},
                    pad = {};  // constants 1 and 0 stay constants: they are structure
  Dims stride_values = {};
  bool flip = false;
};

Geometry DescribeGeometry(KernelBuilder& b, const Node& node, TensorId x, TensorId w, TensorId y) {
  const auto& attrs = node.As<graph::ConvAttrs>();
  const graph::Graph& g = b.graph();
  Geometry geo{.x = x, .w = w, .y = y, .spatial = g[x].rank() - 2, .flip = attrs.flip};
  geo.groups = g[w].dims[1] == 0 ? 1 : g[x].dims[1] / g[w].dims[1];
  geo.channels = {b.Extent(w, 1), g[w].dims[1]};
  geo.filters.value = g[w].dims[0] / std::max<int64_t>(geo.groups, 1);
  geo.filters.per_group =
      geo.groups == 1 ? b.Extent(w, 0) : b.Arg("filters_per_group", geo.filters.value);
  for (int64_t s = 0; s < geo.spatial; ++s) {
    const auto parameter = [&](const char* name, int64_t value, int64_t structural) {
      return value == structural ? b.Idx(value) : b.Arg(fmt::format("{}{}", name, s), value);
    };
    geo.stride.push_back(parameter("stride", attrs.stride[s], 1));
    geo.dilation.push_back(parameter("dilation", attrs.dilation[s], 1));
    geo.pad.push_back(parameter("pad", attrs.pre_padding[s], 0));
    geo.stride_values.push_back(attrs.stride[s]);
  }
  return geo;
}

Expr GroupIndex(const Geometry& geo, KernelBuilder& b, const Index& batch) {
  return geo.groups == 1 ? b.Idx(0) : batch[0];
}

void AppendGroup(KernelBuilder& b, Axis& axis, const Geometry& geo) {
  Append(axis, geo.groups == 1 ? b.Idx(1) : b.Arg("groups", geo.groups), geo.groups);
}

// Index of w at filter taps `taps` (rotated where the mode is convolution).
Index FilterIndex(const Geometry& geo, KernelBuilder& b, Expr filter, Expr channel,
                  const Index& taps) {
  Index index = {std::move(filter), std::move(channel)};
  for (int64_t s = 0; s < geo.spatial; ++s) {
    const Expr last = b.Extent(geo.w, s + 2) - b.Idx(1);
    index.push_back(geo.flip ? last - taps[s] : taps[s]);
  }
  return index;
}

// Position of x under output place `place` and filter tap `taps`; the guard is false in the
// padding.
Operand InputAt(const Geometry& geo, KernelBuilder& b, Block& out, Expr image, Expr channel,
                const Index& place, const Index& taps) {
  Operand o{.index = {std::move(image), std::move(channel)}, .guard = nullptr};
  for (int64_t s = 0; s < geo.spatial; ++s) {
    const Expr h = b.Let(out, fmt::format("h{}", s),
                         place[s] * geo.stride[s] + taps[s] * geo.dilation[s] - geo.pad[s]);
    const Expr inside = tile::And(tile::Ge(h, b.Idx(0)), tile::Lt(h, b.Extent(geo.x, s + 2)));
    o.guard = o.guard ? tile::And(o.guard, inside) : inside;
    o.index.push_back(h);
  }
  return o;
}

// The transposed walk: output place of y that tap `taps` of input place `place` came from, if there
// is one.
Operand OutputAt(const Geometry& geo, KernelBuilder& b, Block& out, Expr image, Expr filter,
                 const Index& place, const Index& taps) {
  Operand o{.index = {std::move(image), std::move(filter)}, .guard = nullptr};
  for (int64_t s = 0; s < geo.spatial; ++s) {
    const Expr t =
        b.Let(out, fmt::format("t{}", s), place[s] + geo.pad[s] - taps[s] * geo.dilation[s]);
    const auto split = b.Divide(out, t, geo.stride[s], geo.stride_values[s], fmt::format("p{}", s));
    Expr inside =
        tile::And(tile::Ge(t, b.Idx(0)), tile::Lt(split.quotient, b.Extent(geo.y, s + 2)));
    inside = tile::And(inside, tile::Op(ScalarOp::kEq, {split.remainder, b.Idx(0)}));
    o.guard = o.guard ? tile::And(o.guard, inside) : inside;
    o.index.push_back(split.quotient);
  }
  return o;
}

// Channel axis and filter taps in one axis; channels innermost where memory has them so.
void AppendTaps(KernelBuilder& b, Axis& axis, const Geometry& geo, const Channels& channels,
                bool channels_last) {
  if (!channels_last) Append(axis, channels.per_group, channels.value);
  for (int64_t s = 0; s < geo.spatial; ++s) AppendDim(b, axis, geo.w, s + 2);
  if (channels_last) Append(axis, channels.per_group, channels.value);
}

// Splits an index over such an axis.
struct Taps {
  Expr channel;
  Index taps;
};
Taps SplitTaps(const Index& index, bool channels_last) {
  if (channels_last) return {index.back(), Index(index.begin(), index.end() - 1)};
  return {index.front(), Index(index.begin() + 1, index.end())};
}

void AppendImagePlaces(KernelBuilder& b, Axis& axis, TensorId tensor) {
  AppendDim(b, axis, tensor, 0);
  for (int64_t d = 2; d < b.graph()[tensor].rank(); ++d) AppendDim(b, axis, tensor, d);
}

Index PlaceOf(const Index& image_place) {
  return Index(image_place.begin() + 1, image_place.end());
}

Index TensorIndex(Expr image, Expr channel, const Index& place) {
  Index index = {std::move(image), std::move(channel)};
  index.insert(index.end(), place.begin(), place.end());
  return index;
}

// The dims that such axes walk. Places of x and of y are the same where there is one tap, no
// padding and no stride; taps of w walk backwards where they are rotated.
Dims WalkedTaps(const Geometry& geo, bool is_filter, int64_t channel_dim, bool channels_last) {
  Dims dims;
  for (int64_t s = 0; s < geo.spatial; ++s) dims.push_back(is_filter && !geo.flip ? s + 2 : -1);
  dims.insert(channels_last ? dims.end() : dims.begin(), channel_dim);
  return dims;
}
Dims WalkedPlaces(const Geometry& geo, const KernelBuilder& b, bool through_taps) {
  Dims dims = {0};
  const graph::Graph& g = b.graph();
  for (int64_t s = 0; s < geo.spatial; ++s) {
    const bool same = tile::IsConst(geo.stride[s], 1) && tile::IsConst(geo.pad[s], 0) &&
                      g[geo.w].dims[s + 2] == 1 && g[geo.x].dims[s + 2] == g[geo.y].dims[s + 2];
    dims.push_back(!through_taps || same ? s + 2 : -1);
  }
  return dims;
}

// fprop and dgrad: the same product, walked forwards or backwards, with the roles of w's two
// channel dims swapped.
Contraction DescribeFpropOrDgrad(KernelBuilder& b, const Node& node) {
  const bool forward = node.op == GraphOp::kConvFprop;
  Contraction c{.a = node.inputs[0], .b = node.inputs[1], .out = node.outputs[0]};
  const Geometry geo = forward ? DescribeGeometry(b, node, c.a, c.b, c.out)
                               : DescribeGeometry(b, node, c.out, c.b, c.a);
  const Channels summed = forward ? geo.channels : geo.filters;
  const Channels made = forward ? geo.filters : geo.channels;
  const bool last = ChannelsLast(b.graph()[c.a]);
  AppendGroup(b, c.batch, geo);
  AppendImagePlaces(b, c.m, c.out);
  Append(c.n, made.per_group, made.value);
  AppendTaps(b, c.k, geo, summed, last);
  c.a_walks_k = last;
  c.b_walks_k = forward;
  c.walks = {.a_m = WalkedPlaces(geo, b, true),
             .a_k = WalkedTaps(geo, false, 1, last),
             .b_k = WalkedTaps(geo, true, forward ? 1 : 0, last),
             .b_n = {forward ? 0 : 1},
             .out_m = WalkedPlaces(geo, b, false),
             .out_n = {1}};
  c.at_a = [&b, geo, summed, forward, last](Block& out, const Index& batch, const Index& m,
                                            const Index& k) {
    const Taps t = SplitTaps(k, last);
    const Expr channel = GroupIndex(geo, b, batch) * summed.per_group + t.channel;
    const auto walk = forward ? InputAt : OutputAt;
    return walk(geo, b, out, m[0], channel, PlaceOf(m), t.taps);
  };
  c.at_b = [&b, geo, forward, last](Block&, const Index& batch, const Index& k, const Index& n) {
    const Taps t = SplitTaps(k, last);
    // w is [filters of all groups, channels of one group, taps].
    const Expr first_filter = GroupIndex(geo, b, batch) * geo.filters.per_group;
    const Expr filter = first_filter + (forward ? n[0] : t.channel);
    return Operand{FilterIndex(geo, b, filter, forward ? t.channel : n[0], t.taps), nullptr};
  };
  c.at_out = [&b, geo, made](const Index& batch, const Index& m, const Index& n) {
    return TensorIndex(m[0], GroupIndex(geo, b, batch) * made.per_group + n[0], PlaceOf(m));
  };
  return c;
}

Contraction DescribeWgrad(KernelBuilder& b, const Node& node) {
  // Inputs are x, dy; the rows of the product are filters, so dy is the A operand.
  Contraction c{.a = node.inputs[1], .b = node.inputs[0], .out = node.outputs[0]};
  const Geometry geo = DescribeGeometry(b, node, c.b, c.out, c.a);
  const bool last = ChannelsLast(b.graph()[c.b]);
  AppendGroup(b, c.batch, geo);
  Append(c.m, geo.filters.per_group, geo.filters.value);
  AppendTaps(b, c.n, geo, geo.channels, last);
  AppendImagePlaces(b, c.k, geo.y);
  c.a_walks_k = !ChannelsLast(b.graph()[c.a]);
  c.b_walks_k = !last;
  c.walks = {.a_m = {1},
             .a_k = WalkedPlaces(geo, b, false),
             .b_k = WalkedPlaces(geo, b, true),
             .b_n = WalkedTaps(geo, false, 1, last),
             .out_m = {0},
             .out_n = WalkedTaps(geo, true, 1, last)};
  c.at_a = [&b, geo](Block&, const Index& batch, const Index& m, const Index& k) {
    const Expr filter = GroupIndex(geo, b, batch) * geo.filters.per_group + m[0];
    return Operand{TensorIndex(k[0], filter, PlaceOf(k)), nullptr};
  };
  c.at_b = [&b, geo, last](Block& out, const Index& batch, const Index& k, const Index& n) {
    const Taps t = SplitTaps(n, last);
    const Expr channel = GroupIndex(geo, b, batch) * geo.channels.per_group + t.channel;
    return InputAt(geo, b, out, k[0], channel, PlaceOf(k), t.taps);
  };
  c.at_out = [&b, geo, last](const Index& batch, const Index& m, const Index& n) {
    const Taps t = SplitTaps(n, last);
    const Expr filter = GroupIndex(geo, b, batch) * geo.filters.per_group + m[0];
    return FilterIndex(geo, b, filter, t.channel, t.taps);
  };
  return c;
}

}  // namespace

bool ChannelsLast(const Tensor& t) { return t.dims[1] == 1 || t.strides[1] == 1; }

Contraction DescribeContraction(KernelBuilder& b, const Node& node) {
  Contraction c = [&] {
    switch (node.op) {
      case GraphOp::kConvFprop:
      case GraphOp::kConvDgrad:
        return DescribeFpropOrDgrad(b, node);
      case GraphOp::kConvWgrad:
        return DescribeWgrad(b, node);
      default:
        return DescribeMatmul(b, node);
    }
  }();
  c.accumulator = ArithmeticType(node.compute);
  if (c.accumulator == DType::kBool) c.accumulator = DType::kI32;
  return c;
}

bool IsWideAlong(const Tensor& tensor, const Axis& axis, const Dims& walked, int lanes) {
  if (tensor.by_value || tensor.alignment % (lanes * SizeOf(tensor.dtype)) != 0) return false;
  // The innermost dims of the axis that are packed in memory.
  std::vector<bool> packed(tensor.dims.size());
  int64_t run = 1;
  for (size_t i = axis.values.size(); i-- > 0;) {
    const int64_t extent = axis.values[i], d = walked[i];
    if (extent == 1) continue;
    if (extent == 0 || d < 0 || tensor.strides[d] != run || tensor.dims[d] % extent != 0) break;
    packed[static_cast<size_t>(d)] = true;
    run *= extent;
    if (tensor.dims[d] != extent) break;  // one group's channels of all
  }
  if (run == 1 || run % lanes != 0) return false;
  for (size_t d = 0; d < tensor.dims.size(); ++d)
    if (!packed[d] && tensor.dims[d] != 1 && tensor.strides[d] % lanes != 0) return false;
  return true;
}

Contraction Swapped(Contraction c) {
  std::swap(c.a, c.b);
  std::swap(c.m, c.n);
  std::swap(c.a_walks_k, c.b_walks_k);
  std::swap(c.walks.a_m, c.walks.b_n);
  std::swap(c.walks.a_k, c.walks.b_k);
  std::swap(c.walks.out_m, c.walks.out_n);
  c.at_a = [at = c.at_a](Block& out, const Index& batch, const Index& k, const Index& n) {
    return at(out, batch, n, k);
  };
  c.at_b = [at = c.at_b](Block& out, const Index& batch, const Index& m, const Index& k) {
    return at(out, batch, k, m);
  };
  std::swap(c.at_a, c.at_b);
  c.at_out = [at = c.at_out](const Index& batch, const Index& m, const Index& n) {
    return at(batch, n, m);
  };
  return c;
}

ContractionSizes SizesOf(const graph::Graph& graph, const Node& node) {
  const auto dims = [&](TensorId id) -> const Dims& { return graph[id].dims; };
  const TensorId out = node.outputs[0];
  if (node.op == GraphOp::kMatmul) {
    const Dims& y = dims(out);
    const std::span<const int64_t> batch(y.data(), y.size() - 2);
    return {NumElements(batch), y[y.size() - 2], y.back(), dims(node.inputs[0]).back()};
  }
  const bool wgrad = node.op == GraphOp::kConvWgrad, dgrad = node.op == GraphOp::kConvDgrad;
  const Dims& x = dims(dgrad ? out : node.inputs[0]);
  const Dims& w = dims(wgrad ? out : node.inputs[1]);
  const Dims& y = dims(wgrad ? node.inputs[1] : dgrad ? node.inputs[0] : out);
  const auto places = [](const Dims& d) { return d[0] * NumElements(std::span(d).subspan(2)); };
  const int64_t groups = w[1] == 0 ? 1 : x[1] / w[1];
  const int64_t filters = w[0] / std::max<int64_t>(groups, 1), channels = w[1];
  const int64_t taps = NumElements(std::span(w).subspan(2));
  if (wgrad) return {groups, filters, channels * taps, places(y)};
  if (dgrad) return {groups, places(x), channels, filters * taps};
  return {groups, places(y), filters, channels * taps};
}

}  // namespace kiln::compiler
