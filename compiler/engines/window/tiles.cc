#include "compiler/engines/window/tiles.h"

#include <algorithm>
#include <limits>
#include <map>

#include "compiler/engines/window/links.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::PaddingTap;
using graph::ResampleAxis;
using graph::ResampleMode;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

constexpr int64_t kMostTaps = 8, kMostStride = 4, kMostPadding = 16;  // along one axis
constexpr int kMostLanes = 8;
constexpr int kMostResults = 16;  // of a tile
constexpr int kMostPairs = 160;   // of a tap and a result
constexpr int kMostWhole = 64;    // results where a tile is all of an axis
constexpr int kOverlapping = 4;   // results along an axis whose windows share their sources

int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -CeilDiv(-a, b); }

bool IsPlain(const Graph& g) {
  if (g.nodes.size() != 1 || !Has(g.nodes[0], graph::kWindow)) return false;
  const Node& node = g.nodes[0];
  const auto& attrs = node.As<graph::ResampleAttrs>();
  const bool pools = attrs.mode == ResampleMode::kMax ||
                     attrs.mode == ResampleMode::kAvgIncludePadding ||
                     attrs.mode == ResampleMode::kAvgExcludePadding;
  if (!pools || graph::PaddingTapOf(attrs) == PaddingTap::kEdge || node.compute != DType::kF32)
    return false;
  const DType type = g[node.inputs[0]].dtype;
  const bool is_wide = type == DType::kF16 || type == DType::kBF16 || type == DType::kF32;
  const auto fits = [&](TensorId id) {
    return !g[id].by_value && g[id].rank() == g[node.outputs[0]].rank() &&
           NumElements(g[id].dims) != 0;
  };
  return is_wide && std::ranges::all_of(SourcesOf(node), fits) &&
         std::ranges::all_of(graph::Outputs(g), fits);
}

// The sources of an axis whose tiles have so many results.
WindowTiles::Axis LinkAxis(const ResampleAxis& a, bool forward, int tile) {
  WindowTiles::Axis axis{.dim = static_cast<int64_t>(a.dim), .tile = tile};
  const auto step = static_cast<int>(a.step), taps = static_cast<int>(a.taps),
             offset = static_cast<int>(a.offset);
  axis.step = forward ? step * tile : tile / step;
  for (int result = 0; result < tile; ++result) {
    for (int tap = 0; tap < taps; ++tap) {
      if (forward) {
        axis.links.push_back({result, step * result + offset + tap, tap});
      } else if (const int from = result - offset - tap; from - FloorDiv(from, step) * step == 0) {
        axis.links.push_back({result, static_cast<int>(FloorDiv(from, step)), tap});
      }
    }
  }
  std::ranges::stable_sort(axis.links, {}, &WindowTiles::Link::source);
  if (!axis.links.empty()) {
    axis.low = axis.links.front().source;
    axis.high = axis.links.back().source;
  }
  return axis;
}

// Results along the innermost axis: as many as one wide store has.
int TileAlong(const Graph& g, const ResampleAxis& a, bool forward, bool* wide) {
  const Node& node = g.nodes[0];
  const int64_t extent = g[node.outputs[0]].dims[a.dim];
  const int stride = forward ? 1 : static_cast<int>(a.step);
  int widest = 8;
  for (const TensorId id : graph::Outputs(g)) {
    const bool contiguous = WalkOf(g[id], static_cast<int64_t>(a.dim)) == Walk::kContiguous;
    widest = std::min(widest, contiguous ? 16 / SizeOf(g[id].dtype) : 1);
  }
  const int aligned = WidestVector(g, graph::Outputs(g), static_cast<int64_t>(a.dim));
  for (int tile = std::min(widest, aligned); tile > 1; tile /= 2) {
    if (tile % stride != 0 || extent % tile != 0) continue;
    *wide = true;
    return tile;
  }
  *wide = false;
  return stride;
}

