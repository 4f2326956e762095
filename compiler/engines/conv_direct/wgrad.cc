// Wgrad of depthwise convolutions: each filter tap of each channel is a sum over all outputs.
//
//   thread   a few channels; walks workers' patches of `rows` x `cols` outputs: dy in registers, x
//            row by row through the window, all taps' sums in registers
//   block    up to 32 neighbouring channel vectors times walkers, which meet in shared memory tap
//   by
//            tap; its sums go to scratch[split][tap][channel]
//   then     the splits are added in order (ordered_sum.h): the result is the same every time
#include <algorithm>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/conv_direct/designs.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/ordered_sum.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kThreads = 128, kMaxWidth = 32;

// As fprop sees it: x is walked, and what the walk meets at each output is dy.
ConvShape Forward(ConvShape shape) {
  shape.op = graph::GraphOp::kConvFprop;
  shape.in = shape.x;
  shape.out = shape.y;
  return shape;
}

class DirectWgradKernel : private ConvDirectTiles {
 public:
  DirectWgradKernel(const Group& group, const Target& target, const ConvShape& shape,
                    const DirectKnobs& knobs)
      : ConvDirectTiles(group, target, Forward(shape), SizesFor(group, Forward(shape), knobs, 1),
                        fmt::format("conv_direct: depthwise wgrad, rows={}, cols={}, first of two "
                                    "stages",
                                    knobs.rows, knobs.cols)),
        target_(target),
        lanes_(WgradLanesOf(group, shape)),
        x_(group, {shape.x}, -1, lanes_),
        dy_(group, {shape.y}, -1, lanes_),
        vectors_(in_channels() / lanes_) {
    while (width_ < kMaxWidth && width_ < vectors_) width_ *= 2;
    slabs_ = CeilDiv(vectors_, width_);
    padded_ = AlignUp(slabs_ * width_ * lanes_, 32);
    const int64_t wanted = CeilDiv(int64_t{knobs.steps} * target.multiprocessors, slabs_);
    const int64_t outputs = sizes_.places() * sizes_.rows * sizes_.cols;
    splits_ = std::clamp<int64_t>(std::max(wanted, CeilDiv(outputs, walkers() * kMostTerms)), 1,
                                  CeilDiv(sizes_.places(), walkers()));
  }

  Lowered Lower() {
    Lowered lowered;
    lowered.scratch_bytes.push_back(splits_ * taps() * padded_ * 4);
    Block body;
    const auto where = b_.Divide(body, Var("bx"), b_.Arg("slabs", slabs_), slabs_, "slab");
    split_ = where.quotient;
    local_ = b_.Let(body, "local", Var("tx") % b_.Idx(width_));
    walker_ = b_.Let(body, "walker", Var("tx") / b_.Idx(width_));
    first_vector_ = b_.Let(body, "first_vector", where.remainder * b_.Idx(width_));
    const Expr vector = b_.Let(body, "vector", first_vector_ + local_);
    has_vector_ = b_.Let(body, "has_vector", tile::Lt(vector, b_.Arg("vectors", vectors_)));
    channel_ = b_.Let(body, "channel", vector * b_.Idx(lanes_));
    acc_ = b_.Name("acc");
    body.push_back({tile::Alloc{acc_, DType::kF32, tile::Space::kReg, taps() * lanes_}});
    Clear(body, acc_, DType::kF32, taps() * lanes_);
    Block loop;
    const Expr splits = b_.Arg("splits", splits_);
    Patch(loop,
          b_.Let(loop, "unit", (Var("step") * splits + split_) * b_.Idx(walkers()) + walker_));
    const int64_t steps = CeilDiv(sizes_.places(), splits_ * walkers());
    body.push_back(
        {tile::For{"step", t(), b_.Arg("steps", steps), Bind::kSerial, std::move(loop)}});
    Combine(body);
    const int64_t blocks = splits_ * slabs_;
    body = BlockAndThread(t(), b_.Arg("grid", blocks), kThreads, std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, kThreads, lowered);
    LowerOrderedSum(
        group_, target_, "conv_direct, depthwise wgrad: adds the splits",
        {.splits = splits_, .rows = taps(), .columns = padded_},
        [this](KernelBuilder& b, Block& out, const Expr& tap, const Expr& channel,
               const Expr& first, const Expr& sum) { Store(b, out, tap, channel, first, sum); },
        lowered);
    return lowered;
  }

 private:
  int64_t taps() const { return NumElements(shape_.taps); }
  int64_t walkers() const { return kThreads / width_; }

