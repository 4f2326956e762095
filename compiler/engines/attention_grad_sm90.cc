// The attention_grad_sm90 engines: which groups they take, and their kernels: zeroes for what is
// added to, the skeleton, and dq from the sums, which lie in the order of fragments.
#include "compiler/engines/attention_grad_sm90.h"

#include <algorithm>
#include <ranges>

#include "compiler/engines/attention_functions.h"
#include "compiler/engines/attention_problem.h"
#include "compiler/engines/attention_sm90.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Call;
using tile::Expr;

// 0: what a depth takes. Blocks of 128 have too few registers beside rows of 128.
constexpr int kQueriesDomain[] = {0, 64, 128};
constexpr KnobRow kKnobs[] = {
    {.name = "tile_queries", .cudnn_type = kKnobTileRows, .domain = kQueriesDomain},
};

constexpr int kPanel = 64, kKeys = 128, kMostDepth = 128, kStages = 2;
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
// Of q, dy and sums of the heads whose tiles run at one time, by rows of 64 and of 128; in any
// order and in order. As measured: L2 holds the first, the second is small enough not to wait long.
constexpr int64_t kSectionBytes[][2] = {{32 << 20, 64 << 20}, {32 << 20, 16 << 20}};
constexpr int64_t kMostIndex = (int64_t{1} << 31) - 1;
constexpr int kThreads = 256;         // of the kernels beside the skeleton
constexpr int kTurns = 0, kSums = 1;  // scratch buffers
constexpr int kColumns = 4;           // of dq that a thread makes in a row
constexpr int kSumsOfThread = 16;     // that get a zero

struct Plan {
  AttentionGrad grad = {};
  bool reads = false;  // see ReadsByPlace
  int depth = 0, queries_tile = 0;
  int64_t queries = 0, keys = 0, inner = 1, outer = 1, group = 1;
  TensorMapSpec q = {}, k = {}, v = {}, dy = {}, dk = {}, dv = {};
  int64_t query_tiles() const { return CeilDiv(queries, queries_tile); }
  int64_t key_tiles() const { return CeilDiv(keys, kKeys); }
  int64_t heads() const { return inner * outer; }  // of k and v
};

int64_t SharedBytes(const Plan& p) {
  const int64_t block = int64_t{p.queries_tile} * p.depth * 2;
  return 2 * int64_t{kKeys} * p.depth * 2 + 2 * kStages * block +
         2 * int64_t{kKeys} * p.queries_tile * 2 + 2 * int64_t{64} * p.depth * 2 +
         2 * kStages * int64_t{p.queries_tile} * 4 + 16 * kStages + 160;
}

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
  RETURN_IF_ERROR(CheckKeptAsF32(g, {a.exp, a.stats, a.mean, a.product, a.inner}));
  return CheckComputesInF32(g);
}

Status CheckOperands(const Graph& g, const AttentionGrad& a) {
  RETURN_IF_ERROR(CheckInMemory(g, {a.q, a.k, a.v, a.dy}));
  for (const TensorId id : {a.q, a.k, a.v, a.dy})
    if (NumElements(g[id].dims) == 0)
      return Status::Error(Code::kUnsupportedShape, "{} is empty", g[id].name);
  const Dims &q = g[a.q].dims, &k = g[a.k].dims, &v = g[a.v].dims, &dy = g[a.dy].dims;
  const int64_t rank = g[a.exp].rank();
  if (rank < 3 || rank > 4)
    return Status::Error(Code::kUnsupportedShape, "{} has {} dims; 3 and 4 are supported",
                         g[a.exp].name, rank);
  if (q != dy || k != v || (rank == 4 && q[0] != k[0]) || q[rank - 3] % k[rank - 3] != 0)
    return Status::Error(Code::kUnsupportedShape,
                         "{} {} and {} {}, {} {} and {} {} are not as large as each other",
                         g[a.q].name, DimsText(q), g[a.dy].name, DimsText(dy), g[a.k].name,
                         DimsText(k), g[a.v].name, DimsText(v));
  if (q.back() > kMostDepth)
    return Status::Error(Code::kUnsupportedShape, "{} has rows of {}; at most {} are supported",
                         g[a.q].name, q.back(), kMostDepth);
  if (q[rank - 2] > kMostAttentionPlaces || k[rank - 1] > kMostAttentionPlaces)
    return Status::Error(Code::kUnsupportedShape, "{} has more than {} places along a dim",
                         g[a.exp].name, kMostAttentionPlaces);
  return {};
}

