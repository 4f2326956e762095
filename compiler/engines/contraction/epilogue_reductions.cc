#include "compiler/engines/contraction/epilogue_reductions.h"

#include <algorithm>
#include <map>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/engines/reduction/reduce_plan.h"
#include "compiler/kernel/vectors.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::GraphOp;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

namespace {

// A source of a tail's tensor that is partial results of reduction r, not a tensor of the group.
constexpr int PartialSource(size_t r) { return -1 - static_cast<int>(r); }

// The axis that walks dim d of the result; batch and n of a grouped convolution share one.
enum class AxisName : uint8_t { kBatch, kM, kN };
AxisName AxisOfDim(const Node& contraction, int64_t rank, int64_t d) {
  if (contraction.op == GraphOp::kMatmul)
    return d + 2 < rank ? AxisName::kBatch : d + 2 == rank ? AxisName::kM : AxisName::kN;
  if (contraction.op == GraphOp::kConvWgrad) return d == 0 ? AxisName::kM : AxisName::kN;
  return d == 1 ? AxisName::kN : AxisName::kM;
}

// The type that a reduction computes in (Accumulators::type).
DType SumType(const Node& reduce) {
  const DType type = ArithmeticType(reduce.compute);
  return type == DType::kBool ? DType::kI32 : type;
}

// Nodes that `roots` need, from the tensors that `is_leaf` says are there on.
std::vector<char> NeededNodes(const graph::Graph& g, std::vector<TensorId> roots,
                              const std::function<bool(TensorId)>& is_leaf) {
  const std::vector<NodeId> producers = graph::Producers(g);
  std::vector<char> needed(g.nodes.size(), 0);
  while (!roots.empty()) {
    const TensorId x = roots.back();
    roots.pop_back();
    if (x == graph::kAbsent || is_leaf(x) || producers[x] < 0 || needed[producers[x]]) continue;
    needed[producers[x]] = 1;
    const Node& node = g.nodes[producers[x]];
    roots.insert(roots.end(), node.inputs.begin(), node.inputs.end());
  }
  return needed;
}

}  // namespace

// ---- which reductions

std::optional<KeptAxes> KeptAxesOf(const graph::Graph& g, const Node& contraction,
                                   const Dims& result) {
  const Dims& y = g[contraction.outputs[0]].dims;
  const auto rank = static_cast<int64_t>(y.size());
  if (result.size() != y.size() || result == y || NumElements(y) == 0) return std::nullopt;
  bool keeps[3] = {}, reduces[3] = {};
  for (int64_t d = 0; d < rank; ++d) {
    if (y[d] == 1) continue;
    if (result[d] != y[d] && result[d] != 1) return std::nullopt;
    const auto axis = static_cast<size_t>(AxisOfDim(contraction, rank, d));
    (result[d] == 1 ? reduces : keeps)[axis] = true;
  }
  for (int axis = 0; axis < 3; ++axis)
    if (keeps[axis] && reduces[axis]) return std::nullopt;
  KeptAxes kept{.batch = keeps[0], .m = keeps[1], .n = keeps[2]};
  if (kept.m && kept.n) return std::nullopt;
  // The channels of a convolution's result are those of all groups.
  if (contraction.op != GraphOp::kMatmul)
    kept.batch = contraction.op == GraphOp::kConvWgrad ? kept.m : kept.n;
  return kept;
}

