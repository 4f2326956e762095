#include "compiler/engines/attention/grad_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>
#include <set>

#include "compiler/engines/attention/functions.h"
#include "compiler/kernel/attention_members.h"
#include "compiler/kernel/group_checks.h"
#include "compiler/kernel/skeleton_call.h"
#include "compiler/patterns/graph_view.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Graph;
using graph::TensorId;

namespace {

constexpr int64_t kMostIndex = (int64_t{1} << 31) - 1;
constexpr int kMostThreads = 1024;                               // of a block
constexpr int kSumsOfThread = 8;                                 // that a thread makes dq of
constexpr int64_t kColumnsTogether = 4, kZeroesTogether = 4096;  // sums of f32 that are stored so

Status CheckScatters(const Graph& g, const AttentionGrad& a) {
  for (const graph::NodeId n : a.scatters) {
    const graph::Node& scatter = g.nodes[static_cast<size_t>(n)];
    if (g[scatter.inputs[0]].dtype != g[scatter.outputs[0]].dtype)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}, it is scattered as {}",
                           g[scatter.inputs[0]].name, Info(g[scatter.inputs[0]].dtype).text,
                           Info(g[scatter.outputs[0]].dtype).text);
  }
  return {};
}

// Checks types: operands, weights and slopes of 8 bits, results of as many or f16.
Status CheckBytes(const Graph& g, const AttentionGrad& a) {
  const DType type = g[a.q].dtype;
  for (const TensorId id : {a.k, a.v, a.dy, a.weight, a.slope})
    if (g[id].dtype != type)
      return Status::Error(
          Code::kUnsupportedDataType,
          "{} is {}, {} is {}; operands, weights and slopes of 8 bits must be alike", g[a.q].name,
          Info(type).text, g[id].name, Info(g[id].dtype).text);
  for (const TensorId id : {a.dq, a.dk, a.dv})
    if (EightBits(g[id].dtype) == 0 && g[id].dtype != DType::kF16)
      return Status::Error(Code::kUnsupportedDataType,
                           "{} is {}; of operands of 8 bits it must be e4m3, e5m2 or f16",
                           g[id].name, Info(g[id].dtype).text);
  if (a.dbias != graph::kAbsent)
    return Status::Error(
        Code::kUnsupportedGraphPattern,
        "{} is the gradient of a bias, for which operands of 16 bits are supported",
        g[a.dbias].name);
  RETURN_IF_ERROR(CheckKeptAsF32(g, {a.of_dq.from, a.of_dk.from, a.of_dv.from}));
  return CheckScatters(g, a);
}

Status CheckTypes(const Graph& g, const AttentionGrad& a, OperandBits bits) {
  const DType type = g[a.q].dtype;
  if (bits == OperandBits::k16Or8 && EightBits(type) != 0) {
    RETURN_IF_ERROR(CheckBytes(g, a));
    RETURN_IF_ERROR(CheckKeptAsF32(g, {a.exp, a.stats, a.mean, a.product, a.inner}));
    return CheckComputesInF32(g);
  }
  const bool is_wide = bits == OperandBits::k32;
  if (is_wide ? type != DType::kF32 : type != DType::kF16 && type != DType::kBF16)
    return Status::Error(Code::kUnsupportedDataType, "{} is {}, not {}", g[a.q].name,
                         Info(type).text, is_wide ? "f32" : "f16 or bf16");
  for (const TensorId id : {a.k, a.v, a.dy, a.dk, a.dv})
    if (g[id].dtype != type)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}, {} is {}", g[a.q].name,
                           Info(type).text, g[id].name, Info(g[id].dtype).text);
  for (const TensorId id : {a.dq, a.dq_too})
    if (id != graph::kAbsent && g[id].dtype != type && g[id].dtype != DType::kF32)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}", g[id].name,
                           Info(g[id].dtype).text);
  RETURN_IF_ERROR(CheckScatters(g, a));
  RETURN_IF_ERROR(CheckKeptAsF32(g, {a.exp, a.stats, a.mean, a.product, a.inner}));
  return CheckComputesInF32(g);
}