// Whether all sources come as copies of so many neighbours.
bool ComeInChunks(const Graph& g, int64_t dim, int chunk) {
  const std::vector<TensorId> sources = SourcesOf(g.nodes[0]);
  const int aligned = WidestVector(g, sources, dim);
  return chunk > 1 && (chunk & (chunk - 1)) == 0 && std::ranges::all_of(sources, [&](TensorId id) {
           const int most = 16 / SizeOf(g[id].dtype);
           return WalkOf(g[id], dim) == Walk::kContiguous && g[id].dims[dim] % chunk == 0 &&
                  aligned >= std::min(chunk, most);
         });
}

// Of a gradient whose one window along the axis has few elements: a tile is all of them, and no
// other window need be looked for.
bool IsWhole(const Node& node, const ResampleAxis& a) {
  return !IsForward(node) && a.out == 1 && a.in > 1 && a.in <= kMostTaps;
}
void KeepFirst(WindowTiles::Axis& axis) {
  std::erase_if(axis.links, [](const WindowTiles::Link& link) { return link.source != 0; });
  axis.low = axis.high = 0;
}

}  // namespace

std::optional<WindowTiles> PlanWindowTiles(const Group& group) {
  const Graph& g = group.graph;
  if (!IsPlain(g)) return std::nullopt;
  const Node& node = g.nodes[0];
  const bool forward = IsForward(node);
  const TensorId x = forward ? node.inputs[0] : node.outputs[0],
                 y = forward ? node.outputs[0] : node.inputs[0];
  const auto all = graph::ResampleAxes(node.As<graph::ResampleAttrs>(), g[x].dims, g[y].dims);
  WindowTiles tiles;
  tiles.lane_dim = MemoryOrder(g[graph::Outputs(g)[0]].strides).back();
  tiles.along = tiles.lane_dim == static_cast<int64_t>(all.back().dim);
  if (!tiles.along && tiles.lane_dim >= 2) return std::nullopt;
  std::vector<TensorId> ids = SourcesOf(node);
  std::ranges::copy(graph::Outputs(g), std::back_inserter(ids));
  if (!tiles.along) tiles.lanes = std::min(WidestVector(g, ids, tiles.lane_dim), kMostLanes);
  int results = 1, most_results = kMostResults;
  int64_t pairs = 1;
  for (const ResampleAxis& a : all) {
    if (a.unit != 1 || a.taps > kMostTaps || a.step > kMostStride || a.offset > kMostPadding ||
        a.offset < -kMostPadding)
      return std::nullopt;
    const bool whole = IsWhole(node, a) && !(tiles.along && &a == &all.back());
    int tile = forward ? 1 : static_cast<int>(a.step);
    if (tiles.along && &a == &all.back()) {
      tile = TileAlong(g, a, forward, &tiles.wide_store);
    } else if (whole) {
      tile = static_cast<int>(a.in);
      most_results = kMostWhole;
    } else if (a.step == 1 && a.taps > 2 && tiles.lanes == 1 && !IsMax(node) &&
               (forward ? a.out : a.in) > kMostTaps) {
      tile = kOverlapping;
    }
    tiles.axes.push_back(LinkAxis(a, forward, tile));
    if (whole) KeepFirst(tiles.axes.back());
    results *= tile;
    pairs *= static_cast<int64_t>(tiles.axes.back().links.size());
  }
  if (results > most_results || pairs > kMostPairs) return std::nullopt;
  const WindowTiles::Axis& last = tiles.axes.back();
  if (tiles.along && ComeInChunks(g, last.dim, last.step)) tiles.chunk = last.step;
  return tiles;
}

namespace {

class TileKernel {
 public:
  TileKernel(const Group& group, const Target& target, const WindowTiles& tiles, int threads)
      : g_(group.graph),
        node_(group.graph.nodes[0]),
        attrs_(node_.As<graph::ResampleAttrs>()),
        tiles_(tiles),
        threads_(threads),
        b_(group, target,
           fmt::format("window, tiles of {}, {} lanes, threads={}", TileText(tiles), tiles.lanes,
                       threads)),
        t_(b_.index_type()) {
    for (const char* reserved : {"bx", "tx", "i"}) b_.Name(reserved);
    in_pairs_ = PairsSuffice(target);
  }

