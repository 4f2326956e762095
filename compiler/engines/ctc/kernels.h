// The kernels of the ctc engine (ctc/engine.h), and the parts that they share: sizes, scratch
// buffers, and loops over the lanes of a warp, which on the CPU are one lane.
#pragma once

#include <functional>
#include <string>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

// The scratch buffers, by number.
enum CtcScratch : int {
  kCtcStarts,   // [N] where a sample's labels begin; of the index type
  kCtcStates,   // i32 [N]: states of the path, 0 where none fits, -1 where nobody can tell
  kCtcLinks,    // i32 [N][label][2]: the next equal label; how many there are, 0 but at the first
  kCtcSoftmax,  // [T][N][2]: largest logit, ln of the sum of exponentials less it
  kCtcPaths,    // [2][T][N][states]: alpha, beta
  kCtcOffsets,  // [2][T][N]
  kCtcTotals,   // [N][2]: ln P less its offset, the offset
  kCtcRing,     // [2][N][2][states]: the last two frames, of states that shared memory cannot hold
  kCtcScratchBuffers,
};

struct CtcProblem {
  CtcProblem(const Group& group, const Target& target);

  const Group& group;
  const Target& target;
  graph::CtcLossAttrs attrs;
  // kAbsent where they are.
  graph::TensorId probs, labels, label_lengths, input_lengths, before, costs, gradients;
  int64_t frames, samples, symbols;
  int64_t label;   // the most labels of a sample
  int64_t states;  // the most states of a path
  DType type;      // that sums are in
  DType index;

  bool on_gpu() const { return target.is_cuda(); }
  bool has_gradients() const { return gradients != graph::kAbsent; }
  int lanes() const { return on_gpu() ? 32 : 1; }
};

// One kernel of the engine; `body` is the work of a thread.
class CtcKernel {
 public:
  CtcKernel(const CtcProblem& p, const std::string& name);

  KernelBuilder& b() { return b_; }
  const CtcProblem& p() const { return p_; }
  tile::Block& body() { return body_; }
  tile::Expr bx() const { return tile::Var("bx", p_.index); }
  tile::Expr by() const { return tile::Var("by", p_.index); }
  tile::Expr tx() const { return p_.on_gpu() ? tile::Var("tx", p_.index) : b_.Idx(0); }
  tile::Expr Idx(int64_t value) const { return b_.Idx(value); }
  tile::Expr Number(double value) const { return tile::Float(value, p_.type); }
  tile::Expr NegInf() const;

  // Sizes as parameters.
  tile::Expr Frames() { return b_.Extent(p_.probs, 0); }
  tile::Expr Samples() { return b_.Extent(p_.probs, 1); }
  tile::Expr Symbols() { return b_.Extent(p_.probs, 2); }
  tile::Expr Label();   // CtcProblem::label
  tile::Expr States();  // CtcProblem::states

  // ---- reads; indices must be inside
  tile::Expr Integer(tile::Block& out, graph::TensorId tensor, const tile::Expr& at);
  // Label i of a sample whose labels begin at `start`. Only labels that lengths count are in the
  // client's memory: others may be asked for where `exists` says that they are not, and are 0.
  tile::Expr LabelAt(tile::Block& out, const tile::Expr& start, const tile::Expr& i);
  tile::Expr LabelIf(tile::Block& out, const tile::Expr& exists, const tile::Expr& start,
                     const tile::Expr& i);
  tile::Expr Prob(tile::Block& out, const tile::Expr& t, const tile::Expr& n, const tile::Expr& k);

  // ---- scratch and registers
  tile::Expr Read(CtcScratch buffer, const tile::Expr& at);
  void Write(tile::Block& out, CtcScratch buffer, const tile::Expr& at, tile::Expr value);
  std::string Registers(tile::Block& out, const char* name, DType type, int64_t size);
  // A register that holds one value.
  struct Cell {
    std::string name;
    DType type;
    tile::Expr Get() const { return tile::Load(name, type, tile::Int(0)); }
    tile::Stmt Set(tile::Expr value) const {
      return {tile::Store{name, tile::Int(0), std::move(value)}};
    }
  };
  Cell NewCell(tile::Block& out, const char* name, tile::Expr value);

  // ---- loops
  // for i in 0..extent { emit(body, i) }
  using Emit = std::function<void(tile::Block&, const tile::Expr&)>;
  void Loop(tile::Block& out, const char* name, const tile::Expr& extent, const Emit& emit,
            tile::Bind bind = tile::Bind::kSerial);
  // The places lane, lane + width, … below `count`.
  void Strided(tile::Block& out, const char* name, const tile::Expr& count, const tile::Expr& lane,
               int64_t width, const Emit& emit);
  // Strided places, some at a time: values that `load` reads at all of them are on their way before
  // `use` has the first one. A place that is not inside stands for the last one, which it reads
  // again.
  struct Item {
    tile::Expr at, inside, value;
  };
  void Batches(tile::Block& out, const char* name, const tile::Expr& count, const tile::Expr& lane,
               int64_t width, int64_t at_a_time,
               const std::function<tile::Expr(tile::Block&, const tile::Expr&)>& load,
               const std::function<void(tile::Block&, const std::vector<Item>&)>& use);
  // The number of symbols of a frame that each of `width` lanes takes at a time.
  int64_t SymbolsAtATime(int64_t width) const;
  // Combines the cell of all lanes of a warp.
  void CombineLanes(tile::Block& out, const Cell& cell, ScalarOp op);

  // ln of the sum of three exponentials.
  tile::Expr LogSum(tile::Block& out, const tile::Expr& a, const tile::Expr& b,
                    const tile::Expr& c);
  // ln of a probability that has been read as `x`, and the probability.
  tile::Expr LogY(const tile::Expr& x, const tile::Expr& largest, const tile::Expr& log_sum) const;

  void Finish(std::array<int64_t, 3> grid, int threads, Lowered& lowered);

 private:
  const CtcProblem& p_;
  KernelBuilder b_;
  tile::Block body_;
  std::map<int, std::string> scratch_;
  tile::Expr label_, states_;
};

constexpr int kCtcBlockWarps = 8;  // of a block, in kernels of frames

// A frame of a sample, for some warps of a block.
struct CtcFrame {
  tile::Expr t, n, lane;
  int64_t lanes;          // that the frame has
  tile::Expr exists;      // whether it is there: the last warps repeat the last frame
  tile::Expr first_warp;  // whether the lane is one of those that combine
};
// A kernel of frames: rows of 32 lanes for each of the frame's warps on a GPU, a task for each
// frame of all samples on the CPU.
void LowerCtcFrames(CtcKernel& kernel, int warps,
                    const std::function<void(tile::Block&, const CtcFrame&)>& emit,
                    Lowered& lowered);

void LowerCtcSamples(const CtcProblem& p, Lowered& lowered);
void LowerCtcLinks(const CtcProblem& p, Lowered& lowered);
void LowerCtcSoftmax(const CtcProblem& p, Lowered& lowered);
void LowerCtcPaths(const CtcProblem& p, Lowered& lowered);
void LowerCtcGradient(const CtcProblem& p, Lowered& lowered);
// True if the last two frames stand in shared memory.
bool CtcPathsAreShared(const CtcProblem& p);

}  // namespace kiln::compiler
