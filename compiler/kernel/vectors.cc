#include "compiler/kernel/vectors.h"

#include <algorithm>

#include "ir/base/check.h"

namespace kiln::compiler {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

std::vector<TensorId> MemoryInputs(const graph::Graph& graph) {
  std::vector<TensorId> inputs = graph::Inputs(graph);
  std::erase_if(inputs, [&](TensorId id) { return graph[id].by_value; });
  return inputs;
}

Walk WalkOf(const Tensor& tensor, int64_t dim) {
  if (tensor.dims[dim] == 1 || tensor.strides[dim] == 0) return Walk::kBroadcast;
  return tensor.strides[dim] == 1 ? Walk::kContiguous : Walk::kStrided;
}

int WidestVector(const Group& group, int64_t dim) {
  std::vector<TensorId> ids = MemoryInputs(group.graph);
  std::ranges::copy(graph::Outputs(group.graph), std::back_inserter(ids));
  return WidestVector(group.graph, ids, dim);
}

int WidestVector(const graph::Graph& graph, const std::vector<TensorId>& tensors, int64_t dim) {
  std::vector<const Tensor*> moved;
  for (TensorId id : tensors)
    if (WalkOf(graph[id], dim) == Walk::kContiguous) moved.push_back(&graph[id]);
  if (moved.empty()) return 1;

  int smallest = 8;
  for (const Tensor* t : moved) smallest = std::min(smallest, SizeOf(t->dtype));
  int lanes = 16 / smallest;
  const auto fits = [&](const Tensor* t) {
    const int64_t bytes = std::min<int64_t>(16, int64_t{lanes} * SizeOf(t->dtype));
    if (t->alignment % bytes != 0) return false;
    for (int64_t d = 0; d < t->rank(); ++d) {
      if (d == dim) {
        if (t->rank() > 1 && t->dims[d] % lanes != 0) return false;
      } else if (t->dims[d] != 1 && t->strides[d] % lanes != 0) {
        return false;
      }
    }
    return true;
  };
  while (lanes > 1 && !std::ranges::all_of(moved, fits)) lanes /= 2;
  return lanes;
}

void WideCopy(Block& out, DType type, const std::string& dst, const Expr& dst_index,
              const std::string& src, const Expr& src_index, int lanes) {
  if (lanes * SizeOf(type) == 1) {  // a single byte is no wide access
    out.push_back({tile::Store{dst, dst_index, tile::Load(src, type, src_index)}});
    return;
  }
  const int step = std::min(lanes, 16 / SizeOf(type));
  for (int l = 0; l < lanes; l += step) {
    const auto at = [l](const Expr& base) { return base + tile::Int(l, base->type); };
    out.push_back({tile::Copy{dst, at(dst_index), src, at(src_index), step}});
  }
}

std::string LoadVector(KernelBuilder& b, Block& out, TensorId tensor, const Index& index,
                       int lanes) {
  const Tensor& t = b.graph()[tensor];
  std::string name = b.Name(t.name + "_r");
  out.push_back({tile::Alloc{name, t.dtype, tile::Space::kReg, lanes}});
  const Expr offset = b.Let(out, t.name + "_at", b.Offset(tensor, index));
  WideCopy(out, t.dtype, name, b.Idx(0), b.Pointer(tensor), offset, lanes);
  return name;
}

void FetchLanes(KernelBuilder& b, Block& out, TensorId tensor, const Index& index, int64_t dim,
                int lanes, const std::string& regs, const Expr& slot) {
  const Tensor& t = b.graph()[tensor];
  if (lanes > 1 && WalkOf(t, dim) == Walk::kContiguous) {
    const Expr from = b.Let(out, t.name + "_at", b.Offset(tensor, BroadcastIndex(b, t, index)));
    return WideCopy(out, t.dtype, regs, slot, b.Pointer(tensor), from, lanes);
  }
  const auto fetch = [&](Block& to, const Expr& lane) {
    Index at = index;
    at[dim] = at[dim] + lane;
    ValueScope values(b, to);
    const Expr value = values.Value(tensor, BroadcastIndex(b, t, at));
    to.push_back({tile::Store{regs, slot + lane, tile::Cast(t.dtype, value)}});
  };
  if (lanes == 1) return fetch(out, b.Idx(0));
  const std::string lane = b.Name("l");
  Block body;
  fetch(body, tile::Var(lane, b.index_type()));
  out.push_back({tile::For{lane, b.index_type(), b.Idx(lanes), Bind::kUnroll, std::move(body)}});
}

LaneLoop::LaneLoop(KernelBuilder& b, Block& out, const Index& index, int64_t dim, int lanes)
    : LaneLoop(b, out, MemoryInputs(b.graph()), index, dim, lanes) {}

LaneLoop::LaneLoop(KernelBuilder& b, Block& out, const std::vector<TensorId>& inputs,
                   const Index& index, int64_t dim, int lanes)
    : b_(b),
      out_(out),
      lanes_(lanes),
      name_(b.Name("l")),
      lane_(tile::Var(name_, b.index_type())),
      lane_index_(index),
      inside_(b, body_) {
  if (lanes == 1) {  // also the only form for groups with views, where inputs have other dims than
                     // the domain
    lane_ = b.Idx(0);
    return;
  }
  lane_index_[dim] = index[dim] + lane_;
  ValueScope before(b, out);
  for (TensorId id : inputs) {
    const Tensor& t = b.graph()[id];
    const Index at = BroadcastIndex(b, t, index);
    switch (WalkOf(t, dim)) {
      case Walk::kContiguous: {
        const std::string regs = LoadVector(b, out, id, at, lanes);
        inside_.Bind(id, BroadcastIndex(b, t, lane_index_),
                     tile::Cast(ArithmeticType(t.dtype), tile::Load(regs, t.dtype, lane_)));
        break;
      }
      case Walk::kBroadcast:
        inside_.Bind(id, at, before.Value(id, at));
        break;
      case Walk::kStrided:
        break;  // read lane by lane
    }
  }
}

void LaneLoop::Close() {
  if (lanes_ == 1) {
    std::ranges::move(body_, std::back_inserter(out_));
    return;
  }
  out_.push_back(
      {tile::For{name_, b_.index_type(), b_.Idx(lanes_), Bind::kUnroll, std::move(body_)}});
}

void StoreLanes(KernelBuilder& b, Block& out, LaneLoop& lane_loop,
                const std::vector<TensorId>& outputs, const Index& index, int64_t dim, int lanes) {
  struct Result {
    TensorId id;
    std::string regs;
  };
  std::vector<Result> results;
  for (TensorId id : outputs) {
    const Tensor& y = b.graph()[id];
    const Expr value = tile::Cast(y.dtype, lane_loop.values().Value(id, lane_loop.index()));
    if (WalkOf(y, dim) != Walk::kContiguous) {
      lane_loop.body().push_back(
          {tile::Store{b.Pointer(id), b.Offset(id, lane_loop.index()), value}});
      continue;
    }
    results.push_back({id, b.Name(y.name + "_w")});
    out.push_back({tile::Alloc{results.back().regs, y.dtype, tile::Space::kReg, lanes}});
    lane_loop.body().push_back({tile::Store{results.back().regs, lane_loop.lane(), value}});
  }
  lane_loop.Close();
  for (const Result& r : results) {
    const Expr offset = b.Let(out, b.graph()[r.id].name + "_at", b.Offset(r.id, index));
    WideCopy(out, b.graph()[r.id].dtype, b.Pointer(r.id), offset, r.regs, b.Idx(0), lanes);
  }
}

void EmitVector(KernelBuilder& b, Block& out, const std::vector<TensorId>& outputs,
                const Index& index, int64_t dim, int lanes) {
  LaneLoop lane_loop(b, out, index, dim, lanes);
  StoreLanes(b, out, lane_loop, outputs, index, dim, lanes);
}

void UnrolledWalk(KernelBuilder& b, Block& body, const Expr& begin, const Expr& end, int stride,
                  const Expr& lane, int unroll,
                  const std::function<void(Block&, const std::vector<Expr>&)>& emit) {
  const DType t = b.index_type();
  // The last split of a range may be empty, with begin past end.
  const Expr span = b.Let(body, "span", tile::Op(ScalarOp::kMax, {end - begin, b.Idx(0)}));
  const Expr rounds = b.Let(body, "rounds", span / b.Idx(int64_t{stride} * unroll));
  {
    const std::string it = b.Name("it");
    Block loop;
    const Expr first =
        b.Let(loop, "place", begin + tile::Var(it, t) * b.Idx(int64_t{stride} * unroll) + lane);
    std::vector<Expr> places;
    for (int u = 0; u < unroll; ++u) places.push_back(first + b.Idx(int64_t{u} * stride));
    emit(loop, places);
    body.push_back({tile::For{it, t, rounds, Bind::kSerial, std::move(loop)}});
  }
  const Expr rest = b.Let(body, "rest", begin + rounds * b.Idx(int64_t{stride} * unroll));
  const std::string it = b.Name("it");
  Block loop, guarded;
  const Expr place = b.Let(loop, "place", rest + tile::Var(it, t) * b.Idx(stride) + lane);
  emit(guarded, {place});
  loop.push_back({tile::If{tile::Lt(place, end), std::move(guarded), {}}});
  const Expr left = tile::Op(ScalarOp::kMax, {end - rest, b.Idx(0)});
  body.push_back({tile::For{it, t, CeilDivExpr(left, stride), Bind::kSerial, std::move(loop)}});
}

Expr ThreadLinear(DType type, int64_t per_block) {
  return tile::Var("bx", type) * tile::Int(per_block, type) + tile::Var("tx", type);
}

Expr CeilDivExpr(const Expr& a, int64_t b) {
  return (a + tile::Int(b - 1, a->type)) / tile::Int(b, a->type);
}

Lowered LowerByChunks(KernelBuilder& b, TensorId lead, const Dims& order, tile::Bind bind,
                      const std::function<void(Block&, const Index&)>& element) {
  constexpr int64_t kChunk = 4096;
  const Dims& dims = b.graph()[lead].dims;
  const int64_t inner = order.back(), extent = dims[static_cast<size_t>(inner)];
  const int64_t chunks = CeilDiv(extent, kChunk);
  const int64_t blocks = extent == 0 ? 0 : NumElements(dims) / extent * chunks;
  Block body;
  Index extents;
  Dims values;
  for (const int64_t d : order) {
    extents.push_back(d == inner ? b.Arg("chunks", chunks) : b.Extent(lead, d));
    values.push_back(d == inner ? chunks : dims[static_cast<size_t>(d)]);
  }
  b.Name("bx");
  const DType t = b.index_type();
  const Index split = b.Unravel(body, tile::Var("bx", t), extents, values, "i");
  Index index(order.size());
  for (size_t k = 0; k < order.size(); ++k) index[static_cast<size_t>(order[k])] = split[k];
  Expr& at = index[static_cast<size_t>(inner)];
  const Expr start = b.Let(body, "start", at * b.Idx(kChunk));
  const Expr length = tile::Op(ScalarOp::kMin, {b.Extent(lead, inner) - start, b.Idx(kChunk)});
  const std::string lane = b.Name("j");
  at = start + tile::Var(lane, t);
  Block loop;
  element(loop, index);
  body.push_back({tile::For{lane, t, length, bind, std::move(loop)}});
  Block blocked;
  blocked.push_back(
      {tile::For{"bx", t, b.Arg("blocks", blocks), tile::Bind::kBlockX, std::move(body)}});
  Lowered lowered;
  b.Finish(std::move(blocked), {blocks, 1, 1}, 1, lowered);
  return lowered;
}

namespace {

// The elements of y that a thread has, by the thread's number: a number along each dim, in memory's
// order from the outermost on, of shares or of patches, and behind these the place in the patch.
class ThreadPlaces {
 public:
  ThreadPlaces(const Tensor& y, const Share& share)
      : order_(MemoryOrder(y.strides)), step_(y.dims.size(), 1) {
    if (!order_.empty()) step_[order_.back()] = share.lanes;
    if (share.count > 1) step_[share.dim] = share.count;
    if (share.rows > 1) {
      CHECK(order_.size() >= 2, "a patch of rank {}", order_.size());
      patch_ = {order_[order_.size() - 2], order_.back()};
      for (const int64_t d : patch_)
        CHECK(step_[d] == 1, "a thread has {} places along dim {} of a patch", step_[d], d);
      step_[patch_[0]] = share.rows;
      step_[patch_[1]] = kWarp / share.rows;
    }
    for (const int64_t d : order_) extents_.push_back(CeilDiv(y.dims[d], step_[d]));
    for (const int64_t d : patch_) extents_.push_back(step_[d]);
  }

