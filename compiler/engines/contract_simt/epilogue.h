// SimtEpilogue: a thread's patch of sums to the result, in pieces of `lane` neighbours along n, or
// along m where the output lies so. Without slices of k the group's maps run on each piece; with
// them the sums wait in scratch memory, [slice][batch][m][n] or [n][m], for ContractCombine.
#pragma once

#include "compiler/engines/contract_simt/context.h"

namespace kiln::compiler {

class SimtEpilogue {
 public:
  // `reductions` is null where nothing is reduced. What is referred to outlives the epilogue.
  SimtEpilogue(const SimtContext& context, const SimtBlock& block, const SimtThread& thread,
               std::string acc, TileReductions* reductions);

  // True if pieces lie along m.
  bool rows_innermost() const { return rows_innermost_; }

  void DeclareReductions(tile::Block& body);
  void Store(tile::Block& body);
  void StoreSlices(tile::Block& body);

 private:
  // Slots of a piece along m are per_n apart.
  struct Piece {
    tile::Expr m, n;
    Index m_dims;
    tile::Expr slot;
    tile::Expr m_slot, n_slot;  // of its first element along each axis
  };
  void FindVector();
  bool MovesWide(const graph::Tensor& x) const;
  bool IsOfOutput(const graph::Tensor& x) const;
  template <class F>
  void EachPiece(tile::Block& body, F&& store);
  template <class F>
  void EachLane(tile::Block& out, const Piece& piece, F&& store) const;
  void Reduce(tile::Block& out, ValueScope& values, const Index& at, const Piece& piece,
              const tile::Expr& l) const;
  void StoreElements(tile::Block& out, const Piece& piece) const;
  void StoreVector(tile::Block& out, const Piece& piece) const;
  void ReadBeside(tile::Block& out, ValueScope& values, const Index& at, const Index& lane_at,
                  const tile::Expr& l) const;
  void StoreSlice(tile::Block& out, const std::string& partial, const Piece& piece) const;
  tile::Expr Sum(const Piece& piece, const tile::Expr& l) const;
  tile::Expr Inside(const tile::Expr& m, const tile::Expr& n) const;
  Index ColumnDims(tile::Block& out, const tile::Expr& n) const;

  SimtContext x_;
  const SimtBlock& block_;
  const SimtThread& thread_;
  std::string acc_;
  TileReductions* reductions_;
  int64_t vector_dim_ = -1;  // of the output, along which pieces are written; -1 for elements
  bool rows_innermost_ = false;
};

}  // namespace kiln::compiler
