#include "compiler/engines/attention_grad_problem.h"

#include <algorithm>
#include <ranges>
#include <set>

#include "compiler/engines/attention_functions.h"
#include "compiler/engines/attention_moves.h"
#include "compiler/engines/attention_view.h"
#include "compiler/engines/reduce.h"
#include "compiler/engines/vectors.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Graph;
using graph::TensorId;
using tile::Block;
using tile::Expr;

namespace {

constexpr int64_t kMostIndex = (int64_t{1} << 31) - 1;
constexpr int kThreads = 256;      // of the kernels beside the skeleton
constexpr int kColumns = 4;        // of dq that a thread makes in a row
constexpr int kSumsOfThread = 16;  // that get a zero

Status CheckTypes(const Graph& g, const AttentionGrad& a) {
  const DType type = g[a.q].dtype;
  if (type != DType::kF16 && type != DType::kBF16)
    return Status::Error(Code::kUnsupportedDataType, "{} is {}, not f16 or bf16", g[a.q].name,
                         Info(type).text);
  for (const TensorId id : {a.k, a.v, a.dy, a.dk, a.dv})
    if (g[id].dtype != type)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}, {} is {}", g[a.q].name,
                           Info(type).text, g[id].name, Info(g[id].dtype).text);
  for (const TensorId id : {a.dq, a.dq_too})
    if (id != graph::kAbsent && g[id].dtype != type && g[id].dtype != DType::kF32)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}", g[id].name,
                           Info(g[id].dtype).text);
  for (const graph::NodeId n : a.scatters) {
    const graph::Node& scatter = g.nodes[static_cast<size_t>(n)];
    if (g[scatter.inputs[0]].dtype != g[scatter.outputs[0]].dtype)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}, it is scattered as {}",
                           g[scatter.inputs[0]].name, Info(g[scatter.inputs[0]].dtype).text,
                           Info(g[scatter.outputs[0]].dtype).text);
  }
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
  if (!alike(q, dy, rank - 1) || !alike(k, v, rank - 2) || dy.back() != v[rank - 2] ||
      (rank == 4 && q[0] != k[0]) || q[rank - 3] % k[rank - 3] != 0)
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

// Whether anything but the operands and what rows have lies in memory by places of the scores.
bool ReadsByPlace(const Graph& g, const AttentionGrad& a) {
  const GraphView view(g);
  const TensorId stats = view.Unguarded(a.stats);
  std::set<TensorId> seen = {a.q, a.k, a.v, a.dy, stats, a.mean};
  std::vector<TensorId> pending;
  for (const graph::NodeId n : a.members) {
    const graph::Node& node = g.nodes[static_cast<size_t>(n)];
    // What products multiply is an operand, or follows from one.
    if (node.op == graph::GraphOp::kMap)
      pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  while (!pending.empty()) {
    const TensorId id = pending.back();
    pending.pop_back();
    if (!seen.insert(id).second) continue;
    if (const graph::Node* n = view.Producer(id)) {
      if (!Has(*n, graph::kContraction) && n->op != graph::GraphOp::kReduce)
        pending.insert(pending.end(), n->inputs.begin(), n->inputs.end());
      continue;
    }
    const auto last = std::views::reverse(g[id].dims) | std::views::take(2);
    if (std::ranges::any_of(last, [](int64_t extent) { return extent > 1; })) return true;
  }
  return false;
}

}  // namespace

Result<AttentionGradProblem> AttentionGradProblemOf(const Group& group, int64_t most_depth,
                                                    int panel) {
  const Graph& g = group.graph;
  const std::vector<AttentionGrad> found = FindAttentionGrad(g, true);
  if (found.size() != 1)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no gradient of attention");
  AttentionGradProblem p{.grad = found[0]};
  const AttentionGrad& a = p.grad;
  RETURN_IF_ERROR(CheckOperands(g, a, most_depth));
  RETURN_IF_ERROR(CheckTypes(g, a));
  const int64_t rank = g[a.exp].rank();
  p.queries = g[a.exp].dims[rank - 2];
  p.keys = g[a.exp].dims[rank - 1];
  p.inner = g[a.k].dims[rank - 3];
  if (rank > 3) p.outer = g[a.k].dims[0];
  p.group = g[a.q].dims[rank - 3] / p.inner;
  p.depth = static_cast<int>(AlignUp(g[a.q].dims.back(), panel));
  p.width = static_cast<int>(AlignUp(g[a.dy].dims.back(), panel));
  p.reads = ReadsByPlace(g, a);
  if (a.dbias != graph::kAbsent) p.bias_sums = NumElements(g[a.dbias].dims);
  p.hides_blocks = HidesBlocks(g, MasksOf(a));
  if (CeilDiv(p.queries, 64) * g[a.q].dims[rank - 3] * p.outer * 8 > kMostIndex)
    return Status::Error(Code::kUnsupportedShape, "there are too many blocks of queries");
  return p;
}

