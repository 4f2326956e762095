#include "compiler/engines/window/tile_results.h"

#include <limits>

#include "compiler/kernel/loops.h"

namespace kiln::compiler {
namespace {

using graph::ResampleMode;
using graph::TensorId;
using tile::Block;
using tile::Expr;

// Averages without padding: the taps of each window that lie in x, or their reciprocal, by the
// window's place. Backward a window is a source, forward a result.
class TapWeights {
 public:
  TapWeights(const TileFrame& f, const TilePosition& at, Block& out) : f_(f) {
    if (f.attrs.mode != ResampleMode::kAvgExcludePadding) return;
    const std::vector<Places> windows =
        f.forward() ? ResultsOfTile(f.tiles) : SourcesOfTile(f.tiles);
    for (const Places& window : windows) {
      Expr taps = f.b.Idx(1);
      for (size_t s = 0; s < window.size(); ++s) {
        const int64_t d = f.tiles.axes[s].dim;
        const Expr first = f.forward() ? at.place[d] : at.from.at(d);
        taps = taps * TapsInside(s, first + f.b.Idx(window[s]));
      }
      const Expr n = tile::Cast(DType::kF32, tile::Op(ScalarOp::kMax, {taps, f.b.Idx(1)}));
      weights_[window] = f.b.Let(out, "taps", f.RoundsMore() ? tile::Float(1) / n : n);
    }
  }

  Expr Weighed(const Expr& value, const Places& window) const {
    const auto weight = weights_.find(window);
    if (weight == weights_.end()) return value;
    return f_.RoundsMore() ? value * weight->second : value / weight->second;
  }

 private:
  // The number of taps of a window that lie in x along an axis, by its place there.
  Expr TapsInside(size_t s, const Expr& window) const {
    KernelBuilder& b = f_.b;
    const Expr start = window * b.Idx(f_.attrs.stride[s]) - b.Idx(f_.attrs.pre_padding[s]);
    const TensorId x = f_.forward() ? f_.node.inputs[0] : f_.node.outputs[0];
    const Expr end = tile::Op(
        ScalarOp::kMin, {start + b.Idx(f_.attrs.window[s]), b.Extent(x, f_.tiles.axes[s].dim)});
    return tile::Op(ScalarOp::kMax, {end - tile::Op(ScalarOp::kMax, {start, b.Idx(0)}), b.Idx(0)});
  }

