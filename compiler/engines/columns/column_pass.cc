// One pass of the columns engine:
//
//   what the columns of the thread have (means, scales)   read once, into registers
//   for each tile of places:   leaves of `unroll` places  all of them before the first use
//                              accumulate, or the last stage's maps and wide stores
//   the block's walkers meet in shared memory; a partial result of each column goes out
//
// Sums have a fixed order, so results are the same from run to run.
#include <deque>

#include "compiler/engines/columns/engine.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32;

class ColumnsPass {
 public:
  ColumnsPass(const ColumnsPlan& plan, const Target& target, size_t stage,
              const ColumnsShape& shape, const ColumnsScratch& scratch)
      : plan_(plan),
        row_(plan.chain.row),
        stage_(plan.chain.stages[stage]),
        order_(plan.InOrder(stage)),
        number_(stage),
        is_first_(stage == 0),
        is_backward_(stage % 2 == 1),
        shape_(shape),
        scratch_(scratch),
        b_(plan.chain.row.group, target,
           fmt::format("columns, pass {}: {}, threads={}, width={}, lanes={}, unroll={}", stage,
                       plan.across ? "across" : "along", shape.threads, shape.width, plan.lanes,
                       shape.unroll)),
        args_(b_, plan, shape),
        t_(b_.index_type()) {
    for (const char* reserved : {"bx", "by", "tx"}) b_.Name(reserved);
  }

  void Lower(Lowered& lowered) {
    Block body, walk;
    splits_ = args_.Arg("splits", shape_.splits);
    blocks_ = args_.Arg("blocks", shape_.blocks);
    FindColumns(body);
    ReadValues(body);
    DeclareSums(body);
    for (const size_t r : order_)
      if (plan_.IsShifted(number_, r)) ReadShift(body, r);
    Walk(walk);
    if (plan_.across)
      body.push_back({tile::If{exists_, std::move(walk), {}}});
    else
      std::ranges::move(walk, std::back_inserter(body));
    for (const size_t r : order_) Publish(body, r);
    Block threads, splits, blocks;
    threads.push_back(
        {tile::For{"tx", t_, b_.Idx(shape_.threads), Bind::kThreadX, std::move(body)}});
    splits.push_back({tile::For{"by", t_, splits_, Bind::kBlockY, std::move(threads)}});
    blocks.push_back({tile::For{"bx", t_, blocks_, Bind::kBlockX, std::move(splits)}});
    b_.Finish(std::move(blocks), {shape_.blocks, shape_.splits, 1}, shape_.threads, lowered,
              shape_.resident);
  }

 private:
  const graph::Graph& g() const { return plan_.graph(); }
  Expr tx() const { return tile::Var("tx", t_); }
  Expr by() const { return tile::Var("by", t_); }
  DType TypeOf(size_t r) const { return AccumulatorType(plan_.reduce(r)); }

  void For(Block& out, const char* name, int64_t count,
           const std::function<void(Block&, Expr)>& emit) {
    if (count == 1) return emit(out, b_.Idx(0));
    const std::string var = b_.Name(name);
    Block body;
    emit(body, tile::Var(var, t_));
    out.push_back({tile::For{var, t_, b_.Idx(count), Bind::kUnroll, std::move(body)}});
  }

  // ---- places

