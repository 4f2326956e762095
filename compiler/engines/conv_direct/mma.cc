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
// B is block-diagonal, and a channel that is not finite times its zeros would be NaN in its
// neighbours. So a lane that sees a sum that is not finite makes its outputs again, one by one and
// from their own channels alone.
//
// B is made once a block in shared memory in the order of fragments. What a product
// takes for output set j, by channels a group:  1, 2: set j, two taps a product;  4: its half of
// the sets;  8, 16 (run 4): its half slab;  else all four sets.
#include <algorithm>

#include "compiler/engines/conv_direct/designs.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32, kWarps = 4, kThreads = kWarp * kWarps;
constexpr int kSlab = 32, kSets = 4, kWorkers = 8;

class Schedule : private ConvDirectTiles {
 public:
  Schedule(const Group& group, const Target& target, const ConvShape& shape,
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
        slabs_(CeilDiv(out_channels(), kSlab)) {}

  Lowered Lower() {
    Block body;
    const auto where =
        b_.Divide(body, Var("bx"), b_.Arg("slabs", slabs_), std::max<int64_t>(slabs_, 1), "slab");
    const Expr lane = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    const Expr warp = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    lane_ = lane;
    g_ = b_.Let(body, "g", lane / b_.Idx(4));
    t4_ = b_.Let(body, "t4", lane % b_.Idx(4));
    first_channel_ = b_.Let(body, "first_channel", where.remainder * b_.Idx(kSlab));
    FillPanel(body, warp);
    Block loop;
    const Expr chunk = where.quotient * b_.Idx(int64_t{kWarps} * steps_);
    Unit(loop, b_.Let(loop, "unit", chunk + Var("step") * b_.Idx(kWarps) + warp));
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
  // Channel within the slab of element e of set j in lane t.
  Expr ChannelOf(const Expr& t, const Expr& j, const Expr& e) const {
    const int sets = run_ / 2;  // of one access
    return j / b_.Idx(sets) * b_.Idx(4 * run_) + t * b_.Idx(run_) + j % b_.Idx(sets) * b_.Idx(2) +
           e;
  }
  // The k-th set that output set j takes.
  Expr SourceSet(const Expr& j, int k) const {
    if (plan_.sets == 1) return j;
    if (plan_.sets == 2) return j / b_.Idx(2) * b_.Idx(2) + b_.Idx(k);
    return b_.Idx(k);
  }

  // panel[fragment][j / 2][lane][j % 2][4]: two 16-byte reads without conflicts give all four sets.
  Expr PanelAt(int64_t fragment, const Expr& pair, const Expr& lane) const {
    return b_.Idx(fragment * kSets * kWarp * 4) + (pair * b_.Idx(kWarp) + lane) * b_.Idx(8);
  }

  void FillPanel(Block& body, const Expr& j) {
    panel_ = b_.Name("b_panel");
    const int64_t size = static_cast<int64_t>(plan_.fragments.size()) * kSets * kWarp * 4;
    body.push_back({tile::Alloc{panel_, type_, tile::Space::kShared, size}});
    // A thread fills its lane's share of set `warp` in each fragment.
    const Expr column = g_ / b_.Idx(2);
    const Expr made = b_.Let(body, "made", first_channel_ + ChannelOf(column, j, g_ % b_.Idx(2)));
    const Expr base =
        b_.Let(body, "panel_at", PanelAt(0, j / b_.Idx(2), lane_) + j % b_.Idx(2) * b_.Idx(4));
    for (size_t f = 0; f < plan_.fragments.size(); ++f) {
      const MmaFragment& fragment = plan_.fragments[f];
      for (int half = 0; half < 2; ++half) {
        const MmaSource& source = fragment.source[half];
        Loop(body, "e", b_.Idx(2), Bind::kUnroll, [&](Block& one, const Expr& e) {
          const Expr at = base + b_.Idx(static_cast<int64_t>(f) * kSets * kWarp * 4 + half * 2) + e;
          one.push_back({tile::Store{panel_, at, Zero(type_)}});
          if (source.set < 0) return;
          FillElement(one, fragment, source, made, j, e, at);
        });
      }
    }
    body.push_back({tile::Barrier{}});
  }

  void FillElement(Block& out, const MmaFragment& f, const MmaSource& source, const Expr& made,
                   const Expr& j, const Expr& e, const Expr& at) {
    const Expr read =
        b_.Let(out, "read", first_channel_ + ChannelOf(t4_, SourceSet(j, source.set), e));
    const Expr per_group = b_.Idx(shape_.channels);
    const Expr count = b_.Extent(shape_.out, 1);
    Expr guard = tile::And(tile::Lt(read, count), tile::Lt(made, count));
    guard = tile::And(guard, tile::Op(ScalarOp::kEq, {read / per_group, made / per_group}));
    const Expr filter = shape_.is_dgrad() ? read : made;
    const Expr channel = (shape_.is_dgrad() ? made : read) % per_group;
    Block inside;
    ValueScope values(b_, inside);
    const Index index = FilterIndex(filter, channel, f.kd, f.r, source.s);
    inside.push_back({tile::Store{panel_, at, tile::Cast(type_, values.Value(shape_.w, index))}});
    out.push_back({tile::If{guard, std::move(inside), {}}});
  }

  // ---- one warp's outputs ----
  void Unit(Block& body, const Expr& unit) {
    const auto at =
        b_.Divide(body, unit, b_.Arg("row_tiles", sizes_.row_tiles), sizes_.row_tiles, "row_tile");
    const Expr block = b_.Let(body, "block", at.quotient * b_.Idx(kWorkers) + g_);
    const Place place = PlaceAt(body, at.remainder, block);
    channels_.clear();
    std::vector<Expr> guards;
    for (int part = 0; part < 8 / run_; ++part) {
      const Expr c = first_channel_ + b_.Idx(part * 4 * run_) + t4_ * b_.Idx(run_);
      channels_.push_back(b_.Let(body, "channel", c));
      guards.push_back(tile::Lt(channels_.back(), b_.Extent(shape_.out, 1)));
    }
    acc_ = b_.Name("acc");
    const int64_t accumulators = sizes_.rows * sizes_.cols / 2 * kSets * 4;
    body.push_back({tile::Alloc{acc_, DType::kF32, tile::Space::kReg, accumulators}});
    Loop(body, "z", b_.Idx(accumulators), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, Zero(DType::kF32)}});
    });
    const std::vector<Expr> has_col = ColumnGuards(body, place, place.valid);
    std::vector<Expr> has_channel;
    for (const Expr& g : guards) has_channel.push_back(b_.Let(body, "has_channel", g));
    for (int64_t kd = 0; kd < depth_taps(); ++kd) {
      const Plane plane = PlaneAt(body, place, kd);
      for (const int64_t row : row_window_) {
        ReadWindow(body, place, plane, row, has_col, has_channel);
        for (int64_t i = 0; i < sizes_.rows; ++i)
          for (const TapAt& r : row_map_.TapsOf(i))
            if (row_map_.InputOf(i, r) == row) MultiplyRow(body, kd, r.tap, i);
      }
    }
    Epilogue(body, place, has_channel);
  }

  void ReadWindow(Block& body, const Place& place, const Plane& plane, int64_t row,
                  const std::vector<Expr>& has_col, const std::vector<Expr>& has_channel) {
    window_ = b_.Name("window");
    const int64_t size = static_cast<int64_t>(col_window_.size()) * 8;
    body.push_back({tile::Alloc{window_, type_, tile::Space::kReg, size}});
    Loop(body, "z", b_.Idx(size), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{window_, z, Zero(type_)}});
    });
    const Expr row_guard = RowGuard(place, row, plane);
    const Expr has_row = row_guard ? b_.Let(body, "has_row", row_guard) : nullptr;
    for (size_t c = 0; c < col_window_.size(); ++c) {
      for (int part = 0; part < 8 / run_; ++part) {
        Block read;
        const Index index = InputIndex(place, plane, channels_[part], row, col_window_[c]);
        in_.Read(b_, read, index, window_, b_.Idx(static_cast<int64_t>(c) * 8 + part * run_),
                 type_);
        Expr guard = tile::And(has_col[c], has_channel[part]);
        if (has_row) guard = tile::And(has_row, guard);
        body.push_back({tile::If{guard, std::move(read), {}}});
      }
    }
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

  void MultiplyRow(Block& body, int64_t kd, int64_t r, int64_t i) {
    for (int64_t phase = 0; phase < col_map_.phases; ++phase) {
      for (size_t f = 0; f < plan_.fragments.size(); ++f) {
        const MmaFragment& fragment = plan_.fragments[f];
        if (fragment.kd != kd || fragment.r != r || fragment.phase != phase) continue;
        MultiplyFragment(body, static_cast<int64_t>(f), phase, i);
      }
    }
  }

  void MultiplyFragment(Block& body, int64_t f, int64_t phase, int64_t i) {
    const std::string b_fragment = b_.Name("b_fragment");
    body.push_back({tile::Alloc{b_fragment, type_, tile::Space::kReg, kSets * 4}});
    Loop(body, "p", b_.Idx(2), Bind::kUnroll, [&](Block& one, const Expr& p) {
      WideCopy(one, type_, b_fragment, p * b_.Idx(8), panel_, PanelAt(f, p, lane_), 8);
    });
    for (int64_t m = phase; m < sizes_.cols / 2; m += col_map_.phases) {
      Loop(body, "j", b_.Idx(kSets), Bind::kUnroll, [&](Block& one, const Expr& j) {
        const std::string a = b_.Name("a_fragment");
        one.push_back({tile::Alloc{a, type_, tile::Space::kReg, 8}});
        for (int half = 0; half < 2; ++half) Gather(one, a, half, f, m, j);
        const Expr slot = (b_.Idx((i * (sizes_.cols / 2) + m) * kSets) + j) * b_.Idx(4);
        one.push_back({tile::Mma{acc_, slot, a, b_.Idx(0), b_fragment, j * b_.Idx(4)}});
      });
    }
  }

  // Half a fragment of A: two columns' channels of one set at one tap.
  void Gather(Block& out, const std::string& a, int half, int64_t f, int64_t m, const Expr& j) {
    const MmaSource& source = plan_.fragments[f].source[half];
    const auto [first, second] = Columns(m);
    for (int row = 0; row < 2; ++row) {
      const Expr to = b_.Idx(half * 4 + row * 2);
      if (source.set < 0) {
        for (int e = 0; e < 2; ++e) out.push_back({tile::Store{a, to + b_.Idx(e), Zero(type_)}});
        continue;
      }
      const int64_t slot = WindowSlot(row == 0 ? first : second, source.s);
      WideCopy(out, type_, a, to, window_, b_.Idx(slot) + SourceSet(j, source.set) * b_.Idx(2), 2);
    }
  }

  void Epilogue(Block& body, const Place& place, const std::vector<Expr>& has_channel) {
    const std::string check = b_.Name("check");
    body.push_back({tile::Alloc{check, DType::kF32, tile::Space::kReg, 1}});
    body.push_back({tile::Store{check, b_.Idx(0), Zero(DType::kF32)}});
    const auto checked = [&] { return tile::Load(check, DType::kF32, b_.Idx(0)); };
    const int64_t accumulators = sizes_.rows * sizes_.cols / 2 * kSets * 4;
    Loop(body, "z", b_.Idx(accumulators), Bind::kUnroll, [&](Block& one, const Expr& z) {
      const Expr sum = tile::Load(acc_, DType::kF32, z);
      one.push_back({tile::Store{check, b_.Idx(0),
                                 tile::Op(ScalarOp::kFma, {sum, tile::Float(0), checked()})}});
    });
    Block together, alone;
    StoreTogether(together, place, has_channel);
    MakeAlone(alone, place);
    body.push_back({tile::If{tile::Op(ScalarOp::kEq, {checked(), tile::Float(0)}),
                             std::move(together), std::move(alone)}});
  }

  void MakeAlone(Block& body, const Place& place) {
    Loop(body, "i", b_.Idx(sizes_.rows), Bind::kSerial, [&](Block& rows, const Expr& i) {
      Loop(rows, "j", b_.Idx(sizes_.cols), Bind::kSerial, [&](Block& cols, const Expr& j) {
        Loop(cols, "l", b_.Idx(8), Bind::kSerial, [&](Block& one, const Expr& l) {
          const Expr channel =
              b_.Let(one, "made", first_channel_ + ChannelOf(t4_, l / b_.Idx(2), l % b_.Idx(2)));
          Index at = {place.image, channel};
          if (shape_.spatial == 3) at.push_back(place.depth);
          if (shape_.spatial >= 2) at.push_back(b_.Let(one, "out_row", place.row + i));
          at.push_back(b_.Let(one, "out_col", place.col + j));
          Expr guard = tile::And(place.valid, tile::Lt(channel, b_.Extent(shape_.out, 1)));
          for (int64_t d = 2; d < shape_.spatial + 2; ++d)
            guard = tile::And(guard, tile::Lt(at[d], b_.Extent(shape_.out, d)));
          Block inside;
          MakeOne(inside, at);
          one.push_back({tile::If{guard, std::move(inside), {}}});
        });
      });
    });
  }

  // One output by a plain walk over its taps and channels.
  void MakeOne(Block& body, const Index& at) {
    const std::string sum = b_.Name("sum");
    body.push_back({tile::Alloc{sum, DType::kF32, tile::Space::kReg, 1}});
    body.push_back({tile::Store{sum, b_.Idx(0), Zero(DType::kF32)}});
    Block walk, add;
    const std::string tap = b_.Name("tap"), k = b_.Name("k");
    Index in = {at[0], nullptr}, taps(shape_.spatial);
    Expr guard, rest = Var(tap);
    for (int64_t axis = shape_.spatial; axis-- > 0;) {
      taps[axis] = b_.Let(walk, "at_tap", rest % b_.Idx(shape_.taps[axis]));
      rest = rest / b_.Idx(shape_.taps[axis]);
    }
    for (int64_t axis = 0; axis < shape_.spatial; ++axis) {
      const Expr stride = b_.Idx(shape_.stride[axis]), pad = b_.Idx(shape_.pad[axis]);
      const Expr shift = taps[axis] * b_.Idx(shape_.dilation[axis]) - pad;
      const Expr from = b_.Let(
          walk, "from", shape_.is_dgrad() ? at[axis + 2] - shift : at[axis + 2] * stride + shift);
      const Expr place = shape_.is_dgrad() ? b_.Let(walk, "place", from / stride) : from;
      Expr inside =
          tile::And(tile::Ge(from, b_.Idx(0)), tile::Lt(place, b_.Extent(shape_.in, axis + 2)));
      if (shape_.is_dgrad() && shape_.stride[axis] != 1)
        inside = tile::And(inside, tile::Op(ScalarOp::kEq, {place * stride, from}));
      guard = guard ? tile::And(guard, inside) : inside;
      in.push_back(place);
      if (shape_.flip) taps[axis] = b_.Idx(shape_.taps[axis] - 1) - taps[axis];
    }
    const Expr per_group = b_.Idx(shape_.channels), made = at[1];
    in[1] = b_.Let(add, "read", made / per_group * per_group + Var(k));
    Index filter = {shape_.is_dgrad() ? in[1] : made,
                    (shape_.is_dgrad() ? made : in[1]) % per_group};
    filter.insert(filter.end(), taps.begin(), taps.end());
    ValueScope values(b_, add);
    const auto operand = [&](graph::TensorId id, const Index& index) {
      return tile::Cast(DType::kF32, tile::Cast(type_, values.Value(id, index)));
    };
    const Expr x = operand(shape_.in, in), w = operand(shape_.w, filter);
    add.push_back(
        {tile::Store{sum, b_.Idx(0),
                     tile::Op(ScalarOp::kFma, {x, w, tile::Load(sum, DType::kF32, b_.Idx(0))})}});
    Block channels;
    channels.push_back({tile::For{k, t(), per_group, Bind::kSerial, std::move(add)}});
    walk.push_back({tile::If{guard, std::move(channels), {}}});
    body.push_back(
        {tile::For{tap, t(), b_.Idx(NumElements(shape_.taps)), Bind::kSerial, std::move(walk)}});

    const graph::Graph& g = group_.graph;
    ValueScope made_values(b_, body);
    made_values.Bind(shape_.out, at,
                     RoundThrough(g[shape_.out].dtype, tile::Load(sum, DType::kF32, b_.Idx(0))));
    for (graph::TensorId id : graph::Outputs(g))
      body.push_back({tile::Store{b_.Pointer(id), b_.Offset(id, at),
                                  tile::Cast(g[id].dtype, made_values.Value(id, at))}});
  }

  void StoreTogether(Block& body, const Place& place, const std::vector<Expr>& has_channel) {
    for (int64_t i = 0; i < sizes_.rows; ++i) {
      for (int64_t m = 0; m < sizes_.cols / 2; ++m) {
        const auto [first, second] = Columns(m);
        for (int row = 0; row < 2; ++row) {
          const int64_t col = row == 0 ? first : second;
          for (int part = 0; part < 8 / run_; ++part) {
            Block store;
            const auto accumulator = [&](const Expr& l) {
              const Expr set = b_.Idx(part * run_ / 2) + l / b_.Idx(2);
              const Expr slot = (b_.Idx((i * (sizes_.cols / 2) + m) * kSets) + set) * b_.Idx(4) +
                                b_.Idx(row * 2) + l % b_.Idx(2);
              return tile::Load(acc_, DType::kF32, slot);
            };
            out_.Write(b_, store, OutputIndex(place, channels_[part], i, col), accumulator);
            Expr guard = tile::And(place.valid, OutputGuard(place, i, col));
            body.push_back({tile::If{tile::And(guard, has_channel[part]), std::move(store), {}}});
          }
        }
      }
    }
  }

  int steps_, run_;
  MmaPlan plan_;
  DType type_;
  LaneAccess in_, out_;
  int64_t slabs_;
  Expr lane_, g_, t4_, first_channel_;
  std::vector<Expr> channels_;
  std::string panel_, acc_, window_;
};

}  // namespace

MmaPlan MmaPlanOf(const ConvShape& shape, int run) {
  MmaPlan plan;
  plan.sets = shape.channels <= 2                                         ? 1
              : shape.channels == 4 || (run == 4 && shape.channels <= 16) ? 2
                                                                          : 4;
  const AxisMap cols = MapAxis(shape, shape.spatial - 1);
  const int64_t depth = shape.spatial == 3 ? shape.taps[0] : 1;
  const int64_t rows = shape.spatial >= 2 ? shape.taps[shape.spatial - 2] : 1;
  for (int64_t kd = 0; kd < depth; ++kd) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t phase = 0; phase < cols.phases; ++phase) {
        std::vector<MmaSource> sources;
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

int64_t MmaSharedBytes(const MmaPlan& plan) {
  return static_cast<int64_t>(plan.fragments.size()) * kSets * kWarp * 4 * 2;
}

Lowered LowerDirectMma(const Group& group, const Target& target, const ConvShape& shape,
                       const DirectKnobs& knobs) {
  return Schedule(group, target, shape, knobs).Lower();
}

}  // namespace kiln::compiler
