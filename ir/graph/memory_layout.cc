#include "ir/graph/memory_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ir/base/check.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

Result<MemoryLayout> LayoutOf(const Tensor& memory, const Dims& plain, const LayoutSpec& spec) {
  switch (spec.reordering) {
    case LayoutSpec::Reordering::kScaleTiles:
      if (spec.vector_count != 1)
        return Status::Text(Code::kUnsupportedLayout, "the order F8_128x4 has no vectors");
      return ScaleTileLayout(memory.dims, memory.strides);
    case LayoutSpec::Reordering::kFragments: {
      const bool is_bias = plain.size() >= 2 && NumElements(plain) == plain[1];
      return FragmentLayout(plain, is_bias ? FragmentsOf::kBias : FragmentsOf::kFilter);
    }
    case LayoutSpec::Reordering::kNone:
      break;
  }
  return VectorLayout(memory.dims, memory.strides, spec.vector_count, spec.vector_dim);
}

void AddMoving(Graph& graph, GraphOp op, TensorId from, TensorId to, Attrs attrs) {
  graph.AddNode(Node{.op = op,
                     .inputs = {from},
                     .outputs = {to},
                     .compute = MovingType(graph[from].dtype),
                     .attrs = std::move(attrs),
                     .name = {}});
}

}  // namespace

Dims MemoryLayout::Split() const {
  Dims split;
  for (const int64_t d : order) split.push_back(dims[static_cast<size_t>(d)]);
  return split;
}

MemoryLayout VectorLayout(Dims dims, Dims strides, int64_t count, int64_t along) {
  const auto rank = static_cast<int64_t>(dims.size());
  MemoryLayout layout{.dims = std::move(dims), .strides = std::move(strides), .order = {}};
  for (int64_t& stride : layout.strides) stride *= count;
  layout.dims.push_back(count);
  layout.strides.push_back(1);
  for (int64_t d = 0; d < rank; ++d) {
    layout.order.push_back(d);
    if (d == along) layout.order.push_back(rank);
  }
  return layout;
}

// Element (m, k) of a tile is at (m % 32) * 16 + m / 32 * 4 + k: memory is [M/128, K/4, 32, 4, 4].
Result<MemoryLayout> ScaleTileLayout(const Dims& dims, const Dims& strides) {
  const size_t rank = dims.size();
  const bool is_last = rank >= 2 && strides[rank - 1] == 1;
  const size_t narrow = is_last ? rank - 1 : rank - 2, wide = is_last ? rank - 2 : rank - 1;
  if (rank < 2 || strides[narrow] != 1 || strides[wide] != dims[narrow] || dims[wide] % 128 != 0 ||
      dims[narrow] % 4 != 0) {
    return Status::Error(Code::kUnsupportedLayout,
                         "the last two dimensions of {}, strides [{}], are no whole tiles of 128 "
                         "by 4, as the order F8_128x4 has them",
                         DimsText(dims), fmt::join(strides, ","));
  }
  const auto tile = static_cast<int64_t>(rank - 2);
  const int64_t columns = dims[narrow] / 4;
  MemoryLayout layout{.dims = Dims(dims.begin(), dims.end() - 2),
                      .strides = Dims(strides.begin(), strides.end() - 2),
                      .order = {}};
  for (const auto& [extent, stride] : {std::pair{dims[wide] / 128, columns * 512},
                                       {columns, int64_t{512}},
                                       {int64_t{32}, int64_t{16}},
                                       {int64_t{4}, int64_t{4}},
                                       {int64_t{4}, int64_t{1}}}) {
    layout.dims.push_back(extent);
    layout.strides.push_back(stride);
  }
  for (int64_t d = 0; d < tile; ++d) layout.order.push_back(d);
  const Dims of_wide = {tile, tile + 3, tile + 2}, of_narrow = {tile + 1, tile + 4};
  for (const Dims* side : {is_last ? &of_wide : &of_narrow, is_last ? &of_narrow : &of_wide})
    layout.order.insert(layout.order.end(), side->begin(), side->end());
  return layout;
}