  // Every other pass walks backwards, in blocks, too: what was read last may still be in the
  // cache.
  void FindColumns(Block& out) {
    Expr block = tile::Var("bx", t_);
    if (is_backward_) block = b_.Let(out, "block", blocks_ - b_.Idx(1) - block);
    if (!plan_.across) {
      walker_ = tx();
      column_ = block;
      kept_ = UnravelDims(b_, out, row_, row_.kept, block, 1, "k");
      return;
    }
    lane_ = b_.Let(out, "lane", tx() % b_.Idx(shape_.width));
    walker_ = b_.Let(out, "walker", tx() / b_.Idx(shape_.width));
    const auto of = b_.Divide(out, block, args_.Arg("tiles", shape_.tiles), shape_.tiles, "tile");
    const Expr vectors = args_.Arg("vectors", shape_.vectors);
    const Expr vector = b_.Let(out, "vector", of.remainder * b_.Idx(shape_.width) + lane_);
    exists_ = tile::Lt(vector, vectors);
    const Expr existing =
        b_.Let(out, "existing", tile::Op(ScalarOp::kMin, {vector, vectors - b_.Idx(1)}));
    std::vector<int64_t> outer = row_.kept;
    std::erase(outer, row_.inner);
    kept_ = UnravelDims(b_, out, row_, outer, of.quotient, 1, "k");
    kept_[row_.inner] = b_.Let(out, "inner", existing * b_.Idx(plan_.lanes));
    const Expr inner_extent = vectors * b_.Idx(plan_.lanes);
    first_ = b_.Let(out, "first", of.quotient * inner_extent);
    column_ = b_.Let(out, "column", first_ + kept_[row_.inner]);
    first_ = b_.Let(out, "first_of_tile",
                    first_ + of.remainder * b_.Idx(int64_t{shape_.width} * plan_.lanes));
    end_ = b_.Let(out, "end", of.quotient * inner_extent + inner_extent);
  }

  // Tile after tile, and the rest, which one split has.
  void Walk(Block& out) {
    if (shape_.stores != 0) return WalkToStore(out);
    const Expr turns =
        b_.Let(out, "turns",
               args_.Turns() + tile::Select(tile::Lt(by(), args_.Owner()), b_.Idx(1), b_.Idx(0)));
    const std::string k = b_.Name("turn");
    Block loop;
    const Expr turn = is_backward_ ? turns - b_.Idx(1) - tile::Var(k, t_) : tile::Var(k, t_);
    VisitTile(loop, b_.Let(loop, "tile", turn * splits_ + by()));
    Block rest, owned;
    Rest(owned, args_.Arg("whole", shape_.full * shape_.tile()));
    rest.push_back(
        {tile::If{tile::Op(ScalarOp::kEq, {by(), args_.Owner()}), std::move(owned), {}}});
    if (is_backward_) std::ranges::move(rest, std::back_inserter(out));
    out.push_back({tile::For{k, t_, turns, Bind::kSerial, std::move(loop)}});
    if (!is_backward_) std::ranges::move(rest, std::back_inserter(out));
  }
  void WalkToStore(Block& out) {
    const std::string k = b_.Name("turn");
    Block loop, whole, rest;
    const Expr split = is_backward_ ? splits_ - b_.Idx(1) - by() : by();
    const Expr turn =
        is_backward_ ? b_.Idx(shape_.stores - 1) - tile::Var(k, t_) : tile::Var(k, t_);
    const Expr tile = b_.Let(loop, "tile", split * b_.Idx(shape_.stores) + turn);
    VisitTile(whole, tile);
    Rest(rest, b_.Let(rest, "start", tile * b_.Idx(shape_.tile())));
    loop.push_back({tile::If{tile::Lt(tile, args_.Arg("full", shape_.full)), std::move(whole),
                             std::move(rest)}});
    out.push_back({tile::For{k, t_, b_.Idx(shape_.stores), Bind::kSerial, std::move(loop)}});
  }
  void VisitTile(Block& out, const Expr& tile) {
    const Expr first = b_.Let(out, "place", tile * b_.Idx(shape_.tile()) + walker_);
    std::vector<Expr> places;
    for (int u = 0; u < shape_.unroll; ++u)
      places.push_back(first + b_.Idx(int64_t{u} * shape_.walkers));
    Visit(out, places);
  }
  void Rest(Block& out, const Expr& start) {
    const std::string u = b_.Name("u");
    Block loop, inside;
    const Expr place =
        b_.Let(loop, "place", start + tile::Var(u, t_) * b_.Idx(shape_.walkers) + walker_);
    Visit(inside, {place});
    loop.push_back(
        {tile::If{tile::Lt(place, args_.Arg("places", shape_.places)), std::move(inside), {}}});
    out.push_back({tile::For{u, t_, b_.Idx(shape_.unroll), Bind::kSerial, std::move(loop)}});
  }

