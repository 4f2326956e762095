// FpropPanel: the filters of a block of the first layer's fprop, in shared memory as the matrices
// of ldmatrix: panel[product][set][half of k][filter][8]. n is numbered so that a lane holds 8
// neighbouring filters of a pixel.
#pragma once

#include <string>

#include "compiler/engines/conv_first_layer/tiles.h"

namespace kiln::compiler {

class FpropPanel {
 public:
  FpropPanel(const FirstLayerContext& context, const FirstLayerLane& lane, tile::Expr first_filter)
      : x_(context), lane_(lane), first_filter_(std::move(first_filter)) {}

  void Fill(tile::Block& body);
  // The fragments of product `product`, as registers.
  std::string Fragments(tile::Block& body, int64_t product) const;

 private:
  tile::Expr At(const tile::Expr& product, const tile::Expr& set, const tile::Expr& half) const;
  void ReadChunk(tile::Block& out, const tile::Expr& f, const std::string& regs,
                 const tile::Expr& first) const;
  void ReadElement(tile::Block& out, const tile::Expr& filter, const tile::Expr& r,
                   const tile::Expr& slot, const std::string& regs, const tile::Expr& to) const;

  FirstLayerContext x_;
  const FirstLayerLane& lane_;
  tile::Expr first_filter_;
  std::string panel_ = {};
};

}  // namespace kiln::compiler