bool JoinsContraction(const graph::Graph& g, const Node& contraction, const Dims& result,
                      const Target& target) {
  // A wgrad has few results and a long sum: its k is split, and its result stays in the L2.
  if (contraction.op == GraphOp::kConvWgrad) return false;
  const std::optional<KeptAxes> kept = KeptAxesOf(g, contraction, result);
  if (!kept) return false;
  if (!target.is_cuda()) return true;
  if (contraction.op != GraphOp::kMatmul) {
    // Convolutions of few channels have engines of their own, which write whole results.
    constexpr int64_t kFewChannels = 4, kFewOfGroup = 32;
    const bool forward = contraction.op == GraphOp::kConvFprop;
    const Dims &x = g[forward ? contraction.inputs[0] : contraction.outputs[0]].dims,
               &w = g[contraction.inputs[1]].dims;
    const bool grouped = x[1] != w[1];
    if (w[1] <= kFewChannels || (grouped && w[1] <= kFewOfGroup)) return false;
  }
  // Other contractions with fewer tiles than multiprocessors are joined by none, either.
  constexpr int64_t kTile = 128 * 128, kLongSum = 1024;
  const ContractionSizes size = SizesOf(g, contraction);
  if (size.k >= kLongSum && size.batch * size.m * size.n < kTile * target.multiprocessors)
    return false;
  // Tensor cores of sm_90 have a place of the result's outer axis spread over whole tiles, in
  // registers: reading the result again is as cheap.
  const Tensor& y = g[contraction.outputs[0]];
  const bool along_m = contraction.op == GraphOp::kMatmul && y.strides.back() != 1 &&
                       y.strides[y.rank() - 2] == 1 && y.dims.back() != 1;
  const bool keeps_outer = along_m ? kept->n : kept->m;
  return !keeps_outer || target.sm_version != 90 || SizeOf(g[contraction.inputs[0]].dtype) > 2;
}

int CountReductions(const Group& group) {
  return static_cast<int>(
      std::ranges::count(group.graph.nodes, GraphOp::kReduce, &graph::Node::op));
}

Expr EpilogueReduction::Identity() const { return IdentityExpr(combine, type); }

Expr EpilogueReduction::Combined(Expr a, Expr b) const {
  return tile::Op(graph::ScalarOf(combine), {std::move(a), std::move(b)});
}

EpilogueReductions::EpilogueReductions(const Group& group) : group_(group) {
  const graph::Graph& g = group.graph;
  after_.assign(g.nodes.size(), 0);
  if (group.kind != GroupKind::kContract) return;
  std::vector<char> waits(g.tensors.size(), 0);
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    const bool reduces = node.op == GraphOp::kReduce;
    if (!reduces && std::ranges::none_of(node.inputs, [&](TensorId x) { return waits[x] != 0; }))
      continue;
    after_[n] = 1;
    for (TensorId y : node.outputs) waits[y] = 1;
    if (!reduces) continue;
    const TensorId result = node.outputs[0];
    const auto keeps = KeptAxesOf(g, ContractionOf(group), g[result].dims);
    CHECK(keeps.has_value(), "{} does not reduce whole axes of the contraction", g[result].name);
    list_.push_back({.node = static_cast<NodeId>(n),
                     .operand = node.inputs[0],
                     .result = result,
                     .combine = node.As<graph::ReduceAttrs>().combine,
                     .type = SumType(node),
                     .keeps = *keeps});
  }
  if (list_.empty()) return;

  std::vector<TensorId> roots = {ContractionOf(group).outputs[0]};
  for (const EpilogueReduction& r : list_) roots.push_back(r.operand);
  for (TensorId y : graph::Outputs(g))
    if (!waits[y]) roots.push_back(y);
  const std::vector<char> needed = NeededNodes(g, roots, [](TensorId) { return false; });
  tile_.kind = group.kind;
  tile_.outer = group.outer;
  tile_.graph.name = g.name;
  tile_.graph.tensors = g.tensors;
  for (size_t n = 0; n < g.nodes.size(); ++n)
    if (needed[n]) tile_.graph.nodes.push_back(g.nodes[n]);
}

// ---- partial results

PartialResults::PartialResults(const EpilogueReductions& reductions, int64_t batches,
                               const PartialAxis& m, const PartialAxis& n, bool along_n)
    : reductions_(reductions), batches_(batches) {
  for (const EpilogueReduction& r : reductions.list()) {
    Layout layout{.along_n = r.keeps.n || (!r.keeps.m && along_n)};
    const PartialAxis& axis = layout.along_n ? n : m;
    layout.keeps_axis = r.keeps.n || r.keeps.m;
    layout.axis = axis.size;
    layout.parts = axis.parts;
    layout.reduced_of_batch = axis.parts * (layout.keeps_axis ? 1 : axis.size);
    layout.kept = (r.keeps.batch ? batches : 1) * (layout.keeps_axis ? axis.size : 1);
    layout.reduced = layout.reduced_of_batch * (r.keeps.batch ? 1 : batches);
    layouts_.push_back(layout);
  }
}

