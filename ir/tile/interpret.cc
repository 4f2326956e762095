// Reference execution of tile kernels. Names are resolved to slots once; then each expression node
// owns one value a thread and is evaluated for all active threads before the next node is, which is
// the lockstep and keeps the interpretive cost per value low. It is stricter than any device:
// out-of-bounds and misaligned access, undefined reads, barriers and shuffles that some thread
// misses, and races on shared memory are errors. Called by tests and by `kiln run --interpret`.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "ir/tile/interpret_steps.h"
#include "ir/tile/names.h"
#include "ir/tile/tools.h"
#include "ir/tile/visit.h"

namespace kiln::tile {
namespace {

using Lanes = std::span<const int>;  // numbers of the active threads

constexpr int kManyThreads = -1;  // the same value from several threads, or readers of several
// Several threads of team t of the last barrier of teams: kManyOfTeam - t.
constexpr int kManyOfTeam = -2;

int64_t Saturate(DType type, int64_t v) {
  const int bits = Info(type).bits;
  if (type == DType::kBool) return v != 0;
  if (bits == 64) return v;
  if (Info(type).kind == DTypeKind::kUint)
    return std::clamp<int64_t>(v, 0, (int64_t{1} << bits) - 1);
  return std::clamp<int64_t>(v, -(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1);
}

int64_t RoundToInt(DType type, double v) {
  if (std::isnan(v)) return type == DType::kBool;
  if (v >= 0x1p63) return Saturate(type, std::numeric_limits<int64_t>::max());
  if (v < -0x1p63) return Saturate(type, std::numeric_limits<int64_t>::min());
  return type == DType::kBool ? v != 0 : Saturate(type, static_cast<int64_t>(std::nearbyint(v)));
}

Cell Convert(DType from, DType to, Cell v) {
  if (!IsFloat(to)) return {.i = IsFloat(from) ? RoundToInt(to, v.f) : Saturate(to, v.i)};
  if (!IsFloat(from) && to == DType::kF32) return {.f = static_cast<float>(v.i)};
  return {.f = RoundTo(to, IsFloat(from) ? v.f : static_cast<double>(v.i))};
}

Cell Apply(ScalarOp op, DType operand, DType result, Cell a, Cell b, Cell c) {
  if (!IsFloat(operand)) {
    const int64_t v = EvalScalarInt(op, a.i, b.i, c.i);
    return {.i = result == DType::kI32 ? static_cast<int32_t>(v) : v};
  }
  if (result == DType::kBool) return {.i = EvalScalar(op, a.f, b.f, c.f) != 0};
  if (result == DType::kF64) return {.f = EvalScalar(op, a.f, b.f, c.f)};
  // fma is the one operation that rounding twice would get wrong.
  if (op == ScalarOp::kFma)
    return {
        .f = std::fmaf(static_cast<float>(a.f), static_cast<float>(b.f), static_cast<float>(c.f))};
  return {.f = static_cast<float>(EvalScalar(op, a.f, b.f, c.f))};
}

class Machine {
 public:
  explicit Machine(const Kernel& kernel)
      : threads_(kernel.threads), stamps_(kernel.threads), async_(kernel.threads) {
    for (int t = 0; t < threads_; ++t) all_.push_back(t);
    Walk(kernel.body, [&](const Stmt& s) {
      if (const auto* barrier = std::get_if<Barrier>(&s.node); barrier != nullptr)
        team_ = std::max(team_, barrier->team);
    });
  }

  Status Run(std::vector<Step>& body) {
    Run(body, all_);
    return status_;
  }

 private:
  // ---- failures: the first is kept, and ends the run after the statement that made it ----
  template <class... A>
  void Fail(int thread, fmt::format_string<A...> format, A&&... args) {
    if (!status_.ok()) return;
    const std::string what = fmt::format(format, std::forward<A>(args)...);
    status_ = Status::Error(Code::kExecutionFailed, "{}: {} (thread {} of block {},{},{})",
                            HeadLine(*at_->source), what, thread, block_[0], block_[1], block_[2]);
  }

  // ---- memory ----
  bool InBounds(const Memory& m, int64_t index, int lanes, int thread) {
    if (index >= 0 && index + lanes <= m.size) {
      if (lanes == 1 || index % lanes == 0) return true;
      Fail(thread, "{}[{}] is not aligned for {} lanes", m.name, index, lanes);
      return false;
    }
    Fail(thread, "{}[{}] is out of bounds: {} has {} elements", m.name,
         index < 0 ? index : index + lanes - 1, m.name, m.size);
    return false;
  }

  size_t Offset(const Memory& m, int64_t index, int thread) const {
    return m.space == Space::kReg ? index * threads_ + thread : index;
  }

  Cell Read(Memory& m, int64_t index, int thread) {
    if (m.global != nullptr) {
      const double v = (*m.global)[index];
      return IsFloat(m.type) ? Cell{.f = v} : Cell{.i = static_cast<int64_t>(v)};
    }
    const size_t at = Offset(m, index, thread);
    if (m.defined[at] == 0) {
      Fail(thread, "{}[{}] is undefined", m.name, index);
      return {.i = 0};
    }
    if (m.space == Space::kShared) {
      if (!CheckLanded(m, index, thread)) return {.i = 0};
      NoteRead(m, index, thread);
    }
    return m.cells[at];
  }

  void Write(Memory& m, int64_t index, int thread, Cell value) {
    if (m.global != nullptr) {
      (*m.global)[index] = IsFloat(m.type) ? value.f : static_cast<double>(value.i);
      return;
    }
    const size_t at = Offset(m, index, thread);
    if (m.space == Space::kShared) {
      if (!CheckLanded(m, index, thread)) return;
      NoteWrite(m, index, thread, m.defined[at] != 0 && m.cells[at].i == value.i);
    }
    m.defined[at] = 1;
    m.cells[at] = value;
  }

  bool CheckLanded(const Memory& m, int64_t index, int thread) {
    if (m.in_flight[index] == 0) return true;
    Fail(thread, "{}[{}] is touched before its copy was waited for", m.name, index);
    return false;
  }

  // Whether somebody else touched it at `epoch`, and nothing orders that before what `thread` does.
  bool IsOpen(int epoch, int toucher, int thread) const {
    if (epoch < block_epoch_ || toucher == thread) return false;
    return epoch >= team_epoch_ || TeamOf(toucher) != TeamOf(thread);
  }
  int TeamOf(int toucher) const {
    if (toucher <= kManyOfTeam) return kManyOfTeam - toucher;
    return toucher == kManyThreads || team_ == 0 ? -1 : toucher / team_;
  }
  int Together(int toucher, int thread) const {
    const int team = TeamOf(thread);
    return team >= 0 && TeamOf(toucher) == team ? kManyOfTeam - team : kManyThreads;
  }

  void NoteRead(Memory& m, int64_t index, int thread) {
    Memory::Touch& t = m.touches[index];
    if (t.writer >= 0 && IsOpen(t.write_epoch, t.writer, thread))
      Fail(thread, "race: {}[{}] was stored by thread {} and there is no barrier between", m.name,
           index, t.writer);
    t.reader = IsOpen(t.read_epoch, t.reader, thread) ? Together(t.reader, thread) : thread;
    t.read_epoch = epoch_;
  }

  void NoteWrite(Memory& m, int64_t index, int thread, bool same_value) {
    Memory::Touch& t = m.touches[index];
    const bool written = IsOpen(t.write_epoch, t.writer, thread);
    if (!same_value && written)
      Fail(thread, "race: {}[{}] was stored by another thread and there is no barrier between",
           m.name, index);
    if (!same_value && IsOpen(t.read_epoch, t.reader, thread))
      Fail(thread, "race: {}[{}] was loaded by another thread and there is no barrier between",
           m.name, index);
    t.writer = written ? Together(t.writer, thread) : thread;
    t.write_epoch = epoch_;
  }

  // ---- expressions ----
  void Eval(ExprCode& c, Lanes lanes) {
    switch (c.node->kind) {
      case ExprKind::kInt:
      case ExprKind::kFloat:
      case ExprKind::kVar:
        return;
      case ExprKind::kLoad:
        Eval(*c.args[0], lanes);
        for (const int t : lanes) {
          const int64_t index = c.args[0]->out[t].i;
          c.out[t] = InBounds(*c.memory, index, 1, t) ? Read(*c.memory, index, t) : Cell{.i = 0};
        }
        return;
      case ExprKind::kOp:
        return EvalOp(c, lanes);
      case ExprKind::kCast: {
        Eval(*c.args[0], lanes);
        const DType from = c.args[0]->node->type;
        for (const int t : lanes) c.out[t] = Convert(from, c.node->type, c.args[0]->out[t]);
        return;
      }
      case ExprKind::kShuffle:
        return EvalShuffle(c, lanes);
    }
  }

  void EvalOp(ExprCode& c, Lanes lanes) {
    const ScalarOp op = c.node->op;
    Eval(*c.args[0], lanes);
    const Cell* a = c.args[0]->out;
    if (op == ScalarOp::kSelect) {
      EvalWhere(*c.args[1], c, lanes, a, true);
      return EvalWhere(*c.args[2], c, lanes, a, false);
    }
    if (op == ScalarOp::kAnd || op == ScalarOp::kOr) {
      for (const int t : lanes) c.out[t].i = a[t].i != 0;
      return EvalWhere(*c.args[1], c, lanes, a, op == ScalarOp::kAnd);
    }
    for (int i = 1; i < Info(op).arity; ++i) Eval(*c.args[i], lanes);
    const DType operand = c.args[0]->node->type, result = c.node->type;
    if (!IsFloat(operand) ? EvalOftenInt(c, lanes)
                          : result == DType::kF32 && EvalOftenFloat(c, lanes))
      return;
    static constexpr Cell kNone = {.i = 0};
    const Cell* b = c.args[1] != nullptr ? c.args[1]->out : nullptr;
    const Cell* d = c.args[2] != nullptr ? c.args[2]->out : nullptr;
    for (const int t : lanes)
      c.out[t] = Apply(op, operand, result, a[t], b != nullptr ? b[t] : kNone,
                       d != nullptr ? d[t] : kNone);
  }

  // What addresses and sums are made of, each operation as one loop over threads: true where it is
  // one of these. The others are chosen anew in every thread (Apply).
  template <class F>
  void ForEach(Lanes lanes, F f) const {
    if (lanes.size() == all_.size()) {
      for (int t = 0; t < threads_; ++t) f(t);
    } else {
      for (const int t : lanes) f(t);
    }
  }
  template <class F>
  bool EachInt(ExprCode& c, Lanes lanes, F f) const {
    static constexpr Cell kNone = {.i = 0};
    const Cell *const a = c.args[0]->out, *const b = c.args[1]->out;
    const Cell* const d = c.args[2] != nullptr ? c.args[2]->out : &kNone;
    const int d_step = c.args[2] != nullptr ? 1 : 0;
    const bool narrow = c.node->type == DType::kI32;
    ForEach(lanes, [&](int t) {
      const auto v = static_cast<int64_t>(f(a[t].i, b[t].i, d[t * d_step].i));
      c.out[t].i = narrow ? static_cast<int32_t>(v) : v;
    });
    return true;
  }
  bool EvalOftenInt(ExprCode& c, Lanes lanes) const {
    using U = uint64_t;  // wraps
    using I = int64_t;
    switch (c.node->op) {
      case ScalarOp::kAdd:
        return EachInt(c, lanes, [](U a, U b, U) { return a + b; });
      case ScalarOp::kSub:
        return EachInt(c, lanes, [](U a, U b, U) { return a - b; });
      case ScalarOp::kMul:
        return EachInt(c, lanes, [](U a, U b, U) { return a * b; });
      case ScalarOp::kFastDiv:
        return EachInt(c, lanes, [](U a, U b, U d) { return (a * static_cast<uint32_t>(b)) >> d; });
      case ScalarOp::kLt:
        return EachInt(c, lanes, [](I a, I b, I) { return a < b; });
      default:
        return false;
    }
  }
  template <class F>
  bool EachFloat(ExprCode& c, Lanes lanes, F f) const {
    const Cell *const a = c.args[0]->out, *const b = c.args[1]->out;
    ForEach(lanes, [&](int t) { c.out[t].f = static_cast<float>(f(a[t].f, b[t].f)); });
    return true;
  }
  bool EvalOftenFloat(ExprCode& c, Lanes lanes) const {
    switch (c.node->op) {
      case ScalarOp::kAdd:
        return EachFloat(c, lanes, [](double a, double b) { return a + b; });
      case ScalarOp::kMul:
        return EachFloat(c, lanes, [](double a, double b) { return a * b; });
      default:
        return false;
    }
  }

  // to = from in the threads where the condition is `wanted`; `from` is not evaluated in the
  // others.
  void EvalWhere(ExprCode& from, ExprCode& to, Lanes lanes, const Cell* condition, bool wanted) {
    std::vector<int> chosen;
    for (const int t : lanes)
      if ((condition[t].i != 0) == wanted) chosen.push_back(t);
    if (chosen.empty()) return;
    Eval(from, chosen);
    for (const int t : chosen) to.out[t] = from.out[t];
  }

  void EvalShuffle(ExprCode& c, Lanes lanes) {
    Eval(*c.args[0], lanes);
    ++stamp_;
    for (const int t : lanes) stamps_[t] = stamp_;
    for (const int t : lanes) {
      const int source = t ^ static_cast<int>(c.node->int_value);
      if (stamps_[source] != stamp_)
        Fail(t, "shuffle_xor reads thread {}, which is not active", source);
      c.out[t] = c.args[0]->out[source];
    }
  }

  // ---- statements ----
  void Run(std::vector<Step>& steps, Lanes lanes) {
    for (Step& s : steps) {
      at_ = &s;
      std::visit([&](const auto& node) { Execute(s, node, lanes); }, s.source->node);
      if (!status_.ok()) return;
    }
  }

  void Execute(Step& s, const Let&, Lanes lanes) { Eval(*s.first, lanes); }

  void Execute(Step& s, const Alloc&, Lanes lanes) {
    Memory& m = *s.dst;
    if (std::ranges::find(m.in_flight, 1) != m.in_flight.end())
      return Fail(lanes[0], "copies into it are still under way");
    if (m.space == Space::kShared || static_cast<int>(lanes.size()) == threads_) {
      std::ranges::fill(m.defined, uint8_t{0});
      return;
    }
    for (int64_t i = 0; i < m.size; ++i)
      for (const int t : lanes) m.defined[i * threads_ + t] = 0;
  }

  void Execute(Step& s, const Store&, Lanes lanes) {
    Eval(*s.first, lanes);
    Eval(*s.second, lanes);
    for (const int t : lanes) {
      const int64_t index = s.first->out[t].i;
      if (InBounds(*s.dst, index, 1, t)) Write(*s.dst, index, t, s.second->out[t]);
    }
  }

  void Execute(Step& s, const Copy& copy, Lanes lanes) {
    Eval(*s.first, lanes);
    Eval(*s.second, lanes);
    for (const int t : lanes) {
      const int64_t dst = s.first->out[t].i, src = s.second->out[t].i;
      if (!InBounds(*s.src, src, copy.lanes, t) || !InBounds(*s.dst, dst, copy.lanes, t)) return;
      for (int k = 0; k < copy.lanes; ++k) Write(*s.dst, dst + k, t, Read(*s.src, src + k, t));
    }
  }

  void Execute(Step&, const Call& s, Lanes lanes) {
    Fail(lanes.empty() ? 0 : lanes[0], "{} is a skeleton of the device library: only a GPU runs it",
         s.skeleton);
  }

  // The value is there for others from the wait on, as if the thread had stored it then; from here
  // to there nobody may touch it.
  void Execute(Step& s, const CopyAsync& copy, Lanes lanes) {
    Eval(*s.first, lanes);
    Eval(*s.second, lanes);
    Eval(*s.third, lanes);
    for (const int t : lanes) {
      const int64_t dst = s.first->out[t].i, src = s.second->out[t].i;
      const bool valid = s.third->out[t].i != 0;
      if (!InBounds(*s.dst, dst, copy.lanes, t)) return;
      if (valid && !InBounds(*s.src, src, copy.lanes, t)) return;
      for (int k = 0; k < copy.lanes; ++k) {
        const Cell zero = IsFloat(s.dst->type) ? Cell{.f = 0} : Cell{.i = 0};
        Write(*s.dst, dst + k, t, valid ? Read(*s.src, src + k, t) : zero);
        s.dst->in_flight[dst + k] = 1;
      }
      async_[t].open.push_back({s.dst, dst, copy.lanes});
    }
  }

  void Execute(Step&, const CommitAsync&, Lanes lanes) {
    for (const int t : lanes) {
      async_[t].committed.push_back(std::move(async_[t].open));
      async_[t].open.clear();
    }
  }

  void Execute(Step&, const WaitAsync& wait, Lanes lanes) {
    for (const int t : lanes) {
      auto& groups = async_[t].committed;
      while (groups.size() > static_cast<size_t>(wait.groups)) {
        for (const Landing& l : groups.front()) Land(l, t);
        groups.pop_front();
      }
    }
  }

  struct Landing {
    Memory* memory;
    int64_t index;
    int lanes;
  };

  void Land(const Landing& l, int thread) {
    for (int64_t i = l.index; i < l.index + l.lanes; ++i) {
      l.memory->in_flight[i] = 0;
      NoteWrite(*l.memory, i, thread, false);
    }
  }

  void Execute(Step& s, const AtomicAdd&, Lanes lanes) {
    Eval(*s.first, lanes);
    Eval(*s.second, lanes);
    Memory& m = *s.dst;
    for (const int t : lanes) {
      const int64_t index = s.first->out[t].i;
      if (!InBounds(m, index, 1, t)) return;
      const Cell sum =
          Apply(ScalarOp::kAdd, m.type, m.type, Read(m, index, t), s.second->out[t], {.i = 0});
      Write(m, index, t, sum);
    }
  }

  void Execute(Step& s, const Largest& largest, Lanes lanes) {
    for (const int t : lanes) {
      for (int64_t lane = 0; lane < largest.lanes; ++lane) {
        const ScalarOp op = largest.keeps_nan ? ScalarOp::kMaxNan : ScalarOp::kMax;
        double best = -std::numeric_limits<double>::infinity();
        for (Memory* source : s.sources) best = EvalScalar(op, best, Read(*source, lane, t).f, 0);
        Write(*s.dst, lane, t, {.f = best});
        if (s.src2 == nullptr) continue;
        int64_t number = 0;
        for (size_t k = s.sources.size(); k-- > 0;)
          if (const double v = Read(*s.sources[k], lane, t).f;
              v == best || (largest.keeps_nan && std::isnan(v)))
            number = largest.taps[k];
        Write(*s.src2, lane, t, {.i = number});
      }
    }
  }

  // Calls run(first lane) for each warp; only whole ones are legal.
  template <class F>
  void ForEachWarp(Lanes lanes, F&& run) {
    for (size_t i = 0; i < lanes.size() && status_.ok(); i += 32) {
      const int first = lanes[i];
      if (first % 32 != 0 || i + 32 > lanes.size() || lanes[i + 31] != first + 31)
        return Fail(first, "a warp is not active as a whole");
      run(first);
    }
  }

  void Execute(Step& s, const LoadMatrix& load, Lanes lanes) {
    Eval(*s.first, lanes);
    Eval(*s.second, lanes);
    ForEachWarp(lanes, [&](int first) { LoadMatrices(s, load, first); });
  }

  void LoadMatrices(Step& s, const LoadMatrix& load, int first) {
    const int size = SizeOf(s.src->type), per_word = 4 / size;
    for (int lane = 0; lane < 32; ++lane) {
      const int thread = first + lane, g = lane / 4, t = lane % 4;
      const int64_t to = s.first->out[thread].i;
      if (!InBounds(*s.dst, to, load.matrices * per_word, thread)) return;
      for (int matrix = 0; matrix < load.matrices; ++matrix) {
        for (int e = 0; e < per_word; ++e) {
          const int along = t * per_word + e;
          const int row = load.transposed ? along : g, column = load.transposed ? g : along;
          const int64_t from = s.second->out[first + matrix * 8 + row].i;
          if (!InBounds(*s.src, from, 16 / size, first + matrix * 8 + row)) return;
          Write(*s.dst, to + matrix * per_word + e, thread, Read(*s.src, from + column, thread));
        }
      }
    }
  }

  // Products are exact in f64 and summed there: the hardware's order is its own.
  void Execute(Step& s, const Mma&, Lanes lanes) {
    Eval(*s.first, lanes);
    Eval(*s.second, lanes);
    Eval(*s.third, lanes);
    ForEachWarp(lanes, [&](int first) { MultiplyWarp(s, first); });
  }

  static double RoundToTf32(double v) {
    if (!std::isfinite(v) || v == 0) return v;
    const double unit = std::ldexp(1.0, std::max(std::ilogb(v), -126) - 10);
    return std::round(v / unit) * unit;
  }

  void MultiplyWarp(Step& s, int first) {
    const DType type = s.src->type;
    const int per_word = 4 / SizeOf(type), depth = 8 * per_word;
    const auto value = [&](Memory& m, int64_t at, int thread) {
      const Cell cell = Read(m, at, thread);
      if (!IsFloat(type)) return static_cast<double>(cell.i);
      return type == DType::kF32 ? RoundToTf32(cell.f) : cell.f;
    };
    double a[16][32], b[32][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int thread = first + lane, g = lane / 4, t = lane % 4;
      const int64_t ai = s.second->out[thread].i, bi = s.third->out[thread].i;
      if (!InBounds(*s.src, ai, 4 * per_word, thread) ||
          !InBounds(*s.src2, bi, 2 * per_word, thread))
        return;
      for (int word = 0; word < 4; ++word)
        for (int e = 0; e < per_word; ++e)
          a[g + word % 2 * 8][(t + word / 2 * 4) * per_word + e] =
              value(*s.src, ai + word * per_word + e, thread);
      for (int word = 0; word < 2; ++word)
        for (int e = 0; e < per_word; ++e)
          b[(t + word * 4) * per_word + e][g] = value(*s.src2, bi + word * per_word + e, thread);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int thread = first + lane, g = lane / 4, t = lane % 4;
      const int64_t ci = s.first->out[thread].i;
      if (!InBounds(*s.dst, ci, 4, thread)) return;
      for (int e = 0; e < 4; ++e) {
        const int m = g + (e & 2) * 4, n = 2 * t + (e & 1);
        const Cell before = Read(*s.dst, ci + e, thread);
        double sum = IsFloat(type) ? before.f : static_cast<double>(before.i);
        for (int k = 0; k < depth; ++k) sum += a[m][k] * b[k][n];
        Cell after;
        if (IsFloat(type))
          after.f = static_cast<float>(sum);
        else
          after.i = static_cast<int32_t>(static_cast<int64_t>(sum));
        Write(*s.dst, ci + e, thread, after);
      }
    }
  }

  void Execute(Step& s, const For& loop, Lanes lanes) {
    Eval(*s.first, lanes);
    if (loop.bind == Bind::kThreadX) return RunThreads(s, lanes);
    if (lanes.empty()) return;
    const Cell* extent = s.first->out;
    int64_t most = 0;
    bool uniform = true;
    for (const int t : lanes) {
      most = std::max(most, extent[t].i);
      uniform = uniform && extent[t].i == extent[lanes[0]].i;
    }
    std::vector<int> still(lanes.begin(), lanes.end());
    for (int64_t k = 0; k < most && status_.ok(); ++k) {
      if (!uniform) std::erase_if(still, [&](int t) { return extent[t].i <= k; });
      for (const int t : still) s.var[t].i = k;
      if (IsBlockBind(loop.bind)) {
        block_[static_cast<size_t>(loop.bind) - static_cast<size_t>(Bind::kBlockX)] = k;
        block_epoch_ = ++epoch_;
      }
      Run(s.body, still);
    }
  }

  void RunThreads(Step& s, Lanes lanes) {
    std::vector<int> taking_part;
    for (const int t : lanes) {
      if (t < s.first->out[t].i) taking_part.push_back(t);
      s.var[t].i = t;
    }
    Run(s.body, taking_part);
  }

  void Execute(Step& s, const If&, Lanes lanes) {
    Eval(*s.first, lanes);
    if (!status_.ok()) return;
    std::vector<int> then_lanes, else_lanes;
    for (const int t : lanes) (s.first->out[t].i != 0 ? then_lanes : else_lanes).push_back(t);
    if (!then_lanes.empty()) Run(s.body, then_lanes);
    if (!else_lanes.empty() && status_.ok()) Run(s.else_body, else_lanes);
  }

  void Execute(Step&, const Barrier& barrier, Lanes lanes) {
    if (static_cast<int>(lanes.size()) != threads_)
      Fail(lanes.empty() ? 0 : lanes[0], "reached by {} of {} threads", lanes.size(), threads_);
    (barrier.team == 0 ? block_epoch_ : team_epoch_) = ++epoch_;
  }
  void Execute(Step&, const Comment&, Lanes) {}

  int threads_;
  std::vector<int> all_;
  std::vector<int64_t> stamps_;
  int64_t stamp_ = 0;
  struct Async {  // of a thread
    std::vector<Landing> open;
    std::deque<std::vector<Landing>> committed;
  };
  std::vector<Async> async_;
  // Barriers so far; what was touched before the last one of the block, or of teams, is ordered
  // with what comes.
  int epoch_ = 0, block_epoch_ = 0, team_epoch_ = 0;
  int team_ = 0;  // of barriers of teams
  int64_t block_[3] = {};
  const Step* at_ = nullptr;
  Status status_;
};

}  // namespace

Status Interpret(const Kernel& kernel, std::span<const Argument> args) {
  RETURN_IF_ERROR(Verify(kernel));
  if (args.size() != kernel.params.size())
    return Status::Error(Code::kBadParam, "{} takes {} arguments, not {}", kernel.name,
                         kernel.params.size(), args.size());
  for (size_t i = 0; i < args.size(); ++i)
    if (kernel.params[i].is_pointer && args[i].buffer == nullptr)
      return Status::Error(Code::kBadParam, "argument {} of {} needs a buffer",
                           kernel.params[i].name, kernel.name);
  Resolver resolved(kernel, args);
  return Machine(kernel).Run(resolved.body);
}

}  // namespace kiln::tile
