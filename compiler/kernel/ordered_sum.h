// OrderedSum: the second kernel of a reduction that was split over blocks into f32 partial sums,
// scratch buffer 0 as [split][row][column]. Adds the splits in a fixed order, so that the result is
// the same every time.
#pragma once

#include <functional>
#include <string>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

struct OrderedSum {
  int64_t splits = 1, rows = 1;
  int64_t columns = 32;  // a multiple of 32
};

// Stores the sum of a row and column, where `first` (of the threads that share it) is true.
using StoreSum =
    std::function<void(KernelBuilder& b, tile::Block& out, const tile::Expr& row,
                       const tile::Expr& column, const tile::Expr& first, const tile::Expr& sum)>;

// Appends the kernel and its launch. A block: neighbouring columns of a row, 32 with 8 threads each
// where there are many splits, up to 256 of one where there are few.
void LowerOrderedSum(const Group& group, const Target& target, const std::string& description,
                     const OrderedSum& size, const StoreSum& store, Lowered& lowered);

// Takes the total of one element of the contraction's result, as its type keeps it, through the
// group's epilogue, and stores the outputs, where `guard` is true.
void StoreTotal(KernelBuilder& b, tile::Block& out, const graph::Graph& g, graph::TensorId result,
                const Index& index, const tile::Expr& guard, const tile::Expr& sum);

}  // namespace kiln::compiler
