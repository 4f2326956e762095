// The paths kernel of the ctc engine. A block walks the frames of one sample, from the first on for
// alpha and from the last on for beta. Both are one recursion over r, which counts states from the
// end that the paths start at:
//
//   sum(i,r) = f(i-1,r) + f(i-1,r-1) + [skips(r)] f(i-1,r-2),  f(i,r) = y * sum(i,r)
//
// alpha is f, and beta is sum: its own frame's probability is not part of it, so that their product
// needs no division by what may be 0. Where a path's states fit, each thread keeps a few of them,
// the last two frames stand in shared memory, and probabilities are read a turn of some frames
// ahead; else the frames stand in memory, and each thread takes the states that its number leads
// to.
#include <cmath>

#include "compiler/engines/ctc/kernels.h"

namespace kiln::compiler {
namespace {

using tile::Block;
using tile::Expr;
using Cell = CtcKernel::Cell;

constexpr int kMostThreads = 512;
constexpr int kWarp = 32;
constexpr int64_t kMostOfThread = 8;     // states that a thread keeps
constexpr int64_t kRegistersAhead = 16;  // probabilities that a thread has read ahead, at most
constexpr int64_t kRescale = 8;          // frames between two changes of the offset

int ThreadsOf(const CtcProblem& p) {
  if (!p.on_gpu()) return 1;
  const int64_t most = std::min(kMostThreads, p.target.max_threads_per_block);
  return static_cast<int>(std::min<int64_t>(CeilDiv(p.states, kWarp) * kWarp, most));
}

Expr Equals(const Expr& a, const Expr& b) { return tile::Op(ScalarOp::kEq, {a, b}); }
Expr AtLeast0(KernelBuilder& b, const Expr& value) {
  return tile::Op(ScalarOp::kMax, {value, b.Idx(0)});
}

// The kernel as it is written, and its threads, which have up to so many states each.
struct Paths {
  const CtcProblem& p;
  CtcKernel& k;
  KernelBuilder& b;
  int threads;
  int64_t of_thread;

