// conv_direct on FMA units: any dtype and layout, fewer than 16 channels and filters a group.
//
// A thread is a worker: it owns whole groups, up to 16 bytes of channels where they are innermost,
// else one group. The block's filters stand in shared memory as the accumulator's type, channels
// innermost, so that a warp reads them without conflicts.
#include <algorithm>
#include <numeric>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_direct/designs.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kThreads = 128, kMaxWidth = 32;
constexpr int64_t kMostFilterBytes = 24 * 1024;  // of a block, so that several are resident

class DirectSimtKernel : private ConvDirectTiles {
 public:
  DirectSimtKernel(const Group& group, const Target& target, const ConvShape& shape,
                   const DirectKnobs& knobs)
      : ConvDirectTiles(group, target, shape, SizesFor(group, shape, knobs, 1),
                        fmt::format("conv_direct: rows={}, cols={}, steps={}", knobs.rows,
                                    knobs.cols, knobs.steps)),
        steps_(knobs.steps),
        lanes_(SimtLanesOf(group, shape)),
        accumulator_(ArithmeticType(ContractionOf(group).compute)),
        in_(group, {shape.in}, -1, lanes_.read),
        out_(group, graph::Outputs(group.graph), shape.out, lanes_.made),
        vectors_(out_channels() / lanes_.made) {
    if (accumulator_ == DType::kBool) accumulator_ = DType::kI32;
    per_read_ = shape.is_dgrad() ? shape.filters : shape.channels;
    per_made_ = shape.is_dgrad() ? shape.channels : shape.filters;
    const Tensor& made = group.graph[shape.out];
    // Neighbouring threads are neighbours in memory: along channels, or along columns.
    width_ = 1;
    if (made.strides[1] == 1)
      while (width_ < kMaxWidth && width_ < vectors_) width_ *= 2;
    while (width_ > 1 && FilterBytes() > kMostFilterBytes) width_ /= 2;
    slabs_ = CeilDiv(vectors_, width_);
  }

  Lowered Lower() {
    Block body;
    const auto where =
        b_.Divide(body, Var("bx"), b_.Arg("slabs", slabs_), std::max<int64_t>(slabs_, 1), "slab");
    first_vector_ = b_.Let(body, "first_vector", where.remainder * b_.Idx(width_));
    const Expr local = b_.Let(body, "local", Var("tx") % b_.Idx(width_));
    const Expr worker = b_.Let(body, "worker", Var("tx") / b_.Idx(width_));
    local_ = local;
    vector_ = b_.Let(body, "vector", first_vector_ + local);
    FillFilters(body);
    const int workers = kThreads / width_;
    Block loop;
    const Expr chunk = where.quotient * b_.Idx(int64_t{workers} * steps_);
    Unit(loop, b_.Let(loop, "unit", chunk + Var("step") * b_.Idx(workers) + worker));
    body.push_back({tile::For{"step", t(), b_.Idx(steps_), Bind::kSerial, std::move(loop)}});

    const int64_t blocks = CeilDiv(sizes_.places(), int64_t{workers} * steps_) * slabs_;
    Lowered lowered;
    body = BlockAndThread(t(), b_.Arg("grid", blocks), kThreads, std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, kThreads, lowered);
    return lowered;
  }

 private:
  int64_t taps() const { return NumElements(shape_.taps); }
  int64_t TapNumber(int64_t kd, int64_t r, int64_t s) const {
    const int64_t rows = shape_.spatial >= 2 ? shape_.taps[shape_.spatial - 2] : 1;
    return (kd * rows + r) * shape_.taps[shape_.spatial - 1] + s;
  }
  int64_t FilterBytes() const { return taps() * per_read_ * channels() * SizeOf(accumulator_); }
  int64_t channels() const { return int64_t{width_} * lanes_.made; }  // made by a block

