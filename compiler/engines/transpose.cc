#include "compiler/engines/transpose.h"

#include <algorithm>

#include "compiler/engines/kernel_builder.h"
#include "compiler/engines/vectors.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kTile = 64;
constexpr int kThreads = 256;
constexpr int64_t kWorthIt = 16;
constexpr int64_t kSharedLimit = 48 << 10;

// One element of padding a row, or one 4-byte word: rows of a tile start in different banks.
int64_t Pitch(int lanes) { return kTile + lanes; }

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

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, const TransposeShape& shape)
      : g_(group.graph),
        shape_(shape),
        lanes_(LanesOf(group, shape)),
        rows_(kThreads / (kTile / lanes_)),
        b_(group, target,
           fmt::format("pointwise, {0}x{0} tiles transposed in shared memory, lanes={1}", kTile,
                       lanes_)),
        outputs_(graph::Outputs(g_)) {
    for (const char* reserved : {"bx", "tx", "s", "p"}) b_.Name(reserved);
  }

  Lowered Lower() {
    Block body = Place();
    for (TensorId id : shape_.inputs) {
      tiles_.push_back(b_.Name(g_[id].name + "_tile"));
      body.push_back(
          {tile::Alloc{tiles_.back(), g_[id].dtype, tile::Space::kShared, kTile * Pitch(lanes_)}});
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
      values.push_back(tiled ? CeilDiv(y.dims[d], kTile) : y.dims[d]);
      extents.push_back(tiled ? b_.Arg(fmt::format("tiles{}", d), values.back())
                              : b_.Extent(outputs_[0], d));
      blocks_ *= values.back();
    }
    const Expr tx = tile::Var("tx", t());
    place_ = b_.Unravel(body, tile::Var("bx", t()), extents, values, "i");
    lane_ = b_.Let(body, "lane", tx % b_.Idx(kTile / lanes_) * b_.Idx(lanes_));
    row_ = b_.Let(body, "row", tx / b_.Idx(kTile / lanes_));
    first_in_ = b_.Let(body, "first_in", place_[shape_.input_dim] * b_.Idx(kTile));
    first_out_ = b_.Let(body, "first_out", place_[shape_.output_dim] * b_.Idx(kTile));
    return body;
  }

  Expr Inside(const Index& at) {
    return tile::And(tile::Lt(at[shape_.input_dim], b_.Extent(outputs_[0], shape_.input_dim)),
                     tile::Lt(at[shape_.output_dim], b_.Extent(outputs_[0], shape_.output_dim)));
  }

  // Lanes along input_dim: a thread reads a lanes x lanes patch and stores it transposed.
  void ReadTiles(Block& body) {
    Block loop, load;
    const Expr r =
        b_.Let(loop, "in_row", (tile::Var("s", t()) * b_.Idx(rows_) + row_) * b_.Idx(lanes_));
    Index at = place_;
    at[shape_.input_dim] = first_in_ + lane_;
    at[shape_.output_dim] = first_out_ + r;
    for (size_t k = 0; k < shape_.inputs.size(); ++k) {
      const TensorId id = shape_.inputs[k];
      const Tensor& x = g_[id];
      if (lanes_ == 1) {
        const Expr value =
            tile::Load(b_.Pointer(id), x.dtype, b_.Offset(id, BroadcastIndex(b_, x, at)));
        load.push_back({tile::Store{tiles_[k], lane_ * b_.Idx(Pitch(1)) + r, value}});
        continue;
      }
      const std::string read = b_.Name(x.name + "_r"), turned = b_.Name(x.name + "_t");
      load.push_back({tile::Alloc{read, x.dtype, tile::Space::kReg, int64_t{lanes_} * lanes_}});
      load.push_back({tile::Alloc{turned, x.dtype, tile::Space::kReg, int64_t{lanes_} * lanes_}});
      for (int j = 0; j < lanes_; ++j) {
        Index row = at;
        row[shape_.output_dim] = at[shape_.output_dim] + b_.Idx(j);
        const Expr offset = b_.Let(load, x.name + "_at", b_.Offset(id, BroadcastIndex(b_, x, row)));
        WideCopy(load, x.dtype, read, b_.Idx(int64_t{j} * lanes_), b_.Pointer(id), offset, lanes_);
      }
      for (int i = 0; i < lanes_; ++i) {
        for (int j = 0; j < lanes_; ++j)
          load.push_back({tile::Store{turned, b_.Idx(i * lanes_ + j),
                                      tile::Load(read, x.dtype, b_.Idx(j * lanes_ + i))}});
        const Expr place = (lane_ + b_.Idx(i)) * b_.Idx(Pitch(lanes_)) + r;
        WideCopy(load, x.dtype, tiles_[k], place, turned, b_.Idx(int64_t{i} * lanes_), lanes_);
      }
    }
    loop.push_back({tile::If{Inside(at), std::move(load), {}}});
    body.push_back(
        {tile::For{"s", t(), b_.Idx(kTile / (rows_ * lanes_)), Bind::kUnroll, std::move(loop)}});
  }

  // Lanes along output_dim.
  void WriteRows(Block& body) {
    Block loop, store;
    const Expr r = b_.Let(loop, "out_row", tile::Var("p", t()) * b_.Idx(rows_) + row_);
    Index at = place_;
    at[shape_.input_dim] = b_.Let(loop, "at_in", first_in_ + r);
    at[shape_.output_dim] = b_.Let(loop, "at_out", first_out_ + lane_);
    const Expr from = r * b_.Idx(Pitch(lanes_)) + lane_;
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
    body.push_back({tile::For{"p", t(), b_.Idx(kTile / rows_), Bind::kUnroll, std::move(loop)}});
  }

  const graph::Graph& g_;
  const TransposeShape& shape_;
  int lanes_, rows_;  // rows of threads
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
    shared += kTile * Pitch(4) * SizeOf(t.dtype);
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
