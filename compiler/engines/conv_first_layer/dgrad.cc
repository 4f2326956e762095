// Dgrad of conv_first_layer on mma.m16n8k16. With a stride of s, s x s neighbouring outputs are a
// place of a coarse grid, and all of them read the same window of dy around that place; taps that
// one of them does not have are zeros of w. So rows of the product are places, columns ("slots")
// the outputs of a place, and k runs over the window and the filters:
//
//   dx[(u, phase, c)] = sum over (i, j, k) of dy[u + first + (i, j), k] * panel[i, j, k][phase, c]
//
//   block    rows x 16 places for each of four warps; walks pieces of the grid, a chunk of the
//            filters at a time
//   A        dy of the piece and its halo in shared memory, pixel after pixel, by asynchronous
//            copies a stage ahead; ldmatrix reads 16 pixels x 16 filters
//   reuse    what a warp reads of a row of dy is multiplied for all rows of its places that have it
//            in their window, by another row of the panel each; so shared memory gives a pixel
//            window times less often than products take it
//   B        panel: w in the order of fragments, made once a block. Slots of one phase of rows
//            fill whole sets of 8 where that takes no more of them: sets without a tap in a row of
//            the window are left out there
//   out      slots lie beside each other in rows of dx: they go through shared memory, and come out
//            16 bytes at a time where dx has its channels innermost
//
// A zero times what is not finite would be NaN in outputs that do not read it. So a thread that
// meets such a result makes it again from its own taps alone.
#include "compiler/engines/conv_first_layer/dgrad.h"

#include <algorithm>

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32, kWarps = 4, kThreads = kWarp * kWarps;
constexpr int64_t kVector = 8;  // elements of 16 bits in 16 bytes

class Schedule {
 public:
  Schedule(const Group& group, const Target& target, const ConvShape& shape,
           const FirstLayerDgradKnobs& knobs)
      : group_(group),
        target_(target),
        shape_(shape),
        p_(DgradPlanOf(group, shape, knobs)),
        blocks_(knobs.blocks),
        b_(group, target,
           fmt::format("conv_first_layer, dgrad: pixels={}, rows={}, {} filters a stage",
                       p_.tiles * 16, p_.rows, p_.chunk)),
        type_(group.graph[shape.y].dtype),
        made_type_(p_.made_bytes == 2 ? group.graph[shape.x].dtype : DType::kF32) {
    for (const char* reserved : {"bx", "tx", "step", "chunk"}) b_.Name(reserved);
  }

  Lowered Lower() {
    const int64_t most = int64_t{blocks_} * std::max(target_.multiprocessors, 1);
    const int64_t steps = std::max<int64_t>(CeilDiv(p_.pieces, most), 1);
    const int64_t grid = CeilDiv(p_.pieces, steps);
    Block body;
    Declare(body);
    steps_ = b_.Arg("steps", steps);
    grid_ = b_.Arg("grid", grid);
    for (int64_t turn = 0; keeps() && turn < Turns(); ++turn)
      kept_.push_back(StagedAt(body, b_.Idx(turn)));
    EnterStage(body, b_.Idx(0), b_.Idx(0), b_.Idx(0));
    StartAll(body);
    body.push_back({tile::CommitAsync{}});
    FillPanel(body);

    Block loop;
    ClearSums(loop);
    Block stage;
    Stage(stage);
    loop.push_back({tile::For{"chunk", t(), b_.Idx(p_.chunks), Bind::kSerial, std::move(stage)}});
    EnterPiece(loop, Var("step"));
    row_size_ =
        b_.Let(loop, "row_size", b_.Extent(shape_.x, shape_.spatial + 1) * b_.Idx(shape_.channels));
    HandOver(loop);
    loop.push_back({tile::Barrier{}});
    StoreMade(loop);
    body.push_back({tile::For{"step", t(), steps_, Bind::kSerial, std::move(loop)}});
    body.push_back({tile::WaitAsync{0}});

    Lowered lowered;
    body = BlockAndThread(t(), grid_, kThreads, std::move(body));
    b_.Finish(std::move(body), {grid, 1, 1}, kThreads, lowered,
              std::min(blocks_, Accumulators() <= 64 ? 3 : 2));
    return lowered;
  }

 private:
  DType t() const { return b_.index_type(); }
  Expr Var(const std::string& name) const { return tile::Var(name, t()); }
  Expr Zero(DType type) const { return tile::Cast(type, tile::Float(0)); }
  bool flat() const { return shape_.spatial == 1; }
  template <class F>
  void Loop(Block& out, const std::string& wish, Expr extent, Bind bind, F&& fill) {
    const std::string name = b_.Name(wish);
    Block body;
    fill(body, Var(name));
    out.push_back({tile::For{name, t(), std::move(extent), bind, std::move(body)}});
  }

