// DirectMmaPanel: the filters of a slab of channels as the block-diagonal B of conv_direct's tensor
// core kernel (conv_direct/mma.cc), made once a block in shared memory in the order of fragments:
//
//   panel[fragment][j / 2][lane][j % 2][4]    two 16-byte reads without conflicts give all four
//                                             sets j
//
// Which sets of channels a product takes for output set j, by channels a group:  1, 2: set j, two
// taps a product;  4: its half of the sets;  8, 16 (run 4): its half slab;  else all four sets.
#pragma once

#include <string>

#include "compiler/engines/conv_direct/designs.h"
#include "compiler/kernel/loops.h"

namespace kiln::compiler {

constexpr int kDirectSlab = 32, kDirectSets = 4;  // channels; sets of 8 of them

// A lane, its row g and column pair t4 in fragments, and its warp.
struct DirectLane {
  tile::Expr lane, warp, g, t4;
};

// Channel within the slab of element e of set j in lane t, where a lane accesses `run` channels at
// a time.
tile::Expr DirectChannel(const KernelBuilder& b, int run, const tile::Expr& t, const tile::Expr& j,
                         const tile::Expr& e);

class DirectMmaPanel {
 public:
  DirectMmaPanel(KernelBuilder& b, const ConvShape& shape, const DirectMmaPlan& plan, int run,
                 DType type, const DirectLane& lane, tile::Expr first_channel)
      : b_(b),
        shape_(shape),
        plan_(plan),
        run_(run),
        type_(type),
        lane_(lane),
        first_channel_(std::move(first_channel)) {}

  // Fills the panel. A barrier stands at the end.
  void Fill(tile::Block& body);
  // Reads all sets of one fragment, as registers.
  std::string Fragment(tile::Block& body, int64_t f) const;
  // The k-th set that output set j takes.
  tile::Expr SourceSet(const tile::Expr& j, int k) const;

 private:
  tile::Expr At(int64_t fragment, const tile::Expr& pair, const tile::Expr& lane) const;
  void FillElement(tile::Block& out, const DirectMmaFragment& f, const DirectMmaSource& source,
                   const tile::Expr& made, const tile::Expr& e, const tile::Expr& at) const;

  KernelBuilder& b_;
  const ConvShape& shape_;
  const DirectMmaPlan& plan_;
  int run_;
  DType type_;
  const DirectLane& lane_;
  tile::Expr first_channel_;
  std::string panel_ = {};
};

}  // namespace kiln::compiler