  Lowered Lower() {
    const Tensor& y = g_[node_.outputs[0]];
    Index extents;
    Dims values;
    const Dims order = MemoryOrder(g_[graph::Outputs(g_)[0]].strides);
    for (const int64_t d : order) {
      const int64_t size = SizeAlong(d);
      values.push_back(CeilDiv(y.dims[d], size));
      extents.push_back(size == 1 ? b_.Extent(node_.outputs[0], d)
                                  : b_.Arg("tiles", values.back()));
    }
    Block body;
    const Index split = b_.Unravel(body, tile::Var("i", t_), extents, values, "i");
    place_.resize(order.size());
    for (size_t k = 0; k < order.size(); ++k) {
      const int64_t d = order[k];
      place_[d] = b_.Let(body, "at", split[k] * b_.Idx(SizeAlong(d)));
      for (const WindowTiles::Axis& axis : tiles_.axes)
        if (axis.dim == d) from_[d] = b_.Let(body, "from", split[k] * b_.Idx(axis.step));
    }
    Load(body);
    Compute(body);
    Store(body);
    return LaunchItems(b_, std::move(body), NumElements(values), threads_);
  }

 private:
  using Places = std::vector<int>;  // one along each axis

  static std::string TileText(const WindowTiles& tiles) {
    std::string text;
    for (const WindowTiles::Axis& axis : tiles.axes)
      text += fmt::format("{}{}", text.empty() ? "" : "x", axis.tile);
    return text;
  }
  int64_t SizeAlong(int64_t dim) const {
    if (!tiles_.along && dim == tiles_.lane_dim) return tiles_.lanes;
    for (const WindowTiles::Axis& axis : tiles_.axes)
      if (axis.dim == dim) return axis.tile;
    return 1;
  }
  bool forward() const { return IsForward(node_); }
  bool is_max() const { return IsMax(node_); }

  // Calls with all of a product of ranges, the last axis fastest.
  template <class Range, class Emit>
  void EachPlace(const Range& range, const Emit& emit, Places at = {}) const {
    if (at.size() == tiles_.axes.size()) return emit(at);
    const auto [low, high] = range(tiles_.axes[at.size()]);
    at.push_back(low);
    for (; at.back() <= high; ++at.back()) EachPlace(range, emit, at);
  }
  template <class Emit>
  void EachSource(const Emit& emit) const {
    EachPlace([](const WindowTiles::Axis& a) { return std::pair(a.low, a.high); }, emit);
  }
  template <class Emit>
  void EachResult(const Emit& emit) const {
    EachPlace([](const WindowTiles::Axis& a) { return std::pair(0, a.tile - 1); }, emit);
  }

  // ---- sources

  // What stands for sources outside.
  double Beyond() const {
    const PaddingTap padding = graph::PaddingTapOf(attrs_);
    // Pairs drop a NaN, also where all else is -infinity, and its tap is not inside.
    if (in_pairs_ && !attrs_.propagate_nan && padding == PaddingTap::kSkipped)
      return std::numeric_limits<double>::quiet_NaN();
    const bool lowest = forward() && (padding == PaddingTap::kNegInf ||
                                      (is_max() && padding == PaddingTap::kSkipped));
    return lowest ? -std::numeric_limits<double>::infinity() : 0;
  }