// With output channels o = 8 a + 2 b + c of [O/8, 4, 2], input channels i = 32 d + 4 e + f of
// [I/32, 8, 4] and S places, a filter is [I/32, S, O/8, 2, 8, 4, 4] of d, place, a, c, e, b, f. A
// bias is [O/32, 2, 4, 4] of [O/32, 4, 2, 4].
Result<MemoryLayout> FragmentLayout(const Dims& plain, FragmentsOf what) {
  const bool is_filter = what == FragmentsOf::kFilter;
  if (plain.size() < 2 || plain[1] % 32 != 0 || (is_filter && plain[0] % 32 != 0)) {
    return Status::Error(Code::kUnsupportedLayout,
                         "{} has channels that are no multiple of 32, as the order INT8x32 needs "
                         "them",
                         DimsText(plain));
  }
  MemoryLayout layout;
  if (is_filter) {
    const int64_t places = NumElements(std::span(plain).subspan(2));
    layout.dims = {plain[1] / 32, places, plain[0] / 8, 2, 8, 4, 4};
    layout.order = {2, 5, 3, 0, 4, 6, 1};
  } else {
    layout.dims = {plain[1] / 32, 2, 4, 4};
    layout.order = {0, 2, 1, 3};
  }
  layout.strides = PackedStrides(layout.dims);
  return layout;
}

std::optional<LayoutSpec::Reordering> ReorderingFromText(std::string_view text) {
  using R = LayoutSpec::Reordering;
  static constexpr std::pair<std::string_view, R> kNames[] = {
      {"NONE", R::kNone},
      {"F16x16", R::kNone},
      {"F8_128x4", R::kScaleTiles},
      {"INT8x32", R::kFragments},
  };
  for (const auto& [name, reordering] : kNames)
    if (name == text) return reordering;
  return std::nullopt;
}

Result<TensorId> LaidOutTensors::Add(Graph& graph, Tensor memory, const LayoutSpec& spec) {
  if (spec.IsPlain()) return graph.AddTensor(std::move(memory));
  if (memory.strides.size() != memory.dims.size())
    return Status::Error(Code::kBadParam, "has {} dims and {} strides", memory.dims.size(),
                         memory.strides.size());
  RETURN_IF_ERROR(CheckExtents(memory.dims, memory.strides));
  Tensor plain = memory;
  if (spec.vector_count != 1) plain.dims[static_cast<size_t>(spec.vector_dim)] *= spec.vector_count;
  RETURN_IF_ERROR(CheckExtents(plain.dims, {}));
  plain.strides = PackedStrides(plain.dims);
  plain.is_virtual = true;
  Pair pair;
  if (!memory.is_virtual) {
    plain.name += "_plain";
    plain.uid = -1;
    ASSIGN_OR_RETURN(pair.layout, LayoutOf(memory, plain.dims, spec));
    if (pair.layout.dims.size() > kMaxRank)
      return Status::Error(Code::kUnsupportedLayout, "its memory has {} dimensions, at most {} can",
                           pair.layout.dims.size(), kMaxRank);
    memory.dims = pair.layout.dims;
    memory.strides = pair.layout.strides;
    pair.memory = graph.AddTensor(std::move(memory));
  }
  const TensorId id = graph.AddTensor(std::move(plain));
  if (pair.memory != kAbsent) pairs_.emplace(id, std::move(pair));
  return id;
}

TensorId LaidOutTensors::AddAgain(Graph& graph, TensorId plain, std::string_view suffix) {
  const auto found = pairs_.find(plain);
  if (found == pairs_.end()) return kAbsent;
  Pair pair = found->second;
  const auto copy = [&](TensorId id) {
    Tensor tensor = graph[id];
    tensor.name += suffix;
    return graph.AddTensor(std::move(tensor));
  };
  pair.memory = copy(pair.memory);
  const TensorId id = copy(plain);
  pairs_.emplace(id, std::move(pair));
  return id;
}

void LaidOutTensors::Connect(Graph& graph) const {
  const std::vector<NodeId> writers = Producers(graph);
  for (const auto& [plain, pair] : pairs_) {
    const bool is_written = writers[static_cast<size_t>(plain)] >= 0;
    const auto& [memory, layout] = pair;
    Tensor split{.name = graph[plain].name + "_split",
                 .uid = -1,
                 .dtype = graph[plain].dtype,
                 .dims = layout.Split(),
                 .is_virtual = true,
                 .value = std::nullopt};
    split.strides = PackedStrides(split.dims);
    const TensorId middle = graph.AddTensor(std::move(split));
    if (is_written) {
      Dims back(layout.order.size());
      for (size_t d = 0; d < back.size(); ++d)
        back[static_cast<size_t>(layout.order[d])] = static_cast<int64_t>(d);
      AddMoving(graph, GraphOp::kReshape, plain, middle, ReshapeAttrs{});
      AddMoving(graph, GraphOp::kTranspose, middle, memory,
                TransposeAttrs{.permutation = std::move(back)});
    } else {
      AddMoving(graph, GraphOp::kTranspose, memory, middle,
                TransposeAttrs{.permutation = layout.order});
      AddMoving(graph, GraphOp::kReshape, middle, plain, ReshapeAttrs{});
    }
  }
}

}  // namespace kiln::graph
