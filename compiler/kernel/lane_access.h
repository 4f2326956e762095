// LaneAccess: how an engine whose threads own a few neighbouring channels moves them: an operand
// with its prologue into registers, and accumulators through the epilogue to memory. Wide where
// every tensor on the way allows it, else lane by lane: the same text from one description.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

class LaneAccess {
 public:
  // Access to what `roots` are computed from, up to `bound`, which the engine has in registers (or
  // -1); `lanes` neighbours along dim 1 at places whose channel is a multiple of `lanes`.
  LaneAccess(const Group& group, std::vector<graph::TensorId> roots, graph::TensorId bound,
             int lanes);

  // True if 16-byte (or lanes-wide) accesses are possible everywhere.
  bool wide() const { return wide_; }

  // Reads buffer[slot .. +lanes) = the root's values at `at` and the next lanes - 1 channels, as
  // `type`.
  void Read(KernelBuilder& b, tile::Block& out, const Index& at, const std::string& buffer,
            const tile::Expr& slot, DType type) const;
  // Writes the epilogue on `value(lane)`, the bound tensor's accumulator.
  void Write(KernelBuilder& b, tile::Block& out, const Index& at,
             const std::function<tile::Expr(const tile::Expr& lane)>& value) const;

 private:
  bool Gather(const Group& group, graph::TensorId id, std::vector<char>& seen);

  std::vector<graph::TensorId> roots_, leaves_;
  graph::TensorId bound_;
  int lanes_;
  bool wide_;
};

}  // namespace kiln::compiler
