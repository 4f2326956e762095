#include "compiler/engines/attention/grad_sums.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "compiler/engines/attention/functions.h"
#include "compiler/engines/attention/moves.h"
#include "compiler/engines/reduction/reduce_plan.h"
#include "compiler/kernel/vectors.h"
#include "compiler/patterns/graph_view.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::TensorId;
using tile::Block;
using tile::Expr;

namespace {

constexpr int64_t kMostIndex = (int64_t{1} << 31) - 1;
constexpr int kThreads = 256;
constexpr int kColumns = 4;        // of a result that a thread makes in a row
constexpr int kSumsOfThread = 16;  // that get a zero

// A number divided by a constant: quotient and remainder.
std::pair<Expr, Expr> Split(KernelBuilder& b, Block& out, const char* name, const Expr& x,
                            int64_t by) {
  const Expr quotient = b.Let(out, name, x / b.Idx(by));
  return {quotient, b.Let(out, name, x - quotient * b.Idx(by))};
}

}  // namespace

// Writes body(out, number) for `count` threads.
template <class F>
void AttentionGradSums::AddEach(KernelBuilder& b, int64_t count, Lowered& lowered, F&& body,
                                Block first, Block last) const {
  const DType t = b.index_type();
  Block out = std::move(first), inside;
  const int64_t blocks = CeilDiv(count, kThreads);
  const Expr number =
      b.Let(out, "number", tile::Var("bx", t) * b.Idx(kThreads) + tile::Var("tx", t));
  body(inside, number);
  out.push_back({tile::If{tile::Lt(number, b.Arg("count", count)), std::move(inside), {}}});
  for (tile::Stmt& s : last) out.push_back(std::move(s));
  b.Finish(BlockAndThread(t, b.Arg("blocks", blocks), kThreads, std::move(out)), {blocks, 1, 1},
           kThreads, lowered);
}
template <class F>
void AttentionGradSums::AddWhole(KernelBuilder& b, int64_t count, int threads, Lowered& lowered,
                                 F&& body) const {
  const DType t = b.index_type();
  Block out;
  const int64_t blocks = count / threads;
  const Expr number =
      b.Let(out, "number", tile::Var("bx", t) * b.Idx(threads) + tile::Var("tx", t));
  body(out, number);
  b.Finish(BlockAndThread(t, b.Arg("blocks", blocks), threads, std::move(out)), {blocks, 1, 1},
           threads, lowered);
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
  constexpr ReduceKnobs kOneBlockASum = {.threads = 256, .splits = 1};
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
    Lowered made = LowerReduceGpu(PlanReduce(sum), target, kOneBlockASum);
    CHECK(made.scratch_bytes.empty(), "a sum of rows takes no partial results");
    const int first = static_cast<int>(lowered.kernels.size());
    for (LoweredLaunch& launch : made.launches) {
      launch.kernel += first;
      lowered.launches.push_back(std::move(launch));
    }
    std::ranges::move(made.kernels, std::back_inserter(lowered.kernels));
  }
}

// 64 bytes of a thread, of whole blocks of threads.
Block AttentionGradSums::StoreZeroes(KernelBuilder& b, const std::string& sums) const {
  static_assert(kZeroesOfBlock == int64_t{kThreads} * kSumsOfThread);
  Block zero;
  const std::string zeroes = b.Name("zeroes");
  zero.push_back({tile::Alloc{zeroes, DType::kF32, tile::Space::kReg, 4}});
  for (int i = 0; i < 4; ++i) zero.push_back({tile::Store{zeroes, b.Idx(i), tile::Float(0)}});
  const Expr first = tile::Var("bx", b.index_type()) * b.Idx(kZeroesOfBlock) +
                     tile::Var("tx", b.index_type()) * b.Idx(4);
  for (int i = 0; i < kSumsOfThread; i += 4)
    zero.push_back({tile::Copy{sums, first + b.Idx(i * kThreads), zeroes, b.Idx(0), 4}});
  return zero;
}

