#include "compiler/engines/contract_mma/epilogue.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

namespace {

constexpr int kQuad = 4;  // products along n that take part in one exchange

}  // namespace

EpilogueAxes MmaAxes(const MmaContext& context) {
  return {.left_is_a = context.plan.swapped,
          .left_size = context.c.n.size(),
          .right_size = context.c.m.size()};
}

MmaEpilogue::MmaEpilogue(const Group& group, const MmaContext& context, const MmaBlock& block,
                         const MmaLane& lane, const Contraction& plain, std::string acc,
                         MmaSlices& slices, TileReductions* reductions)
    : x_(context),
      block_(block),
      lane_(lane),
      acc_(std::move(acc)),
      slices_(slices),
      reductions_(reductions),
      maps_(group, context.b, plain, MmaAxes(context)) {}

Expr MmaEpilogue::Equals(const Expr& a, int64_t value) const {
  return tile::Op(ScalarOp::kEq, {a, x_.b.Idx(value)});
}

void MmaEpilogue::Emit(Block& body) {
  KernelBuilder& b = x_.b;
  Quad quad;
  quad.t = b.Let(body, "t", lane_.lane % b.Idx(4));
  quad.g = b.Let(body, "g", lane_.lane / b.Idx(4));
  quad.odd = b.Let(body, "odd", Equals(quad.t % b.Idx(2), 1));
  quad.upper = b.Let(body, "upper", tile::Ge(quad.t, b.Idx(2)));
  if (reductions_) DeclareReductions(body, quad);
  const int lines = x_.warp_tiles_n() / kQuad;
  Loop(b, body, "i", b.Idx(x_.warp_tiles_m()), Bind::kUnroll, [&](Block& rows, const Expr& i) {
    Loop(b, rows, "half", b.Idx(2), Bind::kUnroll, [&](Block& halves, const Expr& half) {
      const Expr m =
          b.Let(halves, "om",
                block_.first_m + lane_.warp_m + i * b.Idx(kMmaM) + half * b.Idx(8) + quad.g);
      Loop(b, halves, "q", b.Idx(lines), Bind::kUnroll, [&](Block& one, const Expr& q) {
        const std::string line = Registers(b, one, "line", x_.c.accumulator, kMmaLine);
        Exchange(one, line, i, half, q, quad);
        const Expr column = (q * b.Idx(kQuad) + quad.t) * b.Idx(kMmaLine);
        const Expr n = b.Let(one, "on", block_.first_n + lane_.warp_n + column);
        StoreLine(one, m, n, line, i * b.Idx(2) + half, q * b.Idx(kMmaLine));
      });
    });
  });
}

// A thread's slots along n are the 8 of each exchanged line, along m one for each row of fragments.
void MmaEpilogue::DeclareReductions(Block& body, const Quad& quad) {
  KernelBuilder& b = x_.b;
  const MmaPlan& plan = x_.plan;
  const Expr warp = Var(b, "tx") / b.Idx(kWarpLanes);
  const MmaLane& lane = lane_;
  TileSide rows{.extent = plan.tile_m,
                .slots = x_.warp_tiles_m() * 2,
                .place = [&b, lane, quad](
                             const Expr& slot) { return lane.warp_m + slot * b.Idx(8) + quad.g; },
                .lane_masks = {1, 2},
                .leads = Equals(quad.t, 0),
                .warps = plan.warps_n,
                .warp = warp % b.Idx(plan.warps_n),
                .first = block_.first_m,
                .size = block_.m_size,
                .part = block_.column};
  TileSide columns{.extent = plan.tile_n,
                   .slots = x_.warp_tiles_n() / kQuad * kMmaLine,
                   .place =
                       [&b, lane, quad](const Expr& slot) {
                         const Expr line = slot / b.Idx(kMmaLine) * b.Idx(kQuad) + quad.t;
                         return lane.warp_n + line * b.Idx(kMmaLine) + slot % b.Idx(kMmaLine);
                       },
                   .lane_masks = {4, 8, 16},
                   .leads = Equals(quad.g, 0),
                   .warps = plan.warps_m,
                   .warp = warp / b.Idx(plan.warps_n),
                   .first = block_.first_n,
                   .size = block_.n_size,
                   .part = block_.row};
  // Reductions speak of the contraction's own axes.
  if (plan.swapped) std::swap(rows, columns);
  reductions_->Declare(body, std::move(rows), std::move(columns));
}

// Lane t of four has columns 2t and 2t + 1 of four n-tiles, and gets all of tile t: a transposition
// of 4 x 4 pairs, by lanes one apart and then two apart.
void MmaEpilogue::Exchange(Block& out, const std::string& line, const Expr& i, const Expr& half,
                           const Expr& q, const Quad& quad) const {
  KernelBuilder& b = x_.b;
  for (int pair = 0; pair < 2; ++pair) {
    Expr v[kQuad];
    for (int j = 0; j < kQuad; ++j) {
      const Expr tile = i * b.Idx(x_.warp_tiles_n()) + q * b.Idx(kQuad) + b.Idx(j);
      v[j] = tile::Load(acc_, x_.c.accumulator, tile * b.Idx(4) + half * b.Idx(2) + b.Idx(pair));
    }
    for (const int distance : {1, 2}) {
      const Expr& keeps_second = distance == 1 ? quad.odd : quad.upper;
      for (int j = 0; j < kQuad; ++j) {
        if ((j & distance) != 0) continue;
        Expr &first = v[j], &second = v[j + distance];
        const Expr sent = tile::Select(keeps_second, first, second);
        const Expr got = b.Let(out, "got", tile::ShuffleXor(sent, distance));
        const Expr kept_first = b.Let(out, "v", tile::Select(keeps_second, got, first));
        second = b.Let(out, "v", tile::Select(keeps_second, second, got));
        first = kept_first;
      }
    }
    for (int j = 0; j < kQuad; ++j) out.push_back({tile::Store{line, b.Idx(j * 2 + pair), v[j]}});
  }
}

void MmaEpilogue::StoreLine(Block& out, const Expr& m, const Expr& n, const std::string& line,
                            const Expr& row_slot, const Expr& column_slot) {
  if (slices_.exist()) return slices_.Store(out, block_, m, n, line);
  KernelBuilder& b = x_.b;
  const int lanes = maps_.lanes();
  for (int first = 0; first < kMmaLine; first += lanes) {
    ContractionEpilogue::Taken taken;
    if (reductions_)
      taken = [&](Block& one, ValueScope& values, const Index& at, const Expr& lane) {
        const Expr slot = column_slot + b.Idx(first) + lane;
        reductions_->Add(one, values, at, x_.plan.swapped ? slot : row_slot,
                         x_.plan.swapped ? row_slot : slot);
      };
    maps_.Store(
        out, block_.batch_number, first == 0 ? n : b.Let(out, "on", n + b.Idx(first)), m, lanes,
        [&](const Expr& lane) { return tile::Load(line, x_.c.accumulator, b.Idx(first) + lane); },
        nullptr, taken);
  }
}

}  // namespace kiln::compiler
