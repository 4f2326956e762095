#include "compiler/engines/conv_direct/ring_sums.h"

#include <utility>

#include "compiler/kernel/lane_access.h"
#include "compiler/kernel/ordered_sum.h"

namespace kiln::compiler {

using tile::Block;
using tile::Expr;

namespace {

void ClearWrittenOut(const RingContext& x, Block& out, const std::string& registers, int64_t first,
                     int64_t count) {
  for (int64_t i = first; i < first + count; ++i)
    out.push_back({tile::Store{registers, x.b.Idx(i), tile::Float(0)}});
}

// Calls product(lane, tap, window place, output column) for every product of a window with one row
// of the filter.
template <class F>
void EachProduct(const RingPlan& p, int64_t filter_row, F&& product) {
  for (int64_t s = 0; s < p.col.taps; ++s)
    for (int64_t j = 0; j < p.strip; ++j)
      for (int64_t l = 0; l < p.lanes; ++l)
        product(l, filter_row * p.col.taps + s, j * p.col.stride + s * p.col.dilation, j);
}

// ---- fprop and dgrad

class OutputSums : public RingSums {
 public:
  OutputSums(const RingContext& context, const RingWalk& walk, const RingThread& thread)
      : x_(context),
        walk_(walk),
        thread_(thread),
        out_(x_.group, graph::Outputs(x_.group.graph), x_.shape.out, static_cast<int>(x_.p.lanes)) {
  }

  void Prepare(Block& body) override {
    const RingPlan& p = x_.p;
    const int64_t live = p.live * p.strip * p.lanes, taps = p.taps() * p.lanes;
    sums_ = Registers(x_.b, body, "sums", DType::kF32, live);
    filter_ = Registers(x_.b, body, "filter", DType::kF32, taps);
    ClearWrittenOut(x_, body, sums_, 0, live);
    ClearWrittenOut(x_, body, filter_, 0, taps);
    Block read;
    ReadFilter(read);
    When(body, thread_.has_channel, std::move(read));
  }

  void BeginRow(Block&, const RingColumns&, int64_t, const Expr&) override {}

  // An output row that begins here begins with its first product; where the input row is not
  // there, with 0.
  void Add(Block& inside, Block& outside, const RingTurn&, const RingHit& hit,
           const std::string& window) override {
    const RingPlan& p = x_.p;
    EachProduct(p, hit.tap, [&](int64_t l, int64_t tap, int64_t place, int64_t j) {
      const Expr x = tile::Load(window, DType::kF32, x_.Lane(place, l));
      const Expr w = tile::Load(filter_, DType::kF32, x_.Lane(tap, l));
      const Expr to = x_.Lane(hit.slot * p.strip + j, l);
      const Expr sum =
          tap == 0 ? x * w : tile::Op(ScalarOp::kFma, {x, w, tile::Load(sums_, DType::kF32, to)});
      inside.push_back({tile::Store{sums_, to, sum}});
    });
    if (hit.tap == 0)
      ClearWrittenOut(x_, outside, sums_, hit.slot * p.strip * p.lanes, p.strip * p.lanes);
  }

  void EndRow(Block& loop, const RingTurn& turn, const RingColumns& columns, int64_t u) override {
    for (const RingHit& hit : HitsOf(x_.p, u))
      if (hit.tap == x_.p.row.taps - 1) StoreRow(loop, turn, columns, hit);
  }

  void Finish(Block&) override {}

 private:
  void ReadFilter(Block& read) {
    KernelBuilder& b = x_.b;
    const RingPlan& p = x_.p;
    for (int64_t r = 0; r < p.row.taps; ++r) {
      for (int64_t s = 0; s < p.col.taps; ++s) {
        for (int64_t l = 0; l < p.lanes; ++l) {
          const Index at = {thread_.channel + b.Idx(l), b.Idx(0),
                            b.Idx(p.flip ? p.row.taps - 1 - r : r),
                            b.Idx(p.flip ? p.col.taps - 1 - s : s)};
          ValueScope values(b, read);
          const Expr w = tile::Cast(DType::kF32, values.Value(x_.shape.w, at));
          read.push_back({tile::Store{filter_, x_.Lane(r * p.col.taps + s, l), w}});
        }
      }
    }
  }