// Each thread zeroes one turn, too. The sums are whole blocks of threads.
void AttentionGradSums::AddZeroes(Lowered& lowered) const {
  if (plan_.is_alone) return;
  KernelBuilder b = Builder("zeroes where dq and turns are counted");
  const std::string turns = b.Scratch(kTurns, DType::kI32, false);
  const std::string sums = Sums(b, plan_, false);
  // Sums of parts that are added up as they are made begin with zeroes, too.
  const int64_t parts = plan_.keeps_parts ? 0 : plan_.part_sums() / kSumsOfThread;
  const std::string part_sums = parts > 0 ? b.Scratch(PartSums(plan_), DType::kF32, false) : sums;
  const int64_t count = std::max({zeroes_ / kSumsOfThread, parts, turns_});
  AddEach(b, count, lowered, [&](Block& out, const Expr& n) {
    Block turn;
    out.push_back({tile::If{
        tile::Lt(n, b.Arg("threads", zeroes_ / kSumsOfThread)), StoreZeroes(b, sums), {}}});
    if (parts > 0)
      out.push_back(
          {tile::If{tile::Lt(n, b.Arg("of_parts", parts)), StoreZeroes(b, part_sums), {}}});
    turn.push_back({tile::Store{turns, n, tile::Int(0, DType::kI32)}});
    out.push_back({tile::If{tile::Lt(n, b.Arg("turns", turns_)), std::move(turn), {}}});
  });
}

void AttentionGradSums::AddLargestStarts(Lowered& lowered) const {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const AttentionGrad& a = plan_.grad;
  std::vector<LargestStart> all;
  if (a.largest_slope) all.push_back({a.largest_slope->result, 0});  // blocks are skipped
  for (const auto& largest : {a.of_dq.largest, a.of_dk.largest, a.of_dv.largest})
    if (largest) all.push_back({largest->result, kNone});
  AddLargestStart(group_, target_, all, engine_, lowered);
}