  // filters[tap][channel read, within its group][channel made]
  void FillFilters(Block& body) {
    filters_ = b_.Name("filters");
    const int64_t size = taps() * per_read_ * channels();
    body.push_back({tile::Alloc{filters_, accumulator_, tile::Space::kShared, size}});
    Loop(body, "f", b_.Idx(CeilDiv(size, kThreads)), Bind::kSerial, [&](Block& one, const Expr& f) {
      const Expr flat = b_.Let(one, "flat", f * b_.Idx(kThreads) + Var("tx"));
      const Expr lane = b_.Let(one, "lane", flat % b_.Idx(channels()));
      const Expr made = b_.Let(one, "made", first_vector_ * b_.Idx(lanes_.made) + lane);
      const Expr rest = b_.Let(one, "rest", flat / b_.Idx(channels()));
      const Expr read = b_.Let(one, "read", rest % b_.Idx(per_read_));
      Index index = {};
      if (shape_.is_dgrad()) {
        index = {made / b_.Idx(per_made_) * b_.Idx(per_read_) + read, made % b_.Idx(per_made_)};
      } else {
        index = {made, read};
      }
      Expr tap = b_.Let(one, "tap", rest / b_.Idx(per_read_));
      Index taps_index(shape_.spatial);
      for (int64_t axis = shape_.spatial; axis-- > 0;) {
        const Expr last = b_.Idx(shape_.taps[axis] - 1);
        const Expr at = axis == 0 ? tap : tap % b_.Idx(shape_.taps[axis]);
        taps_index[axis] = shape_.flip ? last - at : at;
        tap = tap / b_.Idx(shape_.taps[axis]);
      }
      index.insert(index.end(), taps_index.begin(), taps_index.end());
      Block store;
      ValueScope values(b_, store);
      store.push_back(
          {tile::Store{filters_, flat, tile::Cast(accumulator_, values.Value(shape_.w, index))}});
      Block outside, fill;
      outside.push_back({tile::Store{filters_, flat, Zero(accumulator_)}});
      fill.push_back({tile::If{tile::Lt(made, b_.Extent(shape_.out, 1)), std::move(store),
                               std::move(outside)}});
      one.push_back({tile::If{tile::Lt(flat, b_.Idx(size)), std::move(fill), {}}});
    });
    body.push_back({tile::Barrier{}});
  }

