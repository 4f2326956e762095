#include "compiler/engines/pointwise/transpose.h"

#include <algorithm>
#include <functional>

#include "compiler/kernel/kernel_builder.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kTile = 64, kWideTile = 128;
constexpr int kThreads = 256;
constexpr int64_t kWorthIt = 16;
constexpr int64_t kSharedLimit = 48 << 10;

// Rows have one element of padding, or one 4-byte word: they start in different banks.
int64_t TileElements(int tile, int lanes) { return int64_t{tile} * (tile + lanes); }

// Elements that a thread moves at a time along both dims, so that narrow types also move 4 bytes:
// as many as fit a word, where every tensor's places stay aligned to that.
int LanesOf(const Group& group, const TransposeShape& shape) {
  const graph::Graph& g = group.graph;
  const int size = SizeOf(g[shape.inputs[0]].dtype);
  const int lanes = std::max(4 / size, 1);
  const Tensor& y = g[graph::Outputs(g)[0]];
  if (y.dims[shape.input_dim] % lanes != 0 || y.dims[shape.output_dim] % lanes != 0) return 1;
  const auto aligned = [&](TensorId id, int64_t dim) {
    const Tensor& t = g[id];
    if (WalkOf(t, dim) != Walk::kContiguous) return true;
    if (t.alignment % (int64_t{lanes} * SizeOf(t.dtype)) != 0) return false;
    for (int64_t d = 0; d < t.rank(); ++d)
      if (d != dim && t.dims[d] != 1 && t.strides[d] % lanes != 0) return false;
    return true;
  };
  for (TensorId id : shape.inputs)
    if (SizeOf(g[id].dtype) != size || !aligned(id, shape.input_dim)) return 1;
  std::vector<TensorId> others = MemoryInputs(g);
  std::ranges::copy(graph::Outputs(g), std::back_inserter(others));
  return std::ranges::all_of(others, [&](TensorId id) { return aligned(id, shape.output_dim); })
             ? lanes
             : 1;
}