  // Whether a source lies in its tensor; null for always.
  Expr Inside(const WindowTiles::Axis& axis, int source, int count = 1) {
    const int64_t extent = g_[node_.inputs[0]].dims[axis.dim];
    const int64_t tiles = CeilDiv(g_[node_.outputs[0]].dims[axis.dim], int64_t{axis.tile});
    const Expr at = from_.at(axis.dim) + b_.Idx(source);
    Expr inside;
    if (source < 0) inside = tile::Ge(at, b_.Idx(0));
    if ((tiles - 1) * axis.step + source + count > extent) {
      const Expr below = tile::Lt(at + b_.Idx(count - 1), b_.Extent(node_.inputs[0], axis.dim));
      inside = inside ? tile::And(inside, below) : below;
    }
    return inside;
  }

  struct Piece {  // registers and where a source's first lane is
    std::string regs;
    int slot = 0;
  };
  void Load(Block& out) {
    const WindowTiles::Axis& last = tiles_.axes.back();
    std::map<std::pair<int64_t, int>, Expr> known;
    const auto inside_of = [&](const WindowTiles::Axis& axis, int source) {
      auto [it, is_new] = known.try_emplace({axis.dim, source});
      if (is_new)
        if (const Expr inside = Inside(axis, source)) it->second = b_.Let(out, "inside", inside);
      return it->second;
    };
    Expr chunk_inside;
    if (tiles_.chunk != 0) chunk_inside = Inside(last, 0, tiles_.chunk);
    EachSource([&](const Places& at) {
      const bool in_chunk = at.back() >= 0 && at.back() < tiles_.chunk;
      Expr inside;
      for (size_t s = 0; s < at.size(); ++s) {
        const bool by_chunk = in_chunk && s + 1 == at.size();
        const Expr here = by_chunk ? chunk_inside : inside_of(tiles_.axes[s], at[s]);
        if (here) inside = inside ? tile::And(inside, here) : here;
      }
      if (inside) inside = b_.Let(out, "exists", inside);
      inside_[at] = inside;
      for (const TensorId id : SourcesOf(node_)) {
        Places first = at;
        if (in_chunk) first.back() = 0;
        if (in_chunk && pieces_.contains({id, first})) {
          pieces_[{id, at}] = {pieces_[{id, first}].regs, at.back()};
          continue;
        }
        pieces_[{id, first}] =
            Fetch(out, id, first, in_chunk ? tiles_.chunk : tiles_.lanes, inside);
        if (in_chunk) pieces_[{id, at}] = {pieces_[{id, first}].regs, at.back()};
      }
    });
  }
  Piece Fetch(Block& out, TensorId id, const Places& at, int count, const Expr& inside) {
    const Tensor& t = g_[id];
    Piece piece{.regs = b_.Name(t.name + "_r")};
    out.push_back({tile::Alloc{piece.regs, t.dtype, tile::Space::kReg, count}});
    Index index = place_;
    for (size_t s = 0; s < at.size(); ++s)
      index[tiles_.axes[s].dim] = from_.at(tiles_.axes[s].dim) + b_.Idx(at[s]);
    Block read, fill;
    const Expr offset = b_.Offset(id, index);
    if (WalkOf(t, tiles_.lane_dim) == Walk::kContiguous && count > 1)
      WideCopy(read, t.dtype, piece.regs, b_.Idx(0), b_.Pointer(id), offset, count);
    else
      for (int l = 0; l < count; ++l)
        read.push_back(
            {tile::Store{piece.regs, b_.Idx(l),
                         tile::Load(b_.Pointer(id), t.dtype,
                                    offset + b_.Idx(l) * b_.Stride(id, tiles_.lane_dim))}});
    if (!inside) {
      std::ranges::move(read, std::back_inserter(out));
      return piece;
    }
    const double beyond = id == node_.inputs[0] ? Beyond() : 0;
    const Expr value = IsFloat(t.dtype) ? tile::Float(beyond) : tile::Int(0);
    for (int l = 0; l < count; ++l)
      fill.push_back({tile::Store{piece.regs, b_.Idx(l), tile::Cast(t.dtype, value)}});
    // Known where one tile has all results along the axis.
    if (tile::IsConst(inside, 0))
      std::ranges::move(fill, std::back_inserter(out));
    else
      out.push_back({tile::If{inside, std::move(read), std::move(fill)}});
    return piece;
  }