  void Unit(Block& body, const Expr& unit) {
    // Column blocks innermost: neighbouring threads stand side by side along a row.
    const int64_t all = sizes_.col_blocks * sizes_.planes;
    const auto at =
        b_.Divide(body, unit, b_.Arg("all_blocks", all), std::max<int64_t>(all, 1), "block_of");
    const Place place = PlaceAt(body, at.quotient, at.remainder);
    const Expr row_tiles = b_.Arg("row_tiles", sizes_.row_tiles);
    const Expr valid = b_.Let(body, "valid",
                              tile::And(tile::Lt(at.quotient, row_tiles),
                                        tile::Lt(vector_, b_.Arg("vectors", vectors_))));
    acc_ = b_.Name("acc");
    const int64_t accumulators = sizes_.rows * sizes_.cols * lanes_.made;
    body.push_back({tile::Alloc{acc_, accumulator_, tile::Space::kReg, accumulators}});
    Loop(body, "z", b_.Idx(accumulators), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, Zero(accumulator_)}});
    });
    const std::vector<Expr> has_col = ColumnGuards(body, place, valid);
    const Expr read = b_.Let(body, "read_channel", vector_ * b_.Idx(lanes_.read));
    for (int64_t kd = 0; kd < depth_taps(); ++kd) {
      const Plane plane = PlaneAt(body, place, kd);
      for (const int64_t row : row_window_) {
        ReadWindow(body, place, plane, read, row, has_col);
        for (int64_t i = 0; i < sizes_.rows; ++i)
          for (const TapAt& r : row_map_.TapsOf(i))
            if (row_map_.InputOf(i, r) == row) MultiplyRow(body, kd, r.tap, i);
      }
    }
    const Expr made = b_.Let(body, "made_channel", vector_ * b_.Idx(lanes_.made));
    for (int64_t i = 0; i < sizes_.rows; ++i) {
      for (int64_t j = 0; j < sizes_.cols; ++j) {
        Block store;
        out_.Write(b_, store, OutputIndex(place, made, i, j), [&](const Expr& l) {
          return tile::Load(acc_, accumulator_, b_.Idx((i * sizes_.cols + j) * lanes_.made) + l);
        });
        body.push_back(
            {tile::If{tile::And(valid, OutputGuard(place, i, j)), std::move(store), {}}});
      }
    }
  }

  void ReadWindow(Block& body, const Place& place, const Plane& plane, const Expr& channel,
                  int64_t row, const std::vector<Expr>& has_col) {
    window_ = b_.Name("window");
    const DType type = group_.graph[shape_.in].dtype;
    const int64_t size = static_cast<int64_t>(col_window_.size()) * lanes_.read;
    body.push_back({tile::Alloc{window_, type, tile::Space::kReg, size}});
    Loop(body, "z", b_.Idx(size), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{window_, z, Zero(type)}});
    });
    const Expr row_guard = RowGuard(place, row, plane);
    const Expr has_row = row_guard ? b_.Let(body, "has_row", row_guard) : nullptr;
    for (size_t c = 0; c < col_window_.size(); ++c) {
      Block read;
      in_.Read(b_, read, InputIndex(place, plane, channel, row, col_window_[c]), window_,
               b_.Idx(static_cast<int64_t>(c) * lanes_.read), type);
      const Expr guard = has_row ? tile::And(has_row, has_col[c]) : has_col[c];
      body.push_back({tile::If{guard, std::move(read), {}}});
    }
  }

  void MultiplyRow(Block& body, int64_t kd, int64_t r, int64_t i) {
    const DType type = group_.graph[shape_.in].dtype;
    for (int64_t j = 0; j < sizes_.cols; ++j) {
      for (const TapAt& s : col_map_.TapsOf(j)) {
        const auto it = std::ranges::find(col_window_, col_map_.InputOf(j, s));
        const int64_t slot = (it - col_window_.begin()) * lanes_.read;
        Loop(body, "l", b_.Idx(lanes_.made), Bind::kUnroll, [&](Block& one, const Expr& l) {
          for (int64_t k = 0; k < per_read_; ++k) {
            const Expr lane = l / b_.Idx(per_made_) * b_.Idx(per_read_) + b_.Idx(k);
            const Expr x = tile::Cast(accumulator_, tile::Load(window_, type, b_.Idx(slot) + lane));
            const int64_t first = (TapNumber(kd, r, s.tap) * per_read_ + k) * channels();
            const Expr w = tile::Load(filters_, accumulator_,
                                      b_.Idx(first) + local_ * b_.Idx(lanes_.made) + l);
            const Expr to = b_.Idx((i * sizes_.cols + j) * lanes_.made) + l;
            const Expr sum = tile::Load(acc_, accumulator_, to);
            one.push_back({tile::Store{acc_, to, tile::Op(ScalarOp::kFma, {x, w, sum})}});
          }
        });
      }
    }
  }

  int steps_;
  SimtLanes lanes_;
  DType accumulator_;
  LaneAccess in_, out_;
  int64_t vectors_, slabs_ = 1, per_read_ = 1, per_made_ = 1;
  int width_ = 1;
  Expr first_vector_, local_, vector_;
  std::string filters_, acc_, window_;
};

}  // namespace

SimtLanes SimtLanesOf(const Group& group, const ConvShape& shape) {
  const int64_t read = shape.is_dgrad() ? shape.filters : shape.channels;
  const int64_t made = shape.is_dgrad() ? shape.channels : shape.filters;
  const Tensor& in = group.graph[shape.in];
  const int64_t most = in.strides[1] == 1 ? 16 / SizeOf(in.dtype) : 1;
  int64_t groups = 1;
  while (groups * 2 * std::max(read, made) <= std::min<int64_t>(most, 8) &&
         shape.groups % (groups * 2) == 0)
    groups *= 2;
  return {static_cast<int>(groups * made), static_cast<int>(groups * read)};
}

Lowered LowerDirectSimt(const Group& group, const Target& target, const ConvShape& shape,
                        const DirectKnobs& knobs) {
  return DirectSimtKernel(group, target, shape, knobs).Lower();
}

}  // namespace kiln::compiler