// Rows of a tile of bytes are whole lines of memory, 128 bytes, where there are as many.
int TileOf(const Group& group, const TransposeShape& shape, int lanes) {
  const graph::Graph& g = group.graph;
  const Tensor& y = g[graph::Outputs(g)[0]];
  const auto tiles = static_cast<int64_t>(shape.inputs.size());
  const bool wide =
      lanes == 4 && y.dims[shape.input_dim] >= kWideTile && y.dims[shape.output_dim] >= kWideTile;
  return wide && tiles * TileElements(kWideTile, lanes) <= kSharedLimit ? kWideTile : kTile;
}

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, const TransposeShape& shape)
      : g_(group.graph),
        shape_(shape),
        lanes_(LanesOf(group, shape)),
        tile_(TileOf(group, shape, lanes_)),
        rows_(kThreads / (tile_ / lanes_)),
        b_(group, target,
           fmt::format("pointwise, {0}x{0} tiles transposed in shared memory, lanes={1}", tile_,
                       lanes_)),
        outputs_(graph::Outputs(g_)) {
    for (const char* reserved : {"bx", "tx", "p"}) b_.Name(reserved);
  }

  Lowered Lower() {
    Block body = Place();
    for (TensorId id : shape_.inputs) {
      tiles_.push_back(b_.Name(g_[id].name + "_tile"));
      body.push_back({tile::Alloc{tiles_.back(), g_[id].dtype, tile::Space::kShared,
                                  TileElements(tile_, lanes_)}});
    }
    ReadTiles(body);
    body.push_back({tile::Barrier{}});
    WriteRows(body);
    Lowered lowered;
    const Expr grid = b_.Arg("blocks", blocks_);
    b_.Finish(BlockAndThread(t(), grid, kThreads, std::move(body)), {blocks_, 1, 1}, kThreads,
              lowered);
    return lowered;
  }

 private:
  DType t() const { return b_.index_type(); }

  // Block bx: one tile of (input_dim, output_dim) at one place of the other dims.
  Block Place() {
    Block body;
    const Tensor& y = g_[outputs_[0]];
    Index extents;
    Dims values;
    for (int64_t d = 0; d < y.rank(); ++d) {
      const bool tiled = d == shape_.input_dim || d == shape_.output_dim;
      values.push_back(tiled ? CeilDiv(y.dims[d], tile_) : y.dims[d]);
      extents.push_back(tiled ? b_.Arg(fmt::format("tiles{}", d), values.back())
                              : b_.Extent(outputs_[0], d));
      blocks_ *= values.back();
    }
    const Expr tx = tile::Var("tx", t());
    place_ = b_.Unravel(body, tile::Var("bx", t()), extents, values, "i");
    lane_ = b_.Let(body, "lane", tx % b_.Idx(tile_ / lanes_) * b_.Idx(lanes_));
    row_ = b_.Let(body, "row", tx / b_.Idx(tile_ / lanes_));
    first_in_ = b_.Let(body, "first_in", place_[shape_.input_dim] * b_.Idx(tile_));
    first_out_ = b_.Let(body, "first_out", place_[shape_.output_dim] * b_.Idx(tile_));
    return body;
  }

  Expr Inside(const Index& at) {
    return tile::And(tile::Lt(at[shape_.input_dim], b_.Extent(outputs_[0], shape_.input_dim)),
                     tile::Lt(at[shape_.output_dim], b_.Extent(outputs_[0], shape_.output_dim)));
  }

  // Lanes along input_dim: a thread reads lanes x lanes patches, all of them before it stores the
  // first one transposed. Past the ends it reads what is there: nobody reads that from the tile.
  void ReadTiles(Block& body) {
    const int patches = tile_ / (rows_ * lanes_), size = lanes_ * lanes_;
    std::vector<std::string> read;
    for (const TensorId id : shape_.inputs) {
      read.push_back(b_.Name(g_[id].name + "_r"));
      body.push_back(
          {tile::Alloc{read.back(), g_[id].dtype, tile::Space::kReg, int64_t{patches} * size}});
    }
    EachPatch(body, patches, [&](Block& out, const Expr& s, const Expr& r) {
      Index at = place_;
      at[shape_.input_dim] = Existing(out, shape_.input_dim, first_in_ + lane_);
      at[shape_.output_dim] = Existing(out, shape_.output_dim, first_out_ + r);
      for (size_t k = 0; k < shape_.inputs.size(); ++k)
        ReadPatch(out, shape_.inputs[k], at, read[k], s * b_.Idx(size));
    });
    EachPatch(body, patches, [&](Block& out, const Expr& s, const Expr& r) {
      for (size_t k = 0; k < shape_.inputs.size(); ++k)
        StorePatch(out, k, read[k], s * b_.Idx(size), r);
    });
  }
  // emit(out, patch, its first row of the tile)
  void EachPatch(Block& out, int patches,
                 const std::function<void(Block&, const Expr&, const Expr&)>& emit) {
    const std::string var = b_.Name("s");
    const Expr s = tile::Var(var, t());
    Block loop;
    emit(loop, s, b_.Let(loop, "in_row", (s * b_.Idx(rows_) + row_) * b_.Idx(lanes_)));
    out.push_back({tile::For{var, t(), b_.Idx(patches), Bind::kUnroll, std::move(loop)}});
  }
  // The place of `lanes` elements, or the last place of such.
  Expr Existing(Block& out, int64_t dim, const Expr& at) {
    const Expr last = b_.Extent(outputs_[0], dim) - b_.Idx(lanes_);
    return b_.Let(out, "existing", tile::Op(ScalarOp::kMin, {at, last}));
  }
  void ReadPatch(Block& out, TensorId id, const Index& at, const std::string& read,
                 const Expr& slot) {
    const Tensor& x = g_[id];
    for (int j = 0; j < lanes_; ++j) {
      Index row = at;
      row[shape_.output_dim] = at[shape_.output_dim] + b_.Idx(j);
      const Expr from = b_.Let(out, x.name + "_at", b_.Offset(id, BroadcastIndex(b_, x, row)));
      const Expr to = slot + b_.Idx(int64_t{j} * lanes_);
      if (lanes_ == 1)
        out.push_back({tile::Store{read, to, tile::Load(b_.Pointer(id), x.dtype, from)}});
      else
        WideCopy(out, x.dtype, read, to, b_.Pointer(id), from, lanes_);
    }
  }
  void StorePatch(Block& out, size_t k, const std::string& read, const Expr& slot, const Expr& r) {
    const DType type = g_[shape_.inputs[k]].dtype;
    const auto value = [&](int i, int j) {
      return tile::Load(read, type, slot + b_.Idx(j * lanes_ + i));
    };
    const auto place = [&](int i) { return (lane_ + b_.Idx(i)) * b_.Idx(tile_ + lanes_) + r; };
    if (lanes_ == 1) return out.push_back({tile::Store{tiles_[k], place(0), value(0, 0)}});
    const std::string turned = b_.Name(g_[shape_.inputs[k]].name + "_t");
    out.push_back({tile::Alloc{turned, type, tile::Space::kReg, int64_t{lanes_} * lanes_}});
    for (int i = 0; i < lanes_; ++i) {
      for (int j = 0; j < lanes_; ++j)
        out.push_back({tile::Store{turned, b_.Idx(i * lanes_ + j), value(i, j)}});
      WideCopy(out, type, tiles_[k], place(i), turned, b_.Idx(int64_t{i} * lanes_), lanes_);
    }
  }

  // Lanes along output_dim.
  void WriteRows(Block& body) {
    Block loop, store;
    const Expr r = b_.Let(loop, "out_row", tile::Var("p", t()) * b_.Idx(rows_) + row_);
    Index at = place_;
    at[shape_.input_dim] = b_.Let(loop, "at_in", first_in_ + r);
    at[shape_.output_dim] = b_.Let(loop, "at_out", first_out_ + lane_);
    const Expr from = r * b_.Idx(tile_ + lanes_) + lane_;
    LaneLoop lane_loop(b_, store, at, shape_.output_dim, lanes_);
    for (size_t k = 0; k < shape_.inputs.size(); ++k) {
      const Tensor& x = g_[shape_.inputs[k]];
      Expr value;
      if (lanes_ == 1) {
        value = b_.Let(store, x.name + "_v", tile::Load(tiles_[k], x.dtype, from));
      } else {
        const std::string regs = b_.Name(x.name + "_r");
        store.push_back({tile::Alloc{regs, x.dtype, tile::Space::kReg, lanes_}});
        WideCopy(store, x.dtype, regs, b_.Idx(0), tiles_[k], from, lanes_);
        value = tile::Load(regs, x.dtype, lane_loop.lane());
      }
      lane_loop.values().Bind(shape_.inputs[k], BroadcastIndex(b_, x, lane_loop.index()),
                              tile::Cast(ArithmeticType(x.dtype), value));
    }
    if (lanes_ == 1) {
      for (TensorId id : outputs_) {
        const Expr value = tile::Cast(g_[id].dtype, lane_loop.values().Value(id, at));
        lane_loop.body().push_back({tile::Store{b_.Pointer(id), b_.Offset(id, at), value}});
      }
      lane_loop.Close();
    } else {
      StoreLanes(b_, store, lane_loop, outputs_, at, shape_.output_dim, lanes_);
    }
    loop.push_back({tile::If{Inside(at), std::move(store), {}}});
    body.push_back({tile::For{"p", t(), b_.Idx(tile_ / rows_), Bind::kUnroll, std::move(loop)}});
  }

  const graph::Graph& g_;
  const TransposeShape& shape_;
  int lanes_, tile_, rows_;  // rows of threads
  KernelBuilder b_;
  std::vector<TensorId> outputs_;
  std::vector<std::string> tiles_;
  int64_t blocks_ = 1;
  Index place_;
  Expr lane_, row_, first_in_, first_out_;
};

}  // namespace