// Whether anything but the operands and what rows have lies in memory by places of the scores.
bool ReadsByPlace(const Graph& g, const AttentionGrad& a) {
  return std::ranges::any_of(graph::Inputs(g), [&](TensorId id) {
    for (const TensorId other : {a.q, a.k, a.v, a.dy, a.stats, a.mean})
      if (id == other) return false;
    const auto last = std::views::reverse(g[id].dims) | std::views::take(2);
    return std::ranges::any_of(last, [](int64_t extent) { return extent > 1; });
  });
}

// Without a tile.
Result<Plan> PlanOf(const Group& group) {
  const Graph& g = group.graph;
  const std::vector<AttentionGrad> found = FindAttentionGrad(g, true);
  if (found.size() != 1)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no gradient of attention");
  Plan p{.grad = found[0]};
  const AttentionGrad& a = p.grad;
  RETURN_IF_ERROR(CheckOperands(g, a));
  RETURN_IF_ERROR(CheckTypes(g, a));
  const int64_t rank = g[a.exp].rank();
  p.queries = g[a.exp].dims[rank - 2];
  p.keys = g[a.exp].dims[rank - 1];
  p.inner = g[a.k].dims[rank - 3];
  if (rank > 3) p.outer = g[a.k].dims[0];
  p.group = g[a.q].dims[rank - 3] / p.inner;
  p.depth = static_cast<int>(AlignUp(g[a.q].dims.back(), kPanel));
  p.reads = ReadsByPlace(g, a);
  if (CeilDiv(p.queries, 64) * g[a.q].dims[rank - 3] * p.outer * 8 > kMostIndex)
    return Status::Error(Code::kUnsupportedShape, "there are too many blocks of queries");
  ASSIGN_OR_RETURN(p.q, AttentionMapOf(g[a.q], rank - 2, rank - 1, 64));
  ASSIGN_OR_RETURN(p.dy, AttentionMapOf(g[a.dy], rank - 2, rank - 1, 64));
  ASSIGN_OR_RETURN(p.k, AttentionMapOf(g[a.k], rank - 1, rank - 2, kKeys));
  ASSIGN_OR_RETURN(p.v, AttentionMapOf(g[a.v], rank - 1, rank - 2, kKeys));
  ASSIGN_OR_RETURN(p.dk, AttentionMapOf(g[a.dk], rank - 2, rank - 1, 64));
  ASSIGN_OR_RETURN(p.dv, AttentionMapOf(g[a.dv], rank - 2, rank - 1, 64));
  return p;
}

Status TakeTile(Plan& p, std::span<const int> knobs) {
  const bool is_small = p.depth == kPanel && !p.reads;  // what is beside a place takes registers
  p.queries_tile = knobs[0] > 0 ? knobs[0] : is_small ? 128 : 64;
  if (p.depth > kPanel && p.queries_tile > 64)
    return Status::Error(Code::kUnsupportedShape,
                         "blocks of {} queries have too few registers for rows of {}",
                         p.queries_tile, p.depth);
  for (TensorMapSpec* map : {&p.q, &p.dy}) map->box[1] = p.queries_tile;
  return {};
}

Result<Plan> PlanOf(const Group& group, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(Plan p, PlanOf(group));
  RETURN_IF_ERROR(TakeTile(p, knobs));
  return p;
}

