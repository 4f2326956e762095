#include "compiler/engines/contraction/split_sum.h"

#include <algorithm>

#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kVector = 4, kThreads = 256, kMostWays = 8;
constexpr int kInFlight = 8;  // slices that a thread reads before it adds them
constexpr int64_t kManyVectors = 132 * 1024;

class Summation {
 public:
  Summation(const Group& group, const Target& target, const SplitSlices& slices)
      : group_(group),
        s_(slices),
        vectors_(slices.batches * slices.axes.right_size * (slices.left_pitch / kVector)),
        ways_(slices.splits <= kMostWays || vectors_ >= kManyVectors ? 1 : kMostWays),
        b_(group, target, "split_sum: adds the slices of a split-K contraction in order") {
    for (const char* reserved : {"bx", "tx"}) b_.Name(reserved);
    c_ = DescribeContraction(b_, ContractionOf(group));
  }

  void Lower(Lowered& lowered) {
    Block body;
    const DType t = b_.index_type();
    const int row = kThreads / ways_;
    const int64_t blocks = CeilDiv(vectors_, row);
    const std::string slices = b_.Scratch(0, s_.accumulator, true);
    const Expr count = b_.Arg("vectors", vectors_);
    const Expr tx = tile::Var("tx", t);
    const Expr lane = b_.Let(body, "lane", ways_ == 1 ? tx : tx % b_.Idx(row));
    const Expr way = ways_ == 1 ? b_.Idx(0) : b_.Let(body, "way", tx / b_.Idx(row));
    const Expr vector = b_.Let(body, "vector", tile::Var("bx", t) * b_.Idx(row) + lane);
    const std::string sum = b_.Name("sum");
    body.push_back({tile::Alloc{sum, s_.accumulator, tile::Space::kReg, kVector}});
    Each(body, [&](Block& out, const Expr& e) { out.push_back({tile::Store{sum, e, Zero()}}); });
    Block add = AddSlices(slices, sum, vector, way);
    const Expr inside = tile::Lt(vector, count);
    if (ways_ == 1) {
      Store(add, sum, vector);
      body.push_back({tile::If{inside, std::move(add), {}}});
    } else {
      const std::string parts = b_.Name("parts");
      body.push_back(
          {tile::Alloc{parts, s_.accumulator, tile::Space::kShared, kThreads * kVector}});
      body.push_back({tile::If{inside, std::move(add), {}}});
      WideCopy(body, s_.accumulator, parts, tx * b_.Idx(kVector), sum, b_.Idx(0), kVector);
      body.push_back({tile::Barrier{}});
      Block finish = AddWays(parts, sum, lane, row);
      Store(finish, sum, vector);
      const Expr is_first = tile::Op(ScalarOp::kEq, {way, b_.Idx(0)});
      body.push_back({tile::If{tile::And(is_first, inside), std::move(finish), {}}});
    }
    b_.Finish(BlockAndThread(t, b_.Arg("blocks", blocks), kThreads, std::move(body)),
              {blocks, 1, 1}, kThreads, lowered);
  }

 private:
  Expr Zero() const {
    return IsFloat(s_.accumulator) ? tile::Float(0, s_.accumulator) : tile::Int(0, s_.accumulator);
  }

  template <class F>
  void Each(Block& out, F&& fill) {
    const std::string e = b_.Name("e");
    Block body;
    fill(body, tile::Var(e, b_.index_type()));
    out.push_back({tile::For{e, b_.index_type(), b_.Idx(kVector), Bind::kUnroll, std::move(body)}});
  }

  // Adds this thread's slices: way, way + ways, ...; some of them are on their way at a time.
  Block AddSlices(const std::string& slices, const std::string& sum, const Expr& vector,
                  const Expr& way) {
    Block out, loop;
    const Expr splits = b_.Arg("splits", s_.splits);
    const Expr slice_vectors = b_.Arg("vectors_of_slice", vectors_);
    const std::string turn = b_.Name("turn");
    const Expr first =
        b_.Let(loop, "first", tile::Var(turn, b_.index_type()) * b_.Idx(kInFlight * ways_) + way);
    std::vector<Expr> has;
    std::vector<std::string> reads;
    for (int u = 0; u < kInFlight; ++u) {
      const Expr slice = b_.Let(loop, "slice", first + b_.Idx(u * ways_));
      has.push_back(tile::Lt(slice, splits));
      reads.push_back(b_.Name("read"));
      loop.push_back({tile::Alloc{reads.back(), s_.accumulator, tile::Space::kReg, kVector}});
      Block read;
      const Expr at = b_.Let(read, "from", (slice * slice_vectors + vector) * b_.Idx(kVector));
      WideCopy(read, s_.accumulator, reads.back(), b_.Idx(0), slices, at, kVector);
      loop.push_back({tile::If{has.back(), std::move(read), {}}});
    }
    for (int u = 0; u < kInFlight; ++u) {
      Block add;
      Each(add, [&](Block& one, const Expr& e) {
        one.push_back({tile::Store{
            sum, e, tile::Load(sum, s_.accumulator, e) + tile::Load(reads[u], s_.accumulator, e)}});
      });
      loop.push_back({tile::If{has[u], std::move(add), {}}});
    }
    out.push_back({tile::For{turn, b_.index_type(), CeilDivExpr(splits, kInFlight * ways_),
                             Bind::kSerial, std::move(loop)}});
    return out;
  }

  Block AddWays(const std::string& parts, const std::string& sum, const Expr& lane, int row) {
    Block out;
    for (int way = 1; way < ways_; ++way) {
      Each(out, [&](Block& add, const Expr& e) {
        const Expr from = (lane + b_.Idx(way * row)) * b_.Idx(kVector) + e;
        add.push_back({tile::Store{
            sum, e, tile::Load(sum, s_.accumulator, e) + tile::Load(parts, s_.accumulator, from)}});
      });
    }
    return out;
  }

  void Store(Block& out, const std::string& sum, const Expr& vector) {
    const int64_t row_vectors = s_.left_pitch / kVector;
    const auto split =
        b_.Divide(out, vector, b_.Arg("row_vectors", row_vectors), row_vectors, "row");
    const Expr left = b_.Let(out, "left", split.remainder * b_.Idx(kVector));
    Expr right = split.quotient, batch = b_.Idx(0);
    if (s_.batches > 1) {
      const auto rows = b_.Divide(out, split.quotient, b_.Arg("rows_of_batch", s_.axes.right_size),
                                  s_.axes.right_size, "right");
      batch = rows.quotient;
      right = rows.remainder;
    }
    ContractionEpilogue epilogue(group_, b_, c_, s_.axes);
    const int lanes = std::min(kVector, epilogue.lanes());
    for (int first = 0; first < kVector; first += lanes) {
      const Expr at = b_.Let(out, "at", left + b_.Idx(first));
      epilogue.Store(out, batch, at, right, lanes, [&](const Expr& lane) {
        return tile::Load(sum, s_.accumulator, b_.Idx(first) + lane);
      });
    }
  }

  const Group& group_;
  const SplitSlices& s_;
  int64_t vectors_;  // of one slice
  int ways_;         // threads that share the slices of a vector
  KernelBuilder b_;
  Contraction c_{};
};

}  // namespace

void SumSplits(const Group& group, const Target& target, const SplitSlices& slices,
               Lowered& lowered) {
  Summation(group, target, slices).Lower(lowered);
}

}  // namespace kiln::compiler