  struct Place {
    Index index;
    std::map<TensorId, std::string> leaves, results;  // registers
  };
  // Of a place, along reduced dims.
  Index IndexOf(Block& out, const Expr& place) {
    Index extents;
    Dims values;
    for (const int64_t d : row_.reduced) {
      const bool vectors = d == row_.inner && plan_.lanes != 1;
      values.push_back(row_.extent(d) / (vectors ? plan_.lanes : 1));
      extents.push_back(vectors ? args_.Arg("inner_vectors", values.back())
                                : b_.Extent(row_.input, d));
    }
    const Index split = b_.Unravel(out, place, extents, values, "r");
    Index index(g()[row_.input].dims.size(), b_.Idx(0));
    for (size_t k = 0; k < split.size(); ++k)
      index[row_.reduced[k]] =
          row_.reduced[k] == row_.inner ? split[k] * b_.Idx(plan_.lanes) : split[k];
    return index;
  }
  void Visit(Block& out, const std::vector<Expr>& at) {
    std::vector<Place> places;
    for (const Expr& p : at) {
      Place place;
      place.index = IndexOf(out, p);
      for (const int64_t d : row_.kept) place.index[d] = kept_[d];
      for (const TensorId leaf : stage_.leaves) {
        const Tensor& t = g()[leaf];
        place.leaves[leaf] = b_.Name(t.name + "_r");
        out.push_back({tile::Alloc{place.leaves[leaf], t.dtype, tile::Space::kReg, plan_.lanes}});
        FetchLanes(b_, out, leaf, place.index, row_.inner, plan_.lanes, place.leaves[leaf],
                   b_.Idx(0));
      }
      places.push_back(std::move(place));
    }
    if (stage_.reduces.empty()) return Store(out, places, plan_.chain.wide_outputs);
    Accumulate(out, places);
    if (!plan_.early.empty()) Store(out, places, plan_.early);
  }

  // Calls emit(body, lane, values of each place, its index) for each lane.
  using Emit =
      std::function<void(Block&, const Expr&, std::deque<ValueScope>&, const std::vector<Index>&)>;
  void EachLane(Block& out, const std::vector<Place>& places, const Emit& emit) {
    For(out, "l", plan_.lanes, [&](Block& body, const Expr& lane) {
      std::deque<ValueScope> scopes;
      std::vector<Index> indices;
      for (const Place& place : places) {
        Index at = place.index;
        at[row_.inner] = at[row_.inner] + lane;
        ValueScope& values = scopes.emplace_back(b_, body);
        for (const auto& [id, regs] : values_)
          values.Bind(
              id, BroadcastIndex(b_, g()[id], at),
              tile::Load(regs, ArithmeticType(g()[id].dtype), plan_.across ? lane : b_.Idx(0)));
        for (const TensorId leaf : stage_.leaves) {
          const Tensor& t = g()[leaf];
          values.Bind(leaf, BroadcastIndex(b_, t, at),
                      tile::Cast(ArithmeticType(t.dtype),
                                 tile::Load(place.leaves.at(leaf), t.dtype, lane)));
        }
        indices.push_back(std::move(at));
      }
      emit(body, lane, scopes, indices);
    });
  }

  // ---- values of columns