void PartialResults::Allocate(Lowered& lowered) {
  first_scratch_ = static_cast<int>(lowered.scratch_bytes.size());
  for (size_t r = 0; r < layouts_.size(); ++r)
    lowered.scratch_bytes.push_back(layouts_[r].kept * layouts_[r].reduced *
                                    SizeOf(reductions_.list()[r].type));
}

void PartialResults::Store(KernelBuilder& b, Block& out, size_t r, const Expr& batch,
                           const Expr& at, const Expr& part, Expr value) {
  const Layout& layout = layouts_[r];
  const EpilogueReduction& reduction = reductions_.list()[r];
  scratch_.resize(layouts_.size());
  if (scratch_[r].empty())
    scratch_[r] = b.Scratch(first_scratch_ + static_cast<int>(r), reduction.type, false);
  const auto arg = [&](const char* name, int64_t value_of) {
    return value_of == 1 ? b.Idx(1) : b.Arg(name, value_of);
  };
  Expr kept = b.Idx(0), reduced = part;
  if (layout.keeps_axis)
    kept = at;
  else
    reduced = reduced * arg("partial_axis", layout.axis) + at;
  if (batches_ > 1 && reduction.keeps.batch)
    kept = layout.keeps_axis ? batch * arg("partial_axis", layout.axis) + at : batch;
  else if (batches_ > 1)
    reduced = batch * arg("partials_of_batch", layout.reduced_of_batch) + reduced;
  // Places of an axis are neighbours: a tile writes whole sectors, where a write of a part of one
  // would read the rest of it from memory once the L2 has let it go.
  const Expr place = layout.keeps_axis ? reduced * arg("kept", layout.kept) + kept
                                       : kept * arg("partials", layout.reduced) + reduced;
  out.push_back({tile::Store{scratch_[r], b.Let(out, "partial_at", place), std::move(value)}});
}

// The reductions of partial results to the dims of reduction r, and what follows from them, as a
// group. sources[t] is the group's tensor that tensor t of the tail is, or PartialSource.
Group PartialResults::TailOf(size_t r, std::vector<int>& sources) const {
  const graph::Graph& g = reductions_.group().graph;
  const auto& list = reductions_.list();
  const Dims& dims = g[list[r].result].dims;
  std::vector<TensorId> roots;
  const std::vector<NodeId> producers = graph::Producers(g);
  for (TensorId y : graph::Outputs(g))
    if (reductions_.IsAfter(producers[y]) && g[y].dims == dims) roots.push_back(y);
  const auto is_operand = [&](TensorId x) {
    return std::ranges::find(list, x, &EpilogueReduction::operand) != list.end();
  };
  const std::vector<char> needed = NeededNodes(g, roots, is_operand);

  Group tail{.kind = GroupKind::kReduce};
  tail.graph.name = "partial_results";
  std::map<TensorId, TensorId> inner;
  const auto import = [&](TensorId x) {
    const auto [known, is_new] = inner.try_emplace(x, 0);
    if (is_new) {
      known->second = tail.graph.AddTensor(g[x]);
      sources.push_back(x);
    }
    return known->second;
  };
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (!needed[n]) continue;
    Node node = g.nodes[n];
    const auto reduction =
        std::ranges::find(list, static_cast<NodeId>(n), &EpilogueReduction::node);
    if (reduction != list.end()) {
      const size_t number = static_cast<size_t>(reduction - list.begin());
      const Layout& layout = layouts_[number];
      Tensor partial{.name = "partial", .dtype = reduction->type, .dims = dims};
      // The parts stand in the first dim that is reduced.
      size_t parts_dim = 0;
      while (dims[parts_dim] != 1 || g[reduction->operand].dims[parts_dim] == 1) ++parts_dim;
      partial.strides = PackedStrides(dims);
      if (!layout.keeps_axis)
        for (int64_t& stride : partial.strides) stride *= layout.reduced;
      partial.dims[parts_dim] = layout.reduced;
      partial.strides[parts_dim] = layout.keeps_axis ? layout.kept : 1;
      partial.uid = -2 - static_cast<int64_t>(number);
      node.inputs[0] = tail.graph.AddTensor(std::move(partial));
      sources.push_back(PartialSource(number));
    } else {
      for (TensorId& x : node.inputs)
        if (x != graph::kAbsent) x = import(x);
    }
    for (TensorId& y : node.outputs) y = import(y);
    tail.graph.nodes.push_back(std::move(node));
  }
  return tail;
}