// ---- kernels
// ----------------------------------------------------------------------------------------------

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, Plan plan, bool is_ordered)
      : group_(group),
        g_(group.graph),
        target_(target),
        plan_(std::move(plan)),
        is_ordered_(is_ordered) {}

  void Lower(Lowered& lowered) {
    const int64_t heads = plan_.heads() * plan_.group, blocks = heads * plan_.query_tiles();
    turns_ = 1 + (is_ordered_ ? blocks : 0);
    sums_ = blocks * plan_.queries_tile * plan_.depth;
    lowered.scratch_bytes = {turns_ * 4, sums_ * 4};
    AddZeroes(lowered);
    AddSkeleton(lowered);
    AddConversion(lowered);
  }

 private:
  // body(out, number) by `count` threads.
  template <class F>
  void AddEach(KernelBuilder& b, int64_t count, Lowered& lowered, F&& body) {
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
  KernelBuilder Builder(const char* what) const {
    KernelBuilder b(group_, target_, what,
                    sums_ > kMostIndex ? DType::kI64 : IndexTypeInMemory(g_));
    for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
    return b;
  }

  // 64 bytes of sums a thread, and one turn. The sums are whole blocks of threads.
  void AddZeroes(Lowered& lowered) {
    KernelBuilder b = Builder("attention_grad_sm90: zeroes where dq and turns are counted");
    const std::string turns = b.Scratch(kTurns, DType::kI32, false);
    const std::string sums = b.Scratch(kSums, DType::kF32, false);
    AddEach(b, std::max(sums_ / kSumsOfThread, turns_), lowered, [&](Block& out, const Expr& n) {
      Block zero, turn;
      const std::string zeroes = b.Name("zeroes");
      zero.push_back({tile::Alloc{zeroes, DType::kF32, tile::Space::kReg, 4}});
      for (int i = 0; i < 4; ++i) zero.push_back({tile::Store{zeroes, b.Idx(i), tile::Float(0)}});
      const Expr first = tile::Var("bx", b.index_type()) * b.Idx(kThreads * kSumsOfThread) +
                         tile::Var("tx", b.index_type()) * b.Idx(4);
      for (int i = 0; i < kSumsOfThread; i += 4)
        zero.push_back({tile::Copy{sums, first + b.Idx(i * kThreads), zeroes, b.Idx(0), 4}});
      out.push_back(
          {tile::If{tile::Lt(n, b.Arg("threads", sums_ / kSumsOfThread)), std::move(zero), {}}});
      turn.push_back({tile::Store{turns, n, tile::Int(0, DType::kI32)}});
      out.push_back({tile::If{tile::Lt(n, b.Arg("turns", turns_)), std::move(turn), {}}});
    });
  }

  // Two lanes of a fragment hold 4 columns of two rows, 8 apart: a thread makes these of 32 bytes.
  // Neighbouring threads have neighbouring columns.
  void AddConversion(Lowered& lowered) {
    const AttentionGrad& a = plan_.grad;
    const int64_t rank = g_[a.dq].rank();
    KernelBuilder b = Builder("attention_grad_sm90: dq from the sums");
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
        const Index to = ScoreIndex(b, store, a.dq, place.quotient, row, quad * b.Idx(kColumns));
        const std::string of_row = b.Name("of_row");
        store.push_back({tile::Alloc{of_row, DType::kF32, tile::Space::kReg, kColumns}});
        // Element 4 l + 2 half + c of 8 is column 2 l + c of the row.
        for (int c = 0; c < kColumns; ++c) {
          const Expr sum = tile::Load(x, DType::kF32, b.Idx(c / 2 * 4 + half * 2 + c % 2));
          store.push_back(
              {tile::Store{of_row, b.Idx(c), RoundThrough(g_[a.dq].dtype, sum * scale)}});
        }
        StoreRow(b, store, a.dq, to, of_row);
        if (a.dq_too != graph::kAbsent) StoreRow(b, store, a.dq_too, to, of_row);
        out.push_back({tile::If{tile::Lt(row, b.Extent(a.dq, rank - 2)), std::move(store), {}}});
      }
    });
  }

  Expr ScaleOf(KernelBuilder& b, Block& out, const Expr& head) const {
    const AttentionGrad& a = plan_.grad;
    const Index at = ScoreIndex(b, out, a.exp, head, b.Idx(0), b.Idx(0));
    ValueScope values(b, out);
    Expr product = tile::Float(1);
    for (const TensorId id : a.scales)
      product = product * tile::Cast(DType::kF32, values.Value(id, BroadcastIndex(b, g_[id], at)));
    return b.Let(out, "scale", product);
  }

  // kColumns columns from the index on.
  void StoreRow(KernelBuilder& b, Block& out, TensorId to, const Index& at,
                const std::string& from) const {
    const DType type = g_[to].dtype;
    const int64_t last = g_[to].rank() - 1, columns = g_[to].dims.back();
    const int lanes =
        columns % kColumns == 0 ? std::min(WidestVector(g_, {to}, last), kColumns) : 1;
    const std::string values = b.Name("values");
    out.push_back({tile::Alloc{values, type, tile::Space::kReg, kColumns}});
    for (int c = 0; c < kColumns; ++c)
      out.push_back({tile::Store{values, b.Idx(c),
                                 tile::Cast(type, tile::Load(from, DType::kF32, b.Idx(c)))}});
    for (int c = 0; c < kColumns; c += lanes) {
      Index place = at;
      place.back() = place.back() + b.Idx(c);
      Block store;
      if (lanes == 1)
        store.push_back(
            {tile::Store{b.Pointer(to), b.Offset(to, place), tile::Load(values, type, b.Idx(c))}});
      else
        WideCopy(store, type, b.Pointer(to), b.Offset(to, place), values, b.Idx(c), lanes);
      out.push_back({tile::If{tile::Lt(place.back(), b.Extent(to, last)), std::move(store), {}}});
    }
  }

  void AddSkeleton(Lowered& lowered) {
    const AttentionGrad& a = plan_.grad;
    KernelBuilder b(group_, target_,
                    fmt::format("attention_grad_sm90: {} keys, blocks of {} queries{}", kKeys,
                                plan_.queries_tile, is_ordered_ ? ", in order" : ""),
                    IndexTypeInMemory(g_));
    for (const char* reserved :
         {"bx", "shape", "score", "inside", "factor", "limits", "weight", "scale", "rows"})
      b.Name(reserved);
    const DType type = g_[a.q].dtype;
    Call call{.skeleton = "attention_grad_sm90"};
    call.maps = {b.Map("q_map", a.q, plan_.q),    b.Map("k_map", a.k, plan_.k),
                 b.Map("v_map", a.v, plan_.v),    b.Map("dy_map", a.dy, plan_.dy),
                 b.Map("dk_map", a.dk, plan_.dk), b.Map("dv_map", a.dv, plan_.dv)};
    call.buffers = {b.Scratch(kSums, DType::kF32, false), b.Scratch(kTurns, DType::kI32, false)};
    call.wgmma = {.columns = plan_.queries_tile, .type = type, .right_type = type};
    call.second = Call::Wgmma{.columns = plan_.depth,
                              .type = type,
                              .right_type = type,
                              .right_is_outer = true,
                              .left_in_registers = true};
    call.third = Call::Wgmma{.columns = plan_.queries_tile == 64 ? plan_.depth / 2 : plan_.depth,
                             .type = type,
                             .right_type = type,
                             .left_is_outer = true,
                             .right_is_outer = true};
    call.shared_bytes = SharedBytes(plan_);
    const bool is_shallow = plan_.depth == 64;
    call.config = {{"kQueries", plan_.queries_tile},
                   {"kDepth", plan_.depth},
                   {"kReads", plan_.reads ? 1 : 0},
                   {"kRotates", is_shallow && !is_ordered_ ? 1 : 0},
                   {"kKeysFirst", is_shallow ? 1 : 0},
                   {"kOrdered", is_ordered_ ? 1 : 0},
                   {"kProducerRegisters", kProducerRegisters},
                   {"kConsumerRegisters", kConsumerRegisters},
                   {"kPackBf16", type == DType::kBF16 ? 1 : 0}};
    Shape(b, call);
    AttentionGradFunctions(b, a).Add(call);
    const int64_t blocks =
        std::min<int64_t>(plan_.heads() * plan_.key_tiles(), target_.multiprocessors);
    b.Finish(CallOfBlocks(b, blocks, std::move(call)), {blocks, 1, 1}, 384, lowered, 1);
  }

  void Shape(KernelBuilder& b, Call& call) const {
    const auto add = [&](const std::string& name, int64_t value) {
      call.shape.push_back({name, b.Arg(name, value)});
    };
    const int64_t head_bytes = plan_.group * plan_.queries * plan_.depth * 8;
    const int64_t section = kSectionBytes[is_ordered_][plan_.depth > kPanel] / head_bytes;
    add("queries", plan_.queries);
    add("keys", plan_.keys);
    add("inner", plan_.inner);
    add("batches", plan_.heads());
    add("group", plan_.group);
    add("key_tiles", plan_.key_tiles());
    add("query_tiles", plan_.query_tiles());
    add("section", std::clamp<int64_t>(section, 1, plan_.heads()));
  }

  const Group& group_;
  const Graph& g_;
  const Target& target_;
  const Plan plan_;
  const bool is_ordered_;
  int64_t turns_ = 0, sums_ = 0;
};