Status CheckOperands(const Graph& g, const AttentionGrad& a, int64_t most_depth) {
  for (const TensorId id : {a.q, a.k, a.v, a.dy})
    if (NumElements(g[id].dims) == 0)
      return Status::Error(Code::kUnsupportedShape, "{} is empty", g[id].name);
  const Dims &q = g[a.q].dims, &k = g[a.k].dims, &v = g[a.v].dims, &dy = g[a.dy].dims;
  const int64_t rank = g[a.exp].rank();
  if (rank < 3 || rank > 4)
    return Status::Error(Code::kUnsupportedShape, "{} has {} dims; 3 and 4 are supported",
                         g[a.exp].name, rank);
  const auto alike = [&](const Dims& x, const Dims& y, int64_t but) {
    for (int64_t d = 0; d < rank; ++d)
      if (d != but && x[static_cast<size_t>(d)] != y[static_cast<size_t>(d)]) return false;
    return true;
  };
  if (!alike(q, dy, rank - 1) || k.back() != v.back() || dy.back() != v[rank - 2] ||
      (rank == 4 && (q[0] != k[0] || q[0] != v[0])) || q[rank - 3] % k[rank - 3] != 0 ||
      q[rank - 3] % v[rank - 3] != 0)
    return Status::Error(Code::kUnsupportedShape,
                         "{} {} and {} {}, {} {} and {} {} are not as large as each other",
                         g[a.q].name, DimsText(q), g[a.dy].name, DimsText(dy), g[a.k].name,
                         DimsText(k), g[a.v].name, DimsText(v));
  for (const TensorId id : {a.q, a.dy})
    if (g[id].dims.back() > most_depth)
      return Status::Error(Code::kUnsupportedShape, "{} has rows of {}; at most {} are supported",
                           g[id].name, g[id].dims.back(), most_depth);
  if (q[rank - 2] > kMostAttentionPlaces || k[rank - 1] > kMostAttentionPlaces)
    return Status::Error(Code::kUnsupportedShape, "{} has more than {} places along a dim",
                         g[a.exp].name, kMostAttentionPlaces);
  return {};
}

// Tensors in memory by places of the scores that `pending` is made of, but for the operands and
// what rows have; nothing behind `until` is looked at.
std::set<TensorId> ReadByPlace(const Graph& g, const AttentionGrad& a,
                               std::vector<TensorId> pending,
                               std::initializer_list<TensorId> until) {
  const GraphView view(g);
  std::set<TensorId> seen = {a.q, a.k, a.v, a.dy, view.Unguarded(a.stats), a.mean}, found;
  seen.insert(until);
  while (!pending.empty()) {
    const TensorId id = pending.back();
    pending.pop_back();
    if (id == graph::kAbsent || !seen.insert(id).second) continue;
    if (const graph::Node* n = view.Producer(id)) {
      if (!Has(*n, graph::kContraction) && n->op != graph::GraphOp::kReduce)
        pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
      continue;
    }
    const auto last = std::views::reverse(g[id].dims) | std::views::take(2);
    if (std::ranges::any_of(last, [](int64_t extent) { return extent > 1; })) found.insert(id);
  }
  return found;
}