void PartialResults::Finish(const Target& target, Lowered& lowered) const {
  const graph::Graph& g = reductions_.group().graph;
  std::vector<Dims> done;
  for (size_t r = 0; r < layouts_.size(); ++r) {
    const Dims& dims = g[reductions_.list()[r].result].dims;
    if (std::ranges::find(done, dims) != done.end()) continue;
    done.push_back(dims);
    std::vector<int> sources;
    const Group tail = TailOf(r, sources);
    const ReducePlan plan = PlanReduce(tail);
    constexpr ReduceKnobs kKnobs{.threads = 256, .splits = 0};
    Lowered second = target.is_cuda() ? LowerReduceGpu(plan, target, kKnobs)
                                      : LowerReduceCpu(plan, target, kKnobs);
    const int kernels = static_cast<int>(lowered.kernels.size());
    const int scratch = static_cast<int>(lowered.scratch_bytes.size());
    for (LoweredLaunch& launch : second.launches) {
      launch.kernel += kernels;
      for (LoweredArg& arg : launch.args) {
        if (arg.kind == LoweredArg::Kind::kScratch) arg.id += scratch;
        if (arg.kind != LoweredArg::Kind::kTensor && arg.kind != LoweredArg::Kind::kByValue)
          continue;
        const int source = sources[static_cast<size_t>(arg.id)];
        if (source < 0) {
          arg.kind = LoweredArg::Kind::kScratch;
          arg.id = first_scratch_ + (-1 - source);
        } else {
          arg.id = source;
        }
      }
      lowered.launches.push_back(std::move(launch));
    }
    std::ranges::move(second.kernels, std::back_inserter(lowered.kernels));
    lowered.scratch_bytes.insert(lowered.scratch_bytes.end(), second.scratch_bytes.begin(),
                                 second.scratch_bytes.end());
  }
}

// ---- tiles in registers

template <class F>
void TileReductions::Loop(Block& out, const char* wish, int64_t extent, F&& fill) {
  const std::string name = b_.Name(wish);
  Block body;
  fill(body, tile::Var(name, b_.index_type()));
  out.push_back({tile::For{name, b_.index_type(), b_.Idx(extent),
                           threads_ > 1 ? Bind::kUnroll : Bind::kSerial, std::move(body)}});
}

void TileReductions::Declare(Block& out, TileSide m, TileSide n) {
  sides_ = {std::move(m), std::move(n)};
  for (size_t r = 0; r < reductions_.list().size(); ++r) {
    const EpilogueReduction& reduction = reductions_.list()[r];
    sums_.push_back(b_.Name("reduced"));
    const int slots = SideOf(r).slots;
    out.push_back({tile::Alloc{sums_[r], reduction.type, tile::Space::kReg, slots}});
    Loop(out, "slot", slots, [&](Block& set, const Expr& slot) {
      set.push_back({tile::Store{sums_[r], slot, reduction.Identity()}});
    });
  }
}

