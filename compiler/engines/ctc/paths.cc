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

class PathsKernel {
 public:
  explicit PathsKernel(const CtcProblem& p)
      : p_(p),
        k_(p, CtcPathsAreShared(p) ? "paths, states in registers" : "paths"),
        b_(k_.b()),
        threads_(ThreadsOf(p)),
        of_thread_(CeilDiv(p.states, threads_)) {}

  void Lower(Lowered& lowered) {
    const bool shared = CtcPathsAreShared(p_);
    Begin(k_.body());
    if (shared)
      WalkShared(k_.body());
    else
      Walk(k_.body());
    StoreCost(k_.body());
    k_.Finish({p_.samples, p_.has_gradients() ? 2 : 1, 1}, threads_, lowered);
  }

 private:
  // The state that the path counts as r, and what it reads and may skip.
  struct State {
    Expr symbol, skips;
  };

  Expr n() const { return k_.bx(); }
  Expr is_backward() const { return Equals(k_.by(), b_.Idx(1)); }

  void Begin(Block& out) {
    start_ = b_.Let(out, "start", k_.Read(kCtcStarts, n()));
    const Expr states = b_.Let(out, "path", k_.Read(kCtcStates, n()));
    path_ = states;
    states_ = b_.Let(out, "path_states", AtLeast0(b_, tile::Cast(p_.index, states)));
    const Expr input = tile::Cast(p_.index, k_.Integer(out, p_.input_lengths, n()));
    frames_ =
        b_.Let(out, "path_frames",
               tile::Select(tile::Op(ScalarOp::kGt, {states, tile::Int(0)}), input, b_.Idx(0)));
    offset_ = k_.NewCell(out, "offset", k_.Number(0));
    shift_ = k_.NewCell(out, "shift", k_.Number(0));
  }

  // The frame that step i is at; the nearest inside where there is none.
  Expr FrameOf(Block& out, const Expr& i) {
    const Expr last = frames_ - b_.Idx(1);
    const Expr inside = tile::Op(ScalarOp::kMin, {i, last});
    return b_.Let(out, "t", AtLeast0(b_, tile::Select(is_backward(), last - inside, inside)));
  }
  Expr NumberOf(const Expr& r) { return tile::Select(is_backward(), states_ - b_.Idx(1) - r, r); }

  // The symbol of state s, where that is one.
  Expr SymbolOf(Block& out, const Expr& s, const Expr& exists) {
    if (p_.label == 0) return tile::Int(0);
    const Expr is_label = tile::And(exists, Equals(AtLeast0(b_, s) % b_.Idx(2), b_.Idx(1)));
    const Expr at = AtLeast0(b_, s - b_.Idx(1)) / b_.Idx(2);
    return k_.LabelIf(out, is_label, start_, at);
  }

  State StateOf(Block& out, const Expr& r) {
    const Expr s = b_.Let(out, "state", NumberOf(r)),
               from = b_.Let(out, "from", NumberOf(r - b_.Idx(2)));
    const Expr exists = b_.Let(out, "exists", tile::Lt(r, states_));
    const Expr two = b_.Let(out, "two", tile::And(exists, tile::Ge(r, b_.Idx(2))));
    const Expr mine = SymbolOf(out, s, exists), other = SymbolOf(out, from, two);
    const Expr later = b_.Let(out, "later", tile::Select(is_backward(), other, mine));
    const auto differ = [](const Expr& a, const Expr& b) {
      return tile::Op(ScalarOp::kNe, {a, b});
    };
    const Expr skips = tile::And(two, tile::And(differ(later, tile::Int(0)), differ(mine, other)));
    return {mine, b_.Let(out, "skips", skips)};
  }

  using Previous = std::function<Expr(const Expr&)>;  // f of the step before, at r
  // Sum of the step: of the first one, 1 in the first two states.
  Expr SumOf(Block& out, const Expr& i, const Expr& r, const Expr& skips, const Previous& f) {
    const Expr one = AtLeast0(b_, r - b_.Idx(1)), two = AtLeast0(b_, r - b_.Idx(2));
    const Expr begins = Equals(i, b_.Idx(0));
    const Expr first = tile::Select(tile::Lt(r, b_.Idx(2)), k_.Number(0), k_.NegInf());
    const Cell sum = k_.NewCell(out, "sum", first);
    Block later;
    const auto value = [&](const char* name, const Expr& exists, const Expr& at) {
      return b_.Let(later, name, tile::Select(exists, f(at), k_.NegInf()));
    };
    const Expr here = b_.Let(later, "f0", f(r)), before = value("f1", tile::Ge(r, b_.Idx(1)), one),
               skipped = value("f2", skips, two);
    later.push_back(sum.Set(k_.LogSum(later, here, before, skipped) - shift_.Get()));
    out.push_back({tile::If{tile::Op(ScalarOp::kNot, {begins}), std::move(later), {}}});
    return sum.Get();
  }

