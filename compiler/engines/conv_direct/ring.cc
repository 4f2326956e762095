// Depthwise convolutions at the pace of memory: fprop, dgrad of stride 1, and wgrad.
//
//   block    a slab of channels, a few images or a block of columns of one; walks down their rows,
//            unit after unit (a unit: some rows of them all), without a break
//   ring     input rows with their padding stand in shared memory, pixel after pixel, by
//            asynchronous copies that are several stages ahead of what is multiplied; of wgrad
//            also the rows of dy that begin there
//   thread   `lanes` channels of `strip` neighbouring outputs. It reads and converts each input of
//            its window once, and multiplies it at once for all output rows that it reaches: their
//            sums wait in registers (`live` rows), and which is which changes from row to row, so
//            that the walk is unrolled over a period of rows. All loops over registers are written
//            out here: every place is a constant, so that the text has variables for them, and
//            compilers do not have to unroll a thousand loops of two (4 s for 5x5 filters, now 0.4)
//   wgrad    the same with dy in the place of the live sums, and sums in the place of the filter;
//            threads of a channel meet in shared memory, blocks in scratch[split][tap][channel],
//            which is added in order (ordered_sum.h)
//
// Input rows outside of the image are skipped, and so are rows of dy: a NaN of x must not meet the
// zero of an output that is not there. For that, wgrad's last strip begins where it ends with the
// image, and takes as zero what others have already.
#include "compiler/engines/conv_direct/ring.h"

#include "compiler/kernel/lane_access.h"
#include "compiler/kernel/ordered_sum.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