  // ---- arithmetic

  // The pairs of a result: the source and the number of the tap in its window.
  struct Pair {
    Places source;
    int number;
  };
  std::vector<Pair> PairsOf(const Places& result) const {
    std::vector<Pair> pairs = {{{}, 0}};
    const auto x_axes = TapsOfAxes();
    for (size_t s = 0; s < tiles_.axes.size(); ++s) {
      std::vector<Pair> longer;
      for (const Pair& pair : pairs) {
        for (const WindowTiles::Link& link : tiles_.axes[s].links) {
          if (link.result != result[s]) continue;
          longer.push_back({pair.source, pair.number * x_axes[s] + link.tap});
          longer.back().source.push_back(link.source);
        }
      }
      pairs = std::move(longer);
    }
    return pairs;
  }
  std::vector<int> TapsOfAxes() const {
    std::vector<int> taps;
    for (const int64_t window : attrs_.window) taps.push_back(static_cast<int>(window));
    return taps;
  }

  // Maxima of neighbouring 16-bit channels, two at a time: tile::Largest.
  bool PairsSuffice(const Target& target) const {
    if (!forward() || !is_max() || CountOfRow() % 2 != 0 || target.sm_version < 90) return false;
    const DType type = g_[node_.inputs[0]].dtype;
    const std::vector<TensorId> outputs = graph::Outputs(g_);
    if (std::ranges::find(outputs, node_.outputs[0]) == outputs.end()) return false;
    const bool has_numbers = node_.outputs.size() > 1 && node_.outputs[1] != graph::kAbsent;
    int64_t taps = 1;
    for (const int64_t window : attrs_.window) taps *= window;
    return (type == DType::kF16 || type == DType::kBF16) && g_[node_.outputs[0]].dtype == type &&
           (!has_numbers || g_[node_.outputs[1]].dtype == DType::kI8) && taps <= 128;
  }
  // Results that lie side by side in registers: channels, or a row of the tile.
  int CountOfRow() const { return tiles_.along ? tiles_.axes.back().tile : tiles_.lanes; }
  void ComputeInPairs(Block& out) {
    EachResult([&](const Places& at) {
      if (tiles_.along && at.back() != 0) return;
      tile::Largest largest{.lanes = CountOfRow(), .keeps_nan = attrs_.propagate_nan};
      for (const Pair& pair : PairsOf(at)) {
        largest.sources.push_back(tiles_.along ? Gathered(out, at, pair.number)
                                               : pieces_.at({node_.inputs[0], pair.source}).regs);
        largest.taps.push_back(pair.number);
      }
      largest.values = results_.at({node_.outputs[0], at});
      if (node_.outputs.size() > 1)
        if (const auto of = results_.find({node_.outputs[1], at}); of != results_.end())
          largest.numbers = of->second;
      const std::string values = largest.values, numbers = largest.numbers;
      out.push_back({std::move(largest)});
      if (!numbers.empty()) MendNumbers(out, at, values, numbers);
    });
  }
  // Where all of a window is -infinity, so is what stands for what lies outside, which may come
  // first.
  void MendNumbers(Block& out, Places at, const std::string& values, const std::string& numbers) {
    if (!attrs_.propagate_nan || graph::PaddingTapOf(attrs_) != PaddingTap::kSkipped) return;
    const DType type = g_[node_.outputs[0]].dtype;
    const auto is_lowest = [&](int l) {
      return tile::Op(ScalarOp::kEq, {tile::Cast(DType::kF32, tile::Load(values, type, b_.Idx(l))),
                                      tile::Float(-std::numeric_limits<double>::infinity())});
    };
    Expr any;
    Block mend;
    for (int l = 0; l < CountOfRow(); ++l) {
      if (tiles_.along) at.back() = l;
      const std::vector<Pair> pairs = PairsOf(at);
      Expr first;
      for (size_t p = pairs.size(); p-- > 0;) {
        const Expr& inside = inside_.at(pairs[p].source);
        const Expr number = tile::Int(pairs[p].number);
        first = inside && first ? tile::Select(inside, number, first) : number;
      }
      if (first->kind == tile::ExprKind::kInt) continue;  // the first tap is always inside
      any = any ? tile::Op(ScalarOp::kOr, {any, is_lowest(l)}) : is_lowest(l);
      Block one;
      one.push_back({tile::Store{numbers, b_.Idx(l), tile::Cast(DType::kI8, first)}});
      mend.push_back({tile::If{is_lowest(l), std::move(one), {}}});
    }
    if (any) out.push_back({tile::If{any, std::move(mend), {}}});
  }
  // What one tap of each result of a row reads, side by side.
  std::string Gathered(Block& out, Places at, int tap) {
    const TensorId x = node_.inputs[0];
    const std::string regs = b_.Name(g_[x].name + "_tap");
    out.push_back({tile::Alloc{regs, g_[x].dtype, tile::Space::kReg, CountOfRow()}});
    for (int q = 0; q < CountOfRow(); ++q) {
      at.back() = q;
      const std::vector<Pair> pairs = PairsOf(at);
      const auto pair = std::ranges::find(pairs, tap, &Pair::number);
      const Piece& piece = pieces_.at({x, pair->source});
      out.push_back(
          {tile::Store{regs, b_.Idx(q), tile::Load(piece.regs, g_[x].dtype, b_.Idx(piece.slot))}});
    }
    return regs;
  }