// ---- the engines' rows
// -------------------------------------------------------------------------------------

Status Supports(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kAttention)
    return Status::Error(Code::kUnsupportedGraphPattern, "the group is no attention");
  if (!target.is_cuda() || target.sm_version != 90)
    return Status::Error(Code::kArchMismatch, "wgmma needs sm_90a, the target is {}", target.arch);
  if (target.minimal_launch)
    return Status::Error(Code::kArchMismatch, "KILN_LAUNCH=minimal allows no tensor maps");
  return PlanOf(group, DefaultKnobs(kAttentionGradSm90Engine)).status();
}

template <bool is_ordered>
Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  ASSIGN_OR_RETURN(Plan plan, PlanOf(group, knobs));
  Lowered lowered;
  Schedule(group, target, std::move(plan), is_ordered).Lower(lowered);
  return lowered;
}

// Five products at half of the tensor cores' speed; masks hide half.
constexpr double kFlopsPerSecond = 500e12, kBytesPerSecond = 3e12, kLaunchSeconds = 8e-6;
constexpr double kOrderedSpeed = 0.9, kSmallTileSpeed = 0.95;

double Seconds(const Group& group, const Plan& plan, bool is_ordered) {
  const bool hides = HidesBlocks(group.graph, plan.grad.masks);
  const double heads = static_cast<double>(plan.heads() * plan.group);
  const double queries = static_cast<double>(plan.query_tiles() * plan.queries_tile);
  const double keys = static_cast<double>(plan.key_tiles() * kKeys);
  const double speed = kFlopsPerSecond * (is_ordered ? kOrderedSpeed : 1) *
                       (plan.depth == kPanel && plan.queries_tile < 128 ? kSmallTileSpeed : 1);
  return kLaunchSeconds + 10 * heads * queries * keys * plan.depth * (hides ? 0.5 : 1) / speed +
         heads * queries * plan.depth * 4 * 2 / kBytesPerSecond;
}