  void Declare(Block& body) {
    lane_ = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    const Expr warp = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    g_ = b_.Let(body, "g", lane_ / b_.Idx(4));
    t4_ = b_.Let(body, "t4", lane_ % b_.Idx(4));
    warp_row_ = b_.Let(body, "warp_row", warp / b_.Idx(p_.warp_cols) * b_.Idx(p_.rows));
    warp_col_ = b_.Let(body, "warp_col", warp % b_.Idx(p_.warp_cols) * b_.Idx(p_.tiles * 16));
    // Matrix i of ldmatrix: pixels (i % 2) * 8 on, filters (i / 2) * 8 on.
    const Expr pixel = warp_row_ * b_.Idx(p_.staged_cols()) + warp_col_ + lane_ % b_.Idx(16);
    lane_at_ =
        b_.Let(body, "lane_at", pixel * b_.Idx(p_.pitch()) + lane_ / b_.Idx(16) * b_.Idx(kVector));
    staged_ = b_.Name("dy_pixels");
    panel_ = b_.Name("w_panel");
    made_ = b_.Name("made");
    body.push_back({tile::Alloc{staged_, type_, tile::Space::kShared, 2 * p_.staged_elements()}});
    body.push_back({tile::Alloc{panel_, type_, tile::Space::kShared, p_.panel_elements()}});
    body.push_back({tile::Alloc{made_, made_type_, tile::Space::kShared, p_.made_elements()}});
  }

  // The rest of the block is about the block's piece `step`.
  void EnterPiece(Block& out, const Expr& step) {
    if (!pieces_) {
      pieces_ = b_.Arg("pieces", p_.pieces);
      row_blocks_ = p_.row.blocks == 1 ? b_.Idx(1) : b_.Arg("row_blocks", p_.row.blocks);
      col_blocks_ = p_.col.blocks == 1 ? b_.Idx(1) : b_.Arg("col_blocks", p_.col.blocks);
    }
    const Expr piece = b_.Let(out, "piece", step * grid_ + Var("bx"));
    const Index at =
        b_.Unravel(out, piece, {b_.Extent(shape_.x, 0), row_blocks_, col_blocks_},
                   {group_.graph[shape_.x].dims[0], p_.row.blocks, p_.col.blocks}, "piece");
    image_ = at[0];
    first_row_ = b_.Let(out, "first_row", at[1] * b_.Idx(p_.block_rows()));
    first_col_ = b_.Let(out, "first_col", at[2] * b_.Idx(p_.block_cols()));
    exists_ = b_.Let(out, "exists", tile::And(tile::Lt(step, steps_), tile::Lt(piece, pieces_)));
  }

  // ---- dy ----
  // A thread stages the same places of every stage. Where they are few it keeps what it knows of
  // them.
  struct Staged {
    Expr row, col, from;  // on the staged rows; relative to the first of them in memory
  };
  int64_t Vectors() const { return p_.chunk / kVector; }  // of a pixel
  int64_t Turns() const { return CeilDiv(p_.staged_pixels() * Vectors(), kThreads); }
  bool keeps() const { return Turns() <= 12; }
  Expr PixelOf(const Expr& turn) const {
    return turn * b_.Idx(kThreads / Vectors()) + Var("tx") / b_.Idx(Vectors());
  }

  Staged StagedAt(Block& out, const Expr& turn) {
    const Expr pixel = b_.Let(out, "pixel", PixelOf(turn));
    Staged s;
    s.row = b_.Let(out, "staged_row", pixel / b_.Idx(p_.staged_cols()));
    s.col = b_.Let(out, "staged_col", pixel - s.row * b_.Idx(p_.staged_cols()));
    Expr from = s.col * b_.Stride(shape_.y, shape_.spatial + 1);
    if (!flat()) from = from + s.row * b_.Stride(shape_.y, 2);
    s.from = b_.Let(out, "staged_from", from);
    return s;
  }

  // The staged rows or columns of a dim of dy that exist.
  struct Range {
    Expr first, end;
  };
  Range RangeOf(Block& out, const Expr& first, int64_t dim) {
    return {b_.Let(out, "begin", b_.Idx(0) - first),
            b_.Let(out, "end", b_.Extent(shape_.y, dim) - first)};
  }

