#include "compiler/engines/contract_mma/slices.h"

#include <algorithm>

#include "compiler/engines/contraction/split_sum.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

int64_t MmaSlices::pitch() const { return AlignUp(std::max<int64_t>(x_.c.n.size(), 1), kMmaLine); }

void MmaSlices::Prepare(Lowered& lowered) const {
  const int64_t slices = is_ordered() ? x_.plan.splits : 1;
  lowered.scratch_bytes = {slices * elements() * SizeOf(x_.c.accumulator)};
  if (!is_ordered()) Clear(lowered);
}

void MmaSlices::Clear(Lowered& lowered) const {
  constexpr int kThreads = 256, kVector = 4;
  const DType type = x_.c.accumulator;
  KernelBuilder b(group_, target_, "contract_mma: clears the sums");
  for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
  const int64_t vectors = elements() / kVector, blocks = CeilDiv(vectors, kThreads);
  const std::string sums = b.Scratch(0, type, false), zeros = b.Name("zeros");
  Block body, inside;
  const Expr i = b.Let(body, "i", ThreadLinear(b.index_type(), kThreads));
  inside.push_back({tile::Alloc{zeros, type, tile::Space::kReg, kVector}});
  for (int e = 0; e < kVector; ++e) inside.push_back({tile::Store{zeros, b.Idx(e), ZeroOf(type)}});
  WideCopy(inside, type, sums, i * b.Idx(kVector), zeros, b.Idx(0), kVector);
  When(body, tile::Lt(i, b.Arg("vectors", vectors)), std::move(inside));
  b.Finish(BlockAndThread(b.index_type(), b.Arg("blocks", blocks), kThreads, std::move(body)),
           {blocks, 1, 1}, kThreads, lowered);
}

void MmaSlices::Store(Block& out, const MmaBlock& block, const Expr& m, const Expr& n,
                      const std::string& line) {
  KernelBuilder& b = x_.b;
  const DType type = x_.c.accumulator;
  if (buffer_.empty()) {
    buffer_ = b.Scratch(0, type, false);
    pitch_arg_ = b.Arg("line_pitch", pitch());
    slice_size_ = b.Arg("slice_size", elements());
  }
  Block inside;
  const Expr row = block.batch_number * block.m_size + m;
  Expr at = row * pitch_arg_ + n;
  if (is_ordered()) at = at + Var(b, "bz") * slice_size_;
  at = b.Let(inside, "at", at);
  if (is_ordered()) {
    WideCopy(inside, type, buffer_, at, line, b.Idx(0), kMmaLine);
  } else {
    Loop(b, inside, "l", b.Idx(kMmaLine), Bind::kUnroll, [&](Block& one, const Expr& l) {
      one.push_back({tile::AtomicAdd{buffer_, at + l, tile::Load(line, type, l)}});
    });
  }
  When(out, tile::And(tile::Lt(m, block.m_size), tile::Lt(n, pitch_arg_)), std::move(inside));
}

void MmaSlices::Sum(const EpilogueAxes& axes, Lowered& lowered) const {
  SumSplits(group_, target_,
            {.splits = is_ordered() ? x_.plan.splits : 1,
             .batches = x_.c.batch.size(),
             .left_pitch = pitch(),
             .accumulator = x_.c.accumulator,
             .axes = axes},
            lowered);
}

}  // namespace kiln::compiler
