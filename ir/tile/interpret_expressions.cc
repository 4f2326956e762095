// Evaluation of expressions: a node for all active threads, then the next one.
#include "ir/tile/interpret_values.h"

namespace kiln::tile {

void Evaluator::Eval(ExprCode& c, Lanes lanes) {
  switch (c.node->kind) {
    case ExprKind::kInt:
    case ExprKind::kFloat:
    case ExprKind::kVar:
      return;
    case ExprKind::kLoad:
      return EvalLoad(c, lanes);
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

void Evaluator::EvalLoad(ExprCode& c, Lanes lanes) {
  Eval(*c.args[0], lanes);
  for (const int t : lanes) {
    const int64_t index = c.args[0]->out[t].i;
    const bool is_inside = memory_.InBounds(*c.memory, index, 1, t);
    c.out[t] = is_inside ? memory_.Read(*c.memory, index, t) : Cell{.i = 0};
  }
}

// Operations that addresses and sums are made of run as one loop over threads each: EvalOften… is
// true where it is one of these. The others are chosen anew in every thread (Apply).
template <class F>
void Evaluator::ForEach(Lanes lanes, F f) const {
  if (lanes.size() == static_cast<size_t>(threads_)) {
    for (int t = 0; t < threads_; ++t) f(t);
  } else {
    for (const int t : lanes) f(t);
  }
}

template <class F>
bool Evaluator::EachInt(ExprCode& c, Lanes lanes, F f) const {
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

bool Evaluator::EvalOftenInt(ExprCode& c, Lanes lanes) const {
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
bool Evaluator::EachFloat(ExprCode& c, Lanes lanes, F f) const {
  const Cell *const a = c.args[0]->out, *const b = c.args[1]->out;
  ForEach(lanes, [&](int t) { c.out[t].f = static_cast<float>(f(a[t].f, b[t].f)); });
  return true;
}

bool Evaluator::EvalOftenFloat(ExprCode& c, Lanes lanes) const {
  switch (c.node->op) {
    case ScalarOp::kAdd:
      return EachFloat(c, lanes, [](double a, double b) { return a + b; });
    case ScalarOp::kMul:
      return EachFloat(c, lanes, [](double a, double b) { return a * b; });
    default:
      return false;
  }
}

void Evaluator::EvalOp(ExprCode& c, Lanes lanes) {
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
    c.out[t] =
        Apply(op, operand, result, a[t], b != nullptr ? b[t] : kNone, d != nullptr ? d[t] : kNone);
}

// to = from in the threads where the condition is `wanted`; `from` is not evaluated in the
// others.
void Evaluator::EvalWhere(ExprCode& from, ExprCode& to, Lanes lanes, const Cell* condition,
                          bool wanted) {
  std::vector<int> chosen;
  for (const int t : lanes)
    if ((condition[t].i != 0) == wanted) chosen.push_back(t);
  if (chosen.empty()) return;
  Eval(from, chosen);
  for (const int t : chosen) to.out[t] = from.out[t];
}

void Evaluator::EvalShuffle(ExprCode& c, Lanes lanes) {
  Eval(*c.args[0], lanes);
  ++stamp_;
  for (const int t : lanes) stamps_[t] = stamp_;
  for (const int t : lanes) {
    const int source = t ^ static_cast<int>(c.node->int_value);
    if (stamps_[source] != stamp_)
      faults_.Fail(t, "shuffle_xor reads thread {}, which is not active", source);
    c.out[t] = c.args[0]->out[source];
  }
}

}  // namespace kiln::tile