void TileReductions::Add(Block& out, ValueScope& values, const Index& index, const Expr& m_slot,
                         const Expr& n_slot) {
  for (size_t r = 0; r < reductions_.list().size(); ++r) {
    const EpilogueReduction& reduction = reductions_.list()[r];
    const Expr slot = partial_.IsAlongN(r) ? n_slot : m_slot;
    const Expr value = tile::Cast(reduction.type, values.Value(reduction.operand, index));
    out.push_back({tile::Store{
        sums_[r], slot, reduction.Combined(tile::Load(sums_[r], reduction.type, slot), value)}});
  }
}

void TileReductions::CombineLanes(Block& out, size_t r, const std::string& shared) {
  const EpilogueReduction& reduction = reductions_.list()[r];
  const TileSide& side = SideOf(r);
  Loop(out, "slot", side.slots, [&](Block& one, const Expr& slot) {
    Expr value = tile::Load(sums_[r], reduction.type, slot);
    for (const int mask : side.lane_masks) {
      const Expr mine = b_.Let(one, "mine", value);
      value = reduction.Combined(mine, tile::ShuffleXor(mine, mask));
    }
    value = b_.Let(one, "mine", value);
    Expr at = side.place(slot);
    if (side.warps > 1) at = side.warp * b_.Idx(side.extent) + at;
    Block lead;
    lead.push_back({tile::Store{shared, at, value}});
    if (!side.leads) return std::ranges::move(lead, std::back_inserter(one)), void();
    one.push_back({tile::If{side.leads, std::move(lead), {}}});
  });
}

void TileReductions::CombineWarps(Block& out, size_t r, const std::string& shared,
                                  const Expr& batch) {
  const EpilogueReduction& reduction = reductions_.list()[r];
  const TileSide& side = SideOf(r);
  Loop(out, "turn", CeilDiv(side.extent, threads_), [&](Block& one, const Expr& turn) {
    const Expr tx = tile::Var("tx", b_.index_type());
    const Expr at = b_.Let(one, "at", turn * b_.Idx(threads_) + tx);
    const Expr place = b_.Let(one, "place", side.first + at);
    Block inside;
    Expr sum = tile::Load(shared, reduction.type, at);
    for (int w = 1; w < side.warps; ++w)
      sum = reduction.Combined(
          sum, tile::Load(shared, reduction.type, at + b_.Idx(int64_t{w} * side.extent)));
    partial_.Store(b_, inside, r, batch, place, side.part, b_.Let(inside, "sum", sum));
    Expr is_inside = tile::Lt(place, side.size);
    if (side.extent % threads_ != 0)
      is_inside = tile::And(tile::Lt(at, b_.Idx(side.extent)), is_inside);
    one.push_back({tile::If{is_inside, std::move(inside), {}}});
  });
}

void TileReductions::Finish(Block& out, const Expr& batch) {
  const size_t count = reductions_.list().size();
  if (threads_ == 1) {  // one thread has the whole tile
    for (size_t r = 0; r < count; ++r) {
      const TileSide& side = SideOf(r);
      Loop(out, "slot", side.slots, [&](Block& one, const Expr& slot) {
        const Expr place = b_.Let(one, "place", side.first + side.place(slot));
        Block inside;
        partial_.Store(b_, inside, r, batch, place, side.part,
                       tile::Load(sums_[r], reductions_.list()[r].type, slot));
        one.push_back({tile::If{tile::Lt(place, side.size), std::move(inside), {}}});
      });
    }
    return;
  }
  std::vector<std::string> shared;
  for (size_t r = 0; r < count; ++r) {
    shared.push_back(b_.Name("shared_sums"));
    const int64_t size = int64_t{SideOf(r).extent} * SideOf(r).warps;
    out.push_back({tile::Alloc{shared[r], reductions_.list()[r].type, tile::Space::kShared, size}});
    CombineLanes(out, r, shared[r]);
  }
  out.push_back({tile::Barrier{}});
  for (size_t r = 0; r < count; ++r) CombineWarps(out, r, shared[r], batch);
}

}  // namespace kiln::compiler