  void StoreRow(Block& loop, const RingTurn& turn, const RingColumns& columns, const RingHit& hit) {
    KernelBuilder& b = x_.b;
    Block row;
    const Expr i = turn.first_row + b.Idx(hit.row);
    const Expr out_row = b.Let(row, "out_row", turn.out_row + i);
    for (int64_t j = 0; j < x_.p.strip; ++j) {
      Block store;
      const Index at = {turn.image + thread_.image, thread_.channel, out_row,
                        columns.col + b.Idx(j)};
      StoreColumn(store, at, hit.slot * x_.p.strip + j);
      if (x_.is_ragged()) {
        When(row, columns.has_col[j], std::move(store));
      } else {
        for (auto& stmt : store) row.push_back(std::move(stmt));
      }
    }
    Expr has = tile::And(columns.has_col[0], walk_.HasOutput(turn, i));
    if (hit.row < 0) has = tile::And(tile::Ge(i, b.Idx(0)), has);
    When(loop, has, std::move(row));
  }

  // The epilogue's loop over lanes has registers of its own.
  void StoreColumn(Block& store, const Index& at, int64_t place) {
    KernelBuilder& b = x_.b;
    const std::string total = Registers(b, store, "total", DType::kF32, x_.p.lanes);
    for (int64_t l = 0; l < x_.p.lanes; ++l) {
      const Expr sum = tile::Load(sums_, DType::kF32, x_.Lane(place, l));
      store.push_back({tile::Store{total, b.Idx(l), sum}});
    }
    out_.Write(b, store, at, [&](const Expr& l) { return tile::Load(total, DType::kF32, l); });
  }

  RingContext x_;
  const RingWalk& walk_;
  const RingThread& thread_;
  LaneAccess out_;
  std::string sums_, filter_;
};

// ---- wgrad

class TapSums : public RingSums {
 public:
  TapSums(const RingContext& context, const RingWalk& walk, const RingThread& thread,
          std::string dy_ring)
      : x_(context), walk_(walk), thread_(thread), ring_(std::move(dy_ring)) {}

  void Prepare(Block& body) override {
    const RingPlan& p = x_.p;
    const int64_t taps = p.taps() * p.lanes, live = p.live * p.strip * p.lanes;
    sums_ = Registers(x_.b, body, "sums", DType::kF32, taps);
    dy_ = Registers(x_.b, body, "dy_rows", DType::kF32, live);
    ClearWrittenOut(x_, body, sums_, 0, taps);
    ClearWrittenOut(x_, body, dy_, 0, live);
  }

  // The row of dy that begins with input row `u`, if one does: the next of the stage, which takes
  // the place of the oldest live one.
  void BeginRow(Block& loop, const RingColumns& columns, int64_t u, const Expr& stage_at) override {
    const RingPlan& p = x_.p;
    if (u % p.row.stride != 0) return;
    const int64_t slot = u / p.row.stride;
    const int64_t in_stage = slot - CeilDiv(u / p.group * p.group, p.row.stride);
    const Expr row_at = stage_at + x_.b.Idx(in_stage * p.images * p.columns * p.pitch);
    for (int64_t j = 0; j < p.strip; ++j) {
      const int64_t first = (slot * p.strip + j) * p.lanes;
      ReadRingColumn(x_, loop, dy_, first, ring_, row_at, j);
      if (!x_.is_ragged()) continue;
      for (int64_t i = first; i < first + p.lanes; ++i) {
        const Expr value = tile::Load(dy_, DType::kF32, x_.b.Idx(i));
        const Expr kept = tile::Select(columns.has_col[j], value, tile::Float(0));
        loop.push_back({tile::Store{dy_, x_.b.Idx(i), kept}});
      }
    }
  }

  void Add(Block& inside, Block&, const RingTurn& turn, const RingHit& hit,
           const std::string& window) override {
    Block products;
    EachProduct(x_.p, hit.tap, [&](int64_t l, int64_t tap, int64_t place, int64_t j) {
      const Expr x = tile::Load(window, DType::kF32, x_.Lane(place, l));
      const Expr dy = tile::Load(dy_, DType::kF32, x_.Lane(hit.slot * x_.p.strip + j, l));
      const Expr sum = tile::Load(sums_, DType::kF32, x_.Lane(tap, l));
      products.push_back(
          {tile::Store{sums_, x_.Lane(tap, l), tile::Op(ScalarOp::kFma, {x, dy, sum})}});
    });
    When(inside, walk_.HasOutput(turn, hit), std::move(products));
  }

  void EndRow(Block&, const RingTurn&, const RingColumns&, int64_t) override {}

