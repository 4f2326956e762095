#include "compiler/patterns/memory_places.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/graph/ops.h"
#include "ir/shape.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

// The alignment of the widest accesses; parts of a result begin at multiples of it.
constexpr int64_t kWidestAccess = 16;

// The tensor whose memory order a copy or a part keeps: what is behind reshapes of row-major
// tensors.
TensorId BehindReshapes(const Graph& g, const std::vector<NodeId>& producers, TensorId id) {
  while (true) {
    const NodeId from = producers[id];
    if (from < 0 || g.nodes[from].op != GraphOp::kReshape) return id;
    const TensorId x = g.nodes[from].inputs[0];
    if (!IsRowMajor(g[id]) || !IsRowMajor(g[x]) || g[x].dtype != g[id].dtype) return id;
    id = x;
  }
}

bool IsIdentity(const Node& node) {
  return node.op == GraphOp::kMap && node.As<graph::MapAttrs>().identity;
}

// The rows of a concatenation in which its parts lie: `count` rows, each of a piece of every part.
// One row is parts one behind the other.
struct Rows {
  int64_t count = 1;
  int64_t pitch = 0;  // elements
};
Rows RowsOf(const Graph& g, const Node& concat) {
  const Dims& dims = g[concat.outputs[0]].dims;
  const auto axis = static_cast<ptrdiff_t>(concat.As<graph::ConcatAttrs>().axis);
  const int64_t count = NumElements(Dims(dims.begin(), dims.begin() + axis));
  if (count <= 1) return {};
  return {.count = count, .pitch = NumElements(dims) / count};
}

// Strides of a part whose first dims count the rows; nothing where no dims do.
std::optional<Dims> StridesInRows(const Dims& dims, const Rows& rows) {
  Dims strides = PackedStrides(dims);
  if (rows.count == 1) return strides;
  const int64_t piece = NumElements(dims) / rows.count;
  if (piece == 0) return std::nullopt;
  int64_t count = 1;
  for (size_t d = 0; d < dims.size() && count < rows.count; ++d) {
    count *= dims[d];
    if (rows.count % count != 0) return std::nullopt;
    strides[d] = strides[d] / piece * rows.pitch;
  }
  return count == rows.count ? std::optional(strides) : std::nullopt;
}

class Finder {
 public:
  explicit Finder(const Graph& g)
      : g_(g), producers_(graph::Producers(g)), readers_(graph::Consumers(g)) {
    for (const TensorId id : graph::Inputs(g))
      if (g[id].uid >= 0) read_uids_.insert(g[id].uid);
    stores_.assign(g.tensors.size(), 0);
    for (const Node& node : g.nodes) {
      const bool stores = Stores(node);
      for (const TensorId y : node.outputs)
        if (y != kAbsent) stores_[y] = stores;
    }
  }

