// Maxima of neighbours of 16 bits: tile::Largest takes a row of results at a time, for which GPUs
// have instructions on pairs.
#include <algorithm>
#include <limits>

#include "compiler/engines/window/tile_results.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Block;
using tile::Expr;

// The values that one tap of each result of a row reads, side by side.
std::string GatherTap(const TileFrame& f, const TileSources& sources, Block& out, Places at,
                      int tap) {
  const TensorId x = f.node.inputs[0];
  const DType type = f.g[x].dtype;
  const std::string regs = f.b.Name(f.g[x].name + "_tap");
  out.push_back({tile::Alloc{regs, type, tile::Space::kReg, f.CountOfRow()}});
  for (int q = 0; q < f.CountOfRow(); ++q) {
    at.back() = q;
    const std::vector<TapOfResult> taps = TapsOf(f, at);
    const auto found = std::ranges::find(taps, tap, &TapOfResult::number);
    const SourcePiece& piece = sources.pieces.at({x, found->source});
    out.push_back(
        {tile::Store{regs, f.b.Idx(q), tile::Load(piece.regs, type, f.b.Idx(piece.slot))}});
  }
  return regs;
}

// The number of the first tap that is inside; a constant where that is always the first one.
Expr FirstInside(const std::vector<TapOfResult>& taps, const std::map<Places, Expr>& inside_of) {
  Expr first;
  for (size_t p = taps.size(); p-- > 0;) {
    const Expr& inside = inside_of.at(taps[p].source);
    const Expr number = tile::Int(taps[p].number);
    first = inside && first ? tile::Select(inside, number, first) : number;
  }
  return first;
}

// Mends the numbers of windows that are all -infinity: what stands for elements outside is so as
// well, and may come first.
void MendNumbers(const TileFrame& f, const TileSources& sources, Block& out, Places at,
                 const std::string& values, const std::string& numbers) {
  if (!f.attrs.propagate_nan || graph::PaddingTapOf(f.attrs) != graph::PaddingTap::kSkipped) return;
  const DType type = f.g[f.node.outputs[0]].dtype;
  const auto is_lowest = [&](int l) {
    const Expr value = tile::Cast(DType::kF32, tile::Load(values, type, f.b.Idx(l)));
    return tile::Op(ScalarOp::kEq, {value, tile::Float(-std::numeric_limits<double>::infinity())});
  };
  Expr any;
  Block mend;
  for (int l = 0; l < f.CountOfRow(); ++l) {
    if (f.tiles.along) at.back() = l;
    const Expr first = FirstInside(TapsOf(f, at), sources.inside);
    if (first->kind == tile::ExprKind::kInt) continue;
    any = any ? tile::Op(ScalarOp::kOr, {any, is_lowest(l)}) : is_lowest(l);
    Block one;
    one.push_back({tile::Store{numbers, f.b.Idx(l), tile::Cast(DType::kI8, first)}});
    mend.push_back({tile::If{is_lowest(l), std::move(one), {}}});
  }
  if (any) out.push_back({tile::If{any, std::move(mend), {}}});
}

}  // namespace

bool PairsSuffice(const graph::Graph& g, const WindowTiles& tiles, const Target& target) {
  const graph::Node& node = g.nodes[0];
  const int count = tiles.along ? tiles.axes.back().tile : tiles.lanes;
  if (!IsForward(node) || !IsMax(node) || count % 2 != 0 || target.sm_version < 90) return false;
  const DType type = g[node.inputs[0]].dtype;
  const std::vector<TensorId> outputs = graph::Outputs(g);
  if (std::ranges::find(outputs, node.outputs[0]) == outputs.end()) return false;
  const bool has_numbers = node.outputs.size() > 1 && node.outputs[1] != graph::kAbsent;
  int64_t taps = 1;
  for (const int64_t window : node.As<graph::ResampleAttrs>().window) taps *= window;
  return (type == DType::kF16 || type == DType::kBF16) && g[node.outputs[0]].dtype == type &&
         (!has_numbers || g[node.outputs[1]].dtype == DType::kI8) && taps <= 128;
}

void ComputeInPairs(const TileFrame& f, const TileSources& sources, const ResultRows& rows,
                    Block& out) {
  for (const Places& at : ResultsOfTile(f.tiles)) {
    if (f.tiles.along && at.back() != 0) continue;
    tile::Largest largest{.lanes = f.CountOfRow(), .keeps_nan = f.attrs.propagate_nan};
    for (const TapOfResult& tap : TapsOf(f, at)) {
      largest.sources.push_back(f.tiles.along
                                    ? GatherTap(f, sources, out, at, tap.number)
                                    : sources.pieces.at({f.node.inputs[0], tap.source}).regs);
      largest.taps.push_back(tap.number);
    }
    largest.values = rows.at({f.node.outputs[0], at});
    if (const auto of = rows.find({f.numbers(), at}); of != rows.end())
      largest.numbers = of->second;
    const std::string values = largest.values, numbers = largest.numbers;
    out.push_back({std::move(largest)});
    if (!numbers.empty()) MendNumbers(f, sources, out, at, values, numbers);
  }
}

}  // namespace kiln::compiler
