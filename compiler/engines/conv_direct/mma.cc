// conv_direct on tensor cores: f16 and bf16, channels innermost, at most 32 channels a group.
//
// A warp makes 32 channels (a slab) of 8 workers' outputs by mma.m16n8k16. There is no shared
// memory on the way of the activations, since k and n of a product may be numbered as one likes:
//
//   lane     g = lane/4 is the worker, t = lane%4; the lane reads and writes `run` = 8 neighbouring
//            channels, 8t..8t+7, 16 bytes (run 4: 4t..4t+3 of each half slab, 8 bytes twice)
//   k        registers j = 0..3 of a read hold channels 8t+2j, 8t+2j+1: over the four lanes that is
//            half a k of 16. The other half is another j, or the same one at the next tap
//   n        column 2t+e of product j is filter 8t+2j+e, so accumulators lie as the reads do
//   m        row g and row g+8 are two columns of worker g, of the same phase
//
// B is block-diagonal (mma_panel.h); sums that are not finite are made again (mma_alone.h).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/engines/conv_direct/mma_alone.h"
#include "compiler/engines/conv_direct/mma_panel.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarps = 4, kThreads = kWarpLanes * kWarps;
constexpr int kWorkers = 8;  // of a warp

class DirectMmaKernel : private ConvDirectTiles {
 public:
  DirectMmaKernel(const Group& group, const Target& target, const ConvShape& shape,
                  const DirectKnobs& knobs)
      : ConvDirectTiles(group, target, shape, SizesFor(group, shape, knobs, 2),
                        fmt::format("conv_direct: tensor cores, rows={}, cols={}, steps={}, run={}",
                                    knobs.rows, knobs.cols, knobs.steps, knobs.run)),
        steps_(knobs.steps),
        run_(knobs.run),
        plan_(MmaPlanOf(shape, knobs.run)),
        type_(group.graph[shape.in].dtype),
        in_(group, {shape.in}, -1, run_),
        out_(group, graph::Outputs(group.graph), shape.out, run_),
        slabs_(CeilDiv(out_channels(), kDirectSlab)) {}