// Tensors in memory by places of the scores that any node of the gradient is made of.
std::set<TensorId> ReadByPlace(const Graph& g, const AttentionGrad& a) {
  std::vector<TensorId> pending;
  for (const graph::NodeId n : a.members) {
    const graph::Node& node = g.nodes[static_cast<size_t>(n)];
    // An operand of a product is an operand of the attention, or follows from one.
    if (node.op == graph::GraphOp::kMap)
      pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  return ReadByPlace(g, a, std::move(pending), {});
}

TensorId BesideOf(const Graph& g, const AttentionGrad& a, const std::set<TensorId>& read) {
  if (read.size() != 1) return graph::kAbsent;
  const TensorId id = *read.begin();
  const Dims &of = g[id].dims, &scores = g[a.exp].dims;
  if (SizeOf(g[id].dtype) != 2 || !IsFloat(g[id].dtype) || of.size() != scores.size() ||
      !std::ranges::equal(of | std::views::reverse | std::views::take(2),
                          scores | std::views::reverse | std::views::take(2)))
    return graph::kAbsent;
  // Maps alone read it, place by place.
  for (const graph::Node& n : g.nodes) {
    if (std::ranges::find(n.inputs, id) == n.inputs.end()) continue;
    const Dims& made = g[n.outputs[0]].dims;
    if (n.op != graph::GraphOp::kMap || (made != of && made != scores)) return graph::kAbsent;
  }
  std::vector<TensorId> others = {a.weight, a.slope, a.bias_slope, a.kept};
  for (const ScoreMask& mask : MasksOf(a)) others.push_back(mask.visible);
  const bool is_of_others =
      ReadByPlace(g, a, std::move(others), {a.exp, a.product, a.inner}).contains(id);
  return is_of_others ? graph::kAbsent : id;
}

}  // namespace

Result<AttentionGradProblem> AttentionGradProblemOf(const Group& group, int64_t most_depth,
                                                    int panel, OperandBits bits) {
  const Graph& g = group.graph;
  const std::vector<AttentionGrad> found = FindAttentionGrad(g, true);
  if (found.size() != 1)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no gradient of attention");
  AttentionGradProblem p{.grad = found[0]};
  const AttentionGrad& a = p.grad;
  RETURN_IF_ERROR(CheckOperands(g, a, most_depth));
  RETURN_IF_ERROR(CheckTypes(g, a, bits));
  p.has_bytes = EightBits(g[a.q].dtype) != 0;
  p.is_wide = bits == OperandBits::k32;
  const int64_t rank = g[a.exp].rank();
  p.queries = g[a.exp].dims[rank - 2];
  p.keys = g[a.exp].dims[rank - 1];
  const int64_t key_heads = g[a.k].dims[rank - 3], value_heads = g[a.v].dims[rank - 3];
  p.inner = std::lcm(key_heads, value_heads);
  p.key_pairs = p.inner / key_heads;
  p.value_pairs = p.inner / value_heads;
  if (rank > 3) p.outer = g[a.k].dims[0];
  p.group = g[a.q].dims[rank - 3] / p.inner;
  p.depth = static_cast<int>(AlignUp(g[a.q].dims.back(), panel));
  p.width = static_cast<int>(AlignUp(g[a.dy].dims.back(), panel));
  const std::set<TensorId> read = ReadByPlace(g, a);
  p.reads = !read.empty();
  p.beside = BesideOf(g, a, read);
  if (a.dbias != graph::kAbsent) {
    const Dims& of = g[a.dbias].dims;
    p.bias_sums = NumElements(of);
    p.bias_heads = p.bias_sums / of.back() / of[of.size() - 2];
  }
  p.hides_blocks = HidesBlocks(g, MasksOf(a));
  if (CeilDiv(p.queries, 64) * g[a.q].dims[rank - 3] * p.outer * 8 > kMostIndex)
    return Status::Error(Code::kUnsupportedShape, "there are too many blocks of queries");
  return p;
}

void TakeSection(AttentionGradProblem& p, int64_t bytes, const Target& target) {
  const int64_t in_l2 = bytes / (p.part_group() * p.queries * p.depth * 8);
  // Under a causal mask a section's first tiles are the longest: with fewer tiles than
  // multiprocessors those of the last section would start when all the others are done.
  const int64_t blocks = target.multiprocessors, tiles = p.key_tiles();
  p.section = std::clamp<int64_t>(std::max(in_l2, (blocks + tiles / 2) / tiles), 1, p.part_heads());
}