void AttentionGradSums::AddBiasZeroes(Lowered& lowered) const {
  KernelBuilder b = Builder("zeroes where the bias's gradient is summed");
  const std::string sums = b.Scratch(kBiasSums, DType::kF32, false);
  AddEach(b, AlignUp(plan_.bias_sums, kZeroesOfBlock) / kSumsOfThread, lowered,
          [&](Block& out, const Expr&) {
            for (tile::Stmt& stmt : StoreZeroes(b, sums)) out.push_back(std::move(stmt));
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

// A thread makes 16 keys of two neighbouring rows, which lie in 8 pieces of 16 bytes; four threads
// read 64 bytes in a row, and 8 warps' keys are one row of a block.
void AttentionGradSums::AddBiasFragments(Lowered& lowered) const {
  constexpr int kWarpKeys = 16;
  const TensorId y = plan_.grad.dbias;
  const int64_t rank = g_[y].rank(), of_block = plan_.keys_tile * plan_.queries_tile;
  KernelBuilder b = Builder("the bias's gradient from its sums");
  const std::string sums = b.Scratch(kBiasSums, DType::kF32, true);
  AddEach(b, plan_.bias_sums / (2 * kWarpKeys), lowered, [&](Block& out, const Expr& number) {
    const auto [warps, pair] = Split(b, out, "pair", number, 4);
    const auto [rows, warp] = Split(b, out, "warp", warps, plan_.keys_tile / kWarpKeys);
    const auto [block, chunk] = Split(b, out, "chunk", rows, plan_.queries_tile / 8);
    const auto [group, of_group] = Split(b, out, "group", warp, 4);
    const Expr from = b.Let(out, "from",
                            block * b.Idx(of_block) + group * b.Idx(of_block / 2) +
                                chunk * b.Idx(512) + of_group * b.Idx(128) + pair * b.Idx(4));
    const std::string x = b.Name("x");
    out.push_back({tile::Alloc{x, DType::kF32, tile::Space::kReg, 2 * kWarpKeys}});
    for (int key = 0; key < 8; ++key)
      out.push_back({tile::Copy{x, b.Idx(4 * key), sums, from + b.Idx(16 * key), 4}});
    const auto keys = b.Divide(out, block, b.Arg("query_tiles", plan_.query_tiles()),
                               plan_.query_tiles(), "queries");
    const auto head = b.Divide(out, keys.quotient, b.Arg("key_tiles", plan_.key_tiles()),
                               plan_.key_tiles(), "keys");
    const Expr column =
        b.Let(out, "column", head.remainder * b.Idx(plan_.keys_tile) + warp * b.Idx(kWarpKeys));
    for (const int half : {0, 1}) {
      const Expr row = b.Let(out, "row",
                             keys.remainder * b.Idx(plan_.queries_tile) + chunk * b.Idx(8) +
                                 pair * b.Idx(2) + b.Idx(half));
      Block store;
      const std::string of_row = b.Name("of_row");
      store.push_back({tile::Alloc{of_row, g_[y].dtype, tile::Space::kReg, kWarpKeys}});
      // Keys 8 further on stand behind two rows of the first.
      for (int key = 0; key < kWarpKeys; ++key) {
        const Expr sum = tile::Load(x, DType::kF32, b.Idx(key % 8 * 4 + key / 8 * 2 + half));
        store.push_back({tile::Store{of_row, b.Idx(key), tile::Cast(g_[y].dtype, sum)}});
      }
      StoreBias(b, store, ScoreIndex(b, store, y, head.quotient, row, b.Idx(0)), column, of_row);
      out.push_back({tile::If{tile::Lt(row, b.Extent(y, rank - 2)), std::move(store), {}}});
    }
  });
}

// 16 keys from the column on.
void AttentionGradSums::StoreBias(KernelBuilder& b, Block& out, const Index& at, const Expr& column,
                                  const std::string& from) const {
  const TensorId y = plan_.grad.dbias;
  const int64_t last = g_[y].rank() - 1;
  const int lanes = std::min(WidestVector(g_, {y}, last), 8);
  for (int c = 0; c < 16; c += lanes) {
    Index place = at;
    place.back() = column + b.Idx(c);
    Block store;
    if (lanes == 1)
      store.push_back(
          {tile::Store{b.Pointer(y), b.Offset(y, place), tile::Load(from, g_[y].dtype, b.Idx(c))}});
    else
      WideCopy(store, g_[y].dtype, b.Pointer(y), b.Offset(y, place), from, b.Idx(c), lanes);
    out.push_back({tile::If{tile::Lt(place.back(), b.Extent(y, last)), std::move(store), {}}});
  }
}

// Sums of blocks of `rows` by the plan's depth, of two groups that share columns or rows. Of
// `parts`, which have `tiles` blocks a head each, from block `first` on, those are added, in order.
struct AttentionGradSums::Fragments {
  int scratch = kSums;
  int rows = 0;
  bool shares_columns = false;
  int64_t tiles = 1;
  const char* tiles_name = "query_tiles";
  TensorId y = graph::kAbsent, too = graph::kAbsent;
  const GradFinish* finish = nullptr;  // of 8 bits
  int64_t heads_of_q = 1;              // for each of its heads
  bool is_scaled = true;
  int64_t parts = 0, first = 0;
};

// A thread has 4 columns of a row of sums that lie as rows.
void AttentionGradSums::AddRowsAsTheyAre(Lowered& lowered) const {
  const AttentionGrad& a = plan_.grad;
  std::vector<TensorId> results;
  if (!plan_.sums_in_place || ScatterOf(g_, a, a.dq) != nullptr) results.push_back(a.dq);
  if (a.dq_too != graph::kAbsent) results.push_back(a.dq_too);
  if (results.empty()) return;
  KernelBuilder b = Builder("dq from the sums");
  const std::string sums = Sums(b, plan_, true);
  const int64_t quads = CeilDiv(g_[a.dq].dims.back(), int64_t{kColumns});
  const int64_t rows = plan_.heads() * plan_.group * plan_.sum_rows;
  AddEach(b, rows * quads, lowered, [&](Block& out, const Expr& number) {
    const auto quad = b.Divide(out, number, b.Arg("quads", quads), quads, "row");
    const auto row =
        b.Divide(out, quad.quotient, b.Arg("sum_rows", plan_.sum_rows), plan_.sum_rows, "head");
    const std::string x = b.Name("x");
    const Expr column = b.Let(out, "column", quad.remainder * b.Idx(kColumns));
    out.push_back({tile::Alloc{x, DType::kF32, tile::Space::kReg, kColumns}});
    out.push_back(
        {tile::Copy{x, b.Idx(0), sums,
                    quad.quotient * b.Arg("sum_columns", plan_.sum_columns) + column, kColumns}});
    Index to = ScoreIndex(b, out, a.dq, row.quotient, row.remainder, b.Idx(0));
    to.back() = column;
    for (const TensorId id : results) StoreRow(b, out, id, to, x);
  });
}

void AttentionGradSums::AddConversion(Lowered& lowered) const {
  if (plan_.is_wide) return AddRowsAsTheyAre(lowered);
  KernelBuilder b = Builder("dq from the sums");
  AddRowsFrom(b,
              {.rows = plan_.queries_tile,
               .shares_columns = plan_.queries_tile == 64,
               .tiles = plan_.query_tiles(),
               .y = plan_.grad.dq,
               .too = plan_.grad.dq_too,
               .finish = plan_.has_bytes ? &plan_.grad.of_dq : nullptr},
              lowered);
}

void AttentionGradSums::AddPartConversions(Lowered& lowered) const {
  if (!plan_.adds_parts()) return;
  for (const bool are_values : {false, true}) {
    KernelBuilder b = Builder(are_values ? "dv from those of parts" : "dk from those of parts");
    AddRowsFrom(b,
                {.scratch = PartSums(plan_),
                 .rows = plan_.keys_tile,
                 .tiles = plan_.key_tiles(),
                 .tiles_name = "key_tiles",
                 .y = are_values ? plan_.grad.dv : plan_.grad.dk,
                 .finish = !plan_.has_bytes ? nullptr
                           : are_values     ? &plan_.grad.of_dv
                                            : &plan_.grad.of_dk,
                 .heads_of_q = plan_.group * plan_.pairs(are_values),
                 .is_scaled = !are_values,
                 .parts = plan_.kept_parts(are_values),
                 .first = are_values ? plan_.part_blocks(false) : 0},
                lowered);
  }
}

// The 2 kColumns sums of a thread, which begin at `in_block` of a block.
void AttentionGradSums::LoadFragments(KernelBuilder& b, Block& out, const Fragments& from,
                                      const Expr& block, const Expr& in_block,
                                      const std::string& to) const {
  const std::string sums =
      from.scratch == kSums ? Sums(b, plan_, true) : b.Scratch(from.scratch, DType::kF32, true);
  const int64_t elements = int64_t{from.rows} * plan_.depth;
  if (from.parts == 0) {
    const Expr at = b.Let(out, "from", block * b.Idx(elements) + in_block);
    for (int i = 0; i < 2 * kColumns; i += 4)
      out.push_back({tile::Copy{to, b.Idx(i), sums, at + b.Idx(i), 4}});
    return;
  }
  const Expr tiles = b.Arg(from.tiles_name, from.tiles), parts = b.Arg("parts", from.parts);
  const auto place = b.Divide(out, block, tiles, from.tiles, "of_head");
  for (int i = 0; i < 2 * kColumns; ++i) out.push_back({tile::Store{to, b.Idx(i), tile::Float(0)}});
  const std::string part = b.Name("part"), some = b.Name("some");
  Block each;
  const Expr number = (place.quotient * parts + tile::Var(part, b.index_type())) * tiles +
                      place.remainder + b.Arg("first_block", from.first);
  const Expr at = b.Let(each, "from", number * b.Idx(elements) + in_block);
  each.push_back({tile::Alloc{some, DType::kF32, tile::Space::kReg, 2 * kColumns}});
  for (int i = 0; i < 2 * kColumns; i += 4)
    each.push_back({tile::Copy{some, b.Idx(i), sums, at + b.Idx(i), 4}});
  for (int i = 0; i < 2 * kColumns; ++i)
    each.push_back({tile::Store{
        to, b.Idx(i),
        tile::Load(to, DType::kF32, b.Idx(i)) + tile::Load(some, DType::kF32, b.Idx(i))}});
  out.push_back({tile::For{part, b.index_type(), parts, tile::Bind::kSerial, std::move(each)}});
}

// A thread's 2 kColumns sums: where they begin in a block, and the columns and rows of a tile that
// they belong to.
struct AttentionGradSums::FragmentPlace {
  Expr block, in_block;
  Expr quad, warp, low;  // four columns; 16 rows, and one of their first 8
};

// One of the two rows that a thread stores: its head, place and columns, and where its sums are.
struct AttentionGradSums::FragmentRow {
  Expr head, row, quad, scale;
  std::string sums;
  int half;
};

// Two lanes of a fragment hold 4 columns of two rows, 8 apart: a thread makes these of 32 bytes.
// Neighbouring threads have neighbouring columns.
AttentionGradSums::FragmentPlace AttentionGradSums::PlaceOf(KernelBuilder& b, Block& out,
                                                            const Fragments& from,
                                                            const Expr& number) const {
  const int quads = plan_.depth / kColumns;                      // of a row
  const int of_group = from.shares_columns ? quads / 2 : quads;  // that a group has
  const auto [low_rows, quad] = Split(b, out, "quad", number, quads);
  const auto [tile_rows, low] = Split(b, out, "low", low_rows, 8);  // row of a fragment
  const auto [block, warp] = Split(b, out, "warp", tile_rows, from.rows / 16);
  // Warps of 16 rows: of each group, or of the second one behind the first one's.
  const Expr group = from.shares_columns ? quad / b.Idx(of_group) : warp / b.Idx(4);
  const Expr in_group = from.shares_columns ? quad - group * b.Idx(of_group) : quad;
  const Expr of_warp = from.shares_columns ? warp : warp - group * b.Idx(4);
  const auto [chunk, half_chunk] = Split(b, out, "chunk", in_group, 2);
  const Expr in_block = group * b.Idx(from.rows * plan_.depth / 2) + chunk * b.Idx(512) +
                        (of_warp * b.Idx(32) + low * b.Idx(4) + half_chunk * b.Idx(2)) * b.Idx(4);
  return {.block = block, .in_block = in_block, .quad = quad, .warp = warp, .low = low};
}

// One of the two rows, from the thread's sums to where it is stored.
Block AttentionGradSums::StoreHalf(KernelBuilder& b, const Fragments& from, const FragmentRow& row,
                                   const std::string& largest) const {
  Block store;
  Index to = ScoreIndex(b, store, from.y, row.head, row.row, b.Idx(0));
  to.back() = row.quad * b.Idx(kColumns);  // in rows of one, too: columns behind are not stored
  const std::string of_row = b.Name("of_row");
  store.push_back({tile::Alloc{of_row, DType::kF32, tile::Space::kReg, kColumns}});
  // Element 4 l + 2 half + c of 8 is column 2 l + c of the row.
  for (int c = 0; c < kColumns; ++c) {
    const Expr sum = tile::Load(row.sums, DType::kF32, b.Idx(c / 2 * 4 + row.half * 2 + c % 2));
    if (from.finish != nullptr) {
      FinishSum(b, store, from, to, c, sum, of_row, largest);
      continue;
    }
    const Expr result = from.is_scaled ? sum * row.scale : sum;
    store.push_back({tile::Store{of_row, b.Idx(c), RoundThrough(g_[from.y].dtype, result)}});
  }
  StoreRow(b, store, from.y, to, of_row);
  if (from.too != graph::kAbsent) StoreRow(b, store, from.too, to, of_row);
  return store;
}

bool AttentionGradSums::AreInPlace(const Fragments& from) const {
  return from.scratch == kSums && plan_.sums_in_place;
}

void AttentionGradSums::StoreFragment(KernelBuilder& b, Block& out, const Fragments& from,
                                      const Expr& number, const std::string& largest) const {
  const int64_t rank = g_[from.y].rank();
  const FragmentPlace at = PlaceOf(b, out, from, number);
  const std::string x = b.Name("x");
  out.push_back({tile::Alloc{x, DType::kF32, tile::Space::kReg, 2 * kColumns}});
  LoadFragments(b, out, from, at.block, at.in_block, x);
  // A block of rows is stored where its sums were.
  if (AreInPlace(from)) out.push_back({tile::Barrier{}});
  const auto place =
      b.Divide(out, at.block, b.Arg(from.tiles_name, from.tiles), from.tiles, "tile");
  Expr scale = tile::Float(1);
  if (from.is_scaled)
    scale = ScaleOf(b, out,
                    from.heads_of_q == 1 ? place.quotient
                                         : place.quotient * b.Arg("heads_of_q", from.heads_of_q));
  for (const int half : {0, 1}) {
    const Expr row =
        b.Let(out, "row",
              place.remainder * b.Idx(from.rows) + at.warp * b.Idx(16) + at.low + b.Idx(8 * half));
    Block store = StoreHalf(b, from,
                            {.head = place.quotient,
                             .row = row,
                             .quad = at.quad,
                             .scale = scale,
                             .sums = x,
                             .half = half},
                            largest);
    out.push_back({tile::If{tile::Lt(row, b.Extent(from.y, rank - 2)), std::move(store), {}}});
  }
}

void AttentionGradSums::AddRowsFrom(KernelBuilder& b, const Fragments& from,
                                    Lowered& lowered) const {
  const int64_t rank = g_[from.y].rank();
  const int quads = plan_.depth / kColumns;  // of a row
  const int64_t heads =
      NumElements(g_[from.y].dims) / g_[from.y].dims[rank - 1] / g_[from.y].dims[rank - 2];
  const int64_t count = heads * from.tiles * from.rows * quads / 2;
  const std::string largest = b.Name("largest");
  const auto body = [&](Block& out, const Expr& number) {
    StoreFragment(b, out, from, number, largest);
  };
  if (AreInPlace(from)) return AddWhole(b, count, from.rows * quads / 2, lowered, body);
  Block first, last;
  if (from.finish != nullptr && from.finish->largest) {
    first.push_back({tile::Alloc{largest, DType::kF32, tile::Space::kReg, 1}});
    first.push_back(
        {tile::Store{largest, b.Idx(0), tile::Float(-std::numeric_limits<double>::infinity())}});
    last.push_back({tile::Call{.skeleton = "add_largest_of",
                               .buffers = {b.Pointer(from.finish->largest->result), largest}}});
  }
  AddEach(b, count, lowered, body, std::move(first), std::move(last));
}

// The sum that is column c of some in a row, as the graph has it in the end.
void AttentionGradSums::FinishSum(KernelBuilder& b, Block& out, const Fragments& from,
                                  const Index& row, int c, const Expr& sum, const std::string& to,
                                  const std::string& largest) const {
  Index at = row;
  at.back() = at.back() + b.Idx(c);
  ValueScope values(b, out);
  values.Bind(from.finish->from, at, sum);
  if (from.finish->largest) {
    const Expr value = tile::Cast(DType::kF32, values.Value(from.finish->largest->value, at));
    out.push_back({tile::Store{largest, b.Idx(0),
                               tile::Op(ScalarOp::kMax, {tile::Load(largest, DType::kF32, b.Idx(0)),
                                                         tile::Op(ScalarOp::kAbs, {value})})}});
  }
  out.push_back({tile::Store{to, b.Idx(c), tile::Cast(DType::kF32, values.Value(from.y, at))}});
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
  if (const graph::Node* scatter = ScatterOf(g_, plan_.grad, to)) {
    ScatterRow(b, out, *scatter, at, values);
    if (g_[to].is_virtual) return;
  }
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

// kColumns columns from the index on to where a scatter puts them: at once where they lie together
// and begin at a multiple of as many.
void AttentionGradSums::ScatterRow(KernelBuilder& b, Block& out, const graph::Node& scatter,
                                   const Index& at, const std::string& from) const {
  const TensorId x = scatter.inputs[0], y = scatter.outputs[0];
  const DType type = g_[y].dtype;
  const auto place_of = [&](ValueScope& places, Block& to, int c) {
    Index place = at;
    place.back() = place.back() + b.Idx(c);
    return ScatterPlaceOf(b, places, to, scatter, place);
  };
  Block apart;
  for (int c = 0; c < kColumns; ++c) {
    Block store, inside;
    ValueScope places(b, store);
    const ScatterPlace there = place_of(places, store, c);
    inside.push_back({tile::Store{b.Pointer(y), there.offset, tile::Load(from, type, b.Idx(c))}});
    store.push_back({tile::If{there.inside, std::move(inside), {}}});
    apart.push_back({tile::If{
        tile::Lt(at.back() + b.Idx(c), b.Extent(x, g_[x].rank() - 1)), std::move(store), {}}});
  }
  if (!AreScatteredTogether(g_, scatter)) {
    for (tile::Stmt& stmt : apart) out.push_back(std::move(stmt));
    return;
  }
  Block row, together;
  ValueScope places(b, row);
  const ScatterPlace first = place_of(places, row, 0), end = place_of(places, row, kColumns - 1);
  WideCopy(together, type, b.Pointer(y), first.offset, from, b.Idx(0), kColumns);
  const Expr aligned = tile::Op(ScalarOp::kEq, {first.offset % b.Idx(kColumns), b.Idx(0)});
  row.push_back({tile::If{tile::And(tile::And(first.inside, end.inside), aligned),
                          std::move(together), std::move(apart)}});
  out.push_back({tile::If{tile::Lt(at.back(), b.Extent(x, g_[x].rank() - 1)), std::move(row), {}}});
}

}  // namespace kiln::compiler
