#include "compiler/engines/split_sum.h"

#include <algorithm>

#include "compiler/engines/contract_tiles.h"
#include "compiler/engines/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kVector = 4, kRow = 32, kWays = 8, kThreads = kRow * kWays;

class Summation {
 public:
  Summation(const Group& group, const Target& target, const SplitSlices& slices)
      : group_(group),
        s_(slices),
        b_(group, target, "split_sum: adds the slices of a split-K contraction in order") {
    for (const char* reserved : {"bx", "tx"}) b_.Name(reserved);
    c_ = DescribeContraction(b_, ContractionOf(group));
  }

  void Lower(Lowered& lowered) {
    Block body;
    const DType t = b_.index_type();
    const int64_t vectors = s_.batches * s_.axes.right_size * (s_.left_pitch / kVector);
    const int64_t blocks = CeilDiv(vectors, kRow);
    const std::string slices = b_.Scratch(0, s_.accumulator, true);
    const Expr count = b_.Arg("vectors", vectors);
    const Expr tx = tile::Var("tx", t);
    const Expr lane = b_.Let(body, "lane", tx % b_.Idx(kRow));
    const Expr way = b_.Let(body, "way", tx / b_.Idx(kRow));
    const Expr vector = b_.Let(body, "vector", tile::Var("bx", t) * b_.Idx(kRow) + lane);
    const std::string parts = b_.Name("parts"), sum = b_.Name("sum");
    body.push_back({tile::Alloc{parts, s_.accumulator, tile::Space::kShared, kThreads * kVector}});
    body.push_back({tile::Alloc{sum, s_.accumulator, tile::Space::kReg, kVector}});
    Each(body, [&](Block& out, const Expr& e) { out.push_back({tile::Store{sum, e, Zero()}}); });
    body.push_back({tile::If{tile::Lt(vector, count), AddSlices(slices, sum, vector, way), {}}});
    WideCopy(body, s_.accumulator, parts, tx * b_.Idx(kVector), sum, b_.Idx(0), kVector);
    body.push_back({tile::Barrier{}});
    Block finish = AddWays(parts, sum, lane);
    Store(finish, sum, vector);
    body.push_back(
        {tile::If{tile::And(tile::Op(ScalarOp::kEq, {way, b_.Idx(0)}), tile::Lt(vector, count)),
                  std::move(finish),
                  {}}});
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

  // This thread's slices: way, way + 8, …
  Block AddSlices(const std::string& slices, const std::string& sum, const Expr& vector,
                  const Expr& way) {
    Block out;
    const Expr splits = b_.Arg("splits", s_.splits);
    const Expr slice_vectors =
        b_.Arg("vectors_of_slice", s_.batches * s_.axes.right_size * (s_.left_pitch / kVector));
    const std::string turn = b_.Name("turn"), read = b_.Name("read");
    Block loop;
    const Expr slice =
        b_.Let(loop, "slice", tile::Var(turn, b_.index_type()) * b_.Idx(kWays) + way);
    loop.push_back({tile::Alloc{read, s_.accumulator, tile::Space::kReg, kVector}});
    Block inside;
    const Expr at = b_.Let(inside, "from", (slice * slice_vectors + vector) * b_.Idx(kVector));
    WideCopy(inside, s_.accumulator, read, b_.Idx(0), slices, at, kVector);
    Each(inside, [&](Block& add, const Expr& e) {
      add.push_back({tile::Store{
          sum, e, tile::Load(sum, s_.accumulator, e) + tile::Load(read, s_.accumulator, e)}});
    });
    loop.push_back({tile::If{tile::Lt(slice, splits), std::move(inside), {}}});
    out.push_back({tile::For{turn, b_.index_type(), CeilDivExpr(splits, kWays), Bind::kSerial,
                             std::move(loop)}});
    return out;
  }

  Block AddWays(const std::string& parts, const std::string& sum, const Expr& lane) {
    Block out;
    for (int way = 1; way < kWays; ++way) {
      Each(out, [&](Block& add, const Expr& e) {
        const Expr from = (lane + b_.Idx(way * kRow)) * b_.Idx(kVector) + e;
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
  KernelBuilder b_;
  Contraction c_{};
};

}  // namespace

void SumSplits(const Group& group, const Target& target, const SplitSlices& slices,
               Lowered& lowered) {
  Summation(group, target, slices).Lower(lowered);
}

}  // namespace kiln::compiler
