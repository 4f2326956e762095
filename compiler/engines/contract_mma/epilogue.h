// MmaEpilogue: the way of accumulators from the tensor cores to the result. The four lanes that
// share a row of fragments exchange columns, so that each has kMmaLine neighbours of one row, and
// stores them at once: through the group's maps, or as they are where k is in slices. Reductions of
// the result take in each element on its way.
#pragma once

#include "compiler/engines/contract_mma/slices.h"
#include "compiler/engines/contraction/epilogue_reductions.h"

namespace kiln::compiler {

class MmaEpilogue {
 public:
  // `plain` is the contraction as the graph has it, not transposed; `reductions` is null where
  // nothing is reduced. What is referred to outlives the epilogue.
  MmaEpilogue(const Group& group, const MmaContext& context, const MmaBlock& block,
              const MmaLane& lane, const Contraction& plain, std::string acc, MmaSlices& slices,
              TileReductions* reductions);

  void Emit(tile::Block& body);

 private:
  // A lane's place among the 4 x 8 lanes of a fragment: t of 4 along its columns, g of 8 rows;
  // whether t is odd, and whether it is 2 or 3.
  struct Quad {
    tile::Expr t, g, odd, upper;
  };
  void DeclareReductions(tile::Block& body, const Quad& quad);
  void Exchange(tile::Block& out, const std::string& line, const tile::Expr& i,
                const tile::Expr& half, const tile::Expr& q, const Quad& quad) const;
  void StoreLine(tile::Block& out, const tile::Expr& m, const tile::Expr& n,
                 const std::string& line, const tile::Expr& row_slot,
                 const tile::Expr& column_slot);
  tile::Expr Equals(const tile::Expr& a, int64_t value) const;

  MmaContext x_;
  const MmaBlock& block_;
  const MmaLane& lane_;
  std::string acc_;
  MmaSlices& slices_;
  TileReductions* reductions_;
  ContractionEpilogue maps_;
};

// The axes of the product that is made, as the contraction's own.
EpilogueAxes MmaAxes(const MmaContext& context);

}  // namespace kiln::compiler