  const TileFrame& f_;
  std::map<Places, Expr> weights_;
};

// The values of all sources at one lane.
struct SourceValues {
  std::map<Places, Expr> values;
  std::map<Places, Expr> found;  // of a maximum's gradient: the tap that each window has found
};

SourceValues ReadSources(const TileFrame& f, const TileSources& sources, const TapWeights& weights,
                         Block& out, const Expr& lane) {
  const auto read = [&](TensorId id, const Places& at) {
    const SourcePiece& piece = sources.pieces.at({id, at});
    return tile::Load(piece.regs, f.g[id].dtype, f.tiles.lanes == 1 ? f.b.Idx(piece.slot) : lane);
  };
  SourceValues all;
  for (const Places& at : SourcesOfTile(f.tiles)) {
    Expr value = tile::Cast(DType::kF32, read(f.node.inputs[0], at));
    if (!f.forward()) value = weights.Weighed(value, at);
    all.values[at] = f.b.Let(out, "v", value);
    if (f.forward() || !f.is_max()) continue;
    const Expr index = read(f.node.inputs[1], at);
    all.found[at] = f.b.Let(out, "found", tile::Cast(ArithmeticType(index->type), index));
  }
  return all;
}

Expr Sum(const std::vector<TapOfResult>& taps, const SourceValues& sources) {
  Expr sum;
  for (const TapOfResult& tap : taps) {
    Expr value = sources.values.at(tap.source);
    if (const auto index = sources.found.find(tap.source); index != sources.found.end()) {
      const Expr number = tile::Cast(index->second->type, tile::Int(tap.number));
      value = tile::Select(tile::Op(ScalarOp::kEq, {index->second, number}), value, tile::Float(0));
    }
    sum = sum ? sum + value : value;
  }
  return sum ? sum : tile::Float(0);
}

// A result's registers take it; nothing is done where nobody wants it.
void Keep(const TileFrame& f, const ResultRows& rows, Block& out, TensorId id, const Places& at,
          const Expr& lane, const Expr& value) {
  const auto regs = rows.find({id, RowOf(f, at)});
  if (regs == rows.end()) return;
  const Expr slot = f.tiles.along ? f.b.Idx(at.back()) : lane;
  out.push_back({tile::Store{regs->second, slot, tile::Cast(f.g[id].dtype, value)}});
}

Expr Largest(const TileFrame& f, const std::vector<TapOfResult>& taps, const SourceValues& sources,
             Block& out) {
  const ScalarOp op = f.attrs.propagate_nan ? ScalarOp::kMaxNan : ScalarOp::kMax;
  Expr largest = tile::Float(-std::numeric_limits<double>::infinity());
  for (const TapOfResult& tap : taps)
    largest = f.b.Let(out, "largest", tile::Op(op, {largest, sources.values.at(tap.source)}));
  return largest;
}

// The first tap that has the largest value.
Expr TapOfLargest(const TileFrame& f, const std::vector<TapOfResult>& taps,
                  const SourceValues& sources, const std::map<Places, Expr>& inside_of,
                  const Expr& largest, Block& out) {
  const bool skips = graph::PaddingTapOf(f.attrs) == graph::PaddingTap::kSkipped;
  Expr number = tile::Int(0);
  for (size_t p = taps.size(); p-- > 0;) {
    const Expr& value = sources.values.at(taps[p].source);
    Expr has = tile::Op(ScalarOp::kEq, {value, largest});
    if (f.attrs.propagate_nan)
      has = tile::Op(ScalarOp::kOr, {has, tile::Op(ScalarOp::kNe, {value, value})});
    if (const Expr& inside = inside_of.at(taps[p].source); skips && inside)
      has = tile::And(inside, has);
    number = f.b.Let(out, "number", tile::Select(has, tile::Int(taps[p].number), number));
  }
  return number;
}

// Averages with padding are divided by all taps.
Expr DividedByAllTaps(const TileFrame& f, const Expr& value) {
  if (f.attrs.mode != ResampleMode::kAvgIncludePadding) return value;
  double taps = 1;
  for (const int64_t n : f.attrs.window) taps *= static_cast<double>(n);
  return f.RoundsMore() ? value * tile::Float(1 / taps) : value / tile::Float(taps);
}

// All results of the tile at one lane.
void ComputeLane(const TileFrame& f, const TileSources& sources, const TapWeights& weights,
                 const ResultRows& rows, Block& out, const Expr& lane) {
  const SourceValues values = ReadSources(f, sources, weights, out, lane);
  for (const Places& at : ResultsOfTile(f.tiles)) {
    const std::vector<TapOfResult> taps = TapsOf(f, at);
    Expr result;
    if (f.forward() && f.is_max()) {
      result = Largest(f, taps, values, out);
      if (f.numbers() != graph::kAbsent) {
        const Expr number = TapOfLargest(f, taps, values, sources.inside, result, out);
        Keep(f, rows, out, f.numbers(), at, lane, number);
      }
    } else {
      result = Sum(taps, values);
    }
    if (f.forward()) result = weights.Weighed(result, at);
    Keep(f, rows, out, f.node.outputs[0], at, lane, DividedByAllTaps(f, result));
  }
}

ResultRows AllocRows(const TileFrame& f, Block& out) {
  ResultRows rows;
  for (const Places& at : ResultsOfTile(f.tiles)) {
    for (const TensorId id : graph::Outputs(f.g)) {
      const auto [row, is_new] = rows.try_emplace({id, RowOf(f, at)});
      if (!is_new) continue;
      row->second = f.b.Name(f.g[id].name + "_w");
      out.push_back({tile::Alloc{row->second, f.g[id].dtype, tile::Space::kReg, f.CountOfRow()}});
    }
  }
  return rows;
}

}  // namespace

ResultRows ComputeResults(const TileFrame& f, const TilePosition& at, const TileSources& sources,
                          Block& out) {
  ResultRows rows = AllocRows(f, out);
  if (f.in_pairs) {
    ComputeInPairs(f, sources, rows, out);
    return rows;
  }
  const TapWeights weights(f, at, out);
  UnrolledLoop(f.b, out, "l", f.tiles.lanes, [&](Block& body, const Expr& lane) {
    ComputeLane(f, sources, weights, rows, body, lane);
  });
  return rows;
}

}  // namespace kiln::compiler