  // The first pass computes them; later ones find them where the kernel before has left them.
  void ReadValues(Block& out) {
    for (const TensorId id : stage_.row_values) {
      const DType type = ArithmeticType(g()[id].dtype);
      values_[id] = b_.Name(g()[id].name + "_c");
      const int count = plan_.across ? plan_.lanes : 1;
      out.push_back({tile::Alloc{values_[id], type, tile::Space::kReg, count}});
      if (!is_first_) {
        WideCopy(out, type, values_[id], b_.Idx(0),
                 args_.Scratch(scratch_.values.at(id), type, true), column_, count);
        continue;
      }
      For(out, "l", count, [&](Block& body, const Expr& lane) {
        Index at = kept_;
        if (plan_.across) at[row_.inner] = at[row_.inner] + lane;
        const Expr value = ValueScope(b_, body).Value(id, BroadcastIndex(b_, g()[id], at));
        body.push_back({tile::Store{values_[id], lane, value}});
      });
    }
  }

  // ---- reductions

  // A sum with moments counts the places that each thread has added.
  bool Counts(size_t r) const { return plan_.HasMoment(r); }
  Expr Count(size_t r) const { return tile::Load(counts_.at(r), TypeOf(r), b_.Idx(0)); }
  Expr Sum(size_t r, const Expr& lane) const { return tile::Load(sums_.at(r), TypeOf(r), lane); }

  void DeclareSums(Block& out) {
    for (const size_t r : order_) {
      sums_[r] = b_.Name("sum");
      out.push_back({tile::Alloc{sums_[r], TypeOf(r), tile::Space::kReg, plan_.lanes}});
      For(out, "l", plan_.lanes, [&](Block& body, const Expr& lane) {
        body.push_back({tile::Store{sums_[r], lane, IdentityOf(plan_.reduce(r))}});
      });
      if (!Counts(r)) continue;
      counts_[r] = b_.Name("count");
      out.push_back({tile::Alloc{counts_[r], TypeOf(r), tile::Space::kReg, 1}});
      out.push_back({tile::Store{counts_[r], b_.Idx(0), tile::Float(0, TypeOf(r))}});
    }
  }

  // The first elements of the thread's columns, which all splits take. One of them leaves them for
  // the kernel that wants sums of the elements themselves.
  void ReadShift(Block& out, size_t r) {
    const TensorId operand = plan_.reduce(r).inputs[0];
    const int count = plan_.across ? plan_.lanes : 1;
    shifts_[r] = b_.Name("shift");
    out.push_back({tile::Alloc{shifts_[r], TypeOf(r), tile::Space::kReg, count}});
    For(out, "l", count, [&](Block& body, const Expr& lane) {
      Index at = kept_;
      if (plan_.across) at[row_.inner] = at[row_.inner] + lane;
      ValueScope values(b_, body);
      const auto value_at = [&](const Index& index) {
        return tile::Cast(TypeOf(r),
                          values.Value(operand, BroadcastIndex(b_, g()[operand], index)));
      };
      const Expr first = value_at(at), other = value_at(OtherPlace(b_, row_, at));
      body.push_back({tile::Store{shifts_[r], lane, ShiftOf(b_, body, first, other)}});
    });
    Block leave;
    For(leave, "l", count, [&](Block& body, const Expr& lane) {
      body.push_back({tile::Store{args_.Scratch(scratch_.shifts.at(r), TypeOf(r), false),
                                  column_ + lane, Shift(r, lane)}});
    });
    Expr leaves = tile::And(tile::Op(ScalarOp::kEq, {by(), b_.Idx(0)}),
                            tile::Op(ScalarOp::kEq, {walker_, b_.Idx(0)}));
    if (plan_.across) leaves = tile::And(leaves, exists_);
    out.push_back({tile::If{leaves, std::move(leave), {}}});
  }
  Expr Shift(size_t r, const Expr& lane) const {
    return tile::Load(shifts_.at(r), TypeOf(r), plan_.across ? lane : b_.Idx(0));
  }