std::optional<TransposeShape> FindTranspose(const Group& group) {
  const graph::Graph& g = group.graph;
  const Tensor& y = g[graph::Outputs(g)[0]];
  TransposeShape shape{.input_dim = -1, .output_dim = y.rank() - 1, .inputs = {}};
  if (y.dims[shape.output_dim] < kWorthIt) return std::nullopt;
  int64_t shared = 0;
  for (TensorId id : MemoryInputs(g)) {
    const Tensor& t = g[id];
    if (WalkOf(t, shape.output_dim) != Walk::kStrided) continue;
    int64_t contiguous = -1;
    for (int64_t d = 0; d < t.rank(); ++d)
      if (WalkOf(t, d) == Walk::kContiguous) contiguous = d;
    if (contiguous < 0 || y.dims[contiguous] < kWorthIt) continue;
    if (shape.input_dim >= 0 && shape.input_dim != contiguous)
      continue;  // read in place, uncoalesced
    shared += TileElements(kTile, 4) * SizeOf(t.dtype);
    if (shared > kSharedLimit) break;
    shape.input_dim = contiguous;
    shape.inputs.push_back(id);
  }
  if (shape.inputs.empty()) return std::nullopt;
  return shape;
}

Lowered LowerTranspose(const Group& group, const Target& target, const TransposeShape& shape) {
  return Schedule(group, target, shape).Lower();
}

}  // namespace kiln::compiler