void TakeSection(AttentionGradProblem& p, int64_t bytes, const Target& target) {
  const int64_t in_l2 = bytes / (p.group * p.queries * p.depth * 8);
  // Under a causal mask a section's first tiles are the longest: with fewer tiles than
  // multiprocessors those of the last section would start when all the others are done.
  const int64_t blocks = target.multiprocessors, tiles = p.key_tiles();
  p.section = std::clamp<int64_t>(std::max(in_l2, (blocks + tiles / 2) / tiles), 1, p.heads());
}

void AddAttentionGradShape(KernelBuilder& b, const AttentionGradProblem& p, tile::Call& call) {
  const auto add = [&](const std::string& name, int64_t value) {
    call.shape.push_back({name, b.Arg(name, value)});
  };
  add("queries", p.queries);
  add("keys", p.keys);
  add("inner", p.inner);
  add("batches", p.heads());
  add("group", p.group);
  add("key_tiles", p.key_tiles());
  add("query_tiles", p.query_tiles());
  add("section", p.section);
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

// ---- kernels beside the skeleton
// ----------------------------------------------------------------------------------------------

// body(out, number) by `count` threads.
template <class F>
void AttentionGradSums::AddEach(KernelBuilder& b, int64_t count, Lowered& lowered, F&& body) const {
  const DType t = b.index_type();
  Block out, inside;
  const int64_t blocks = CeilDiv(count, kThreads);
  const Expr number =
      b.Let(out, "number", tile::Var("bx", t) * b.Idx(kThreads) + tile::Var("tx", t));
  body(inside, number);
  out.push_back({tile::If{tile::Lt(number, b.Arg("count", count)), std::move(inside), {}}});
  b.Finish(BlockAndThread(t, b.Arg("blocks", blocks), kThreads, std::move(out)), {blocks, 1, 1},
           kThreads, lowered);
}
KernelBuilder AttentionGradSums::Builder(const char* what) const {
  KernelBuilder b(group_, target_, fmt::format("{}: {}", engine_, what),
                  sums_ > kMostIndex ? DType::kI64 : IndexTypeInMemory(g_));
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  return b;
}

// Sums over rows are groups of the engine of reductions: the group's graph without what they do not
// need.
void AddRowSums(const Group& group, const AttentionGrad& a, const Target& target,
                Lowered& lowered) {
  const std::vector<int> knobs = {256, 1};  // threads; one block a sum
  const GraphView view(group.graph);
  for (const TensorId y : a.sums) {
    std::set<graph::NodeId> wanted;
    std::vector<TensorId> pending = {y};
    while (!pending.empty()) {
      const graph::NodeId n = view.ProducerId(pending.back());
      pending.pop_back();
      if (n < 0 || !wanted.insert(n).second) continue;
      const auto& inputs = group.graph.nodes[static_cast<size_t>(n)].inputs;
      pending.insert(pending.end(), inputs.begin(), inputs.end());
    }
    Group sum{.kind = GroupKind::kReduce, .graph = group.graph, .outer = group.outer};
    sum.graph.nodes.clear();
    for (const graph::NodeId n : wanted)
      sum.graph.nodes.push_back(group.graph.nodes[static_cast<size_t>(n)]);
    Result<Lowered> made = kReduceEngine.lower(sum, target, knobs);
    CHECK(made.ok() && made->scratch_bytes.empty(), "a sum of rows takes no partial results");
    const int first = static_cast<int>(lowered.kernels.size());
    for (LoweredLaunch& launch : made->launches) {
      launch.kernel += first;
      lowered.launches.push_back(std::move(launch));
    }
    std::ranges::move(made->kernels, std::back_inserter(lowered.kernels));
  }
}

// 64 bytes of sums a thread, and one turn. The sums are whole blocks of threads.
void AttentionGradSums::AddZeroes(Lowered& lowered) const {
  KernelBuilder b = Builder("zeroes where dq and turns are counted");
  const std::string turns = b.Scratch(kTurns, DType::kI32, false);
  const std::string sums = b.Scratch(kSums, DType::kF32, false);
  AddEach(b, std::max(zeroes_ / kSumsOfThread, turns_), lowered, [&](Block& out, const Expr& n) {
    Block zero, turn;
    const std::string zeroes = b.Name("zeroes");
    zero.push_back({tile::Alloc{zeroes, DType::kF32, tile::Space::kReg, 4}});
    for (int i = 0; i < 4; ++i) zero.push_back({tile::Store{zeroes, b.Idx(i), tile::Float(0)}});
    const Expr first = tile::Var("bx", b.index_type()) * b.Idx(kThreads * kSumsOfThread) +
                       tile::Var("tx", b.index_type()) * b.Idx(4);
    for (int i = 0; i < kSumsOfThread; i += 4)
      zero.push_back({tile::Copy{sums, first + b.Idx(i * kThreads), zeroes, b.Idx(0), 4}});
    out.push_back(
        {tile::If{tile::Lt(n, b.Arg("threads", zeroes_ / kSumsOfThread)), std::move(zero), {}}});
    turn.push_back({tile::Store{turns, n, tile::Int(0, DType::kI32)}});
    out.push_back({tile::If{tile::Lt(n, b.Arg("turns", turns_)), std::move(turn), {}}});
  });
}

void AttentionGradSums::AddBiasZeroes(Lowered& lowered) const {
  KernelBuilder b = Builder("zeroes where the bias's gradient is summed");
  const std::string sums = b.Scratch(kBiasSums, DType::kF32, false);
  AddEach(b, plan_.bias_sums, lowered, [&](Block& out, const Expr& n) {
    Block store;
    store.push_back({tile::Store{sums, n, tile::Float(0)}});
    out.push_back({tile::If{tile::Lt(n, b.Arg("sums", plan_.bias_sums)), std::move(store), {}}});
  });
}

void AttentionGradSums::AddBiasConversion(Lowered& lowered) const {
  const TensorId y = plan_.grad.dbias;
  KernelBuilder b = Builder("the bias's gradient from its sums");
  const std::string sums = b.Scratch(kBiasSums, DType::kF32, true);
  AddEach(b, plan_.bias_sums, lowered, [&](Block& out, const Expr& n) {
    Index extents;
    for (int64_t d = 0; d < g_[y].rank(); ++d) extents.push_back(b.Extent(y, d));
    const Index at = b.Unravel(out, n, extents, g_[y].dims, "at");
    out.push_back({tile::Store{b.Pointer(y), b.Offset(y, at),
                               tile::Cast(g_[y].dtype, tile::Load(sums, DType::kF32, n))}});
  });
}

// Two lanes of a fragment hold 4 columns of two rows, 8 apart: a thread makes these of 32 bytes.
// Neighbouring threads have neighbouring columns.
void AttentionGradSums::AddConversion(Lowered& lowered) const {
  const AttentionGrad& a = plan_.grad;
  const int64_t rank = g_[a.dq].rank();
  KernelBuilder b = Builder("dq from the sums");
  const std::string sums = b.Scratch(kSums, DType::kF32, true);
  const bool shares_columns = plan_.queries_tile == 64;
  const int quads = plan_.depth / kColumns;                 // of a row
  const int of_group = shares_columns ? quads / 2 : quads;  // that a group has
  AddEach(b, sums_ / (2 * kColumns), lowered, [&](Block& out, const Expr& number) {
    const auto split = [&](const char* name, const Expr& x, int64_t by) {
      const Expr quotient = b.Let(out, name, x / b.Idx(by));
      return std::pair{quotient, b.Let(out, name, x - quotient * b.Idx(by))};
    };
    const auto [low_rows, quad] = split("quad", number, quads);
    const auto [tile_rows, low] = split("low", low_rows, 8);  // row of a fragment
    const auto [block, warp] = split("warp", tile_rows, plan_.queries_tile / 16);
    // Warps of 16 rows: of each group, or of the second one behind the first one's.
    const Expr group = shares_columns ? quad / b.Idx(of_group) : warp / b.Idx(4);
    const Expr in_group = shares_columns ? quad - group * b.Idx(of_group) : quad;
    const Expr of_warp = shares_columns ? warp : warp - group * b.Idx(4);
    const auto [chunk, half_chunk] = split("chunk", in_group, 2);
    const Expr from = (block * b.Idx(2) + group) * b.Idx(plan_.queries_tile * plan_.depth / 2) +
                      chunk * b.Idx(512) +
                      (of_warp * b.Idx(32) + low * b.Idx(4) + half_chunk * b.Idx(2)) * b.Idx(4);
    const std::string x = b.Name("x");
    out.push_back({tile::Alloc{x, DType::kF32, tile::Space::kReg, 2 * kColumns}});
    const Expr at = b.Let(out, "from", from);
    for (int i = 0; i < 2 * kColumns; i += 4)
      out.push_back({tile::Copy{x, b.Idx(i), sums, at + b.Idx(i), 4}});
    const auto place = b.Divide(out, block, b.Arg("query_tiles", plan_.query_tiles()),
                                plan_.query_tiles(), "tile");
    const Expr scale = ScaleOf(b, out, place.quotient);
    for (const int half : {0, 1}) {
      const Expr row = b.Let(
          out, "row",
          place.remainder * b.Idx(plan_.queries_tile) + warp * b.Idx(16) + low + b.Idx(8 * half));
      Block store;
      Index to = ScoreIndex(b, store, a.dq, place.quotient, row, b.Idx(0));
      to.back() = quad * b.Idx(kColumns);  // in rows of one, too: columns behind it are not stored
      const std::string of_row = b.Name("of_row");
      store.push_back({tile::Alloc{of_row, DType::kF32, tile::Space::kReg, kColumns}});
      // Element 4 l + 2 half + c of 8 is column 2 l + c of the row.
      for (int c = 0; c < kColumns; ++c) {
        const Expr sum = tile::Load(x, DType::kF32, b.Idx(c / 2 * 4 + half * 2 + c % 2));
        store.push_back({tile::Store{of_row, b.Idx(c), RoundThrough(g_[a.dq].dtype, sum * scale)}});
      }
      StoreRow(b, store, a.dq, to, of_row);
      if (a.dq_too != graph::kAbsent) StoreRow(b, store, a.dq_too, to, of_row);
      out.push_back({tile::If{tile::Lt(row, b.Extent(a.dq, rank - 2)), std::move(store), {}}});
    }
  });
}

Expr AttentionGradSums::ScaleOf(KernelBuilder& b, Block& out, const Expr& head) const {
  const AttentionGrad& a = plan_.grad;
  const Index at = ScoreIndex(b, out, a.exp, head, b.Idx(0), b.Idx(0));
  ValueScope values(b, out);
  Expr product = tile::Float(1);
  for (const TensorId id : a.scales)
    product = product * tile::Cast(DType::kF32, values.Value(id, BroadcastIndex(b, g_[id], at)));
  return b.Let(out, "scale", product);
}

// kColumns columns from the index on.
void AttentionGradSums::StoreRow(KernelBuilder& b, Block& out, TensorId to, const Index& at,
                                 const std::string& from) const {
  const DType type = g_[to].dtype;
  const int64_t last = g_[to].rank() - 1, columns = g_[to].dims.back();
  const int lanes = columns % kColumns == 0 ? std::min(WidestVector(g_, {to}, last), kColumns) : 1;
  const std::string values = b.Name("values");
  out.push_back({tile::Alloc{values, type, tile::Space::kReg, kColumns}});
  for (int c = 0; c < kColumns; ++c)
    out.push_back(
        {tile::Store{values, b.Idx(c), tile::Cast(type, tile::Load(from, DType::kF32, b.Idx(c)))}});
  const graph::Node* scatter = ScatterOf(g_, plan_.grad, to);
  for (int c = 0; c < kColumns; c += scatter != nullptr ? 1 : lanes) {
    Index place = at;
    place.back() = place.back() + b.Idx(c);
    Block store;
    if (scatter != nullptr) {
      ValueScope places(b, store);
      const ScatterPlace there = ScatterPlaceOf(b, places, store, *scatter, place);
      Block inside;
      inside.push_back({tile::Store{b.Pointer(scatter->outputs[0]), there.offset,
                                    tile::Load(values, type, b.Idx(c))}});
      store.push_back({tile::If{there.inside, std::move(inside), {}}});
    } else if (lanes == 1)
      store.push_back(
          {tile::Store{b.Pointer(to), b.Offset(to, place), tile::Load(values, type, b.Idx(c))}});
    else
      WideCopy(store, type, b.Pointer(to), b.Offset(to, place), values, b.Idx(c), lanes);
    out.push_back({tile::If{tile::Lt(place.back(), b.Extent(to, last)), std::move(store), {}}});
  }
}

}  // namespace kiln::compiler