std::string Description(const RingPlan& p) {
  return fmt::format("conv_direct: {}depthwise, ring of {}x{} rows, strips of {} x {} channels{}",
                     p.wgrad ? "wgrad, " : "", p.depth, p.group, p.strip, p.lanes,
                     p.wgrad ? ", first of two stages" : "");
}

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, const ConvShape& shape, const RingPlan& plan)
      : group_(group),
        target_(target),
        shape_(shape),
        p_(plan),
        type_(group.graph[p_.in].dtype),
        out_(group, graph::Outputs(group.graph), p_.wgrad ? shape.w : shape.out,
             static_cast<int>(p_.lanes)),
        b_(group, target, Description(p_)) {
    for (const char* reserved : {"bx", "tx", "turn"}) b_.Name(reserved);
  }

  Lowered Lower() {
    Lowered lowered;
    if (p_.wgrad) lowered.scratch_bytes.push_back(p_.splits * p_.taps() * padded() * 4);
    Block body;
    FindPlace(body);
    Declare(body);
    for (int64_t stage = 0; stage < p_.depth - 1; ++stage) StartStage(body, b_.Idx(0), stage);
    p_.wgrad ? ClearSums(body) : ReadFilter(body);
    Block loop;
    Walk(loop);
    body.push_back({tile::For{"turn", t(), turns_, Bind::kSerial, std::move(loop)}});
    body.push_back({tile::WaitAsync{0}});
    if (p_.wgrad) WriteSums(body);
    const int64_t blocks = p_.splits * p_.slabs;
    const auto threads = static_cast<int>(p_.threads());
    body = BlockAndThread(t(), b_.Arg("grid", blocks), threads, std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, threads, lowered, static_cast<int>(p_.resident));
    if (p_.wgrad) AddSplits(lowered);
    return lowered;
  }

 private:
  DType t() const { return b_.index_type(); }
  Expr Var(const std::string& name) const { return tile::Var(name, t()); }
  Expr Inside(const Expr& i, const Expr& extent) const {
    return tile::And(tile::Ge(i, b_.Idx(0)), tile::Lt(i, extent));
  }
  Expr Least(const Expr& a, const Expr& b) const { return tile::Op(ScalarOp::kMin, {a, b}); }
  std::string Registers(Block& out, const char* wish, DType type, int64_t size) {
    const std::string name = b_.Name(wish);
    out.push_back({tile::Alloc{name, type, tile::Space::kReg, size}});
    return name;
  }
  int64_t padded() const { return AlignUp(p_.slabs * p_.slab, 32); }
  int64_t stages() const { return p_.period / p_.group; }  // of a period

  // ---- where a thread stands
  void FindPlace(Block& body) {
    const auto slab = b_.Divide(body, Var("bx"), b_.Arg("slabs", p_.slabs), p_.slabs, "slab");
    split_ = slab.quotient;
    first_channel_ = b_.Let(body, "first_channel", slab.remainder * b_.Idx(p_.slab));
    vector_ = b_.Let(body, "vector", Var("tx") % b_.Idx(p_.vectors));
    walker_ = b_.Let(body, "walker", Var("tx") / b_.Idx(p_.vectors));
    strip_ = b_.Let(body, "strip", walker_ % b_.Idx(p_.strips));
    image_ = b_.Let(body, "image", walker_ / b_.Idx(p_.strips));
    channel_ = b_.Let(body, "channel", first_channel_ + vector_ * b_.Idx(p_.lanes));
    has_channel_ = b_.Let(body, "has_channel", tile::Lt(channel_, b_.Extent(p_.in, 1)));
    splits_ = b_.Arg("splits", p_.splits);
    units_ = b_.Arg("units", p_.units());
    bodies_ = b_.Arg("bodies", p_.bodies());
    turns_ = b_.Arg("turns", p_.steps() * p_.bodies());
    walk_ = b_.Arg("walk", p_.walk());
    const auto count = [&](const char* name, int64_t n) {
      return n == 1 ? b_.Idx(1) : b_.Arg(name, n);
    };
    groups_ = {count("image_groups", p_.image_groups), count("row_groups", p_.row_groups),
               count("column_blocks", p_.column_blocks)};
    rows_ = b_.Arg("rows", p_.rows);
  }

  // A turn of the walk: a period of rows in a unit.
  struct Turn {
    Expr exists;      // whether its unit does
    Expr image;       // the unit's first
    Expr out_row;     // the unit's first
    Expr first_row;   // of the period, of outputs, counted from the unit's
    Expr step_row;    // the same of inputs, counted from the unit's
    Expr in_row;      // of the period, in the image
    Expr own, first;  // the column that the block should begin at, and the one that it does
  };
  Turn TurnAt(Block& out, const Expr& number) {
    const auto at = b_.Divide(out, number, bodies_, p_.bodies(), "step");
    const Expr unit = b_.Let(out, "unit", at.quotient * splits_ + split_);
    const Index place =
        b_.Unravel(out, unit, groups_, {p_.image_groups, p_.row_groups, p_.column_blocks}, "unit");
    Turn turn;
    turn.exists =
        b_.Let(out, "exists", tile::And(tile::Lt(unit, units_), tile::Lt(number, turns_)));
    turn.image = b_.Let(out, "first_image", place[0] * b_.Idx(p_.images));
    turn.out_row = b_.Let(out, "first_row", place[1] * rows_);
    turn.first_row = b_.Let(out, "row", at.remainder * b_.Idx(p_.live));
    turn.step_row = b_.Let(out, "step_row", at.remainder * b_.Idx(p_.period));
    turn.in_row = b_.Let(out, "in_row",
                         turn.out_row * b_.Idx(p_.row.stride) + turn.step_row - b_.Idx(p_.row.pad));
    turn.own = b_.Let(out, "own_col", place[2] * b_.Idx(p_.columns));
    turn.first = turn.own;
    if (p_.wgrad && p_.column_blocks > 1)
      turn.first =
          b_.Let(out, "first_col", Least(turn.own, b_.Extent(p_.out, 3) - b_.Idx(p_.columns)));
    return turn;
  }

  // ---- the ring
  struct Chunk {
    Expr exists;  // null: it does
    Expr image, col, channel, to;
  };
  // A thread's share of the 16-byte chunks of a row of all images.
  std::vector<Chunk> ChunksOf(Block& out, int64_t columns) {
    const int64_t along = p_.slab / p_.chunk, count = p_.images * columns * along;
    std::vector<Chunk> chunks;
    for (int64_t first = 0; first < count; first += p_.threads()) {
      Chunk c;
      const Expr number = b_.Let(out, "number", Var("tx") + b_.Idx(first));
      if (first + p_.threads() > count)
        c.exists = b_.Let(out, "exists", tile::Lt(number, b_.Idx(count)));
      const Expr pixel = b_.Let(out, "pixel", number / b_.Idx(along));
      const Expr local = b_.Let(out, "local", number % b_.Idx(along) * b_.Idx(p_.chunk));
      c.image = b_.Let(out, "image", pixel / b_.Idx(columns));
      c.col = b_.Let(out, "col", pixel % b_.Idx(columns));
      c.channel = b_.Let(out, "channel", first_channel_ + local);
      c.to = b_.Let(out, "to", pixel * b_.Idx(p_.pitch) + local);
      chunks.push_back(std::move(c));
    }
    return chunks;
  }

  void Declare(Block& body) {
    const auto shared = [&](const char* wish, int64_t size) {
      const std::string name = b_.Name(wish);
      body.push_back({tile::Alloc{name, type_, tile::Space::kShared, size}});
      return name;
    };
    in_ring_ = shared("in_ring", p_.depth * p_.in_elements());
    in_chunks_ = ChunksOf(body, p_.staged_columns);
    if (!p_.wgrad) return;
    dy_ring_ = shared("dy_ring", p_.depth * p_.out_elements());
    dy_chunks_ = ChunksOf(body, p_.columns);
  }

  // Stage `stage` counted from the beginning of turn `turn`.
  void StartStage(Block& body, const Expr& turn, int64_t stage) {
    const Expr number = b_.Let(body, "ahead", turn + b_.Idx(stage / stages()));
    const Turn at = TurnAt(body, number);
    const int64_t first = stage % stages() * p_.group;
    const Expr slot = SlotAt(body, turn, stage);
    const Expr to = b_.Let(body, "to_slot", slot * b_.Idx(p_.in_elements()));
    const Expr first_col = at.first * b_.Idx(p_.col.stride) - b_.Idx(p_.col.pad);
    const std::vector<Source> sources = SourcesOf(body, p_.in, in_chunks_, at, first_col);
    for (int64_t k = 0; k < p_.group; ++k) {
      const int64_t u = first + k;
      if (HitsOf(p_, u).empty()) continue;
      const Expr row = b_.Let(body, "row", at.in_row + b_.Idx(u));
      const Expr has_row =
          b_.Let(body, "has_row",
                 tile::And(at.exists, tile::And(Inside(row, b_.Extent(p_.in, 2)),
                                                tile::Lt(at.step_row + b_.Idx(u), walk_))));
      StartRow(body, p_.in, in_ring_, in_chunks_, sources, row, has_row,
               to + b_.Idx(k * p_.images * p_.staged_columns * p_.pitch));
    }
    if (p_.wgrad) StartDy(body, at, first, slot);
    body.push_back({tile::CommitAsync{}});
  }

  void StartDy(Block& body, const Turn& at, int64_t first, const Expr& slot) {
    const Expr to = b_.Let(body, "dy_slot", slot * b_.Idx(p_.out_elements()));
    const std::vector<Source> sources = SourcesOf(body, p_.out, dy_chunks_, at, at.first);
    int64_t k = 0;
    for (int64_t u = first; u < first + p_.group; ++u) {
      if (u % p_.row.stride != 0) continue;
      const Expr i = at.first_row + b_.Idx(u / p_.row.stride);
      const Expr row = b_.Let(body, "dy_row", at.out_row + i);
      const Expr has_row = b_.Let(body, "has_row", tile::And(at.exists, HasOutput(at, i)));
      StartRow(body, p_.out, dy_ring_, dy_chunks_, sources, row, has_row,
               to + b_.Idx(k * p_.images * p_.columns * p_.pitch));
      ++k;
    }
  }

  // A thread's chunks of one row, of which the stage has several.
  struct Source {
    Expr from, valid;  // of row 0; whether image, channel and column exist
  };
  std::vector<Source> SourcesOf(Block& body, graph::TensorId id, const std::vector<Chunk>& chunks,
                                const Turn& at, const Expr& first_col) {
    std::vector<Source> sources;
    for (const Chunk& c : chunks) {
      const Expr image = at.image + c.image, col = b_.Let(body, "col", first_col + c.col);
      Expr valid = tile::And(Inside(col, b_.Extent(id, 3)), tile::Lt(c.channel, b_.Extent(id, 1)));
      if (p_.images > 1) valid = tile::And(valid, tile::Lt(image, b_.Extent(id, 0)));
      if (c.exists) valid = tile::And(c.exists, valid);
      const Expr from = b_.Offset(id, {image, c.channel, b_.Idx(0), col});
      sources.push_back({b_.Let(body, "from", from), b_.Let(body, "valid", valid)});
    }
    return sources;
  }

  void StartRow(Block& body, graph::TensorId id, const std::string& ring,
                const std::vector<Chunk>& chunks, const std::vector<Source>& sources,
                const Expr& row, const Expr& has_row, const Expr& to) {
    const Expr down = b_.Let(body, "down", row * b_.Stride(id, 2));
    for (size_t k = 0; k < chunks.size(); ++k) {
      const Expr valid = tile::And(has_row, sources[k].valid);
      Block copy;
      copy.push_back({tile::CopyAsync{ring, to + chunks[k].to, b_.Pointer(id),
                                      sources[k].from + down, static_cast<int>(p_.chunk), valid}});
      if (chunks[k].exists) {
        body.push_back({tile::If{chunks[k].exists, std::move(copy), {}}});
      } else {
        body.push_back(std::move(copy[0]));
      }
    }
  }

  Expr SlotAt(Block& body, const Expr& turn, int64_t stage) {
    return b_.Let(body, "slot", (turn * b_.Idx(stages()) + b_.Idx(stage)) % b_.Idx(p_.depth));
  }
  // Whether output row `i` of the unit exists.
  Expr HasOutput(const Turn& at, const Expr& i) {
    return tile::And(tile::Lt(i, rows_), tile::Lt(at.out_row + i, b_.Extent(p_.out, 2)));
  }

  // ---- the walk
  void Walk(Block& loop) {
    const Turn at = TurnAt(loop, Var("turn"));
    EnterTurn(loop, at);
    for (int64_t stage = 0; stage < stages(); ++stage) {
      loop.push_back({tile::WaitAsync{static_cast<int>(p_.depth - 2)}});
      loop.push_back({tile::Barrier{}});
      StartStage(loop, Var("turn"), stage + p_.depth - 1);
      const Expr slot = SlotAt(loop, Var("turn"), stage);
      in_at_ = b_.Let(loop, "in_at", slot * b_.Idx(p_.in_elements()) + in_place_);
      if (p_.wgrad) dy_at_ = b_.Let(loop, "dy_at", slot * b_.Idx(p_.out_elements()) + dy_place_);
      int64_t begun = 0;  // rows of dy in the stage
      for (int64_t k = 0; k < p_.group; ++k) {
        const int64_t u = stage * p_.group + k;
        if (p_.wgrad && u % p_.row.stride == 0) ReadDy(loop, u / p_.row.stride, begun++);
        if (!HitsOf(p_, u).empty()) Row(loop, at, u, k);
      }
    }
  }

  // A thread's columns in the unit.
  void EnterTurn(Block& loop, const Turn& at) {
    const Expr own = b_.Let(loop, "own_col", at.own + strip_ * b_.Idx(p_.strip));
    col_ = own;
    if (p_.wgrad) col_ = b_.Let(loop, "col", Least(own, b_.Extent(p_.out, 3) - b_.Idx(p_.strip)));
    const Expr local =
        p_.wgrad ? b_.Let(loop, "local_col", col_ - at.first) : strip_ * b_.Idx(p_.strip);
    const Expr vector = vector_ * b_.Idx(p_.lanes);
    in_place_ = b_.Let(
        loop, "in_place",
        (image_ * b_.Idx(p_.staged_columns) + local * b_.Idx(p_.col.stride)) * b_.Idx(p_.pitch) +
            vector);
    dy_place_ =
        b_.Let(loop, "dy_place", (image_ * b_.Idx(p_.columns) + local) * b_.Idx(p_.pitch) + vector);
    const Expr has_image = tile::Lt(at.image + image_, b_.Extent(p_.out, 0));
    const Expr valid = tile::And(at.exists, tile::And(has_channel_, has_image));
    has_col_.clear();
    for (int64_t j = 0; j < p_.strip; ++j) {
      const Expr has = p_.wgrad
                           ? tile::Ge(col_ + b_.Idx(j), own)
                           : tile::And(valid, tile::Lt(col_ + b_.Idx(j), b_.Extent(p_.out, 3)));
      has_col_.push_back(b_.Let(loop, "has_col", has));
    }
  }

  // registers[i * lanes ..] = column `columns[i]` of the ring from `at` on, as f32
  void ReadColumns(Block& out, const std::string& to, int64_t first, const std::string& ring,
                   const Expr& at, int64_t column) {
    const std::string raw = Registers(out, "raw", type_, p_.lanes);
    WideCopy(out, type_, raw, b_.Idx(0), ring, at + b_.Idx(column * p_.pitch),
             static_cast<int>(p_.lanes));
    for (int64_t l = 0; l < p_.lanes; ++l) {
      const Expr value = tile::Load(raw, type_, b_.Idx(l));
      out.push_back({tile::Store{to, b_.Idx(first + l), tile::Cast(DType::kF32, value)}});
    }
  }

  void Row(Block& loop, const Turn& at, int64_t u, int64_t k) {
    const Expr row = at.in_row + b_.Idx(u);
    const Expr has_row = b_.Let(
        loop, "has_row",
        tile::And(Inside(row, b_.Extent(p_.in, 2)), tile::Lt(at.step_row + b_.Idx(u), walk_)));
    Block inside, outside;
    const std::string window = Registers(inside, "window", DType::kF32, p_.window() * p_.lanes);
    const Expr from = in_at_ + b_.Idx(k * p_.images * p_.staged_columns * p_.pitch);
    for (int64_t c = 0; c < p_.window(); ++c)
      if (IsRead(c)) ReadColumns(inside, window, c * p_.lanes, in_ring_, from, c);
    for (const RingHit& hit : HitsOf(p_, u)) {
      if (p_.wgrad) {
        Block products;
        AddToTaps(products, window, hit);
        const Expr i = at.first_row + b_.Idx(hit.row);
        Expr has = HasOutput(at, i);
        if (hit.row < 0) has = tile::And(tile::Ge(i, b_.Idx(0)), has);
        inside.push_back({tile::If{has, std::move(products), {}}});
        continue;
      }
      AddToOutputs(inside, window, hit);
      if (hit.tap == 0) Clear(outside, sums_, hit.slot * p_.strip * p_.lanes, p_.strip * p_.lanes);
    }
    loop.push_back({tile::If{has_row, std::move(inside), std::move(outside)}});
    if (p_.wgrad) return;
    for (const RingHit& hit : HitsOf(p_, u))
      if (hit.tap == p_.row.taps - 1) StoreOutputs(loop, at, hit);
  }

  bool IsRead(int64_t c) const {
    for (int64_t j = 0; j < p_.strip; ++j)
      for (int64_t s = 0; s < p_.col.taps; ++s)
        if (j * p_.col.stride + s * p_.col.dilation == c) return true;
    return false;
  }
  Expr Lane(int64_t place, int64_t l) const { return b_.Idx(place * p_.lanes + l); }
  void Clear(Block& out, const std::string& registers, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i)
      out.push_back({tile::Store{registers, b_.Idx(i), tile::Float(0)}});
  }

  // Every product of a window with one filter row: calls product(lane, tap, window place, output
  // column).
  template <class F>
  void Products(int64_t tap, F&& product) {
    for (int64_t s = 0; s < p_.col.taps; ++s)
      for (int64_t j = 0; j < p_.strip; ++j)
        for (int64_t l = 0; l < p_.lanes; ++l)
          product(l, tap * p_.col.taps + s, j * p_.col.stride + s * p_.col.dilation, j);
  }

  void AddToOutputs(Block& out, const std::string& window, const RingHit& hit) {
    Products(hit.tap, [&](int64_t l, int64_t tap, int64_t place, int64_t j) {
      const Expr x = tile::Load(window, DType::kF32, Lane(place, l));
      const Expr w = tile::Load(filter_, DType::kF32, Lane(tap, l));
      const Expr to = Lane(hit.slot * p_.strip + j, l);
      const Expr sum =
          tap == 0 ? x * w : tile::Op(ScalarOp::kFma, {x, w, tile::Load(sums_, DType::kF32, to)});
      out.push_back({tile::Store{sums_, to, sum}});
    });
  }

  void AddToTaps(Block& out, const std::string& window, const RingHit& hit) {
    Products(hit.tap, [&](int64_t l, int64_t tap, int64_t place, int64_t j) {
      const Expr x = tile::Load(window, DType::kF32, Lane(place, l));
      const Expr dy = tile::Load(dy_, DType::kF32, Lane(hit.slot * p_.strip + j, l));
      const Expr sum = tile::Load(sums_, DType::kF32, Lane(tap, l));
      out.push_back({tile::Store{sums_, Lane(tap, l), tile::Op(ScalarOp::kFma, {x, dy, sum})}});
    });
  }

  // ---- fprop and dgrad
  void ReadFilter(Block& body) {
    const int64_t live = p_.live * p_.strip * p_.lanes;
    sums_ = Registers(body, "sums", DType::kF32, live);
    filter_ = Registers(body, "filter", DType::kF32, p_.taps() * p_.lanes);
    Clear(body, sums_, 0, live);
    Clear(body, filter_, 0, p_.taps() * p_.lanes);
    Block read;
    for (int64_t r = 0; r < p_.row.taps; ++r) {
      for (int64_t s = 0; s < p_.col.taps; ++s) {
        for (int64_t l = 0; l < p_.lanes; ++l) {
          const Index at = {channel_ + b_.Idx(l), b_.Idx(0),
                            b_.Idx(p_.flip ? p_.row.taps - 1 - r : r),
                            b_.Idx(p_.flip ? p_.col.taps - 1 - s : s)};
          ValueScope values(b_, read);
          const Expr w = tile::Cast(DType::kF32, values.Value(shape_.w, at));
          read.push_back({tile::Store{filter_, Lane(r * p_.col.taps + s, l), w}});
        }
      }
    }
    body.push_back({tile::If{has_channel_, std::move(read), {}}});
  }

  void StoreOutputs(Block& loop, const Turn& at, const RingHit& hit) {
    Block row;
    const Expr i = at.first_row + b_.Idx(hit.row);
    const Expr out_row = b_.Let(row, "out_row", at.out_row + i);
    for (int64_t j = 0; j < p_.strip; ++j) {
      Block store;
      // The epilogue's loop over lanes has registers of its own.
      const std::string total = Registers(store, "total", DType::kF32, p_.lanes);
      for (int64_t l = 0; l < p_.lanes; ++l) {
        const Expr sum = tile::Load(sums_, DType::kF32, Lane(hit.slot * p_.strip + j, l));
        store.push_back({tile::Store{total, b_.Idx(l), sum}});
      }
      const auto sum = [&](const Expr& l) { return tile::Load(total, DType::kF32, l); };
      out_.Write(b_, store, {at.image + image_, channel_, out_row, col_ + b_.Idx(j)}, sum);
      if (!ragged()) {
        for (auto& stmt : store) row.push_back(std::move(stmt));
        continue;
      }
      row.push_back({tile::If{has_col_[j], std::move(store), {}}});
    }
    Expr has = tile::And(has_col_[0], HasOutput(at, i));
    if (hit.row < 0) has = tile::And(tile::Ge(i, b_.Idx(0)), has);
    loop.push_back({tile::If{has, std::move(row), {}}});
  }

  // ---- wgrad
  void ClearSums(Block& body) {
    sums_ = Registers(body, "sums", DType::kF32, p_.taps() * p_.lanes);
    dy_ = Registers(body, "dy_rows", DType::kF32, p_.live * p_.strip * p_.lanes);
    Clear(body, sums_, 0, p_.taps() * p_.lanes);
    Clear(body, dy_, 0, p_.live * p_.strip * p_.lanes);
  }

  // Row `begun` of dy in the stage, which is row `slot` of the live ones.
  void ReadDy(Block& loop, int64_t slot, int64_t begun) {
    for (int64_t j = 0; j < p_.strip; ++j) {
      const int64_t first = (slot * p_.strip + j) * p_.lanes;
      ReadColumns(loop, dy_, first, dy_ring_,
                  dy_at_ + b_.Idx(begun * p_.images * p_.columns * p_.pitch), j);
      if (!ragged()) continue;
      for (int64_t i = first; i < first + p_.lanes; ++i) {
        const Expr value = tile::Load(dy_, DType::kF32, b_.Idx(i));
        loop.push_back(
            {tile::Store{dy_, b_.Idx(i), tile::Select(has_col_[j], value, tile::Float(0))}});
      }
    }
  }
  // Whether some strips have columns that are not in the image, or another's.
  bool ragged() const {
    return p_.strips * p_.strip * p_.column_blocks != group_.graph[p_.out].dims[3];
  }

  // Filter row by filter row: shared[walker][column tap][channel of the slab].
  void WriteSums(Block& body) {
    const std::string shared = b_.Name("walkers"), sums = b_.Scratch(0, DType::kF32, false);
    const int64_t size = p_.col.taps * p_.slab;
    body.push_back({tile::Alloc{shared, DType::kF32, tile::Space::kShared, p_.walkers() * size}});
    const Expr pitch = b_.Arg("sums_pitch", padded());
    const Expr mine = b_.Let(body, "mine", walker_ * b_.Idx(size) + vector_ * b_.Idx(p_.lanes));
    for (int64_t r = 0; r < p_.row.taps; ++r) {
      for (int64_t s = 0; s < p_.col.taps; ++s) {
        for (int64_t l = 0; l < p_.lanes; ++l) {
          const Expr sum = tile::Load(sums_, DType::kF32, Lane(r * p_.col.taps + s, l));
          body.push_back({tile::Store{shared, mine + b_.Idx(s * p_.slab + l), sum}});
        }
      }
      body.push_back({tile::Barrier{}});
      for (int64_t first = 0; first < size; first += p_.threads()) {
        Block add;
        const Expr number = b_.Let(body, "number", Var("tx") + b_.Idx(first));
        Expr total = tile::Load(shared, DType::kF32, number);
        for (int64_t w = 1; w < p_.walkers(); ++w)
          total = total + tile::Load(shared, DType::kF32, number + b_.Idx(w * size));
        const Expr tap = b_.Idx(r * p_.col.taps) + number / b_.Idx(p_.slab);
        const Expr at =
            (split_ * b_.Idx(p_.taps()) + tap) * pitch + first_channel_ + number % b_.Idx(p_.slab);
        add.push_back({tile::Store{sums, at, total}});
        body.push_back({tile::If{tile::Lt(number, b_.Idx(size)), std::move(add), {}}});
      }
      body.push_back({tile::Barrier{}});
    }
  }

  void AddSplits(Lowered& lowered) {
    LowerOrderedSum(
        group_, target_, "conv_direct, depthwise wgrad: adds the splits",
        {.splits = p_.splits, .rows = p_.taps(), .columns = padded()},
        [this](KernelBuilder& b, Block& out, const Expr& tap, const Expr& channel,
               const Expr& first, const Expr& sum) { StoreTap(b, out, tap, channel, first, sum); },
        lowered);
  }

  void StoreTap(KernelBuilder& b, Block& out, const Expr& tap, const Expr& channel,
                const Expr& first, const Expr& sum) {
    const auto at = [&](const Expr& i, int64_t count) {
      return b.Let(out, "tap", p_.flip ? b.Idx(count - 1) - i : i);
    };
    const Index index = {channel, b.Idx(0), at(tap / b.Idx(p_.col.taps), p_.row.taps),
                         at(tap % b.Idx(p_.col.taps), p_.col.taps)};
    const Expr guard = tile::And(first, tile::Lt(channel, b.Extent(shape_.w, 0)));
    StoreTotal(b, out, group_.graph, shape_.w, index, guard, sum);
  }

  const Group& group_;
  const Target& target_;
  ConvShape shape_;
  RingPlan p_;
  DType type_;
  LaneAccess out_;
  KernelBuilder b_;
  Expr split_, first_channel_, vector_, walker_, strip_, image_, channel_, has_channel_;
  Expr splits_, units_, bodies_, turns_, walk_, rows_;
  Index groups_;
  std::vector<Chunk> in_chunks_, dy_chunks_;
  Expr col_, in_place_, dy_place_, in_at_, dy_at_;
  std::vector<Expr> has_col_;
  std::string in_ring_, dy_ring_, sums_, filter_, dy_;
};

}  // namespace

Lowered LowerRing(const Group& group, const Target& target, const ConvShape& shape,
                  const RingPlan& plan) {
  return Schedule(group, target, shape, plan).Lower();
}

}  // namespace kiln::compiler