  void Accumulate(Block& out, const std::vector<Place>& places) {
    struct Weights {
      Expr reciprocal, weight;  // 1 / n and n * p / (n + p) for p places more
    };
    std::map<size_t, Weights> weights;
    const auto more = static_cast<double>(places.size());
    for (const auto& [r, count] : counts_) {
      const Expr one = tile::Float(1, TypeOf(r)), p = tile::Float(more, TypeOf(r));
      const Expr n = b_.Let(out, "n", Count(r));
      weights[r] = {b_.Let(out, "reciprocal", one / tile::Op(ScalarOp::kMax, {n, one})),
                    b_.Let(out, "weight", n * p / (n + p))};
    }
    EachLane(out, places,
             [&](Block& body, const Expr& lane, std::deque<ValueScope>& scopes,
                 const std::vector<Index>& indices) {
               std::map<size_t, Expr> moments;  // what the places add to the moments of a sum
               std::map<size_t, Expr> added;
               for (const size_t r : order_) {
                 const TensorId operand = plan_.reduce(r).inputs[0];
                 Expr total = Sum(r, lane);
                 if (plan_.IsMoment(r)) {
                   total = total + moments.at(static_cast<size_t>(plan_.sum_of[r]));
                 } else {
                   std::vector<Expr> values;
                   for (size_t p = 0; p < scopes.size(); ++p) {
                     const Index at = BroadcastIndex(b_, g()[operand], indices[p]);
                     Expr value = tile::Cast(TypeOf(r), scopes[p].Value(operand, at));
                     if (shifts_.contains(r)) value = value - Shift(r, lane);
                     values.push_back(b_.Let(body, "v", std::move(value)));
                   }
                   if (Counts(r)) {
                     const Expr old = b_.Let(body, "old", total);
                     const auto [of_places, moment] = Moment(
                         body, r, values, old, weights.at(r).reciprocal, weights.at(r).weight);
                     moments[r] = moment;
                     total = old + of_places;
                   } else {
                     for (const Expr& v : values) total = CombineTwo(plan_.reduce(r), total, v);
                   }
                 }
                 body.push_back({tile::Store{sums_[r], lane, total}});
               }
             });
    for (const auto& [r, count] : counts_)
      out.push_back({tile::Store{count, b_.Idx(0), Count(r) + tile::Float(more, TypeOf(r))}});
  }

  // The sum of a few values, and what they add to the squared distances from the mean of all that
  // the thread has seen: their own, and those between the two means.
  std::pair<Expr, Expr> Moment(Block& out, size_t r, const std::vector<Expr>& values,
                               const Expr& old, const Expr& reciprocal, const Expr& weight) {
    Expr sum = values[0];
    for (size_t p = 1; p < values.size(); ++p) sum = sum + values[p];
    sum = b_.Let(out, "of_places", sum);
    const auto count = static_cast<double>(values.size());
    const Expr mean = b_.Let(out, "mean", sum * tile::Float(1 / count, TypeOf(r)));
    const Expr between = b_.Let(out, "between", mean - old * reciprocal);
    Expr moment = between * weight * between;
    if (values.size() > 1) {
      for (const Expr& v : values) {
        const Expr distance = b_.Let(out, "distance", v - mean);
        moment = moment + distance * distance;
      }
    }
    return {sum, b_.Let(out, "moment", moment)};
  }

  // ---- partial results of the block

  void Publish(Block& out, size_t r) {
    if (plan_.IsMoment(r)) Correct(out, r, static_cast<size_t>(plan_.sum_of[r]));
    const Expr total = plan_.across ? FoldWalkers(out, r) : FoldBlock(out, r);
    const auto parts = [&] { return args_.Scratch(scratch_.parts[r], TypeOf(r), false); };
    const Expr row = by() * args_.Arg("columns", plan_.columns());
    Block store;
    Expr stores;
    if (plan_.across) {
      const Expr column = first_ + tx();
      store.push_back({tile::Store{parts(), row + column, total}});
      stores = tile::And(tile::Lt(tx(), b_.Idx(int64_t{shape_.width} * plan_.lanes)),
                         tile::Lt(column, end_));
    } else {
      store.push_back({tile::Store{parts(), row + column_, total}});
      stores = tile::Op(ScalarOp::kEq, {tx(), b_.Idx(0)});
    }
    out.push_back({tile::If{stores, std::move(store), {}}});
    if (Counts(r)) ShareMean(out, r, total);
  }

