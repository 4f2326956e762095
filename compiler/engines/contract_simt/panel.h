// SimtPanel: one operand's way from memory to its panels in shared memory, panel[2][TK][rows], rows
// fastest. A thread moves `slots` pieces of `piece` elements: 16 bytes where memory allows, along k
// or along the rows; else element by element, prologue included, neighbouring threads along the
// axis that is contiguous. Places along the rows are the same in every step, and are split into
// their dims before the loop.
#pragma once

#include <map>
#include <string>

#include "compiler/engines/contract_simt/context.h"

namespace kiln::compiler {

class SimtPanel {
 public:
  SimtPanel(const SimtContext& context, bool is_a);

  void Allocate(tile::Block& body);
  // Names what stays the same over all steps.
  void Enter(tile::Block& body, const SimtBlock& block);
  // Reads memory to registers, for the step that begins at first_k.
  void Read(tile::Block& out, const tile::Expr& first_k) const;
  // Writes registers to panel `which` of the two.
  void Write(tile::Block& out, const tile::Expr& which) const;

  // The place of a thread's first element in panel `which`.
  tile::Expr Corner(tile::Block& out, const tile::Expr& which, const tile::Expr& thread) const;
  // The thread's places at depth kk as registers: `size` of them, in pieces `stride` apart.
  std::string Fragment(tile::Block& out, const tile::Expr& kk, const tile::Expr& corner, int size,
                       int stride) const;

 private:
  enum class Reading : uint8_t { kWideDepth, kWideRows, kDepth, kRows };
  // The place of a slot within the panel: the thread's part and the slot's. A row, or a depth, that
  // several slots share has one number.
  struct Slot {
    tile::Expr row, depth;  // of the thread
    int row_offset, depth_offset;
  };
  struct RowPlace {
    Index dims;
    tile::Expr inside;
  };

  bool along_depth() const {
    return reading_ == Reading::kWideDepth || reading_ == Reading::kDepth;
  }
  bool is_wide() const { return reading_ == Reading::kWideDepth || reading_ == Reading::kWideRows; }
  graph::TensorId tensor() const { return is_a_ ? x_.c.a : x_.c.b; }
  int depth() const { return x_.shape.k; }
  int pitch() const { return rows_ + kSimtPadding; }
  int pieces() const { return rows_ * depth() / piece_; }
  int slots() const;
  void ChooseReading();
  Slot SlotOf(int slot) const;
  Slot SlotAlongRows(int slot) const;
  Slot SlotAlongDepth(int slot) const;
  template <class F>
  void ForPieces(tile::Block& out, F&& fill) const;
  void ReadPiece(tile::Block& out, const RowPlace& row, const tile::Expr& k, const Index& k_dims,
                 const tile::Expr& at) const;
  void WritePiece(tile::Block& out, const tile::Expr& to, int at) const;

  SimtContext x_;
  bool is_a_;
  int rows_;
  DType type_ = DType::kF32;  // as staged: the tensor's where it is in memory, or the accumulator's
  Reading reading_ = Reading::kDepth;
  int piece_ = 1;
  std::string panel_ = {}, staged_ = {};
  Index batch_ = {};
  tile::Expr k_size_ = {};
  tile::Expr row_ = {}, at_depth_ = {};      // the thread's
  std::map<int, RowPlace> row_places_ = {};  // by the slots' row offsets
};

}  // namespace kiln::compiler
