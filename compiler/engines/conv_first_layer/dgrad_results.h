// DgradResults: sums of the first layer's dgrad to dx. Slots lie beside each other in rows of dx:
// they go through shared memory, `made`, and come out 16 bytes at a time where dx has its channels
// innermost.
//
// A zero times what is not finite is NaN in outputs that do not read it. So a thread that meets
// such a result makes it again from its own taps alone.
#pragma once

#include <string>

#include "compiler/engines/conv_first_layer/dgrad_context.h"

namespace kiln::compiler {

class DgradResults {
 public:
  // `row_size`: elements of a row of dx.
  DgradResults(const DgradContext& context, const DgradLane& lane, const DgradPiece& piece,
               std::string made, tile::Expr row_size)
      : x_(context), lane_(lane), piece_(piece), made_(std::move(made)), row_size_(row_size) {}

  // Hands registers over to `made`. A barrier has to follow.
  void HandOver(tile::Block& body, const std::string& acc) const;
  // Stores `made` through the group's maps to memory.
  void Store(tile::Block& body) const;

 private:
  // Elements of a row of dx, neighbours first along channels.
  struct Vector {
    tile::Expr row, first;  // of the image, in elements
    tile::Expr at;          // in `made`
  };
  void StoreSums(tile::Block& out, const std::string& acc, int64_t sum, int count,
                 const tile::Expr& to) const;
  void StoreVector(tile::Block& body, const Vector& v) const;
  void StoreLanes(tile::Block& body, const Vector& v, const std::string& made) const;
  tile::Expr RowOf(tile::Block& body, graph::TensorId id, const Vector& v) const;
  bool IsPacked(graph::TensorId id) const;
  // The place of an element of a row of dx.
  Index PlaceOf(tile::Block& out, const tile::Expr& h, const tile::Expr& element) const;

  void MakeAgain(tile::Block& body, const tile::Expr& first) const;
  void MakeOneAgain(tile::Block& one, const tile::Expr& first, const tile::Expr& row,
                    const tile::Expr& place, const tile::Expr& n) const;
  tile::Expr SumOf(tile::Block& body, const Index& at) const;
  void AddTap(tile::Block& walk, const Index& at, const tile::Expr& tap,
              const std::string& sum) const;

  DgradContext x_;
  const DgradLane& lane_;
  const DgradPiece& piece_;
  std::string made_;
  tile::Expr row_size_;
};

}  // namespace kiln::compiler
