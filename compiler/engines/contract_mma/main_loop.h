// The main loop of contract_mma: panels come to the ring while the products of earlier ones run.
//
//   step s:   start filling slot s + stages - 1          (last read in step s - 1)
//             each k step but the last: fragments of the next | part of an element panel | products
//             wait for slot s + 1, barrier, its first fragments | products of the last k step
#pragma once

#include "compiler/engines/contract_mma/panel.h"
#include "compiler/kernel/accumulation.h"

namespace kiln::compiler {

class MmaMainLoop {
 public:
  // `acc` names the accumulators; panels have been entered.
  MmaMainLoop(const MmaContext& context, const OperandPanel& a, const OperandPanel& b,
              std::string acc)
      : x_(context), a_(a), b_(b), acc_(std::move(acc)) {}

  // acc += the products of the block's slice of k.
  void Emit(tile::Block& body, const MmaBlock& block, Totals& totals) const;

 private:
  bool AnyAsync() const { return a_.is_async() || b_.is_async(); }
  // Waits until at most so many stages of asynchronous copies are under way, and for all threads.
  void Await(tile::Block& out, int stages) const;
  void Fill(tile::Block& body, const tile::Expr& first_k) const;
  void LoadFragments(tile::Block& out, const tile::Expr& half, const tile::Expr& slot,
                     const tile::Expr& kk) const;
  void Multiply(tile::Block& out, const tile::Expr& half) const;

  MmaContext x_;
  const OperandPanel &a_, &b_;
  std::string acc_;
};

}  // namespace kiln::compiler
