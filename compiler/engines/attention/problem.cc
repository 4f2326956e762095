#include "compiler/engines/attention/problem.h"

#include <algorithm>
#include <limits>
#include <ranges>
#include <tuple>

#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/group_checks.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Graph;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

namespace {

constexpr int kBoxBytes = 128;  // of rows, of tensor maps

// Checks types: operands and weights of 8 bits, the result of as many or f16.
Status CheckBytes(const Graph& g, const Attention& a) {
  const DType type = g[a.q].dtype;
  for (const TensorId id : {a.k, a.v, a.weight})
    if (g[id].dtype != type)
      return Status::Error(Code::kUnsupportedDataType,
                           "{} is {}, {} is {}; operands and weights of 8 bits must be alike",
                           g[a.q].name, Info(type).text, g[id].name, Info(g[id].dtype).text);
  const Node* scatter = ScatterOf(g, a, a.result);
  for (const TensorId id : {a.result, scatter == nullptr ? a.result : scatter->outputs[0]})
    if ((EightBits(g[id].dtype) == 0 && g[id].dtype != DType::kF16) ||
        g[id].dtype != g[a.result].dtype)
      return Status::Error(Code::kUnsupportedDataType,
                           "{} is {}; of operands of 8 bits it must be e4m3, e5m2 or f16",
                           g[id].name, Info(g[id].dtype).text);
  return {};
}

Status CheckTypes(const Graph& g, const Attention& a, OperandBits bits) {
  const DType type = g[a.q].dtype;
  if (bits == OperandBits::k16Or8 && EightBits(type) != 0) {
    RETURN_IF_ERROR(CheckBytes(g, a));
    RETURN_IF_ERROR(CheckKeptAsF32(g, {a.score, a.exp, a.sum, a.max}));
    return CheckComputesInF32(g);
  }
  const bool is_wide = bits == OperandBits::k32;
  const bool is_taken = is_wide ? type == DType::kF32 : type == DType::kF16 || type == DType::kBF16;
  for (const TensorId id : {a.q, a.k, a.v, a.weight, a.result})
    if (g[id].dtype != type || !is_taken)
      return Status::Error(Code::kUnsupportedDataType,
                           "{} is {}, {} is {}; all operands, weights and the result must be {}",
                           g[a.q].name, Info(type).text, g[id].name, Info(g[id].dtype).text,
                           is_wide ? "f32" : "f16 or all bf16");
  if (const Node* scatter = ScatterOf(g, a, a.result);
      scatter != nullptr && g[scatter->outputs[0]].dtype != type)
    return Status::Error(Code::kUnsupportedDataType, "{} is {}, it is scattered as {}",
                         g[a.result].name, Info(type).text,
                         Info(g[scatter->outputs[0]].dtype).text);
  RETURN_IF_ERROR(CheckKeptAsF32(g, {a.score, a.exp, a.sum, a.max}));
  return CheckComputesInF32(g);
}

Status CheckOperands(const Graph& g, const Attention& a, int64_t most_depth) {
  const int64_t rank = g[a.score].rank();
  if (rank < 2 || rank > 4)
    return Status::Error(Code::kUnsupportedShape, "{} has {} dims; 2 to 4 are supported",
                         g[a.score].name, rank);
  for (int64_t d = 0; d + 2 < rank; ++d)
    if (g[a.result].dims[d] != g[a.score].dims[d])
      return Status::Error(Code::kUnsupportedShape, "dim {} of {} is {}, that of {} is {}", d,
                           g[a.result].name, g[a.result].dims[d], g[a.score].name,
                           g[a.score].dims[d]);
  for (const TensorId id : {a.q, a.k, a.v}) {
    if (g[id].by_value)
      return Status::Error(Code::kUnsupportedGraphPattern, "operand {} is a number of the host",
                           g[id].name);
    if (NumElements(g[id].dims) == 0)
      return Status::Error(Code::kUnsupportedShape, "{} is empty", g[id].name);
  }
  for (const TensorId id : {a.q, a.v})
    if (g[id].dims.back() > most_depth)
      return Status::Error(Code::kUnsupportedShape, "{} has rows of {}; at most {} are supported",
                           g[id].name, g[id].dims.back(), most_depth);
  if (g[a.score].dims[rank - 1] > kMostAttentionPlaces ||
      g[a.score].dims[rank - 2] > kMostAttentionPlaces)
    return Status::Error(Code::kUnsupportedShape, "{} has more than {} places along a dim",
                         g[a.score].name, kMostAttentionPlaces);
  return {};
}

// The tensors that what lies between the products and after them reads: all inputs but operands,
// what only makes operands, and the places of scatters.
std::vector<TensorId> OtherInputs(const Graph& g, const Attention& a) {
  std::vector<char> wanted(g.tensors.size());
  std::vector<TensorId> pending;
  for (const graph::NodeId n : a.members)
    for (const TensorId id : g.nodes[static_cast<size_t>(n)].inputs)
      if (std::ranges::find(a.scatters, n) == a.scatters.end() && id != graph::kAbsent &&
          id != a.q && id != a.k && id != a.v)
        pending.push_back(id);
  const auto producers = graph::Producers(g);
  std::vector<TensorId> inputs;
  while (!pending.empty()) {
    const TensorId id = pending.back();
    pending.pop_back();
    if (wanted[static_cast<size_t>(id)]) continue;
    wanted[static_cast<size_t>(id)] = 1;
    const graph::NodeId n = producers[static_cast<size_t>(id)];
    if (n < 0)
      inputs.push_back(id);
    else if (!a.Contains(n))
      for (const TensorId input : g.nodes[static_cast<size_t>(n)].inputs)
        if (input != graph::kAbsent) pending.push_back(input);
  }
  return inputs;
}

// True if what `id` is read by is a map, place by place, that scores alone are made of.
bool IsBesideScores(const Graph& g, const Attention& a, TensorId id) {
  const Dims &of = g[id].dims, &scores = g[a.score].dims;
  if (g[id].is_virtual || g[id].by_value || SizeOf(g[id].dtype) != 2 || !IsFloat(g[id].dtype) ||
      of.size() != scores.size() ||
      !std::ranges::equal(of | std::views::reverse | std::views::take(2),
                          scores | std::views::reverse | std::views::take(2)))
    return false;
  for (const Node& n : g.nodes) {
    if (std::ranges::find(n.inputs, id) == n.inputs.end()) continue;
    const Dims& made = g[n.outputs[0]].dims;
    if (n.op != graph::GraphOp::kMap || (made != of && made != scores)) return false;
  }
  // All else that is asked about places: weights of exponentials, conditions of masks, results.
  const auto producers = graph::Producers(g);
  std::vector<TensorId> pending = {a.weight, a.result};
  for (const ScoreMask& mask : MasksOf(g, a)) pending.push_back(mask.visible);
  pending.insert(pending.end(), a.rows.begin(), a.rows.end());
  std::vector<char> seen(g.tensors.size());
  while (!pending.empty()) {
    const TensorId at = pending.back();
    pending.pop_back();
    if (at == id) return false;
    if (at == graph::kAbsent || at == a.exp || at == a.out || at == a.max || at == a.sum ||
        seen[static_cast<size_t>(at)])
      continue;
    seen[static_cast<size_t>(at)] = 1;
    if (const graph::NodeId n = producers[static_cast<size_t>(at)]; n >= 0) {
      const auto& inputs = g.nodes[static_cast<size_t>(n)].inputs;
      pending.insert(pending.end(), inputs.begin(), inputs.end());
    }
  }
  return true;
}

}  // namespace