template <bool is_ordered>
double Cost(const Group& group, const Target&, std::span<const int> knobs) {
  const auto plan = PlanOf(group, knobs);
  return plan.ok() ? Seconds(group, *plan, is_ordered) : kNoSeconds;
}

int64_t SharedBytesOf(const Group& group, const Target&, std::span<const int> knobs) {
  const auto plan = PlanOf(group, knobs);
  return plan.ok() ? SharedBytes(*plan) : 0;
}

// Of the tiles, those that have registers enough. The group is looked at once.
template <bool is_ordered>
std::vector<Proposal> Proposals(const Group& group, const Target&) {
  std::vector<Proposal> all;
  const Result<Plan> found = PlanOf(group);
  if (!found.ok()) return all;
  for (const int queries : kQueriesDomain) {
    Plan plan = *found;
    const int knobs[] = {queries};
    if ((queries == 128 && plan.reads) || !TakeTile(plan, knobs).ok()) continue;
    all.push_back({.knobs = {queries},
                   .seconds = Seconds(group, plan, is_ordered),
                   .shared_bytes = SharedBytes(plan)});
  }
  return all;
}

template <bool is_ordered>
std::vector<std::vector<int>> Candidates(const Group& group, const Target& target) {
  std::vector<std::vector<int>> all;
  for (Proposal& p : Proposals<is_ordered>(group, target)) all.push_back(std::move(p.knobs));
  return all;
}

// Clients who want the same bits each time have dq made as it is stored; the others give f32 sums
// room in memory, into which NVIDIA's library adds in any order.
bool KeepsSums(const Group& group) {
  if (group.kind != GroupKind::kAttention) return false;
  const std::vector<AttentionGrad> found = FindAttentionGrad(group.graph, true);
  return found.size() == 1 && found[0].dq_too != graph::kAbsent &&
         group.graph[found[0].dq].dtype == DType::kF32;
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};
constexpr int kNumerical[] = {kNoteTensorCore};
constexpr int kNumericalAtomic[] = {kNoteTensorCore, kNoteNondeterministic};

}  // namespace

const Engine kAttentionGradSm90Engine = {
    .name = "attention_grad_sm90",
    .version = 2,
    .knobs = kKnobs,
    .notes = {.numerical = kNumerical, .behavioral = kBehavior},
    .supports = Supports,
    .cost = Cost<true>,
    .lower = Lower<true>,
    .shared_bytes = SharedBytesOf,
    .candidates = Candidates<true>,
    .propose = Proposals<true>};

const Engine kAttentionGradSm90AtomicEngine = {
    .name = "attention_grad_sm90_atomic",
    .version = 2,
    .knobs = kKnobs,
    .notes = {.numerical = kNumericalAtomic, .behavioral = kBehavior},
    .supports = Supports,
    .cost = Cost<false>,
    .lower = Lower<false>,
    .shared_bytes = SharedBytesOf,
    .candidates = Candidates<false>,
    .propose = Proposals<false>,
    .any_order = KeepsSums};

}  // namespace kiln::compiler
