// WgradMmaSums: the sums of a warp for its taps, filters and channels, from fragments of a piece in
// shared memory to scratch[split][tap][channel of the group][filter].
#pragma once

#include <string>
#include <vector>

#include "compiler/engines/conv_direct/wgrad_mma_stages.h"

namespace kiln::compiler {

class WgradMmaSums {
 public:
  // Declares registers, and finds where the block's taps read x.
  WgradMmaSums(const WgradMmaContext& context, const WgradMmaThread& thread,
               const WgradMmaStages& stages, tile::Block& body);

  // The places where the piece begins in shared memory.
  struct Slots {
    tile::Expr x, dy;
  };
  // Adds the products of 16 outputs from `first` on. Those past the end of the piece, of which dy
  // is 0, read x where an output of the piece does.
  void Multiply(tile::Block& body, const WgradMmaPiece& piece, const Slots& slots,
                const tile::Expr& first) const;
  void Write(tile::Block& body) const;

 private:
  int64_t SumAt(int64_t half, int64_t tap, int64_t tile) const {
    return ((half * x_.p.taps_of_set + tap) * x_.p.tiles + tile) * 4;
  }
  tile::Expr Sum(int64_t slot) const;
  void AddShift(tile::Block& body, int64_t i);
  std::string ReadDy(tile::Block& body, const Slots& slots, const tile::Expr& first) const;
  tile::Expr PlaceInX(tile::Block& body, const WgradMmaPiece& piece, const Slots& slots,
                      const tile::Expr& first) const;
  void WriteOwn(tile::Block& body) const;
  void WriteSum(tile::Block& out, const tile::Expr& half, int64_t tap, int64_t e,
                const tile::Expr& sum, const std::string& sums, const tile::Expr& pitch) const;

  WgradMmaContext x_;
  const WgradMmaThread& at_;
  const WgradMmaStages& stages_;
  std::string acc_;
  std::vector<tile::Expr> shifts_;  // of the block's taps
};

}  // namespace kiln::compiler