  Lowered Lower() {
    Block body;
    const auto where =
        b_.Divide(body, Var("bx"), b_.Arg("slabs", slabs_), std::max<int64_t>(slabs_, 1), "slab");
    DirectLane lane;
    lane.lane = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarpLanes));
    lane.warp = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarpLanes));
    lane.g = b_.Let(body, "g", lane.lane / b_.Idx(4));
    lane.t4 = b_.Let(body, "t4", lane.lane % b_.Idx(4));
    const Expr first_channel = b_.Let(body, "first_channel", where.remainder * b_.Idx(kDirectSlab));
    DirectMmaPanel panel(b_, shape_, plan_, run_, type_, lane, first_channel);
    panel.Fill(body);
    Block loop;
    const Expr chunk = where.quotient * b_.Idx(int64_t{kWarps} * steps_);
    const Expr unit = b_.Let(loop, "unit", chunk + Var("step") * b_.Idx(kWarps) + lane.warp);
    MakeUnit(loop, lane, panel, first_channel, unit);
    body.push_back({tile::For{"step", t(), b_.Idx(steps_), Bind::kSerial, std::move(loop)}});

    const int64_t units = CeilDiv(sizes_.col_blocks * sizes_.planes, kWorkers) * sizes_.row_tiles;
    const int64_t blocks = CeilDiv(units, int64_t{kWarps} * steps_) * slabs_;
    Lowered lowered;
    body = BlockAndThread(t(), b_.Arg("grid", blocks), kThreads, std::move(body));
    // Two blocks have 255 registers a thread; without a number ptxas would rather spill for three.
    b_.Finish(std::move(body), {blocks, 1, 1}, kThreads, lowered, 2);
    return lowered;
  }

 private:
  // A worker's outputs: their place, and the channels of a lane, one access after the other.
  struct Outputs {
    Place place;
    std::vector<Expr> channels, has_channel;
  };

  int64_t accumulators() const { return sizes_.rows * sizes_.cols / 2 * kDirectSets * 4; }
  // The first accumulator of product (i, m), pairs of columns counted along a row.
  int64_t SetAt(int64_t i, int64_t m) const { return (i * (sizes_.cols / 2) + m) * kDirectSets; }

  // One warp's outputs.
  void MakeUnit(Block& body, const DirectLane& lane, const DirectMmaPanel& panel,
                const Expr& first_channel, const Expr& unit) {
    const auto at =
        b_.Divide(body, unit, b_.Arg("row_tiles", sizes_.row_tiles), sizes_.row_tiles, "row_tile");
    const Expr block = b_.Let(body, "block", at.quotient * b_.Idx(kWorkers) + lane.g);
    Outputs outputs;
    outputs.place = PlaceAt(body, at.remainder, block);
    for (int part = 0; part < 8 / run_; ++part) {
      const Expr c = first_channel + b_.Idx(part * 4 * run_) + lane.t4 * b_.Idx(run_);
      outputs.channels.push_back(b_.Let(body, "channel", c));
      outputs.has_channel.push_back(tile::Lt(outputs.channels.back(), b_.Extent(shape_.out, 1)));
    }
    const std::string acc = Registers(b_, body, "acc", DType::kF32, accumulators());
    Clear(b_, body, acc, DType::kF32, accumulators());
    const std::vector<Expr> has_col = ColumnGuards(body, outputs.place, outputs.place.valid);
    for (Expr& has : outputs.has_channel) has = b_.Let(body, "has_channel", has);
    for (int64_t kd = 0; kd < depth_taps(); ++kd) {
      const Plane plane = PlaneAt(body, outputs.place, kd);
      for (const int64_t row : row_window_) {
        const std::string window = ReadWindow(body, outputs, plane, row, has_col);
        for (int64_t i = 0; i < sizes_.rows; ++i)
          for (const TapAt& r : row_map_.TapsOf(i))
            if (row_map_.InputOf(i, r) == row) MultiplyRow(body, panel, window, acc, kd, r.tap, i);
      }
    }
    Epilogue(body, lane, first_channel, outputs, acc);
  }

  std::string ReadWindow(Block& body, const Outputs& outputs, const Plane& plane, int64_t row,
                         const std::vector<Expr>& has_col) {
    const int64_t size = static_cast<int64_t>(col_window_.size()) * 8;
    const std::string window = Registers(b_, body, "window", type_, size);
    Clear(b_, body, window, type_, size);
    const Expr row_guard = RowGuard(outputs.place, row, plane);
    const Expr has_row = row_guard ? b_.Let(body, "has_row", row_guard) : nullptr;
    for (size_t c = 0; c < col_window_.size(); ++c) {
      for (int part = 0; part < 8 / run_; ++part) {
        Block read;
        const Index index =
            InputIndex(outputs.place, plane, outputs.channels[part], row, col_window_[c]);
        in_.Read(b_, read, index, window, b_.Idx(static_cast<int64_t>(c) * 8 + part * run_), type_);
        Expr guard = tile::And(has_col[c], outputs.has_channel[part]);
        if (has_row) guard = tile::And(has_row, guard);
        When(body, guard, std::move(read));
      }
    }
    return window;
  }

  int64_t WindowSlot(int64_t col, int64_t s) const {
    for (const TapAt& tap : col_map_.TapsOf(col)) {
      if (tap.tap != s) continue;
      const auto it = std::ranges::find(col_window_, col_map_.InputOf(col, tap));
      return (it - col_window_.begin()) * 8;
    }
    return 0;
  }

  // The pairs of columns that share a product: the same phase, so the same taps.
  std::pair<int64_t, int64_t> Columns(int64_t m) const {
    const int64_t p = col_map_.phases, first = m / p * 2 * p + m % p;
    return {first, first + p};
  }

  void MultiplyRow(Block& body, const DirectMmaPanel& panel, const std::string& window,
                   const std::string& acc, int64_t kd, int64_t r, int64_t i) {
    for (int64_t phase = 0; phase < col_map_.phases; ++phase) {
      for (size_t f = 0; f < plan_.fragments.size(); ++f) {
        const DirectMmaFragment& fragment = plan_.fragments[f];
        if (fragment.kd != kd || fragment.r != r || fragment.phase != phase) continue;
        const std::string b_fragment = panel.Fragment(body, static_cast<int64_t>(f));
        for (int64_t m = phase; m < sizes_.cols / 2; m += col_map_.phases) {
          Loop(body, "j", b_.Idx(kDirectSets), Bind::kUnroll, [&](Block& one, const Expr& j) {
            const std::string a = Registers(b_, one, "a_fragment", type_, 8);
            for (int half = 0; half < 2; ++half)
              Gather(one, panel, a, half, fragment.source[half], window, m, j);
            const Expr slot = (b_.Idx(SetAt(i, m)) + j) * b_.Idx(4);
            one.push_back({tile::Mma{acc, slot, a, b_.Idx(0), b_fragment, j * b_.Idx(4)}});
          });
        }
      }
    }
  }

  // Half a fragment of A: two columns' channels of one set at one tap.
  void Gather(Block& out, const DirectMmaPanel& panel, const std::string& a, int half,
              const DirectMmaSource& source, const std::string& window, int64_t m, const Expr& j) {
    const auto [first, second] = Columns(m);
    for (int row = 0; row < 2; ++row) {
      const Expr to = b_.Idx(half * 4 + row * 2);
      if (source.set < 0) {
        for (int e = 0; e < 2; ++e) out.push_back({tile::Store{a, to + b_.Idx(e), Zero(type_)}});
        continue;
      }
      const int64_t slot = WindowSlot(row == 0 ? first : second, source.s);
      WideCopy(out, type_, a, to, window, b_.Idx(slot) + panel.SourceSet(j, source.set) * b_.Idx(2),
               2);
    }
  }

  // ---- sums to outputs

  void Epilogue(Block& body, const DirectLane& lane, const Expr& first_channel,
                const Outputs& outputs, const std::string& acc) {
    const std::string check = Registers(b_, body, "check", DType::kF32, 1);
    body.push_back({tile::Store{check, b_.Idx(0), Zero(DType::kF32)}});
    const Expr checked = tile::Load(check, DType::kF32, b_.Idx(0));
    Loop(body, "z", b_.Idx(accumulators()), Bind::kUnroll, [&](Block& one, const Expr& z) {
      const Expr sum = tile::Load(acc, DType::kF32, z);
      const Expr added = tile::Op(ScalarOp::kFma, {sum, tile::Float(0), checked});
      one.push_back({tile::Store{check, b_.Idx(0), added}});
    });
    Block together, alone;
    StoreTogether(together, outputs, acc);
    MakeAlone(alone, lane, first_channel, outputs.place);
    body.push_back({tile::If{tile::Op(ScalarOp::kEq, {checked, tile::Float(0)}),
                             std::move(together), std::move(alone)}});
  }

  void MakeAlone(Block& body, const DirectLane& lane, const Expr& first_channel,
                 const Place& place) {
    const auto one_output = [&](Block& one, const Expr& i, const Expr& j, const Expr& l) {
      const Expr in_slab = DirectChannel(b_, run_, lane.t4, l / b_.Idx(2), l % b_.Idx(2));
      const Expr channel = b_.Let(one, "made", first_channel + in_slab);
      Index at = {place.image, channel};
      if (shape_.spatial == 3) at.push_back(place.depth);
      if (shape_.spatial >= 2) at.push_back(b_.Let(one, "out_row", place.row + i));
      at.push_back(b_.Let(one, "out_col", place.col + j));
      Expr guard = tile::And(place.valid, tile::Lt(channel, b_.Extent(shape_.out, 1)));
      for (int64_t d = 2; d < shape_.spatial + 2; ++d)
        guard = tile::And(guard, tile::Lt(at[d], b_.Extent(shape_.out, d)));
      Block inside;
      MakeOutputAlone(b_, shape_, type_, inside, at);
      When(one, guard, std::move(inside));
    };
    Loop(body, "i", b_.Idx(sizes_.rows), Bind::kSerial, [&](Block& rows, const Expr& i) {
      Loop(rows, "j", b_.Idx(sizes_.cols), Bind::kSerial, [&](Block& cols, const Expr& j) {
        Loop(cols, "l", b_.Idx(8), Bind::kSerial,
             [&](Block& one, const Expr& l) { one_output(one, i, j, l); });
      });
    });
  }

  void StoreTogether(Block& body, const Outputs& outputs, const std::string& acc) {
    for (int64_t i = 0; i < sizes_.rows; ++i) {
      for (int64_t m = 0; m < sizes_.cols / 2; ++m) {
        const auto [first, second] = Columns(m);
        for (int row = 0; row < 2; ++row)
          for (int part = 0; part < 8 / run_; ++part)
            StorePart(body, outputs, acc, i, m, row, row == 0 ? first : second, part);
      }
    }
  }

  // One access of a lane: `run` channels of column `col`, which is row `row` of the pair in
  // product (i, m).
  void StorePart(Block& body, const Outputs& outputs, const std::string& acc, int64_t i, int64_t m,
                 int row, int64_t col, int part) {
    Block store;
    const auto accumulator = [&](const Expr& l) {
      const Expr set = b_.Idx(part * run_ / 2) + l / b_.Idx(2);
      const Expr slot = (b_.Idx(SetAt(i, m)) + set) * b_.Idx(4) + b_.Idx(row * 2) + l % b_.Idx(2);
      return tile::Load(acc, DType::kF32, slot);
    };
    out_.Write(b_, store, OutputIndex(outputs.place, outputs.channels[part], i, col), accumulator);
    const Expr guard = tile::And(outputs.place.valid, OutputGuard(outputs.place, i, col));
    When(body, tile::And(guard, outputs.has_channel[part]), std::move(store));
  }

  int steps_, run_;
  DirectMmaPlan plan_;
  DType type_;
  LaneAccess in_, out_;
  int64_t slabs_;
};

}  // namespace