int EightBits(DType type) { return type == DType::kE4M3 ? 1 : type == DType::kE5M2 ? 2 : 0; }

Result<AttentionProblem> AttentionProblemOf(const Group& group, int64_t most_depth,
                                            OperandBits bits) {
  const Graph& g = group.graph;
  const std::vector<Attention> found = FindAttention(g);
  if (found.size() != 1)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no attention");
  AttentionProblem p{.attention = found[0]};
  const Attention& a = p.attention;
  RETURN_IF_ERROR(CheckOperands(g, a, most_depth));
  RETURN_IF_ERROR(CheckTypes(g, a, bits));
  p.has_bytes = EightBits(g[a.q].dtype) != 0;
  p.element_bytes = SizeOf(g[a.q].dtype);
  const Dims& dims = g[a.score].dims;
  const int64_t rank = g[a.score].rank();
  p.queries = dims[rank - 2];
  p.keys = dims[rank - 1];
  if (rank > 2) p.inner = dims[rank - 3];
  if (rank > 3) p.outer = dims[rank - 4];
  p.depth = g[a.q].dims.back();
  p.width = g[a.v].dims.back();
  int of_elements = 0, of_rows = 0;  // tensors with places along both of the last dims, one of them
  for (const TensorId id : OtherInputs(g, a)) {
    const auto last = std::views::reverse(g[id].dims) | std::views::take(2);
    const auto places = std::ranges::count_if(last, [](int64_t extent) { return extent > 1; });
    p.reads_by_place |= places > 0;
    p.reads_by_element |= places > 1;
    of_elements += places > 1 ? 1 : 0;
    of_rows += places == 1 ? 1 : 0;
    if (places > 1) p.beside = id;
  }
  if (of_elements != 1 || !IsBesideScores(g, a, p.beside)) p.beside = graph::kAbsent;
  p.reads_besides = of_rows > 0;
  p.hides_blocks = HidesBlocks(g, MasksOf(g, a));
  p.draws = std::ranges::any_of(g.nodes, [](const Node& n) {
    return n.op == graph::GraphOp::kMap && n.As<graph::MapAttrs>().op == ScalarOp::kPhilox;
  });
  return p;
}