  void Compute(Block& out) {
    EachResult([&](const Places& at) {
      for (const TensorId id : graph::Outputs(g_)) {
        Places row = at;
        if (tiles_.along) row.back() = 0;
        if (results_.contains({id, row})) continue;
        results_[{id, row}] = b_.Name(g_[id].name + "_w");
        const int count = CountOfRow();
        out.push_back({tile::Alloc{results_[{id, row}], g_[id].dtype, tile::Space::kReg, count}});
      }
    });
    if (in_pairs_) return ComputeInPairs(out);
    Weigh(out);
    if (tiles_.lanes == 1) return OfLane(out, b_.Idx(0));
    const std::string lane = b_.Name("l");
    Block body;
    OfLane(body, tile::Var(lane, t_));
    out.push_back(
        {tile::For{lane, t_, b_.Idx(tiles_.lanes), tile::Bind::kUnroll, std::move(body)}});
  }

  // 1 / n where results of 16 bits and less do not tell a product from a quotient.
  bool RoundsMore() const { return SizeOf(g_[node_.outputs[0]].dtype) <= 2; }
  Expr Divided(const Expr& value, double n) const {
    return RoundsMore() ? value * tile::Float(1 / n) : value / tile::Float(n);
  }
  // Averages without padding: how many taps of a window lie in x, by its place along each axis.
  Expr TapsInside(size_t s, const Expr& window) {
    const auto& axis = tiles_.axes[s];
    const Expr start = window * b_.Idx(attrs_.stride[s]) - b_.Idx(attrs_.pre_padding[s]);
    const TensorId x = forward() ? node_.inputs[0] : node_.outputs[0];
    const Expr end =
        tile::Op(ScalarOp::kMin, {start + b_.Idx(attrs_.window[s]), b_.Extent(x, axis.dim)});
    return tile::Op(ScalarOp::kMax,
                    {end - tile::Op(ScalarOp::kMax, {start, b_.Idx(0)}), b_.Idx(0)});
  }
  void Weigh(Block& out) {
    if (attrs_.mode != ResampleMode::kAvgExcludePadding) return;
    const auto weigh = [&](const Places& at, bool of_source) {
      Expr taps = b_.Idx(1);
      for (size_t s = 0; s < at.size(); ++s) {
        const int64_t d = tiles_.axes[s].dim;
        taps = taps * TapsInside(s, (of_source ? from_.at(d) : place_[d]) + b_.Idx(at[s]));
      }
      const Expr n = tile::Cast(DType::kF32, tile::Op(ScalarOp::kMax, {taps, b_.Idx(1)}));
      weights_[at] = b_.Let(out, "taps", RoundsMore() ? tile::Float(1) / n : n);
    };
    if (forward())
      EachResult([&](const Places& at) { weigh(at, false); });
    else
      EachSource([&](const Places& at) { weigh(at, true); });
  }
  Expr Weighed(const Expr& value, const Places& at) const {
    const auto weight = weights_.find(at);
    if (weight == weights_.end()) return value;
    return RoundsMore() ? value * weight->second : value / weight->second;
  }