  void ShareMean(Block& out, size_t r, const Expr& total) {
    const DType type = TypeOf(r);
    const Expr n =
        tile::Op(ScalarOp::kMax, {tile::Cast(type, args_.ElementsOf(by())), tile::Float(1, type)});
    const Expr mean = b_.Let(out, "block_mean", total / n);
    means_[r] = b_.Name("means");
    const int64_t pitch = plan_.across ? int64_t{shape_.width} * plan_.lanes : 1;
    if (!plan_.across) {
      out.push_back({tile::Alloc{means_[r], type, tile::Space::kReg, 1}});
      out.push_back({tile::Store{means_[r], b_.Idx(0), mean}});
      return;
    }
    out.push_back({tile::Alloc{means_[r], type, tile::Space::kShared, pitch}});
    Block store;
    store.push_back({tile::Store{means_[r], tx(), mean}});
    out.push_back({tile::If{tile::Lt(tx(), b_.Idx(pitch)), std::move(store), {}}});
    out.push_back({tile::Barrier{}});
  }
  // Squared distances from the thread's means become those from the block's.
  void Correct(Block& out, size_t moment, size_t sum) {
    const DType type = TypeOf(moment);
    const Expr n = b_.Let(out, "n", Count(sum));
    const Expr one = tile::Float(1, type);
    const Expr reciprocal = b_.Let(out, "reciprocal", one / tile::Op(ScalarOp::kMax, {n, one}));
    For(out, "l", plan_.lanes, [&](Block& body, const Expr& lane) {
      const Expr slot = plan_.across ? lane_ * b_.Idx(plan_.lanes) + lane : b_.Idx(0);
      const Expr distance = b_.Let(
          body, "distance", Sum(sum, lane) * reciprocal - tile::Load(means_.at(sum), type, slot));
      body.push_back(
          {tile::Store{sums_[moment], lane, Sum(moment, lane) + n * distance * distance}});
    });
  }

  // A shared array that other threads may still read.
  const std::string& Shared(Block& out, DType type, int64_t size) {
    if (shared_.contains(type)) {
      out.push_back({tile::Barrier{}});
    } else {
      shared_[type] = b_.Name("walkers");
      out.push_back({tile::Alloc{shared_[type], type, tile::Space::kShared, size}});
    }
    return shared_[type];
  }
  Expr Fold(Block& out, size_t r, const std::string& from, const Expr& first, int count,
            int pitch) {
    const std::string total = b_.Name("total");
    const DType type = TypeOf(r);
    out.push_back({tile::Alloc{total, type, tile::Space::kReg, 1}});
    out.push_back({tile::Store{total, b_.Idx(0), tile::Load(from, type, first)}});
    const Expr now = tile::Load(total, type, b_.Idx(0));
    if (count > 1) {
      For(out, "w", count - 1, [&](Block& body, const Expr& w) {
        const Expr next = tile::Load(from, type, first + (w + b_.Idx(1)) * b_.Idx(pitch));
        body.push_back({tile::Store{total, b_.Idx(0), CombineTwo(plan_.reduce(r), now, next)}});
      });
    }
    return now;
  }
  // The total of column `tx` of the block's.
  Expr FoldWalkers(Block& out, size_t r) {
    const int pitch = shape_.width * plan_.lanes;
    const std::string& shared = Shared(out, TypeOf(r), int64_t{shape_.walkers} * pitch);
    WideCopy(out, TypeOf(r), shared,
             b_.Let(out, "slot", walker_ * b_.Idx(pitch) + lane_ * b_.Idx(plan_.lanes)), sums_[r],
             b_.Idx(0), plan_.lanes);
    out.push_back({tile::Barrier{}});
    const Expr column = tile::Op(ScalarOp::kMin, {tx(), b_.Idx(pitch - 1)});
    return Fold(out, r, shared, b_.Let(out, "column_of_block", column), shape_.walkers, pitch);
  }
  // The total of the block's one column, for all threads.
  Expr FoldBlock(Block& out, size_t r) {
    const Expr mine = Fold(out, r, sums_[r], b_.Idx(0), plan_.lanes, 1);
    const std::string& regs = mine->name;
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      out.push_back({tile::Store{regs, b_.Idx(0),
                                 CombineTwo(plan_.reduce(r), mine, tile::ShuffleXor(mine, mask))}});
    const int warps = shape_.threads / kWarp;
    const std::string& shared = Shared(out, TypeOf(r), warps);
    Block lead;
    lead.push_back({tile::Store{shared, tx() / b_.Idx(kWarp), mine}});
    out.push_back({tile::If{
        tile::Op(ScalarOp::kEq, {tx() % b_.Idx(kWarp), b_.Idx(0)}), std::move(lead), {}}});
    out.push_back({tile::Barrier{}});
    return Fold(out, r, shared, b_.Idx(0), warps, 1);
  }