  // Keeps what the gradient needs of a step.
  void Keep(Block& out, const Expr& t, const Expr& r, const Expr& sum, const Expr& f) {
    if (!p_.has_gradients()) return;
    const Expr at = Place(t) * k_.States() + NumberOf(r);
    k_.Write(out, kCtcPaths, at, tile::Select(is_backward(), sum, f));
  }
  void KeepOffset(Block& out, const Expr& t) {
    if (!p_.has_gradients()) return;
    Block first;
    k_.Write(first, kCtcOffsets, Place(t), offset_.Get());
    out.push_back({tile::If{Equals(k_.tx(), b_.Idx(0)), std::move(first), {}}});
  }
  Expr Place(const Expr& t) { return (k_.by() * k_.Frames() + t) * k_.Samples() + n(); }

  void SetSoftmax(Block& out, const Expr& t, const std::string& largest, const std::string& log_sum,
                  const Expr& slot) {
    if (!p_.attrs.softmax) return;
    const Expr at = b_.Let(out, "softmax", (t * k_.Samples() + n()) * b_.Idx(2));
    out.push_back({tile::Store{largest, slot, k_.Read(kCtcSoftmax, at)}});
    out.push_back({tile::Store{log_sum, slot, k_.Read(kCtcSoftmax, at + b_.Idx(1))}});
  }

  // Whole numbers that bring the largest state of the step before to 0 .. 1.
  void Rescale(Block& out, const Previous& f) {
    const Cell most = k_.NewCell(out, "largest_state", k_.NegInf());
    const Expr lane = k_.tx() % b_.Idx(p_.lanes());
    k_.Strided(out, "m", states_, lane, p_.lanes(), [&](Block& inside, const Expr& r) {
      inside.push_back(most.Set(tile::Op(ScalarOp::kMaxNan, {most.Get(), f(r)})));
    });
    k_.CombineLanes(out, most, ScalarOp::kMaxNan);
    const Expr is_finite =
        tile::Lt(tile::Op(ScalarOp::kAbs, {most.Get()}), tile::Op(ScalarOp::kNeg, {k_.NegInf()}));
    out.push_back(shift_.Set(
        tile::Select(is_finite, tile::Op(ScalarOp::kFloor, {most.Get()}), k_.Number(0))));
    out.push_back(offset_.Set(offset_.Get() + shift_.Get()));
  }

  // ---- states in registers, frames in shared memory

  int64_t Ahead() const {
    // Even, so that a turn of the loop begins in the same one of the two frames.
    int64_t ahead = kRescale;
    while (ahead > 2 && ahead * of_thread_ > kRegistersAhead) ahead /= 2;
    return ahead;
  }

  Expr SharedPlace(int64_t frame, const Expr& r) const {
    return b_.Idx(frame * threads_ * of_thread_) + r;
  }
  Expr StateOfThread(int64_t e) const { return k_.tx() + b_.Idx(e * threads_); }