  int64_t count() const { return NumElements(extents_); }

  // The first element of `thread`.
  Index Decode(KernelBuilder& b, Block& out, TensorId y, const Expr& thread) const {
    Index extents;
    for (size_t k = 0; k < order_.size(); ++k)
      extents.push_back(step_[order_[k]] > 1 ? b.Arg("shares", extents_[k])
                                             : b.Extent(y, order_[k]));
    for (const int64_t d : patch_) extents.push_back(b.Idx(step_[d]));
    const Index split = b.Unravel(out, thread, extents, extents_, "i");
    Index first(order_.size());
    for (size_t k = 0; k < order_.size(); ++k) {
      const int64_t d = order_[k];
      const auto in_patch = std::ranges::find(patch_, d);
      Expr at = split[k];
      if (step_[d] > 1) at = at * b.Idx(step_[d]);
      if (in_patch != patch_.end())
        at = at + split[order_.size() + static_cast<size_t>(in_patch - patch_.begin())];
      first[d] = step_[d] > 1 ? b.Let(out, "first", at) : at;
    }
    return first;
  }

  // Patches stand over the ends of y; null where nothing does.
  Expr IsInside(KernelBuilder& b, TensorId y, const Index& first) const {
    Expr inside;
    for (const int64_t d : patch_) {
      const Expr here = tile::Lt(first[d], b.Extent(y, d));
      inside = inside ? tile::And(inside, here) : here;
    }
    return inside;
  }