  void StartVector(Block& out, const Expr& turn, const Staged& s, bool is_last) {
    Expr valid = stage_.valid;
    const auto within = [&](const Expr& at, const Range& range) {
      valid = tile::And(valid, tile::And(tile::Ge(at, range.first), tile::Lt(at, range.end)));
    };
    if (!flat()) within(s.row, stage_.rows);
    within(s.col, stage_.cols);
    const Expr pixel = PixelOf(turn);
    Block copy;
    copy.push_back({tile::CopyAsync{
        staged_, stage_.to + turn * b_.Idx(kThreads / Vectors() * p_.pitch()), b_.Pointer(shape_.y),
        stage_.from + s.from, static_cast<int>(kVector), valid}});
    if (!is_last) {
      out.push_back(std::move(copy[0]));
      return;
    }
    out.push_back({tile::If{tile::Lt(pixel, b_.Idx(p_.staged_pixels())), std::move(copy), {}}});
  }

  // What is copied next is chunk `chunk` of piece `step`, into slot number % 2.
  void EnterStage(Block& out, const Expr& step, const Expr& chunk, const Expr& number) {
    EnterPiece(out, step);
    const Expr part = Var("tx") % b_.Idx(Vectors()) * b_.Idx(kVector);
    const Expr k = b_.Let(out, "k", chunk * b_.Idx(p_.chunk) + part);
    const Expr first_q = b_.Let(out, "first_q", first_col_ + b_.Idx(p_.col.first));
    Index index = {image_, k};
    if (!flat()) {
      index.push_back(b_.Let(out, "first_p", first_row_ + b_.Idx(p_.row.first)));
      stage_.rows = RangeOf(out, index.back(), 2);
    }
    stage_.cols = RangeOf(out, first_q, shape_.spatial + 1);
    index.push_back(first_q);
    stage_.from = b_.Let(out, "from", b_.Offset(shape_.y, index));
    stage_.to = b_.Let(out, "to",
                       number % b_.Idx(2) * b_.Idx(p_.staged_elements()) +
                           Var("tx") / b_.Idx(Vectors()) * b_.Idx(p_.pitch()) + part);
    stage_.valid = b_.Let(out, "valid", tile::And(exists_, tile::Lt(k, b_.Extent(shape_.y, 1))));
  }

  void StartKept(Block& out, size_t turn) {
    StartVector(out, b_.Idx(static_cast<int64_t>(turn)), kept_[turn], turn + 1 == kept_.size());
  }

  void StartAll(Block& out) {
    for (size_t turn = 0; turn < kept_.size(); ++turn) StartKept(out, turn);
    if (kept_.empty())
      Loop(out, "i", b_.Idx(Turns()), Bind::kSerial,
           [&](Block& one, const Expr& i) { StartVector(one, i, StagedAt(one, i), true); });
  }

  // ---- w: panel[column][chunk of 16 filters][row][set][lane][4] ----
  int64_t StepElements() const { return p_.row.window * p_.sets * 128; }
  int64_t ChunkSteps() const { return p_.chunk / 16; }

  void FillPanel(Block& body) {
    const int64_t groups = p_.panel_elements() / 4;  // of a lane's 4 elements; whole warps
    constexpr int64_t kAtOnce = 4;                   // whose reads are under way together
    Loop(body, "f", b_.Idx(CeilDiv(groups, kThreads * kAtOnce)), Bind::kSerial,
         [&](Block& some, const Expr& f) {
           const std::string regs = b_.Name("filter_regs");
           some.push_back({tile::Alloc{regs, type_, tile::Space::kReg, kAtOnce * 4}});
           const auto number = [&](Block& one, const Expr& u) {
             return b_.Let(one, "group", (f * b_.Idx(kAtOnce) + u) * b_.Idx(kThreads) + Var("tx"));
           };
           Loop(some, "u", b_.Idx(kAtOnce), Bind::kUnroll, [&](Block& one, const Expr& u) {
             ReadFilters(one, number(one, u), tile::Lt(number(one, u), b_.Idx(groups)), regs,
                         u * b_.Idx(4));
           });
           Loop(some, "u", b_.Idx(kAtOnce), Bind::kUnroll, [&](Block& one, const Expr& u) {
             const Expr group = number(one, u);
             Block store;
             WideCopy(store, type_, panel_, group * b_.Idx(4), regs, u * b_.Idx(4), 4);
             one.push_back({tile::If{tile::Lt(group, b_.Idx(groups)), std::move(store), {}}});
           });
         });
  }

