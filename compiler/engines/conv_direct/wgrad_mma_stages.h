// WgradMmaStages: dy and x of pieces in shared memory, x with its halo, pixel after pixel, by
// asynchronous copies, a piece ahead. Pixels past the end of a piece are zeros of dy.
#pragma once

#include <string>

#include "compiler/engines/conv_direct/wgrad_mma_context.h"

namespace kiln::compiler {

class WgradMmaStages {
 public:
  // Makes the arguments of pieces: `steps` of a block, which has every splits-th.
  explicit WgradMmaStages(const WgradMmaContext& context);

  const tile::Expr& steps() const { return steps_; }
  const std::string& x() const { return x_array_; }
  const std::string& dy() const { return dy_array_; }

  void Allocate(tile::Block& body);
  // The block's piece of step `step`.
  WgradMmaPiece Enter(tile::Block& out, const WgradMmaThread& thread, const tile::Expr& step) const;
  // Starts the copies of that piece into slot step % 2.
  void Start(tile::Block& out, const WgradMmaThread& thread, const tile::Expr& step) const;

 private:
  template <class F>
  void EachPixel(tile::Block& out, const WgradMmaThread& thread, int64_t pixels, F&& copy) const;
  void StartX(tile::Block& out, const WgradMmaThread& thread, const WgradMmaPiece& piece,
              const tile::Expr& slot) const;
  void StartDy(tile::Block& out, const WgradMmaThread& thread, const WgradMmaPiece& piece,
               const tile::Expr& slot) const;

  WgradMmaContext x_;
  tile::Expr splits_, steps_, pieces_, row_groups_, column_blocks_, image_groups_;
  std::string x_array_ = {}, dy_array_ = {};
};

}  // namespace kiln::compiler