 private:
  static constexpr int kWarp = 32;

  Dims order_, step_;  // step_ by dim: of shares, or of patches
  Dims patch_;         // its two dims, or none
  Dims extents_;
};

}  // namespace

std::string Text(const Share& share) {
  std::string text =
      share.count == 1 ? "one element a thread" : fmt::format("{} elements a thread", share.count);
  if (share.rows > 1) text += fmt::format(", {} rows a warp", share.rows);
  return text;
}

Lowered LowerByElements(KernelBuilder& b, TensorId lead, int threads, const Share& share,
                        const std::function<void(Block&, const Index&)>& element) {
  const Tensor& y = b.graph()[lead];
  const DType t = b.index_type();
  const ThreadPlaces places(y, share);
  const int64_t total = places.count();
  const Expr count = b.Arg("count", total);
  const Expr linear = tile::Var("i", t);
  b.Name("i");
  Block guarded, in_thread;
  Index index = places.Decode(b, guarded, lead, linear);
  Block inside;
  if (share.count == 1) {
    element(inside, index);
  } else {
    const std::string each = b.Name("e");
    Expr& at = index[static_cast<size_t>(share.dim)];
    at = at + tile::Var(each, t);
    Block one;
    element(one, index);
    inside.push_back({tile::For{each, t, b.Idx(share.count), Bind::kUnroll, std::move(one)}});
  }
  if (const Expr is_inside = places.IsInside(b, lead, index))
    guarded.push_back({tile::If{is_inside, std::move(inside), {}}});
  else
    std::ranges::move(inside, std::back_inserter(guarded));
  in_thread.push_back({tile::Let{"i", ThreadLinear(t, threads)}});
  in_thread.push_back({tile::If{tile::Lt(linear, count), std::move(guarded), {}}});
  Block body = BlockAndThread(t, CeilDivExpr(count, threads), threads, std::move(in_thread));
  Lowered lowered;
  b.Finish(std::move(body), {CeilDiv(total, threads), 1, 1}, threads, lowered);
  return lowered;
}

void Append(Lowered& lowered, Lowered next) {
  const int kernels = static_cast<int>(lowered.kernels.size());
  for (LoweredLaunch& launch : next.launches) {
    launch.kernel += kernels;
    lowered.launches.push_back(std::move(launch));
  }
  std::ranges::move(next.kernels, std::back_inserter(lowered.kernels));
}

Lowered LaunchItems(KernelBuilder& b, Block body, int64_t items, int threads) {
  const DType t = b.index_type();
  const Expr count = b.Arg("count", items);
  Block thread;
  thread.push_back({tile::Let{"i", ThreadLinear(t, threads)}});
  thread.push_back({tile::If{tile::Lt(tile::Var("i", t), count), std::move(body), {}}});
  Lowered lowered;
  b.Finish(BlockAndThread(t, CeilDivExpr(count, threads), threads, std::move(thread)),
           {CeilDiv(items, threads), 1, 1}, threads, lowered);
  return lowered;
}

Block BlockAndThread(DType type, Expr blocks, int threads, Block body) {
  Block thread_level, block_level;
  thread_level.push_back(
      {tile::For{"tx", type, tile::Int(threads, type), Bind::kThreadX, std::move(body)}});
  block_level.push_back(
      {tile::For{"bx", type, std::move(blocks), Bind::kBlockX, std::move(thread_level)}});
  return block_level;
}

}  // namespace kiln::compiler