  // ---- results

  void Store(Block& out, std::vector<Place>& places, const std::vector<TensorId>& outputs) {
    for (Place& place : places) {
      for (const TensorId y : outputs) {
        if (plan_.lanes == 1 || WalkOf(g()[y], row_.inner) != Walk::kContiguous) continue;
        place.results[y] = b_.Name(g()[y].name + "_w");
        out.push_back(
            {tile::Alloc{place.results[y], g()[y].dtype, tile::Space::kReg, plan_.lanes}});
      }
    }
    EachLane(out, places,
             [&](Block& body, const Expr& lane, std::deque<ValueScope>& scopes,
                 const std::vector<Index>& indices) {
               for (size_t p = 0; p < places.size(); ++p) {
                 for (const TensorId y : outputs) {
                   const Index at = BroadcastIndex(b_, g()[y], indices[p]);
                   const Expr value = tile::Cast(g()[y].dtype, scopes[p].Value(y, at));
                   const auto regs = places[p].results.find(y);
                   if (regs == places[p].results.end())
                     body.push_back({tile::Store{b_.Pointer(y), b_.Offset(y, at), value}});
                   else
                     body.push_back({tile::Store{regs->second, lane, value}});
                 }
               }
             });
    for (const Place& place : places) {
      for (const auto& [y, regs] : place.results) {
        const Expr to = b_.Let(out, g()[y].name + "_at", b_.Offset(y, place.index));
        WideCopy(out, g()[y].dtype, b_.Pointer(y), to, regs, b_.Idx(0), plan_.lanes);
      }
    }
  }

  const ColumnsPlan& plan_;
  const ReducePlan& row_;
  const RowsPlan::Stage& stage_;
  const std::vector<size_t> order_;  // of its reductions
  const size_t number_;              // of the stage
  const bool is_first_, is_backward_;
  const ColumnsShape& shape_;
  const ColumnsScratch& scratch_;
  KernelBuilder b_;
  ColumnsParameters args_;
  const DType t_;
  Expr splits_, blocks_;
  Expr lane_, walker_, exists_;
  Expr column_;       // the thread's first one, in the order of kept dims
  Expr first_, end_;  // across: of the block's columns, and of those of its outer place
  Index kept_;
  std::map<TensorId, std::string> values_;       // of columns: registers
  std::map<size_t, std::string> sums_, counts_;  // of reductions: registers
  std::map<size_t, std::string> shifts_;         // of sums that add distances from it: registers
  std::map<size_t, std::string> means_;          // of sums: shared across, registers along
  std::map<DType, std::string> shared_;
};

}  // namespace

void LowerColumnsPass(const ColumnsPlan& plan, const Target& target, size_t stage,
                      const ColumnsShape& shape, const ColumnsScratch& scratch, Lowered& lowered) {
  ColumnsPass(plan, target, stage, shape, scratch).Lower(lowered);
}

}  // namespace kiln::compiler