  // A tap's index in w from what its offset leaves of the output's place, and whether it exists.
  Expr TapOf(Block& out, const Expr& phase, const Expr& i, int64_t axis,
             const FirstLayerDgradPlan::Axis& a, Expr& guard) {
    const int64_t dilation = shape_.dilation[axis];
    const Expr reach = b_.Let(
        out, "reach", phase + b_.Idx(shape_.pad[axis] - a.first * a.stride) - i * b_.Idx(a.stride));
    guard = tile::And(guard, tile::Ge(reach, b_.Idx(0)));
    guard = tile::And(guard, tile::Lt(reach, b_.Idx(shape_.taps[axis] * dilation)));
    if (dilation != 1)
      guard = tile::And(guard, tile::Op(ScalarOp::kEq, {reach % b_.Idx(dilation), b_.Idx(0)}));
    const Expr tap = reach / b_.Idx(dilation);
    return shape_.flip ? b_.Idx(shape_.taps[axis] - 1) - tap : tap;
  }

  // The 4 elements of the panel's group `number` → regs[first ..].
  void ReadFilters(Block& out, const Expr& number, const Expr& in_panel, const std::string& regs,
                   const Expr& first) {
    const Expr fragment = b_.Let(out, "fragment", number / b_.Idx(kWarp));
    const Expr slot = b_.Let(out, "slot", fragment % b_.Idx(p_.sets) * b_.Idx(8) + g_);
    const Expr rest = b_.Let(out, "rest", fragment / b_.Idx(p_.sets));
    const Expr i = b_.Let(out, "i", rest % b_.Idx(p_.row.window));
    const Expr step = b_.Let(out, "step_of", rest / b_.Idx(p_.row.window));
    const int64_t steps = p_.chunks * ChunkSteps();
    const Expr j = b_.Let(out, "j", step / b_.Idx(steps));
    const Expr phase = b_.Let(out, "phase", slot / b_.Idx(p_.run_slots));
    const Expr element = b_.Let(out, "element", slot % b_.Idx(p_.run_slots));
    const Expr c = b_.Let(out, "c", element % b_.Idx(shape_.channels));
    Expr guard = tile::And(in_panel, tile::And(tile::Lt(phase, b_.Idx(p_.row.stride)),
                                               tile::Lt(element, b_.Idx(p_.run))));
    Index taps;
    if (!flat()) taps.push_back(TapOf(out, phase, i, 0, p_.row, guard));
    taps.push_back(
        TapOf(out, element / b_.Idx(shape_.channels), j, shape_.spatial - 1, p_.col, guard));
    guard = b_.Let(out, "has_tap", guard);
    for (int e = 0; e < 4; ++e) {
      const Expr k =
          b_.Let(out, "k",
                 step % b_.Idx(steps) * b_.Idx(16) + t4_ * b_.Idx(2) + b_.Idx(e / 2 * 8 + e % 2));
      const Expr to = first + b_.Idx(e);
      out.push_back({tile::Store{regs, to, Zero(type_)}});
      Block inside;
      ValueScope values(b_, inside);
      Index index = {k, c};
      index.insert(index.end(), taps.begin(), taps.end());
      inside.push_back({tile::Store{regs, to, tile::Cast(type_, values.Value(shape_.w, index))}});
      out.push_back(
          {tile::If{tile::And(guard, tile::Lt(k, b_.Extent(shape_.y, 1))), std::move(inside), {}}});
    }
  }

  // ---- products ----
  int64_t Accumulators() const { return p_.rows * p_.tiles * p_.sets * 4; }
  int64_t SumAt(int64_t row, int64_t tile, int64_t set) const {
    return ((row * p_.tiles + tile) * p_.sets + set) * 4;
  }