  // The threads of a channel meet in shared memory, one row of the filter after the other:
  // shared[walker][column tap][channel of the slab].
  void Finish(Block& body) override {
    KernelBuilder& b = x_.b;
    const RingPlan& p = x_.p;
    const std::string shared = b.Name("walkers"), sums = b.Scratch(0, DType::kF32, false);
    const int64_t size = p.col.taps * p.slab;
    body.push_back({tile::Alloc{shared, DType::kF32, tile::Space::kShared, p.walkers() * size}});
    const Expr pitch = b.Arg("sums_pitch", x_.padded());
    const Expr mine =
        b.Let(body, "mine", thread_.walker * b.Idx(size) + thread_.vector * b.Idx(p.lanes));
    for (int64_t r = 0; r < p.row.taps; ++r) {
      for (int64_t s = 0; s < p.col.taps; ++s) {
        for (int64_t l = 0; l < p.lanes; ++l) {
          const Expr sum = tile::Load(sums_, DType::kF32, x_.Lane(r * p.col.taps + s, l));
          body.push_back({tile::Store{shared, mine + b.Idx(s * p.slab + l), sum}});
        }
      }
      body.push_back({tile::Barrier{}});
      for (int64_t first = 0; first < size; first += p.threads())
        AddWalkers(body, shared, sums, pitch, r, first);
      body.push_back({tile::Barrier{}});
    }
  }

 private:
  // Adds up what all walkers have of a thread's number from `first` on, in filter row r.
  void AddWalkers(Block& body, const std::string& shared, const std::string& sums,
                  const Expr& pitch, int64_t r, int64_t first) {
    KernelBuilder& b = x_.b;
    const RingPlan& p = x_.p;
    const int64_t size = p.col.taps * p.slab;
    const Expr number = b.Let(body, "number", Var(b, "tx") + b.Idx(first));
    Expr total = tile::Load(shared, DType::kF32, number);
    for (int64_t w = 1; w < p.walkers(); ++w)
      total = total + tile::Load(shared, DType::kF32, number + b.Idx(w * size));
    const Expr tap = b.Idx(r * p.col.taps) + number / b.Idx(p.slab);
    const Expr at = (thread_.split * b.Idx(p.taps()) + tap) * pitch + thread_.first_channel +
                    number % b.Idx(p.slab);
    Block add;
    add.push_back({tile::Store{sums, at, total}});
    When(body, tile::Lt(number, b.Idx(size)), std::move(add));
  }

  RingContext x_;
  const RingWalk& walk_;
  const RingThread& thread_;
  std::string ring_, sums_, dy_;
};

void StoreTap(const RingContext& x, KernelBuilder& b, Block& out, const Expr& tap,
              const Expr& channel, const Expr& first, const Expr& sum) {
  const RingPlan& p = x.p;
  const auto at = [&](const Expr& i, int64_t count) {
    return b.Let(out, "tap", p.flip ? b.Idx(count - 1) - i : i);
  };
  const Index index = {channel, b.Idx(0), at(tap / b.Idx(p.col.taps), p.row.taps),
                       at(tap % b.Idx(p.col.taps), p.col.taps)};
  const Expr guard = tile::And(first, tile::Lt(channel, b.Extent(x.shape.w, 0)));
  StoreTotal(b, out, x.group.graph, x.shape.w, index, guard, sum);
}

}  // namespace

std::unique_ptr<RingSums> MakeOutputSums(const RingContext& context, const RingWalk& walk,
                                         const RingThread& thread) {
  return std::make_unique<OutputSums>(context, walk, thread);
}

std::unique_ptr<RingSums> MakeTapSums(const RingContext& context, const RingWalk& walk,
                                      const RingThread& thread, std::string dy_ring) {
  return std::make_unique<TapSums>(context, walk, thread, std::move(dy_ring));
}

void AddRingSplits(const RingContext& x, const Target& target, Lowered& lowered) {
  LowerOrderedSum(
      x.group, target, "conv_direct, depthwise wgrad: adds the splits",
      {.splits = x.p.splits, .rows = x.p.taps(), .columns = x.padded()},
      [&x](KernelBuilder& b, Block& out, const Expr& tap, const Expr& channel, const Expr& first,
           const Expr& sum) { StoreTap(x, b, out, tap, channel, first, sum); },
      lowered);
}

void ReadRingColumn(const RingContext& x, Block& out, const std::string& to, int64_t first,
                    const std::string& ring, const Expr& at, int64_t column) {
  const int64_t lanes = x.p.lanes;
  const std::string raw = Registers(x.b, out, "raw", x.type(), lanes);
  WideCopy(out, x.type(), raw, x.b.Idx(0), ring, at + x.b.Idx(column * x.p.pitch),
           static_cast<int>(lanes));
  for (int64_t l = 0; l < lanes; ++l) {
    const Expr value = tile::Load(raw, x.type(), x.b.Idx(l));
    out.push_back({tile::Store{to, x.b.Idx(first + l), tile::Cast(DType::kF32, value)}});
  }
}

}  // namespace kiln::compiler