  Expr n() const { return k.bx(); }
  Expr is_backward() const { return Equals(k.by(), b.Idx(1)); }
};

// A block's sample: where its labels begin, whether they fit (at least 0), its states and frames.
// Frames have an offset in common, which grows by `shift` where states are brought near 0.
struct Sample {
  Expr start, path, states, frames;
  Cell offset, shift;
};

// The state that the path counts as r, and what it reads and may skip.
struct State {
  Expr symbol, skips;
};

// Registers by frame of a turn: the largest logit, and ln of the sum of exponentials less it.
struct SoftmaxRegisters {
  std::string largest, log_sum;
};

using Previous = std::function<Expr(const Expr&)>;  // f of the step before, at r

Sample SampleOf(Paths w, Block& out) {
  Sample s;
  s.start = w.b.Let(out, "start", w.k.Read(kCtcStarts, w.n()));
  s.path = w.b.Let(out, "path", w.k.Read(kCtcStates, w.n()));
  s.states = w.b.Let(out, "path_states", AtLeast0(w.b, tile::Cast(w.p.index, s.path)));
  const Expr input = tile::Cast(w.p.index, w.k.Integer(out, w.p.input_lengths, w.n()));
  s.frames =
      w.b.Let(out, "path_frames",
              tile::Select(tile::Op(ScalarOp::kGt, {s.path, tile::Int(0)}), input, w.b.Idx(0)));
  s.offset = w.k.NewCell(out, "offset", w.k.Number(0));
  s.shift = w.k.NewCell(out, "shift", w.k.Number(0));
  return s;
}

// The frame that step i is at; the nearest inside where there is none.
Expr FrameOf(Paths w, const Sample& s, Block& out, const Expr& i) {
  const Expr last = s.frames - w.b.Idx(1);
  const Expr inside = tile::Op(ScalarOp::kMin, {i, last});
  return w.b.Let(out, "t", AtLeast0(w.b, tile::Select(w.is_backward(), last - inside, inside)));
}
Expr NumberOf(Paths w, const Sample& s, const Expr& r) {
  return tile::Select(w.is_backward(), s.states - w.b.Idx(1) - r, r);
}

// The symbol of the state, where that is one.
Expr SymbolOf(Paths w, const Sample& s, Block& out, const Expr& state, const Expr& exists) {
  if (w.p.label == 0) return tile::Int(0);
  const Expr is_label = tile::And(exists, Equals(AtLeast0(w.b, state) % w.b.Idx(2), w.b.Idx(1)));
  const Expr at = AtLeast0(w.b, state - w.b.Idx(1)) / w.b.Idx(2);
  return w.k.LabelIf(out, is_label, s.start, at);
}

State StateOf(Paths w, const Sample& s, Block& out, const Expr& r) {
  const Expr state = w.b.Let(out, "state", NumberOf(w, s, r)),
             from = w.b.Let(out, "from", NumberOf(w, s, r - w.b.Idx(2)));
  const Expr exists = w.b.Let(out, "exists", tile::Lt(r, s.states));
  const Expr two = w.b.Let(out, "two", tile::And(exists, tile::Ge(r, w.b.Idx(2))));
  const Expr mine = SymbolOf(w, s, out, state, exists), other = SymbolOf(w, s, out, from, two);
  const Expr later = w.b.Let(out, "later", tile::Select(w.is_backward(), other, mine));
  const auto differ = [](const Expr& a, const Expr& b) { return tile::Op(ScalarOp::kNe, {a, b}); };
  const Expr skips = tile::And(two, tile::And(differ(later, tile::Int(0)), differ(mine, other)));
  return {mine, w.b.Let(out, "skips", skips)};
}

// Sum of the step: of the first one, 1 in the first two states.
Expr SumOf(Paths w, const Sample& s, Block& out, const Expr& i, const Expr& r, const Expr& skips,
           const Previous& f) {
  const Expr one = AtLeast0(w.b, r - w.b.Idx(1)), two = AtLeast0(w.b, r - w.b.Idx(2));
  const Expr begins = Equals(i, w.b.Idx(0));
  const Expr first = tile::Select(tile::Lt(r, w.b.Idx(2)), w.k.Number(0), w.k.NegInf());
  const Cell sum = w.k.NewCell(out, "sum", first);
  Block later;
  const auto value = [&](const char* name, const Expr& exists, const Expr& at) {
    return w.b.Let(later, name, tile::Select(exists, f(at), w.k.NegInf()));
  };
  const Expr here = w.b.Let(later, "f0", f(r)), before = value("f1", tile::Ge(r, w.b.Idx(1)), one),
             skipped = value("f2", skips, two);
  later.push_back(sum.Set(w.k.LogSum(later, here, before, skipped) - s.shift.Get()));
  out.push_back({tile::If{tile::Op(ScalarOp::kNot, {begins}), std::move(later), {}}});
  return sum.Get();
}

// ---- what a step leaves for the gradient

Expr PlaceOf(Paths w, const Expr& t) {
  return (w.k.by() * w.k.Frames() + t) * w.k.Samples() + w.n();
}
void Keep(Paths w, const Sample& s, Block& out, const Expr& t, const Expr& r, const Expr& sum,
          const Expr& f) {
  if (!w.p.has_gradients()) return;
  const Expr at = PlaceOf(w, t) * w.k.States() + NumberOf(w, s, r);
  w.k.Write(out, kCtcPaths, at, tile::Select(w.is_backward(), sum, f));
}
void KeepOffset(Paths w, const Sample& s, Block& out, const Expr& t) {
  if (!w.p.has_gradients()) return;
  Block first;
  w.k.Write(first, kCtcOffsets, PlaceOf(w, t), s.offset.Get());
  out.push_back({tile::If{Equals(w.k.tx(), w.b.Idx(0)), std::move(first), {}}});
}

void SetSoftmax(Paths w, Block& out, const Expr& t, const SoftmaxRegisters& to, const Expr& slot) {
  if (!w.p.attrs.softmax) return;
  const Expr at = w.b.Let(out, "softmax", (t * w.k.Samples() + w.n()) * w.b.Idx(2));
  out.push_back({tile::Store{to.largest, slot, w.k.Read(kCtcSoftmax, at)}});
  out.push_back({tile::Store{to.log_sum, slot, w.k.Read(kCtcSoftmax, at + w.b.Idx(1))}});
}

// Whole numbers that bring the largest state of the step before to 0 .. 1.
void Rescale(Paths w, const Sample& s, Block& out, const Previous& f) {
  const Cell most = w.k.NewCell(out, "largest_state", w.k.NegInf());
  const Expr lane = w.k.tx() % w.b.Idx(w.p.lanes());
  w.k.Strided(out, "m", s.states, lane, w.p.lanes(), [&](Block& inside, const Expr& r) {
    inside.push_back(most.Set(tile::Op(ScalarOp::kMaxNan, {most.Get(), f(r)})));
  });
  w.k.CombineLanes(out, most, ScalarOp::kMaxNan);
  const Expr is_finite =
      tile::Lt(tile::Op(ScalarOp::kAbs, {most.Get()}), tile::Op(ScalarOp::kNeg, {w.k.NegInf()}));
  out.push_back(s.shift.Set(
      tile::Select(is_finite, tile::Op(ScalarOp::kFloor, {most.Get()}), w.k.Number(0))));
  out.push_back(s.offset.Set(s.offset.Get() + s.shift.Get()));
}

// ---- states in registers, frames in shared memory

// The names of a thread's registers, and of the last two frames. A turn of the loop is `ahead`
// frames, whose probabilities the turn before has read.
struct SharedWalk {
  int64_t ahead;
  DType read;
  std::string ring;
  std::string symbols = {}, skips = {}, x = {}, log_y = {};
  SoftmaxRegisters softmax = {};
};

int64_t AheadOf(Paths w) {
  // Even, so that a turn of the loop begins in the same one of the two frames.
  int64_t ahead = kRescale;
  while (ahead > 2 && ahead * w.of_thread > kRegistersAhead) ahead /= 2;
  return ahead;
}

Expr SharedPlace(Paths w, int64_t frame, const Expr& r) {
  return w.b.Idx(frame * w.threads * w.of_thread) + r;
}
Expr StateOfThread(Paths w, int64_t e) { return w.k.tx() + w.b.Idx(e * w.threads); }

SharedWalk DeclareShared(Paths w, const Sample& s, Block& out) {
  SharedWalk walk{.ahead = AheadOf(w),
                  .read = ArithmeticType(w.p.group.graph[w.p.probs].dtype),
                  .ring = w.b.Name("last")};
  out.push_back(
      {tile::Alloc{walk.ring, w.p.type, tile::Space::kShared, 2 * w.threads * w.of_thread}});
  walk.symbols = w.k.Registers(out, "symbols", DType::kI32, w.of_thread);
  walk.skips = w.k.Registers(out, "skipping", DType::kI32, w.of_thread);
  walk.x = w.k.Registers(out, "next", walk.read, walk.ahead * w.of_thread);
  walk.log_y = w.k.Registers(out, "log_y", w.p.type, walk.ahead * w.of_thread);
  walk.softmax.largest = w.k.Registers(out, "largest", w.p.type, walk.ahead);
  walk.softmax.log_sum = w.k.Registers(out, "log_sum_of", w.p.type, walk.ahead);
  for (int64_t e = 0; e < w.of_thread; ++e) {
    const State state = StateOf(w, s, out, StateOfThread(w, e));
    out.push_back({tile::Store{walk.symbols, w.b.Idx(e), state.symbol}});
    out.push_back({tile::Store{walk.skips, w.b.Idx(e),
                               tile::Select(state.skips, tile::Int(1), tile::Int(0))}});
  }
  return walk;
}

// Reads the probabilities of step i, frame `slot` of a turn.
void Fetch(Paths w, const Sample& s, const SharedWalk& walk, Block& to, const Expr& i,
           int64_t slot) {
  const Expr t = FrameOf(w, s, to, i);
  SetSoftmax(w, to, t, walk.softmax, w.b.Idx(slot));
  for (int64_t e = 0; e < w.of_thread; ++e) {
    const Expr symbol = tile::Cast(w.p.index, tile::Load(walk.symbols, DType::kI32, w.b.Idx(e)));
    to.push_back(
        {tile::Store{walk.x, w.b.Idx(slot * w.of_thread + e), w.k.Prob(to, t, w.n(), symbol)}});
  }
}

// Values that a turn needs are read by the turn before, all at once: a read that a step waits for
// would be waited for with all that were sent after it.
void TakeFetched(Paths w, const SharedWalk& walk, Block& to) {
  for (int64_t d = 0; d < walk.ahead; ++d) {
    for (int64_t e = 0; e < w.of_thread; ++e) {
      const Expr at = w.b.Idx(d * w.of_thread + e);
      const Expr y = w.k.LogY(tile::Load(walk.x, walk.read, at),
                              tile::Load(walk.softmax.largest, w.p.type, w.b.Idx(d)),
                              tile::Load(walk.softmax.log_sum, w.p.type, w.b.Idx(d)));
      to.push_back({tile::Store{walk.log_y, at, y}});
    }
  }
}

void StepShared(Paths w, const Sample& s, const SharedWalk& walk, Block& out, const Expr& step,
                int64_t slot) {
  const Expr i = w.b.Let(out, "i", step);
  const Expr t = FrameOf(w, s, out, i);
  const Previous previous = [&](const Expr& r) {
    return tile::Load(walk.ring, w.p.type, SharedPlace(w, 1 - slot % 2, r));
  };
  for (int64_t e = 0; e < w.of_thread; ++e) {
    Block state;
    const Expr r = w.b.Let(state, "r", StateOfThread(w, e));
    const Expr may_skip = Equals(tile::Load(walk.skips, DType::kI32, w.b.Idx(e)), tile::Int(1));
    const Expr sum = w.b.Let(state, "total", SumOf(w, s, state, i, r, may_skip, previous));
    const Expr y = tile::Load(walk.log_y, w.p.type, w.b.Idx(slot * w.of_thread + e));
    const Expr f = w.b.Let(state, "f", sum + y);
    state.push_back({tile::Store{walk.ring, SharedPlace(w, slot % 2, r), f}});
    Keep(w, s, state, t, r, sum, f);
    out.push_back({tile::If{tile::Lt(StateOfThread(w, e), s.states), std::move(state), {}}});
  }
  KeepOffset(w, s, out, t);
  if (slot == 0) out.push_back(s.shift.Set(w.k.Number(0)));
}

void TurnShared(Paths w, const Sample& s, const SharedWalk& walk, Block& turn, const Expr& number) {
  const Expr base = w.b.Let(turn, "step", number * w.b.Idx(walk.ahead));
  TakeFetched(w, walk, turn);
  for (int64_t d = 0; d < walk.ahead; ++d)
    Fetch(w, s, walk, turn, base + w.b.Idx(d + walk.ahead), d);
  Block rescale;
  Rescale(w, s, rescale,
          [&](const Expr& r) { return tile::Load(walk.ring, w.p.type, SharedPlace(w, 1, r)); });
  turn.push_back({tile::If{tile::Op(ScalarOp::kGt, {number, w.b.Idx(0)}), std::move(rescale), {}}});
  for (int64_t d = 0; d < walk.ahead; ++d) {
    Block step;
    StepShared(w, s, walk, step, base + w.b.Idx(d), d);
    turn.push_back({tile::If{tile::Lt(base + w.b.Idx(d), s.frames), std::move(step), {}}});
    turn.push_back({tile::Barrier{}});
  }
}

// f of the last frame.
Previous WalkShared(Paths w, const Sample& s, Block& out) {
  const SharedWalk walk = DeclareShared(w, s, out);
  for (int64_t d = 0; d < walk.ahead; ++d) Fetch(w, s, walk, out, w.b.Idx(d), d);
  const Expr turns = (s.frames + w.b.Idx(walk.ahead - 1)) / w.b.Idx(walk.ahead);
  w.k.Loop(out, "turn", turns,
           [&](Block& turn, const Expr& number) { TurnShared(w, s, walk, turn, number); });
  return [w, ring = walk.ring, last = s.frames - w.b.Idx(1)](const Expr& r) {
    return tile::Load(ring, w.p.type, last % w.b.Idx(2) * w.b.Idx(w.threads * w.of_thread) + r);
  };
}

// ---- states and frames in memory

Expr RingPlace(Paths w, const Expr& i, const Expr& r) {
  const Expr frame = (w.k.by() * w.k.Samples() + w.n()) * w.b.Idx(2) + i % w.b.Idx(2);
  return frame * w.k.States() + r;
}

void StepInMemory(Paths w, const Sample& s, const SoftmaxRegisters& softmax, Block& step,
                  const Expr& i) {
  const Expr t = FrameOf(w, s, step, i);
  const Previous previous = [&](const Expr& r) {
    return w.k.Read(kCtcRing, RingPlace(w, i + w.b.Idx(1), r));
  };
  step.push_back(s.shift.Set(w.k.Number(0)));
  Block rescale;
  Rescale(w, s, rescale, previous);
  const Expr is_due = tile::And(Equals(i % w.b.Idx(kRescale), w.b.Idx(0)),
                                tile::Op(ScalarOp::kGt, {i, w.b.Idx(0)}));
  step.push_back({tile::If{is_due, std::move(rescale), {}}});
  SetSoftmax(w, step, t, softmax, w.b.Idx(0));
  w.k.Strided(step, "r", s.states, w.k.tx(), w.threads, [&](Block& each, const Expr& r) {
    const State state = StateOf(w, s, each, r);
    const Expr sum = w.b.Let(each, "total", SumOf(w, s, each, i, r, state.skips, previous));
    const Expr x = w.k.Prob(each, t, w.n(), tile::Cast(w.p.index, state.symbol));
    const Expr y = w.k.LogY(x, tile::Load(softmax.largest, w.p.type, w.b.Idx(0)),
                            tile::Load(softmax.log_sum, w.p.type, w.b.Idx(0)));
    const Expr f = w.b.Let(each, "f", sum + y);
    w.k.Write(each, kCtcRing, RingPlace(w, i, r), f);
    Keep(w, s, each, t, r, sum, f);
  });
  KeepOffset(w, s, step, t);
  if (w.p.on_gpu()) step.push_back({tile::Barrier{}});
}

// f of the last frame.
Previous WalkInMemory(Paths w, const Sample& s, Block& out) {
  SoftmaxRegisters softmax;
  softmax.largest = w.k.Registers(out, "largest", w.p.type, 1);
  softmax.log_sum = w.k.Registers(out, "log_sum_of", w.p.type, 1);
  w.k.Loop(out, "i", s.frames,
           [&](Block& step, const Expr& i) { StepInMemory(w, s, softmax, step, i); });
  return [w, last = s.frames - w.b.Idx(1)](const Expr& r) {
    return w.k.Read(kCtcRing, RingPlace(w, last, r));
  };
}

// ---- P, from f of the last frame

void StoreCost(Paths w, const Sample& s, const Previous& last_of, Block& out) {
  Block mine;
  const Expr is_valid = tile::Ge(s.path, tile::Int(0));
  const Cell cost =
      w.k.NewCell(mine, "cost", tile::Select(is_valid, w.k.Number(0), w.k.Number(std::nan(""))));
  Block walked;
  const Expr end = s.states - w.b.Idx(1);
  const Expr last = w.b.Let(walked, "end", last_of(end));
  const Expr other = w.b.Let(walked, "end",
                             tile::Select(tile::Op(ScalarOp::kGt, {end, w.b.Idx(0)}),
                                          last_of(AtLeast0(w.b, end - w.b.Idx(1))), w.k.NegInf()));
  const Expr total = w.k.LogSum(walked, last, other, w.k.NegInf());
  walked.push_back(cost.Set(w.k.Number(0) - (total + s.offset.Get())));
  if (w.p.has_gradients()) {
    w.k.Write(walked, kCtcTotals, w.n() * w.b.Idx(2), total);
    w.k.Write(walked, kCtcTotals, w.n() * w.b.Idx(2) + w.b.Idx(1), s.offset.Get());
  }
  mine.push_back(
      {tile::If{tile::Op(ScalarOp::kGt, {s.frames, w.b.Idx(0)}), std::move(walked), {}}});
  mine.push_back({tile::Store{w.b.Pointer(w.p.costs), w.b.Offset(w.p.costs, {w.n()}),
                              tile::Cast(w.p.group.graph[w.p.costs].dtype, cost.Get())}});
  const Expr writes =
      tile::And(Equals(w.k.tx(), w.b.Idx(0)), tile::Op(ScalarOp::kNot, {w.is_backward()}));
  out.push_back({tile::If{writes, std::move(mine), {}}});
}

}  // namespace

bool CtcPathsAreShared(const CtcProblem& p) {
  if (!p.on_gpu()) return false;
  const int64_t threads = ThreadsOf(p), of_thread = CeilDiv(p.states, threads);
  return of_thread <= kMostOfThread &&
         2 * threads * of_thread * SizeOf(p.type) <= kSharedWithoutAttribute;
}

void LowerCtcPaths(const CtcProblem& p, Lowered& lowered) {
  const bool shared = CtcPathsAreShared(p);
  CtcKernel kernel(p, shared ? "paths, states in registers" : "paths");
  const int threads = ThreadsOf(p);
  const Paths paths{.p = p,
                    .k = kernel,
                    .b = kernel.b(),
                    .threads = threads,
                    .of_thread = CeilDiv(p.states, threads)};
  Block& body = kernel.body();
  const Sample sample = SampleOf(paths, body);
  const Previous last =
      shared ? WalkShared(paths, sample, body) : WalkInMemory(paths, sample, body);
  StoreCost(paths, sample, last, body);
  kernel.Finish({p.samples, p.has_gradients() ? 2 : 1, 1}, threads, lowered);
}

}  // namespace kiln::compiler