  void WalkShared(Block& out) {
    const int64_t ahead = Ahead();
    const DType read = ArithmeticType(p_.group.graph[p_.probs].dtype);
    out.push_back({tile::Alloc{ring_ = b_.Name("last"), p_.type, tile::Space::kShared,
                               2 * threads_ * of_thread_}});
    const std::string symbols = k_.Registers(out, "symbols", DType::kI32, of_thread_),
                      skips = k_.Registers(out, "skipping", DType::kI32, of_thread_),
                      x = k_.Registers(out, "next", read, ahead * of_thread_);
    log_y_ = k_.Registers(out, "log_y", p_.type, ahead * of_thread_);
    largest_ = k_.Registers(out, "largest", p_.type, ahead);
    log_sum_ = k_.Registers(out, "log_sum_of", p_.type, ahead);
    for (int64_t e = 0; e < of_thread_; ++e) {
      const State state = StateOf(out, StateOfThread(e));
      out.push_back({tile::Store{symbols, b_.Idx(e), state.symbol}});
      out.push_back(
          {tile::Store{skips, b_.Idx(e), tile::Select(state.skips, tile::Int(1), tile::Int(0))}});
    }
    const auto fetch = [&](Block& to, const Expr& i, int64_t slot) {
      const Expr t = FrameOf(to, i);
      SetSoftmax(to, t, largest_, log_sum_, b_.Idx(slot));
      for (int64_t e = 0; e < of_thread_; ++e) {
        const Expr symbol = tile::Cast(p_.index, tile::Load(symbols, DType::kI32, b_.Idx(e)));
        to.push_back({tile::Store{x, b_.Idx(slot * of_thread_ + e), k_.Prob(to, t, n(), symbol)}});
      }
    };
    // Values that a turn needs are read by the turn before, all at once: a read that a step waits
    // for would be waited for with all that were sent after it.
    const auto take = [&](Block& to) {
      for (int64_t d = 0; d < ahead; ++d) {
        for (int64_t e = 0; e < of_thread_; ++e) {
          const Expr at = b_.Idx(d * of_thread_ + e);
          const Expr y = k_.LogY(tile::Load(x, read, at), tile::Load(largest_, p_.type, b_.Idx(d)),
                                 tile::Load(log_sum_, p_.type, b_.Idx(d)));
          to.push_back({tile::Store{log_y_, at, y}});
        }
      }
    };
    for (int64_t d = 0; d < ahead; ++d) fetch(out, b_.Idx(d), d);
    const Expr turns = (frames_ + b_.Idx(ahead - 1)) / b_.Idx(ahead);
    k_.Loop(out, "turn", turns, [&](Block& turn, const Expr& number) {
      const Expr base = b_.Let(turn, "step", number * b_.Idx(ahead));
      take(turn);
      for (int64_t d = 0; d < ahead; ++d) fetch(turn, base + b_.Idx(d + ahead), d);
      Block rescale;
      Rescale(rescale,
              [&](const Expr& r) { return tile::Load(ring_, p_.type, SharedPlace(1, r)); });
      turn.push_back(
          {tile::If{tile::Op(ScalarOp::kGt, {number, b_.Idx(0)}), std::move(rescale), {}}});
      for (int64_t d = 0; d < ahead; ++d) {
        Block step;
        StepShared(step, base + b_.Idx(d), d, skips);
        turn.push_back({tile::If{tile::Lt(base + b_.Idx(d), frames_), std::move(step), {}}});
        turn.push_back({tile::Barrier{}});
      }
    });
  }

  void StepShared(Block& out, const Expr& step, int64_t slot, const std::string& skips) {
    const Expr i = b_.Let(out, "i", step);
    const Expr t = FrameOf(out, i);
    const Previous previous = [&](const Expr& r) {
      return tile::Load(ring_, p_.type, SharedPlace(1 - slot % 2, r));
    };
    for (int64_t e = 0; e < of_thread_; ++e) {
      Block state;
      const Expr r = b_.Let(state, "r", StateOfThread(e));
      const Expr may_skip = Equals(tile::Load(skips, DType::kI32, b_.Idx(e)), tile::Int(1));
      const Expr sum = b_.Let(state, "total", SumOf(state, i, r, may_skip, previous));
      const Expr y = tile::Load(log_y_, p_.type, b_.Idx(slot * of_thread_ + e));
      const Expr f = b_.Let(state, "f", sum + y);
      state.push_back({tile::Store{ring_, SharedPlace(slot % 2, r), f}});
      Keep(state, t, r, sum, f);
      out.push_back({tile::If{tile::Lt(StateOfThread(e), states_), std::move(state), {}}});
    }
    KeepOffset(out, t);
    if (slot == 0) out.push_back(shift_.Set(k_.Number(0)));
  }

  // ---- states and frames in memory

  Expr RingPlace(const Expr& i, const Expr& r) {
    const Expr frame = (k_.by() * k_.Samples() + n()) * b_.Idx(2) + i % b_.Idx(2);
    return frame * k_.States() + r;
  }

