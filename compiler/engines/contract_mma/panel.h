// OperandPanel: one operand's way from memory to the fragments of the tensor cores, through a ring
// of `stages` panels in shared memory.
//
//   by chunks     16 aligned bytes along k or along the rows come by asynchronous copies
//   by elements   others come through registers, prologue included: a part of the panel is read
//                 before the products of a step of k and written behind them
//   fragments     load_matrix, transposed where the panel has its rows side by side
//
// What lies beyond the end of k is zeros.
#pragma once

#include "compiler/engines/contract_mma/context.h"

namespace kiln::compiler {

// The places along the operand's rows (m of A, n of B): their dims, and whether they exist.
class MmaRows {
 public:
  MmaRows(const MmaContext& context, const MmaBlock& block, bool is_a);

  graph::TensorId tensor() const { return is_a_ ? x_.c.a : x_.c.b; }
  tile::Expr At(const tile::Expr& local) const { return first_ + local; }
  tile::Expr Exists(const tile::Expr& row) const { return tile::Lt(row, size_); }
  // The axis in names: "m" or "n".
  const char* name() const { return is_a_ ? "m" : "n"; }

  // Writes places[dim][row] once a block, where splitting a row into its dims takes divisions. True
  // if it did, so that a barrier has to follow.
  bool WritePlaces(tile::Block& body);
  // The dims of row `row`, which is row `local` of the tile.
  Index Dims(tile::Block& out, const tile::Expr& local, const tile::Expr& row) const;
  Index Unravel(tile::Block& out, const tile::Expr& row) const;
  // The place where the operand has the element of these dims of a row and of k.
  Operand Element(tile::Block& out, const Index& row, const Index& k) const;

 private:
  const Axis& axis() const { return is_a_ ? x_.c.m : x_.c.n; }
  tile::Expr PlaceAt(size_t dim, const tile::Expr& local) const;

  MmaContext x_;
  Index batch_;
  bool is_a_;
  OperandPath path_;
  int count_;  // of the tile
  tile::Expr first_, size_;
  std::string places_ = {};
};

class OperandPanel {
 public:
  OperandPanel(const MmaContext& context, const MmaBlock& block, bool is_a);

  bool is_async() const { return path_ != OperandPath::kElements; }
  const std::string& fragments() const { return fragments_; }
  // The elements of the fragments of one step of k.
  int64_t fragment_elements() const;

  void Allocate(tile::Block& body);
  void AllocateFragments(tile::Block& body) const;
  // Names what stays the same over all steps for one thread. True if a barrier has to follow.
  bool Enter(tile::Block& body, const MmaLane& lane);

  // Starts the asynchronous copies of a whole panel, whose k begins at first_k, into a slot.
  void Start(tile::Block& out, const tile::Expr& first_k, const tile::Expr& slot) const;
  // Copies a panel that comes by elements, which are there when it is done.
  void CopyElements(tile::Block& out, const tile::Expr& first_k, const tile::Expr& slot) const;
  // A panel that comes by elements has as many parts as there are steps of k but the last. Returns
  // the registers that the part is read into, from which WritePart takes it to its slot.
  std::string ReadPart(tile::Block& out, const tile::Expr& part, const tile::Expr& first_k) const;
  void WritePart(tile::Block& out, const tile::Expr& part, const tile::Expr& slot,
                 const std::string& staged) const;
  // Loads the fragments of step `kk` of a slot's panel into half `half` of the registers.
  void LoadFragments(tile::Block& out, const tile::Expr& half, const tile::Expr& slot,
                     const tile::Expr& kk) const;

 private:
  struct Chunk {
    tile::Expr row, depth;
  };
  Chunk ElementChunk(tile::Block& out, const tile::Expr& number) const;
  void ReadChunk(tile::Block& out, const tile::Expr& number, const tile::Expr& first_k,
                 const std::string& staged, const tile::Expr& at) const;
  void WriteChunk(tile::Block& out, const tile::Expr& number, const tile::Expr& slot,
                  const std::string& staged, const tile::Expr& at) const;
  int ChunksOfPart() const;
  template <class F>
  void EachOfPart(tile::Block& out, const tile::Expr& part, F&& emit) const;
  Index DepthDims(tile::Block& out, const tile::Expr& k) const;

  MmaContext x_;
  bool is_a_;
  OperandPath path_;
  int count_, pitch_, chunks_;  // rows; elements of a panel's line; chunks that one thread brings
  int64_t size_;                // of a panel
  bool along_k_;                // by elements: neighbouring threads read along k
  MmaRows rows_;
  tile::Expr end_k_;
  std::string panel_ = {}, fragments_ = {};
  tile::Expr row_in_ = {}, k_in_ = {};  // in a panel, of this thread's first asynchronous chunk
  Index row_dims_ = {};                 // kRows: the same for all of a thread's chunks
  tile::Expr lane_at_ = {};             // in a panel, of this lane's first matrix row
};

}  // namespace kiln::compiler