DirectMmaPlan MmaPlanOf(const ConvShape& shape, int run) {
  DirectMmaPlan plan;
  plan.sets = shape.channels <= 2                                         ? 1
              : shape.channels == 4 || (run == 4 && shape.channels <= 16) ? 2
                                                                          : 4;
  const AxisMap cols = MapAxis(shape, shape.spatial - 1);
  const int64_t depth = shape.spatial == 3 ? shape.taps[0] : 1;
  const int64_t rows = shape.spatial >= 2 ? shape.taps[shape.spatial - 2] : 1;
  for (int64_t kd = 0; kd < depth; ++kd) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t phase = 0; phase < cols.phases; ++phase) {
        std::vector<DirectMmaSource> sources;
        for (const TapAt& tap : cols.taps[phase])
          for (int k = 0; k < plan.sets; ++k) sources.push_back({tap.tap, k});
        if (sources.size() % 2 != 0) sources.push_back({0, -1});
        for (size_t i = 0; i < sources.size(); i += 2)
          plan.fragments.push_back({kd, r, phase, {sources[i], sources[i + 1]}});
      }
    }
  }
  return plan;
}

int64_t MmaSharedBytes(const DirectMmaPlan& plan) {
  return static_cast<int64_t>(plan.fragments.size()) * kDirectSets * kWarpLanes * 4 * 2;
}

Lowered LowerDirectMma(const Group& group, const Target& target, const ConvShape& shape,
                       const DirectKnobs& knobs) {
  return DirectMmaKernel(group, target, shape, knobs).Lower();
}

}  // namespace kiln::compiler