  void OfLane(Block& out, const Expr& lane) {
    std::map<Places, Expr> values, found;
    const auto read = [&](TensorId id, const Places& at) {
      const Piece& piece = pieces_.at({id, at});
      return tile::Load(piece.regs, g_[id].dtype, tiles_.lanes == 1 ? b_.Idx(piece.slot) : lane);
    };
    EachSource([&](const Places& at) {
      Expr value = tile::Cast(DType::kF32, read(node_.inputs[0], at));
      if (!forward()) value = Weighed(value, at);
      values[at] = b_.Let(out, "v", value);
      if (!forward() && is_max()) {
        const Expr index = read(node_.inputs[1], at);
        found[at] = b_.Let(out, "found", tile::Cast(ArithmeticType(index->type), index));
      }
    });
    EachResult([&](const Places& at) {
      const std::vector<Pair> pairs = PairsOf(at);
      Expr result;
      if (forward() && is_max())
        result = Maximum(out, pairs, values, at, lane);
      else
        result = Sum(pairs, values, found);
      if (forward()) result = Weighed(result, at);
      if (attrs_.mode == ResampleMode::kAvgIncludePadding) {
        double taps = 1;
        for (const int n : TapsOfAxes()) taps *= n;
        result = Divided(result, taps);
      }
      Keep(out, node_.outputs[0], at, lane, result);
    });
  }
  void Keep(Block& out, TensorId id, const Places& at, const Expr& lane, const Expr& value) {
    Places row = at;
    if (tiles_.along) row.back() = 0;
    const Expr slot = tiles_.along ? b_.Idx(at.back()) : lane;
    const auto regs = results_.find({id, row});
    if (regs == results_.end()) return;  // nobody wants it
    out.push_back({tile::Store{regs->second, slot, tile::Cast(g_[id].dtype, value)}});
  }

  static Expr Sum(const std::vector<Pair>& pairs, const std::map<Places, Expr>& values,
                  const std::map<Places, Expr>& found) {
    Expr sum;
    for (const Pair& pair : pairs) {
      Expr value = values.at(pair.source);
      if (const auto index = found.find(pair.source); index != found.end()) {
        const Expr number = tile::Cast(index->second->type, tile::Int(pair.number));
        value =
            tile::Select(tile::Op(ScalarOp::kEq, {index->second, number}), value, tile::Float(0));
      }
      sum = sum ? sum + value : value;
    }
    return sum ? sum : tile::Float(0);
  }

  // The largest value, then the first tap that has it.
  Expr Maximum(Block& out, const std::vector<Pair>& pairs, const std::map<Places, Expr>& values,
               const Places& at, const Expr& lane) {
    Expr largest = tile::Float(-std::numeric_limits<double>::infinity());
    const ScalarOp op = attrs_.propagate_nan ? ScalarOp::kMaxNan : ScalarOp::kMax;
    for (const Pair& pair : pairs)
      largest = b_.Let(out, "largest", tile::Op(op, {largest, values.at(pair.source)}));
    if (node_.outputs.size() < 2 || node_.outputs[1] == graph::kAbsent) return largest;
    const bool skips = graph::PaddingTapOf(attrs_) == PaddingTap::kSkipped;
    Expr number = tile::Int(0);
    for (size_t p = pairs.size(); p-- > 0;) {
      const Expr& value = values.at(pairs[p].source);
      Expr has = tile::Op(ScalarOp::kEq, {value, largest});
      if (attrs_.propagate_nan)
        has = tile::Op(ScalarOp::kOr, {has, tile::Op(ScalarOp::kNe, {value, value})});
      if (const Expr& inside = inside_.at(pairs[p].source); skips && inside)
        has = tile::And(inside, has);
      number = b_.Let(out, "number", tile::Select(has, tile::Int(pairs[p].number), number));
    }
    Keep(out, node_.outputs[1], at, lane, number);
    return largest;
  }