  void Clear(Block& out, const std::string& array, DType type, int64_t size) {
    Loop(out, "z", b_.Idx(size), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{array, z, Zero(type)}});
    });
  }

  void Patch(Block& body, const Expr& unit) {
    const int64_t all = sizes_.col_blocks * sizes_.planes;
    const auto at =
        b_.Divide(body, unit, b_.Arg("row_tiles", sizes_.row_tiles), sizes_.row_tiles, "row_tile");
    const Place place = PlaceAt(body, at.remainder, at.quotient);
    const Expr valid = b_.Let(
        body, "valid", tile::And(tile::Lt(at.quotient, b_.Arg("all_blocks", all)), has_vector_));
    ReadDy(body, place, valid);
    const std::vector<Expr> has_col = ColumnGuards(body, place, valid);
    for (int64_t kd = 0; kd < depth_taps(); ++kd) {
      const Plane plane = PlaneAt(body, place, kd);
      for (const int64_t row : row_window_) {
        ReadWindow(body, place, plane, row, has_col);
        for (int64_t i = 0; i < sizes_.rows; ++i)
          for (const TapAt& r : row_map_.TapsOf(i))
            if (row_map_.InputOf(i, r) == row) AddRow(body, kd, r.tap, i);
      }
    }
  }

  void ReadDy(Block& body, const Place& place, const Expr& valid) {
    const DType type = group_.graph[shape_.y].dtype;
    dy_regs_ = b_.Name("dy_patch");
    body.push_back(
        {tile::Alloc{dy_regs_, type, tile::Space::kReg, sizes_.rows * sizes_.cols * lanes_}});
    has_dy_.clear();
    for (int64_t i = 0; i < sizes_.rows; ++i) {
      for (int64_t j = 0; j < sizes_.cols; ++j) {
        Block read;
        dy_.Read(b_, read, OutputIndex(place, channel_, i, j), dy_regs_,
                 b_.Idx((i * sizes_.cols + j) * lanes_), type);
        has_dy_.push_back(b_.Let(body, "has_dy", tile::And(valid, OutputGuard(place, i, j))));
        body.push_back({tile::If{has_dy_.back(), std::move(read), {}}});
      }
    }
  }

  void ReadWindow(Block& body, const Place& place, const Plane& plane, int64_t row,
                  const std::vector<Expr>& has_col) {
    const DType type = group_.graph[shape_.x].dtype;
    const int64_t size = static_cast<int64_t>(col_window_.size()) * lanes_;
    window_ = b_.Name("window");
    body.push_back({tile::Alloc{window_, type, tile::Space::kReg, size}});
    Clear(body, window_, type, size);
    const Expr row_guard = RowGuard(place, row, plane);
    const Expr has_row = row_guard ? b_.Let(body, "has_row", row_guard) : nullptr;
    for (size_t c = 0; c < col_window_.size(); ++c) {
      Block read;
      x_.Read(b_, read, InputIndex(place, plane, channel_, row, col_window_[c]), window_,
              b_.Idx(static_cast<int64_t>(c) * lanes_), type);
      const Expr guard = has_row ? tile::And(has_row, has_col[c]) : has_col[c];
      body.push_back({tile::If{guard, std::move(read), {}}});
    }
  }

  int64_t TapNumber(int64_t kd, int64_t r, int64_t s) const {
    const int64_t rows = shape_.spatial >= 2 ? shape_.taps[shape_.spatial - 2] : 1;
    return (kd * rows + r) * shape_.taps[shape_.spatial - 1] + s;
  }

  // An output that does not exist adds nothing, not even a NaN that its window holds.
  void AddRow(Block& body, int64_t kd, int64_t r, int64_t i) {
    const DType x_type = group_.graph[shape_.x].dtype, dy_type = group_.graph[shape_.y].dtype;
    for (int64_t j = 0; j < sizes_.cols; ++j) {
      Block inside;
      for (const TapAt& s : col_map_.TapsOf(j)) {
        const auto it = std::ranges::find(col_window_, col_map_.InputOf(j, s));
        const int64_t slot = (it - col_window_.begin()) * lanes_;
        Loop(inside, "l", b_.Idx(lanes_), Bind::kUnroll, [&](Block& one, const Expr& l) {
          const Expr x = tile::Cast(DType::kF32, tile::Load(window_, x_type, b_.Idx(slot) + l));
          const Expr dy =
              tile::Cast(DType::kF32,
                         tile::Load(dy_regs_, dy_type, b_.Idx((i * sizes_.cols + j) * lanes_) + l));
          const Expr to = b_.Idx(TapNumber(kd, r, s.tap) * lanes_) + l;
          one.push_back({tile::Store{
              acc_, to, tile::Op(ScalarOp::kFma, {x, dy, tile::Load(acc_, DType::kF32, to)})}});
        });
      }
      const Expr exists = has_dy_[static_cast<size_t>(i * sizes_.cols + j)];
      body.push_back({tile::If{exists, std::move(inside), {}}});
    }
  }

  // Tap by tap: shared[walker][channel of the block].
  void Combine(Block& body) {
    const std::string shared = b_.Name("walkers"), sums = b_.Scratch(0, DType::kF32, false);
    const int64_t channels = int64_t{width_} * lanes_;
    body.push_back({tile::Alloc{shared, DType::kF32, tile::Space::kShared, walkers() * channels}});
    const Expr pitch = b_.Arg("sums_pitch", padded_);
    Loop(body, "tap", b_.Idx(taps()), Bind::kUnroll, [&](Block& one, const Expr& tap) {
      Loop(one, "l", b_.Idx(lanes_), Bind::kUnroll, [&](Block& put, const Expr& l) {
        const Expr at = walker_ * b_.Idx(channels) + local_ * b_.Idx(lanes_) + l;
        put.push_back(
            {tile::Store{shared, at, tile::Load(acc_, DType::kF32, tap * b_.Idx(lanes_) + l)}});
      });
      one.push_back({tile::Barrier{}});
      Loop(one, "i", b_.Idx(CeilDiv(channels, kThreads)), Bind::kUnroll,
           [&](Block& add, const Expr& i) {
             const Expr mine = b_.Let(add, "mine", i * b_.Idx(kThreads) + Var("tx"));
             Expr total = tile::Load(shared, DType::kF32, mine);
             for (int64_t w = 1; w < walkers(); ++w)
               total = total + tile::Load(shared, DType::kF32, mine + b_.Idx(w * channels));
             Block write;
             const Expr row = split_ * b_.Idx(taps()) + tap;
             const Expr column = first_vector_ * b_.Idx(lanes_) + mine;
             write.push_back({tile::Store{sums, row * pitch + column, total}});
             add.push_back({tile::If{tile::Lt(mine, b_.Idx(channels)), std::move(write), {}}});
           });
      one.push_back({tile::Barrier{}});
    });
  }

  void Store(KernelBuilder& b, Block& out, const Expr& number, const Expr& channel,
             const Expr& first, const Expr& sum) {
    Index taps_index(shape_.spatial);
    Expr tap = number;
    for (int64_t axis = shape_.spatial; axis-- > 0;) {
      const Expr at = axis == 0 ? tap : tap % b.Idx(shape_.taps[axis]);
      taps_index[axis] = b.Let(out, "tap", shape_.flip ? b.Idx(shape_.taps[axis] - 1) - at : at);
      tap = b.Let(out, "outer", tap / b.Idx(shape_.taps[axis]));
    }
    Index index = {channel, b.Idx(0)};
    index.insert(index.end(), taps_index.begin(), taps_index.end());
    const Expr guard = tile::And(first, tile::Lt(channel, b.Extent(shape_.w, 0)));
    StoreTotal(b, out, group_.graph, shape_.w, index, guard, sum);
  }

  const Target& target_;
  int lanes_;
  LaneAccess x_, dy_;
  int64_t vectors_, slabs_ = 1, splits_ = 1, padded_ = 32;
  int width_ = 1;
  Expr split_, local_, walker_, first_vector_, has_vector_, channel_;
  std::vector<Expr> has_dy_;  // of the patch
  std::string acc_, dy_regs_, window_;
};

}  // namespace

int WgradLanesOf(const Group& group, const ConvShape& shape) {
  constexpr int64_t kMostSums = 104;  // registers of a thread
  const graph::Tensor& x = group.graph[shape.x];
  int lanes = x.strides[1] == 1 ? 4 : 1;
  while (lanes > 1 && (lanes * NumElements(shape.taps) > kMostSums || x.dims[1] % lanes != 0))
    lanes /= 2;
  return lanes;
}

Lowered LowerDirectWgrad(const Group& group, const Target& target, const ConvShape& shape,
                         const DirectKnobs& knobs) {
  return DirectWgradKernel(group, target, shape, knobs).Lower();
}

}  // namespace kiln::compiler