void TakeParts(AttentionGradProblem& p, const Target& target, double flops_per_second,
               double bytes_per_second) {
  const double flops = AttentionGradSeconds(p, flops_per_second, bytes_per_second);
  const double blocks = target.multiprocessors;
  const auto seconds = [&](int64_t parts) {
    const double tiles = static_cast<double>(p.heads() * p.key_tiles() * parts);
    // Tiles of one length go in waves; of several lengths, the longest may come to stand alone.
    const double waves =
        p.hides_blocks ? 1 + blocks / tiles : std::ceil(tiles / blocks) * blocks / tiles;
    const double partial = parts == 1 ? 0 : tiles * p.keys_tile * p.depth * 2 * 4 * 2;
    return flops * waves + partial / bytes_per_second;
  };
  for (int64_t parts = 2; parts <= p.group; ++parts)
    if (p.group % parts == 0 && seconds(parts) < seconds(p.parts)) p.parts = parts;
}

void TakeSumsPlace(AttentionGradProblem& p, const Graph& g) {
  const graph::Tensor& dq = g[p.grad.dq];
  int64_t packed = 1;
  bool is_packed = true;
  for (int64_t d = dq.rank() - 1; d >= 0; --d) {
    is_packed = is_packed && (dq.dims[d] == 1 || dq.strides[d] == packed);
    packed *= dq.dims[d];
  }
  const bool is_place =
      dq.dtype == DType::kF32 && !dq.is_virtual && is_packed && dq.alignment >= 16;
  if (p.is_wide) {
    p.is_alone = p.key_tiles() == 1 && p.bias_sums == 0;
    p.sums_in_place = is_place && dq.dims.back() % kColumnsTogether == 0 &&
                      (p.is_alone || packed % kZeroesTogether == 0);
    p.sum_rows = p.queries;
    p.sum_columns = p.sums_in_place ? dq.dims.back() : p.depth;
    return;
  }
  p.sums_in_place = is_place && dq.dims.back() == p.depth && p.queries % p.queries_tile == 0 &&
                    p.queries_tile * p.depth <= kMostThreads * kSumsOfThread;
}

void AddAttentionGradShape(KernelBuilder& b, const AttentionGradProblem& p, tile::Call& call) {
  const auto add = [&](const ShapeMember& member, int64_t value) {
    AddShapeMember(b, call, member, value);
  };
  add(attention::queries, p.queries);
  add(attention::keys, p.keys);
  add(attention::inner, p.inner);
  if (p.adds_parts()) {
    add(attention::parts, p.parts);
    add(attention::key_sums, p.part_blocks(false));
    add(attention::key_pairs, p.key_pairs);
    add(attention::value_pairs, p.value_pairs);
  }
  add(attention::batches, p.part_heads());
  add(attention::group, p.part_group());
  add(attention::key_tiles, p.key_tiles());
  add(attention::query_tiles, p.query_tiles());
  add(attention::section, p.section);
  if (p.is_wide) {
    add(attention::sum_rows, p.sum_rows);
    add(attention::sum_columns, p.sum_columns);
  }
}

double AttentionGradSeconds(const AttentionGradProblem& p, double flops_per_second,
                            double bytes_per_second) {
  const double heads = static_cast<double>(p.heads() * p.group);
  const double queries = static_cast<double>(p.query_tiles() * p.queries_tile);
  const double keys = static_cast<double>(p.key_tiles() * p.keys_tile);
  return 10 * heads * queries * keys * p.depth * (p.hides_blocks ? 0.5 : 1) / flops_per_second +
         heads * queries * p.depth * 4 * 2 / bytes_per_second;
}

bool KeepsSums(const Group& group) {
  if (group.kind != GroupKind::kAttention) return false;
  const std::vector<AttentionGrad> found = FindAttentionGrad(group.graph, true);
  return found.size() == 1 && found[0].dq_too != graph::kAbsent &&
         group.graph[found[0].dq].dtype == DType::kF32;
}

}  // namespace kiln::compiler
