// RingSums: the registers of a depthwise ring kernel (conv_direct/ring.cc), and what it does with a
// window of one input row. For fprop and dgrad they hold the filter and the sums of the output rows
// that the window reaches, for wgrad the live rows of dy and the sums of the filter's taps.
//
// All loops over registers are written out: every place is a constant, so that the text has
// variables for them, and compilers do not have to unroll a thousand loops of two (4 s for 5x5
// filters, now 0.4).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/engines/conv_direct/ring_stages.h"

namespace kiln::compiler {

class RingSums {
 public:
  virtual ~RingSums() = default;

  virtual void Prepare(tile::Block& body) = 0;
  // Is called before the window of input row `u` of the period is read; `stage_at` is where the
  // thread's part of the stage begins in the ring of dy (null where there is none).
  virtual void BeginRow(tile::Block& loop, const RingColumns& columns, int64_t u,
                        const tile::Expr& stage_at) = 0;
  // Multiplies the window at one of the taps that it meets; `outside` is done in its place where
  // the input row does not exist.
  virtual void Add(tile::Block& inside, tile::Block& outside, const RingTurn& turn,
                   const RingHit& hit, const std::string& window) = 0;
  virtual void EndRow(tile::Block& loop, const RingTurn& turn, const RingColumns& columns,
                      int64_t u) = 0;
  virtual void Finish(tile::Block& body) = 0;
};

std::unique_ptr<RingSums> MakeOutputSums(const RingContext& context, const RingWalk& walk,
                                         const RingThread& thread);
std::unique_ptr<RingSums> MakeTapSums(const RingContext& context, const RingWalk& walk,
                                      const RingThread& thread, std::string dy_ring);

// Appends the kernel behind the one of wgrad, which adds the splits in order.
void AddRingSplits(const RingContext& x, const Target& target, Lowered& lowered);

// Reads to[first ..] = column `column` of a ring from `at` on, as f32.
void ReadRingColumn(const RingContext& x, tile::Block& out, const std::string& to, int64_t first,
                    const std::string& ring, const tile::Expr& at, int64_t column);

}  // namespace kiln::compiler
