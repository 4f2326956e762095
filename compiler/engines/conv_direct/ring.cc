// Depthwise convolutions at the pace of memory: fprop, dgrad of stride 1, and wgrad.
//
//   block    a slab of channels, a few images or a block of columns of one; walks down their rows,
//            unit after unit (a unit: some rows of them all), without a break
//   ring     input rows with their padding stand in shared memory, pixel after pixel, by
//            asynchronous copies that are several stages ahead of what is multiplied; of wgrad
//            also the rows of dy that begin there
//   thread   `lanes` channels of `strip` neighbouring outputs. It reads and converts each input of
//            its window once, and multiplies it at once for all output rows that it reaches: their
//            sums wait in registers (`live` rows), and which is which changes from row to row, so
//            that the walk is unrolled over a period of rows (ring_sums.h)
//   wgrad    the same with dy in the place of the live sums, and sums in the place of the filter;
//            threads of a channel meet in shared memory, blocks in scratch[split][tap][channel],
//            which is added in order (ordered_sum.h)
//
// Input rows outside of the image are skipped, and so are rows of dy: a NaN of x must not meet the
// zero of an output that is not there. For that, wgrad's last strip begins where it ends with the
// image, and takes as zero what others have already.
#include "compiler/engines/conv_direct/ring.h"

#include "compiler/engines/conv_direct/ring_sums.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

std::string Description(const RingPlan& p) {
  return fmt::format("conv_direct: {}depthwise, ring of {}x{} rows, strips of {} x {} channels{}",
                     p.wgrad ? "wgrad, " : "", p.depth, p.group, p.strip, p.lanes,
                     p.wgrad ? ", first of two stages" : "");
}

// One kernel: fills the ring ahead of the walk, and gives each window to the sums.
class RingKernel {
 public:
  RingKernel(const Group& group, const Target& target, const ConvShape& shape, const RingPlan& plan)
      : target_(target),
        shape_(shape),
        p_(plan),
        b_(group, target, Description(p_)),
        x_{b_, group, shape_, p_} {
    for (const char* reserved : {"bx", "tx", "turn"}) b_.Name(reserved);
  }

  Lowered Lower() {
    Lowered lowered;
    if (p_.wgrad) lowered.scratch_bytes.push_back(p_.splits * p_.taps() * x_.padded() * 4);
    Block body;
    const RingThread thread = EnterThread(x_, body);
    const RingWalk walk(x_);
    const RingStages stages(x_, walk, thread, body);
    for (int64_t stage = 0; stage < p_.depth - 1; ++stage) stages.Start(body, b_.Idx(0), stage);
    const std::unique_ptr<RingSums> sums = p_.wgrad
                                               ? MakeTapSums(x_, walk, thread, stages.dy_ring())
                                               : MakeOutputSums(x_, walk, thread);
    sums->Prepare(body);
    Block loop;
    Walk(loop, thread, walk, stages, *sums);
    body.push_back(
        {tile::For{"turn", b_.index_type(), walk.turns(), Bind::kSerial, std::move(loop)}});
    body.push_back({tile::WaitAsync{0}});
    sums->Finish(body);
    const int64_t blocks = p_.splits * p_.slabs;
    const auto threads = static_cast<int>(p_.threads());
    body = BlockAndThread(b_.index_type(), b_.Arg("grid", blocks), threads, std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, threads, lowered, static_cast<int>(p_.resident));
    if (p_.wgrad) AddRingSplits(x_, target_, lowered);
    return lowered;
  }

 private:
  // A turn: a period of input rows, stage after stage.
  void Walk(Block& loop, const RingThread& thread, const RingWalk& walk, const RingStages& stages,
            RingSums& sums) {
    const Expr number = Var(b_, "turn");
    const RingTurn turn = walk.TurnAt(loop, number, thread.split);
    const RingColumns columns = walk.ColumnsOf(loop, turn, thread);
    for (int64_t stage = 0; stage < x_.stages(); ++stage) {
      loop.push_back({tile::WaitAsync{static_cast<int>(p_.depth - 2)}});
      loop.push_back({tile::Barrier{}});
      stages.Start(loop, number, stage + p_.depth - 1);
      const Expr slot = stages.SlotAt(loop, number, stage);
      const Expr in_at = b_.Let(loop, "in_at", slot * b_.Idx(p_.in_elements()) + columns.in_place);
      Expr dy_at;
      if (p_.wgrad)
        dy_at = b_.Let(loop, "dy_at", slot * b_.Idx(p_.out_elements()) + columns.dy_place);
      for (int64_t k = 0; k < p_.group; ++k) {
        const int64_t u = stage * p_.group + k;
        sums.BeginRow(loop, columns, u, dy_at);
        if (HitsOf(p_, u).empty()) continue;
        const Expr from = in_at + b_.Idx(k * p_.images * p_.staged_columns * p_.pitch);
        Row(loop, turn, walk, stages.in_ring(), from, u, sums);
        sums.EndRow(loop, turn, columns, u);
      }
    }
  }

  // Reads and converts each input of the thread's window once, and multiplies it for all that it
  // reaches.
  void Row(Block& loop, const RingTurn& turn, const RingWalk& walk, const std::string& ring,
           const Expr& from, int64_t u, RingSums& sums) {
    const Expr row = turn.in_row + b_.Idx(u);
    const Expr is_read = tile::And(x_.Inside(row, b_.Extent(p_.in, 2)), walk.IsWalked(turn, u));
    const Expr has_row = b_.Let(loop, "has_row", is_read);
    Block inside, outside;
    const std::string window = Registers(b_, inside, "window", DType::kF32, p_.window() * p_.lanes);
    for (int64_t c = 0; c < p_.window(); ++c)
      if (IsRead(c)) ReadRingColumn(x_, inside, window, c * p_.lanes, ring, from, c);
    for (const RingHit& hit : HitsOf(p_, u)) sums.Add(inside, outside, turn, hit, window);
    loop.push_back({tile::If{has_row, std::move(inside), std::move(outside)}});
  }

  // True if any output of the strip reads column c of the window: strides leave some out.
  bool IsRead(int64_t c) const {
    for (int64_t j = 0; j < p_.strip; ++j)
      for (int64_t s = 0; s < p_.col.taps; ++s)
        if (j * p_.col.stride + s * p_.col.dilation == c) return true;
    return false;
  }

  const Target& target_;
  ConvShape shape_;
  RingPlan p_;
  KernelBuilder b_;
  RingContext x_;
};

}  // namespace

Lowered LowerRing(const Group& group, const Target& target, const ConvShape& shape,
                  const RingPlan& plan) {
  return RingKernel(group, target, shape, plan).Lower();
}

}  // namespace kiln::compiler