  // ---- results

  void Store(Block& out) {
    for (const auto& [of, regs] : results_) {
      const auto& [id, row] = of;
      Index index = place_;
      Expr exists;
      for (size_t s = 0; s < row.size(); ++s) {
        const WindowTiles::Axis& axis = tiles_.axes[s];
        index[axis.dim] = place_[axis.dim] + b_.Idx(row[s]);
        if (tiles_.along && s + 1 == row.size()) continue;
        const Expr here = Exists(id, axis, row[s]);
        if (here) exists = exists ? tile::And(exists, here) : here;
      }
      Block store;
      StoreRow(store, id, index, regs);
      if (exists)
        out.push_back({tile::If{exists, std::move(store), {}}});
      else
        std::ranges::move(store, std::back_inserter(out));
    }
  }
  Expr Exists(TensorId id, const WindowTiles::Axis& axis, int result) {
    if (g_[id].dims[axis.dim] % axis.tile == 0) return nullptr;
    return tile::Lt(place_[axis.dim] + b_.Idx(result), b_.Extent(id, axis.dim));
  }
  void StoreRow(Block& out, TensorId id, const Index& index, const std::string& regs) {
    const DType type = g_[id].dtype;
    const Expr offset = b_.Let(out, g_[id].name + "_at", b_.Offset(id, index));
    const WindowTiles::Axis& last = tiles_.axes.back();
    const int count = CountOfRow();
    const bool wide =
        tiles_.along ? tiles_.wide_store : WalkOf(g_[id], tiles_.lane_dim) == Walk::kContiguous;
    if (wide || count == 1) return WideCopyOrStore(out, id, offset, regs, count);
    for (int l = 0; l < count; ++l) {
      Block one;
      one.push_back(
          {tile::Store{b_.Pointer(id), offset + b_.Idx(l) * b_.Stride(id, tiles_.lane_dim),
                       tile::Load(regs, type, b_.Idx(l))}});
      const Expr exists = tiles_.along ? Exists(id, last, l) : nullptr;
      if (exists)
        out.push_back({tile::If{exists, std::move(one), {}}});
      else
        std::ranges::move(one, std::back_inserter(out));
    }
  }
  void WideCopyOrStore(Block& out, TensorId id, const Expr& offset, const std::string& regs,
                       int count) {
    WideCopy(out, g_[id].dtype, b_.Pointer(id), offset, regs, b_.Idx(0), count);
  }

  const Graph& g_;
  const Node& node_;
  const graph::ResampleAttrs& attrs_;
  const WindowTiles& tiles_;
  const int threads_;
  KernelBuilder b_;
  const DType t_;
  bool in_pairs_ = false;
  Index place_;                    // of the tile's first result
  std::map<int64_t, Expr> from_;   // by dim: source 0
  std::map<Places, Expr> inside_;  // null for always
  std::map<std::pair<TensorId, Places>, Piece> pieces_;
  std::map<std::pair<TensorId, Places>, std::string> results_;  // registers of a row of the tile
  std::map<Places, Expr> weights_;
};

}  // namespace

Lowered LowerWindowTiles(const Group& group, const Target& target, const WindowTiles& tiles,
                         int threads) {
  return TileKernel(group, target, tiles, threads).Lower();
}

}  // namespace kiln::compiler