bool HidesBlocks(const Graph& g, std::span<const ScoreMask> masks) {
  return std::ranges::any_of(masks,
                             [&](const ScoreMask& mask) { return !BoundsOf(g, mask).empty(); });
}

bool EndsInMemory(const Graph& g, std::span<const ScoreMask> masks) {
  const auto is_in_memory = [&](const IndexBound::Offset& o) {
    return !g[o.tensor].by_value && !g[o.tensor].is_constant();
  };
  return std::ranges::any_of(masks, [&](const ScoreMask& mask) {
    return std::ranges::any_of(BoundsOf(g, mask), [&](const IndexBound& bound) {
      return bound.column != 0 && bound.row == 0 &&
             std::ranges::any_of(bound.offsets, is_in_memory);
    });
  });
}

DType IndexTypeInMemory(const Graph& g) {
  Graph in_memory;
  for (const Tensor& t : g.tensors)
    if (!t.is_virtual) in_memory.tensors.push_back(t);
  return IndexType(in_memory);
}

int64_t HeadsSharing(const Graph& g, const Attention& a, TensorId operand, int64_t back) {
  const Dims& out = g[a.score].dims;
  const int64_t d = static_cast<int64_t>(out.size()) - back;
  return d < 0 ? 1 : out[d] / g[operand].dims[d];
}

void AddSharing(KernelBuilder& b, const Attention& a, tile::Call& call) {
  const std::tuple<TensorId, ShapeMember, ShapeMember> operands[] = {
      {a.q, attention::q_outer, attention::q_inner},
      {a.k, attention::k_outer, attention::k_inner},
      {a.v, attention::v_outer, attention::v_inner}};
  for (const auto& [id, outer, inner] : operands)
    for (const auto& [member, back] : {std::pair{outer, 4}, {inner, 3}}) {
      const int64_t sharing = HeadsSharing(b.graph(), a, id, back);
      if (sharing != 1) AddShapeMember(b, call, member, sharing);
    }
}

bool IsOfEach(const Graph& g, const AttentionProblem& p, int64_t back) {
  if (p.beside == graph::kAbsent) return false;
  const Dims& dims = g[p.beside].dims;
  return std::ssize(dims) >= back && dims[dims.size() - static_cast<size_t>(back)] > 1;
}

namespace {

// Imbalance of tiles of rows in the order of attention_tiles, of `blocks` that go back and forth
// over them: the longest share by the mean one. The last rows see most keys, the first fewest.
double LongestShare(int64_t heads, int64_t section, int64_t query_tiles, int64_t blocks) {
  std::vector<int64_t> shares(static_cast<size_t>(blocks));
  int64_t tile = 0, sum = 0;
  for (int64_t first = 0; first < heads; first += section)
    for (int64_t i = 0; i < query_tiles; ++i) {
      const int64_t work = query_tiles - i + 1;  // 1: what a tile takes beside its keys
      const int64_t end = tile + std::min(section, heads - first);
      sum += work * (end - tile);
      for (; tile < end; ++tile) {
        const int64_t at = tile % blocks;
        shares[static_cast<size_t>(tile / blocks % 2 == 0 ? at : blocks - 1 - at)] += work;
      }
    }
  return static_cast<double>(std::ranges::max(shares)) * static_cast<double>(blocks) /
         static_cast<double>(sum);
}

// Heads whose k and v stay in L2 together. Where masks leave rows of unequal work, a section that
// begins late begins with its longest tiles, when other blocks have nothing left: of the sections
// from the half of what fits on, one that leaves shares most alike.
int64_t SectionOf(const AttentionProblem& p, int64_t sharing, int64_t query_tiles,
                  const Target& target, int64_t blocks) {
  constexpr int64_t kMostTiles = 64, kMostSections = 16;  // of a block; that are tried
  const int64_t head_bytes = std::max<int64_t>(p.keys * (p.depth + p.width) * p.element_bytes, 1);
  const int64_t fit = target.l2_bytes * 2 / 3 / head_bytes * sharing;  // q and results pass, too
  const int64_t most = std::clamp<int64_t>(fit, 1, p.heads());
  if (!p.hides_blocks || blocks == 0 || p.heads() * query_tiles > kMostTiles * blocks) return most;
  const int64_t least = std::max<int64_t>(most / 2, 1);
  const int64_t step = AlignUp(CeilDiv(most - least + 1, kMostSections), sharing);
  int64_t best = most;
  double share = LongestShare(p.heads(), most, query_tiles, blocks);
  for (int64_t section = most - step; section >= least; section -= step)
    if (const double other = LongestShare(p.heads(), section, query_tiles, blocks); other < share) {
      share = other;
      best = section;
    }
  return best;
}

}  // namespace