  void ClearSums(Block& body) {
    acc_ = b_.Name("acc");
    body.push_back({tile::Alloc{acc_, DType::kF32, tile::Space::kReg, Accumulators()}});
    Loop(body, "z", b_.Idx(Accumulators()), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, Zero(DType::kF32)}});
    });
  }

  // A chunk of the piece: waits for it, multiplies it, and starts the next one meanwhile.
  void Stage(Block& body) {
    const Expr step = Var("step"), chunk = Var("chunk");
    const Expr number = b_.Let(body, "number", step * b_.Idx(p_.chunks) + chunk);
    Expr next = b_.Let(body, "next_chunk", chunk + b_.Idx(1)), ahead = step;
    if (p_.chunks == 1) {
      ahead = step + b_.Idx(1);
      next = b_.Idx(0);
    } else {
      const Expr more = tile::Lt(next, b_.Idx(p_.chunks));
      ahead = step + tile::Select(more, b_.Idx(0), b_.Idx(1));
      next = tile::Select(more, next, b_.Idx(0));
    }
    EnterStage(body, b_.Let(body, "ahead", ahead), b_.Let(body, "next", next), number + b_.Idx(1));
    // The barrier after the wait also tells that nobody reads the other slot any more.
    body.push_back({tile::WaitAsync{0}});
    body.push_back({tile::Barrier{}});
    const Expr dy_at =
        b_.Let(body, "dy_at", number % b_.Idx(2) * b_.Idx(p_.staged_elements()) + lane_at_);
    const Expr w_at =
        b_.Let(body, "w_at", chunk * b_.Idx(ChunkSteps() * StepElements()) + lane_ * b_.Idx(4));
    const int64_t steps = p_.col.window * ChunkSteps();
    const auto multiply = [&](Block& one, const Expr& j, const Expr& kk, size_t first,
                              size_t last) {
      Multiply(one, dy_at + j * b_.Idx(p_.pitch()) + kk * b_.Idx(16),
               w_at + (j * b_.Idx(p_.chunks * ChunkSteps()) + kk) * b_.Idx(StepElements()), first,
               last);
    };
    if (kept_.empty() || steps > 8) {
      StartAll(body);
      Loop(body, "kk", b_.Idx(ChunkSteps()), Bind::kSerial, [&](Block& some, const Expr& kk) {
        Loop(some, "j", b_.Idx(p_.col.window), Bind::kSerial,
             [&](Block& one, const Expr& j) { multiply(one, j, kk, 0, 0); });
      });
    } else {
      // Copies among the products, so that neither waits for the other to be issued.
      const size_t turns = kept_.size(), each = CeilDiv(turns * 4, steps * 3);
      for (int64_t step = 0; step < steps; ++step) {
        const size_t first = std::min(static_cast<size_t>(step) * each, turns);
        multiply(body, b_.Idx(step % p_.col.window), b_.Idx(step / p_.col.window), first,
                 step + 1 == steps ? turns : std::min(first + each, turns));
      }
    }
    body.push_back({tile::CommitAsync{}});
  }

  // One column of the window, 16 filters; starts the next stage's copies `next` to `last`.
  void Multiply(Block& body, const Expr& dy_from, const Expr& w_from, size_t next, size_t last) {
    const std::string fragments = b_.Name("w_fragments");
    body.push_back({tile::Alloc{fragments, type_, tile::Space::kReg, p_.row.window * p_.sets * 4}});
    const Expr w_at = b_.Let(body, "w_step", w_from), dy_at = b_.Let(body, "dy_step", dy_from);
    for (int64_t i = 0; i < p_.row.window; ++i)
      for (const int64_t set : p_.used[i])
        WideCopy(body, type_, fragments, b_.Idx((i * p_.sets + set) * 4), panel_,
                 w_at + b_.Idx((i * p_.sets + set) * 128), 4);
    for (int64_t y = 0; y < p_.rows + p_.row.window - 1; ++y) {
      for (int64_t m = 0; m < p_.tiles; ++m) {
        const std::string a = b_.Name("dy_fragment");
        body.push_back({tile::Alloc{a, type_, tile::Space::kReg, 8}});
        const Expr from = dy_at + b_.Idx((y * p_.staged_cols() + m * 16) * p_.pitch());
        body.push_back({tile::LoadMatrix{a, b_.Idx(0), staged_, from, 4, false}});
        for (int64_t i = 0; i < p_.row.window; ++i) {
          const int64_t row = y - i;
          if (row < 0 || row >= p_.rows) continue;
          for (const int64_t set : p_.used[i])
            body.push_back({tile::Mma{acc_, b_.Idx(SumAt(row, m, set)), a, b_.Idx(0), fragments,
                                      b_.Idx((i * p_.sets + set) * 4)}});
        }
        if (next < last) StartKept(body, next++);
      }
    }
    while (next < last) StartKept(body, next++);
  }

  // ---- results ----
  void StoreSums(Block& out, int64_t sum, int count, const Expr& to) {
    const auto value = [&](int e) {
      return tile::Cast(made_type_, tile::Load(acc_, DType::kF32, b_.Idx(sum + e)));
    };
    if (count == 1) {
      out.push_back({tile::Store{made_, to, value(0)}});
      return;
    }
    const std::string pair = b_.Name("pair");
    out.push_back({tile::Alloc{pair, made_type_, tile::Space::kReg, 2}});
    for (int e = 0; e < 2; ++e) out.push_back({tile::Store{pair, b_.Idx(e), value(e)}});
    WideCopy(out, made_type_, made_, to, pair, b_.Idx(0), 2);
  }

  // Sums to their places in rows of dx, in shared memory.
  void HandOver(Block& body) {
    const Expr first = b_.Let(
        body, "made_at",
        warp_row_ * b_.Idx(p_.row.stride * p_.made_pitch()) + (warp_col_ + g_) * b_.Idx(p_.run));
    // Pairs of slots are neighbours where runs begin at even places.
    const int at_once = p_.run % 2 == 0 && p_.run_slots % 2 == 0 ? 2 : 1;
    for (int64_t set = 0; set < p_.sets; ++set) {
      for (int e = 0; e < 2; e += at_once) {
        const Expr slot = b_.Let(body, "slot", t4_ * b_.Idx(2) + b_.Idx(set * 8 + e));
        const Expr phase = slot / b_.Idx(p_.run_slots), element = slot % b_.Idx(p_.run_slots);
        const Expr at = b_.Let(body, "slot_at", first + phase * b_.Idx(p_.made_pitch()) + element);
        Block store;
        for (int64_t row = 0; row < p_.rows; ++row)
          for (int64_t m = 0; m < p_.tiles; ++m)
            for (int half = 0; half < 2; ++half)
              StoreSums(store, SumAt(row, m, set) + half * 2 + e, at_once,
                        at + b_.Idx(row * p_.row.stride * p_.made_pitch() +
                                    (m * 16 + half * 8) * p_.run));
        const Expr is_output =
            tile::And(tile::Lt(phase, b_.Idx(p_.row.stride)), tile::Lt(element, b_.Idx(p_.run)));
        body.push_back({tile::If{is_output, std::move(store), {}}});
      }
    }
    const std::string check = b_.Name("check");
    const Expr checked = tile::Load(check, DType::kF32, b_.Idx(0));
    body.push_back({tile::Alloc{check, DType::kF32, tile::Space::kReg, 1}});
    body.push_back({tile::Store{check, b_.Idx(0), Zero(DType::kF32)}});
    Loop(body, "z", b_.Idx(Accumulators()), Bind::kUnroll, [&](Block& one, const Expr& z) {
      const Expr sum = tile::Load(acc_, DType::kF32, z);
      one.push_back({tile::Store{check, b_.Idx(0),
                                 tile::Op(ScalarOp::kFma, {sum, tile::Float(0), checked})}});
    });
    Block again;
    MakeAgain(again, first);
    body.push_back(
        {tile::If{tile::Op(ScalarOp::kEq, {checked, tile::Float(0)}), {}, std::move(again)}});
  }

  // Elements of a row of dx, neighbours first along channels.
  struct Vector {
    Expr row, first;  // of the image, in elements
    Expr at;          // in made_
  };

  void StoreMade(Block& body) {
    const int64_t along = p_.made_pitch() / kVector;
    const int64_t count = p_.block_rows() * p_.row.stride * along;
    const Expr first_h = b_.Let(body, "first_h", first_row_ * b_.Idx(p_.row.stride));
    const Expr first_e = b_.Let(body, "first_e", first_col_ * b_.Idx(p_.run));
    Loop(
        body, "i", b_.Idx(CeilDiv(count, kThreads)), Bind::kSerial, [&](Block& one, const Expr& i) {
          const Expr place = b_.Let(one, "vector", i * b_.Idx(kThreads) + Var("tx"));
          const Expr row = b_.Let(one, "made_row", place / b_.Idx(along));
          Vector v;
          v.row = b_.Let(one, "h", first_h + row);
          v.first = b_.Let(one, "first", first_e + (place - row * b_.Idx(along)) * b_.Idx(kVector));
          v.at = b_.Let(one, "at", place * b_.Idx(kVector));
          Expr guard = tile::And(exists_, tile::Lt(place, b_.Idx(count)));
          if (!flat()) guard = tile::And(guard, tile::Lt(v.row, b_.Extent(shape_.x, 2)));
          guard = tile::And(guard, tile::Lt(v.first, row_size_));
          Block inside;
          StoreVector(inside, v);
          one.push_back({tile::If{guard, std::move(inside), {}}});
        });
  }

  // Of an element of a row of dx.
  Index PlaceOf(Block& out, const Expr& h, const Expr& element) {
    Index at = {image_, b_.Let(out, "c", element % b_.Idx(shape_.channels))};
    if (!flat()) at.push_back(h);
    at.push_back(b_.Let(out, "w_at", element / b_.Idx(shape_.channels)));
    return BroadcastIndex(b_, group_.graph[shape_.x], at);
  }

  void StoreVector(Block& body, const Vector& v) {
    const graph::Graph& g = group_.graph;
    const std::vector<TensorId> outputs = graph::Outputs(g);
    const std::string made = b_.Name("made_regs");
    body.push_back({tile::Alloc{made, made_type_, tile::Space::kReg, kVector}});
    WideCopy(body, made_type_, made, b_.Idx(0), made_, v.at, kVector);
    const auto value = [&](const Expr& l) {
      return tile::Cast(DType::kF32, tile::Load(made, made_type_, l));
    };
    const auto row_of = [&](TensorId id) {
      Index row = {image_, b_.Idx(0)};
      if (!flat()) row.push_back(v.row);
      row.push_back(b_.Idx(0));
      return b_.Let(body, "to", b_.Offset(id, row) + v.first);
    };
    if (outputs == std::vector<TensorId>{shape_.x} && IsPacked(shape_.x) &&
        g[shape_.x].dtype == made_type_) {
      WideCopy(body, made_type_, b_.Pointer(shape_.x), row_of(shape_.x), made, b_.Idx(0), kVector);
      return;
    }
    const bool packed = std::ranges::all_of(outputs, [&](TensorId id) { return IsPacked(id); });
    std::vector<std::string> regs;
    for (const TensorId id : outputs) {
      if (!packed) break;
      regs.push_back(b_.Name(g[id].name + "_w"));
      body.push_back({tile::Alloc{regs.back(), g[id].dtype, tile::Space::kReg, kVector}});
    }
    Loop(body, "l", b_.Idx(kVector), Bind::kUnroll, [&](Block& one, const Expr& l) {
      Block inside;
      Block& out = packed ? one : inside;
      const Expr element = b_.Let(one, "element_at", v.first + l);
      const Index at = PlaceOf(out, v.row, element);
      ValueScope values(b_, out);
      values.Bind(shape_.x, at, RoundThrough(g[shape_.x].dtype, value(l)));
      for (size_t o = 0; o < outputs.size(); ++o) {
        const TensorId id = outputs[o];
        const Expr result = tile::Cast(g[id].dtype, values.Value(id, at));
        out.push_back({packed ? tile::Store{regs[o], l, result}
                              : tile::Store{b_.Pointer(id), b_.Offset(id, at), result}});
      }
      if (!packed) one.push_back({tile::If{tile::Lt(element, row_size_), std::move(inside), {}}});
    });
    for (size_t o = 0; o < regs.size(); ++o) {
      WideCopy(body, g[outputs[o]].dtype, b_.Pointer(outputs[o]), row_of(outputs[o]), regs[o],
               b_.Idx(0), kVector);
    }
  }

  // Whether 8 elements of its rows from a multiple of 8 on are whole 16-byte pieces.
  bool IsPacked(TensorId id) const {
    const Tensor &out = group_.graph[id], &x = group_.graph[shape_.x];
    const int64_t last = out.rank() - 1, rows = shape_.channels;
    if (out.dims != x.dims || out.alignment % 16 != 0) return false;
    if ((rows != 1 && out.strides[1] != 1) || out.dims[last] * rows % kVector != 0) return false;
    if (out.dims[last] != 1 && out.strides[last] != rows) return false;
    if (!flat() && out.dims[2] != 1 && out.strides[2] % kVector != 0) return false;
    return out.dims[0] == 1 || out.strides[0] % kVector == 0;
  }

  // What a lane has made, where it is not finite, by a plain walk over its taps.
  void MakeAgain(Block& body, const Expr& first) {
    const auto loop = [&](Block& out, const char* name, int64_t count, const auto& fill) {
      Loop(out, name, b_.Idx(count), Bind::kSerial, fill);
    };
    loop(body, "row", p_.rows, [&](Block& rows, const Expr& row) {
      loop(rows, "place", p_.tiles * 2, [&](Block& places, const Expr& place) {
        loop(places, "n", p_.sets * 2, [&](Block& one, const Expr& n) {
          const Expr slot =
              b_.Let(one, "slot", n / b_.Idx(2) * b_.Idx(8) + t4_ * b_.Idx(2) + n % b_.Idx(2));
          const Expr phase = b_.Let(one, "phase", slot / b_.Idx(p_.run_slots));
          const Expr in_run = b_.Let(one, "in_run", slot % b_.Idx(p_.run_slots));
          const Expr to =
              b_.Let(one, "to",
                     first + (row * b_.Idx(p_.row.stride) + phase) * b_.Idx(p_.made_pitch()) +
                         place * b_.Idx(8 * p_.run) + in_run);
          const Expr h =
              b_.Let(one, "h", (first_row_ + warp_row_ + row) * b_.Idx(p_.row.stride) + phase);
          const Expr element =
              b_.Let(one, "element_at",
                     (first_col_ + warp_col_ + g_ + place * b_.Idx(8)) * b_.Idx(p_.run) + in_run);
          Expr guard = tile::And(exists_, tile::Lt(phase, b_.Idx(p_.row.stride)));
          guard = tile::And(guard, tile::Lt(in_run, b_.Idx(p_.run)));
          if (!flat()) guard = tile::And(guard, tile::Lt(h, b_.Extent(shape_.x, 2)));
          guard = tile::And(guard, tile::Lt(element, row_size_));
          Block remake, inside;
          const Expr sum = SumOf(remake, PlaceOf(remake, h, element));
          remake.push_back({tile::Store{made_, to, tile::Cast(made_type_, sum)}});
          const Expr old = tile::Cast(DType::kF32, tile::Load(made_, made_type_, to));
          const Expr is_finite = tile::Op(ScalarOp::kEq, {old * tile::Float(0), tile::Float(0)});
          inside.push_back({tile::If{is_finite, {}, std::move(remake)}});
          one.push_back({tile::If{guard, std::move(inside), {}}});
        });
      });
    });
  }

  Expr SumOf(Block& body, const Index& at) {
    const std::string sum = b_.Name("sum");
    const Expr so_far = tile::Load(sum, DType::kF32, b_.Idx(0));
    body.push_back({tile::Alloc{sum, DType::kF32, tile::Space::kReg, 1}});
    body.push_back({tile::Store{sum, b_.Idx(0), Zero(DType::kF32)}});
    Loop(body, "tap", b_.Idx(NumElements(shape_.taps)), Bind::kSerial,
         [&](Block& walk, const Expr& tap) {
           Index in = {image_, nullptr}, filter = {nullptr, at[1]};
           Expr rest = tap, guard;
           Dims after(shape_.spatial, 1);
           for (int64_t axis = shape_.spatial - 1; axis > 0; --axis)
             after[axis - 1] = after[axis] * shape_.taps[axis];
           for (int64_t axis = 0; axis < shape_.spatial; ++axis) {
             const Expr number =
                 b_.Let(walk, "tap_at", tap / b_.Idx(after[axis]) % b_.Idx(shape_.taps[axis]));
             const Expr stride = b_.Idx(shape_.stride[axis]);
             const Expr from = b_.Let(
                 walk, "from",
                 at[axis + 2] + b_.Idx(shape_.pad[axis]) - number * b_.Idx(shape_.dilation[axis]));
             const Expr place = b_.Let(walk, "from_at", from / stride);
             Expr inside = tile::And(tile::Ge(from, b_.Idx(0)),
                                     tile::Lt(place, b_.Extent(shape_.y, axis + 2)));
             inside = tile::And(inside, tile::Op(ScalarOp::kEq, {place * stride, from}));
             guard = guard ? tile::And(guard, inside) : inside;
             in.push_back(place);
             filter.push_back(shape_.flip ? b_.Idx(shape_.taps[axis] - 1) - number : number);
           }
           Block channels;
           Loop(channels, "k", b_.Extent(shape_.y, 1), Bind::kSerial,
                [&](Block& add, const Expr& k) {
                  in[1] = filter[0] = k;
                  ValueScope values(b_, add);
                  const auto operand = [&](TensorId id, const Index& index) {
                    return tile::Cast(DType::kF32, tile::Cast(type_, values.Value(id, index)));
                  };
                  const Expr dy = operand(shape_.y, in), w = operand(shape_.w, filter);
                  add.push_back(
                      {tile::Store{sum, b_.Idx(0), tile::Op(ScalarOp::kFma, {dy, w, so_far})}});
                });
           walk.push_back({tile::If{guard, std::move(channels), {}}});
         });
    return so_far;
  }

  const Group& group_;
  const Target& target_;
  ConvShape shape_;
  FirstLayerDgradPlan p_;
  int blocks_;
  KernelBuilder b_;
  DType type_, made_type_;
  Expr lane_, g_, t4_, warp_row_, warp_col_, lane_at_;
  Expr steps_, grid_, pieces_, row_blocks_, col_blocks_;
  Expr image_, first_row_, first_col_, exists_, row_size_;
  std::vector<Staged> kept_;
  struct {
    Range rows, cols;
    Expr from, to, valid;
  } stage_;
  std::string staged_, panel_, made_, acc_;
};

}  // namespace

Lowered LowerFirstLayerDgrad(const Group& group, const Target& target, const ConvShape& shape,
                             const FirstLayerDgradKnobs& knobs) {
  return Schedule(group, target, shape, knobs).Lower();
}

}  // namespace kiln::compiler
