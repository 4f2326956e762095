// BlockSums: the end of a pass of the columns engine that reduces. The walkers of a block meet in
// shared memory, and a partial result of each of its columns goes to scratch memory.
#pragma once

#include "compiler/engines/columns/thread_sums.h"

namespace kiln::compiler {

class BlockSums {
 public:
  BlockSums(const PassFrame& f, const ThreadColumns& columns, const ThreadSums& sums)
      : f_(f), columns_(columns), sums_(sums) {}

  // Publishes reduction r. A sum is published before its moments.
  void Publish(tile::Block& out, size_t r);

 private:
  void ShareMean(tile::Block& out, size_t r, const tile::Expr& total);
  void Correct(tile::Block& out, size_t moment, size_t sum) const;
  const std::string& Shared(tile::Block& out, DType type, int64_t size);
  tile::Expr Fold(tile::Block& out, size_t r, const std::string& from, const tile::Expr& first,
                  int count, int pitch) const;
  tile::Expr FoldWalkers(tile::Block& out, size_t r);
  tile::Expr FoldBlock(tile::Block& out, size_t r);

  const PassFrame& f_;
  const ThreadColumns& columns_;
  const ThreadSums& sums_;
  std::map<size_t, std::string> means_;  // of sums: shared across, registers along
  std::map<DType, std::string> shared_;
};

}  // namespace kiln::compiler