int64_t AddAttentionShape(KernelBuilder& b, const AttentionProblem& p, int64_t rows,
                          const Target& target, bool in_turns, tile::Call& call) {
  const auto add = [&](const ShapeMember& member, int64_t value) {
    AddShapeMember(b, call, member, value);
  };
  const int64_t query_tiles = CeilDiv(p.queries, rows);
  const int64_t blocks =
      in_turns ? std::min(p.heads() * query_tiles, int64_t{target.multiprocessors}) : 0;
  add(attention::queries, p.queries);
  add(attention::keys, p.keys);
  add(attention::columns, p.width);
  add(attention::inner, p.inner);
  add(attention::batches, p.heads());
  add(attention::query_tiles, query_tiles);
  const int64_t sharing = HeadsSharing(b.graph(), p.attention, p.attention.k, 3);
  add(attention::section, SectionOf(p, sharing, query_tiles, target, blocks));
  // Images that share a bias, or are of unequal lengths, of which each block is to have some.
  const bool shares = p.beside != graph::kAbsent && !IsOfEach(b.graph(), p, 4);
  const bool differ = in_turns && EndsInMemory(b.graph(), MasksOf(b.graph(), p.attention));
  if (p.outer > 1 && (shares || differ)) add(attention::images, p.outer);
  return p.heads() * query_tiles;
}

std::vector<LargestStart> LargestStarts(const Attention& a) {
  std::vector<LargestStart> all;
  if (a.largest_weight) all.push_back({a.largest_weight->result, 0});
  if (a.largest_result)
    all.push_back({a.largest_result->result, -std::numeric_limits<double>::infinity()});
  return all;
}

void AddLargestStart(const Group& group, const Target& target, std::span<const LargestStart> all,
                     const char* engine, Lowered& lowered) {
  constexpr int kThreads = 32;
  if (all.empty()) return;
  KernelBuilder b(group, target, fmt::format("{}: where absolute values are the largest", engine),
                  DType::kI32);
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  tile::Block first, out;
  for (const LargestStart& start : all)
    first.push_back({tile::Store{b.Pointer(start.number), b.Idx(0), tile::Float(start.value)}});
  out.push_back({tile::If{tile::Lt(tile::Var("tx", DType::kI32), b.Idx(1)), std::move(first), {}}});
  b.Finish(BlockAndThread(DType::kI32, b.Arg("blocks", 1), kThreads, std::move(out)), {1, 1, 1},
           kThreads, lowered);
}

Result<TensorMapSpec> AttentionMapOf(const Tensor& t, int64_t places, int64_t depth, int rows) {
  TensorMapSpec map{.type = t.dtype};
  if (t.alignment < 16)
    return Status::Error(Code::kUnsupportedLayout, "{} is aligned to {} bytes; tensor maps need 16",
                         t.name, t.alignment);
  if (t.dims[depth] > 1 && t.strides[depth] != 1)
    return Status::Error(Code::kUnsupportedLayout, "{} is not contiguous along dim {}", t.name,
                         depth);
  map.dims[0] = t.dims[depth];
  const int64_t others[] = {places, t.rank() - 3, t.rank() - 4};
  for (int i = 0; i < 3; ++i) {
    const int64_t d = others[i];
    const bool is_one = d < 0 || t.dims[d] == 1;
    map.dims[i + 1] = is_one ? 1 : t.dims[d];
    map.stride_bytes[i] = is_one ? 16 : t.strides[d] * SizeOf(t.dtype);
    if (map.stride_bytes[i] <= 0 || map.stride_bytes[i] % 16 != 0)
      return Status::Error(Code::kUnsupportedLayout,
                           "{} has rows {} bytes apart along dim {}; tensor maps need whole 16",
                           t.name, map.stride_bytes[i], d);
  }
  map.box = {static_cast<int>(kBoxBytes / SizeOf(t.dtype)), rows, 1, 1, 1};
  return map;
}

}  // namespace kiln::compiler