  std::vector<Assembly> Run() {
    std::vector<Assembly> all;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (!IsCandidate(node)) continue;
      Assembly assembly{.node = static_cast<NodeId>(n)};
      pending_.clear();
      int64_t offset = 0;
      if (!AddParts(node, g_[node.outputs[0]], offset, assembly)) continue;
      const bool gains = std::ranges::any_of(
          assembly.parts, [&](const Assembly::Part& part) { return stores_[part.tensor] != 0; });
      if (!gains) continue;
      taken_.insert(pending_.begin(), pending_.end());
      all.push_back(std::move(assembly));
    }
    return all;
  }

 private:
  // True if the node's results are stored whoever reads them, or join the group of one whose are.
  bool Stores(const Node& node) const {
    if (Has(node, graph::kContraction) || Has(node, graph::kRecurrence)) return true;
    if (node.op != GraphOp::kMap) return false;
    const Dims& dims = g_[node.outputs[0]].dims;
    return std::ranges::any_of(node.inputs,
                               [&](TensorId x) { return stores_[x] != 0 && g_[x].dims == dims; });
  }

  bool IsCandidate(const Node& node) const {
    if (node.op != GraphOp::kConcat && !IsIdentity(node)) return false;
    const Tensor& y = g_[node.outputs[0]];
    const bool is_result = !y.is_virtual && y.uid >= 0 && readers_[node.outputs[0]].empty();
    return is_result && IsRowMajor(y) && y.alignment >= kWidestAccess &&
           !read_uids_.contains(y.uid);
  }

  bool AddParts(const Node& node, const Tensor& result, int64_t& offset, Assembly& assembly) {
    Rows rows;
    if (node.op == GraphOp::kConcat) rows = RowsOf(g_, node);
    const int64_t begin = offset;
    if (rows.count > 1 && rows.pitch * SizeOf(result.dtype) % kWidestAccess != 0) return false;
    const bool all = std::ranges::all_of(node.inputs, [&](TensorId x) {
      return g_[x].dtype == result.dtype && AddPart(x, result, rows, offset, assembly);
    });
    if (rows.count > 1) offset = begin + rows.count * rows.pitch;
    return all;
  }

  bool AddPart(TensorId operand, const Tensor& result, const Rows& rows, int64_t& offset,
               Assembly& assembly) {
    const TensorId id = BehindReshapes(g_, producers_, operand);
    const NodeId from = producers_[id];
    const Tensor& t = g_[id];
    if (from < 0 || !t.is_virtual || !IsRowMajor(t)) return false;
    const Node& node = g_.nodes[from];
    const bool is_inner = node.op == GraphOp::kConcat && readers_[id].size() == 1;
    if (is_inner && rows.count == 1 && Try(node, result, offset, assembly)) return true;
    if (node.op == GraphOp::kScatter || node.op == GraphOp::kScatterAdd) return false;
    // A moved list has two results, and so have sums over peers.
    if (Has(node, graph::kSegments) || Has(node, graph::kPeers)) return false;
    // Loops over time store states one behind the other.
    if (rows.count > 1 && Has(node, graph::kRecurrence)) return false;
    if (offset * SizeOf(t.dtype) % kWidestAccess != 0) return false;
    std::optional<Dims> strides = StridesInRows(t.dims, rows);
    if (!strides) return false;
    if (taken_.contains(id) || !pending_.insert(id).second) return false;
    assembly.parts.push_back({.tensor = id, .offset = offset, .strides = *std::move(strides)});
    offset += NumElements(t.dims) / rows.count;
    return true;
  }

  // Parts of a part; nothing has changed where it fails.
  bool Try(const Node& node, const Tensor& result, int64_t& offset, Assembly& assembly) {
    const int64_t begin = offset;
    const size_t count = assembly.parts.size();
    const std::set<TensorId> before = pending_;
    if (AddParts(node, result, offset, assembly)) return true;
    offset = begin;
    assembly.parts.resize(count);
    pending_ = before;
    return false;
  }

  const Graph& g_;
  const std::vector<NodeId> producers_;
  const std::vector<std::vector<NodeId>> readers_;
  std::set<int64_t> read_uids_;
  std::vector<char> stores_;
  std::set<TensorId> taken_, pending_;
};

}  // namespace

int64_t AlignmentAt(int64_t alignment, int64_t offset_bytes) {
  return offset_bytes == 0 ? alignment : std::gcd(alignment, offset_bytes);
}

std::vector<Assembly> FindAssemblies(const Graph& g) { return Finder(g).Run(); }

MemoryPlaces::MemoryPlaces(const Module& module)
    : g_(module.graph), producers_(graph::Producers(g_)), is_written_(g_.tensors.size(), 0) {
  for (const Group& group : module.groups)
    for (const TensorId id : graph::Outputs(group.graph))
      is_written_[static_cast<size_t>(group.outer[id])] = 1;
  for (const Assembly& assembly : FindAssemblies(g_)) {
    const TensorId result = g_.nodes[assembly.node].outputs[0];
    if (is_written_[static_cast<size_t>(result)] != 0) continue;
    for (const Assembly::Part& part : assembly.parts)
      parts_[part.tensor] = {.memory = result, .strides = part.strides, .offset = part.offset};
  }
}

MemoryPlace MemoryPlaces::OwnPlace(TensorId id) const {
  if (const auto part = parts_.find(id); part != parts_.end()) return part->second;
  const Tensor& t = g_[id];
  return {.memory = id, .strides = t.is_virtual ? PackedStridesLike(t.dims, t.strides) : t.strides};
}

MemoryPlace MemoryPlaces::Of(TensorId id) const {
  std::vector<NodeId> views;
  TensorId base = id;
  while (is_written_[static_cast<size_t>(base)] == 0 && producers_[base] >= 0 &&
         Has(g_.nodes[producers_[base]], graph::kView)) {
    views.push_back(producers_[base]);
    base = g_.nodes[views.back()].inputs[0];
  }
  MemoryPlace place = OwnPlace(base);
  for (size_t i = views.size(); i-- > 0;) {
    std::optional<MemoryPlace> seen = PlaceOfView(g_, g_.nodes[views[i]], place);
    if (!seen) return OwnPlace(id);
    place = *std::move(seen);
  }
  return place;
}

int64_t MemoryPlaces::OffsetBytesOf(TensorId id) const {
  return Of(id).offset * SizeOf(g_[id].dtype);
}

}  // namespace kiln::compiler
