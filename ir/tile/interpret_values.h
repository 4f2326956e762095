// Values of the interpreter: what an operation makes of its operands (interpret_numbers.cc),
// expressions of all active threads (Evaluator), and what a warp does together.
#pragma once

#include <span>
#include <vector>

#include "ir/tile/interpret_memory.h"

namespace kiln::tile {

using Lanes = std::span<const int>;  // numbers of the active threads

// ---- numbers

Cell Convert(DType from, DType to, Cell v);
Cell Apply(ScalarOp op, DType operand, DType result, Cell a, Cell b, Cell c);

// ---- expressions

// Evaluates an expression's node for all active threads before the next node is.
class Evaluator {
 public:
  Evaluator(int threads, Faults& faults, BlockMemory& memory)
      : threads_(threads), faults_(faults), memory_(memory), stamps_(threads) {}

  void Eval(ExprCode& c, Lanes lanes);

 private:
  void EvalLoad(ExprCode& c, Lanes lanes);
  void EvalOp(ExprCode& c, Lanes lanes);
  void EvalWhere(ExprCode& from, ExprCode& to, Lanes lanes, const Cell* condition, bool wanted);
  void EvalShuffle(ExprCode& c, Lanes lanes);
  template <class F>
  void ForEach(Lanes lanes, F f) const;
  template <class F>
  bool EachInt(ExprCode& c, Lanes lanes, F f) const;
  bool EvalOftenInt(ExprCode& c, Lanes lanes) const;
  template <class F>
  bool EachFloat(ExprCode& c, Lanes lanes, F f) const;
  bool EvalOftenFloat(ExprCode& c, Lanes lanes) const;

  const int threads_;
  Faults& faults_;
  BlockMemory& memory_;
  std::vector<int64_t> stamps_;  // of a thread: the last shuffle that it took part in
  int64_t stamp_ = 0;
};

// ---- tensor cores (interpret_warps.cc); operands of the statement have been evaluated

// Loads matrices for every warp among the active threads, which must be whole.
void LoadMatrices(Faults& faults, BlockMemory& memory, Step& s, const LoadMatrix& load,
                  Lanes lanes);
// Multiplies matrices. Products are exact in f64 and summed there: the hardware's order is its own.
void MultiplyMatrices(Faults& faults, BlockMemory& memory, Step& s, Lanes lanes);

}  // namespace kiln::tile