  void Walk(Block& out) {
    largest_ = k_.Registers(out, "largest", p_.type, 1);
    log_sum_ = k_.Registers(out, "log_sum_of", p_.type, 1);
    k_.Loop(out, "i", frames_, [&](Block& step, const Expr& i) {
      const Expr t = FrameOf(step, i);
      const Previous previous = [&](const Expr& r) {
        return k_.Read(kCtcRing, RingPlace(i + b_.Idx(1), r));
      };
      step.push_back(shift_.Set(k_.Number(0)));
      Block rescale;
      Rescale(rescale, previous);
      const Expr is_due = tile::And(Equals(i % b_.Idx(kRescale), b_.Idx(0)),
                                    tile::Op(ScalarOp::kGt, {i, b_.Idx(0)}));
      step.push_back({tile::If{is_due, std::move(rescale), {}}});
      SetSoftmax(step, t, largest_, log_sum_, b_.Idx(0));
      k_.Strided(step, "r", states_, k_.tx(), threads_, [&](Block& each, const Expr& r) {
        const State state = StateOf(each, r);
        const Expr sum = b_.Let(each, "total", SumOf(each, i, r, state.skips, previous));
        const Expr x = k_.Prob(each, t, n(), tile::Cast(p_.index, state.symbol));
        const Expr y = k_.LogY(x, tile::Load(largest_, p_.type, b_.Idx(0)),
                               tile::Load(log_sum_, p_.type, b_.Idx(0)));
        const Expr f = b_.Let(each, "f", sum + y);
        k_.Write(each, kCtcRing, RingPlace(i, r), f);
        Keep(each, t, r, sum, f);
      });
      KeepOffset(step, t);
      if (p_.on_gpu()) step.push_back({tile::Barrier{}});
    });
  }

  // ---- P

  Expr LastState(const Expr& r) {
    const Expr last = frames_ - b_.Idx(1);
    if (!CtcPathsAreShared(p_)) return k_.Read(kCtcRing, RingPlace(last, r));
    return tile::Load(ring_, p_.type, last % b_.Idx(2) * b_.Idx(threads_ * of_thread_) + r);
  }

  void StoreCost(Block& out) {
    Block mine;
    const Expr is_valid = tile::Ge(path_, tile::Int(0));
    const Cell cost =
        k_.NewCell(mine, "cost", tile::Select(is_valid, k_.Number(0), k_.Number(std::nan(""))));
    Block walked;
    const Expr end = states_ - b_.Idx(1);
    const Expr last = b_.Let(walked, "end", LastState(end));
    const Expr other = b_.Let(walked, "end",
                              tile::Select(tile::Op(ScalarOp::kGt, {end, b_.Idx(0)}),
                                           LastState(AtLeast0(b_, end - b_.Idx(1))), k_.NegInf()));
    const Expr total = k_.LogSum(walked, last, other, k_.NegInf());
    walked.push_back(cost.Set(k_.Number(0) - (total + offset_.Get())));
    if (p_.has_gradients()) {
      k_.Write(walked, kCtcTotals, n() * b_.Idx(2), total);
      k_.Write(walked, kCtcTotals, n() * b_.Idx(2) + b_.Idx(1), offset_.Get());
    }
    mine.push_back(
        {tile::If{tile::Op(ScalarOp::kGt, {frames_, b_.Idx(0)}), std::move(walked), {}}});
    mine.push_back({tile::Store{b_.Pointer(p_.costs), b_.Offset(p_.costs, {n()}),
                                tile::Cast(p_.group.graph[p_.costs].dtype, cost.Get())}});
    const Expr writes =
        tile::And(Equals(k_.tx(), b_.Idx(0)), tile::Op(ScalarOp::kNot, {is_backward()}));
    out.push_back({tile::If{writes, std::move(mine), {}}});
  }

  const CtcProblem& p_;
  CtcKernel k_;
  KernelBuilder& b_;
  int threads_;
  int64_t of_thread_;  // states of a thread, at most
  Expr start_, path_, states_, frames_;
  Cell offset_, shift_;
  std::string ring_, log_y_, largest_, log_sum_;
};

}  // namespace

bool CtcPathsAreShared(const CtcProblem& p) {
  if (!p.on_gpu()) return false;
  const int64_t threads = ThreadsOf(p), of_thread = CeilDiv(p.states, threads);
  return of_thread <= kMostOfThread &&
         2 * threads * of_thread * SizeOf(p.type) <= kSharedWithoutAttribute;
}

void LowerCtcPaths(const CtcProblem& p, Lowered& lowered) { PathsKernel(p).Lower(lowered); }

}  // namespace kiln::compiler
