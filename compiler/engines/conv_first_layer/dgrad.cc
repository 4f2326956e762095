// Dgrad of conv_first_layer on mma.m16n8k16. With a stride of s, s x s neighbouring outputs are a
// place of a coarse grid, and all of them read the same window of dy around that place; taps that
// one of them does not have are zeros of w. So rows of the product are places, columns ("slots")
// the outputs of a place, and k runs over the window and the filters:
//
//   dx[(u, phase, c)] = sum over (i, j, k) of dy[u + first + (i, j), k] * panel[i, j, k][phase, c]
//
//   block    rows x 16 places for each of four warps; walks pieces of the grid, a chunk of the
//            filters at a time
//   A        dy of the piece and its halo in shared memory, pixel after pixel, by asynchronous
//            copies a stage ahead; ldmatrix reads 16 pixels x 16 filters
//   reuse    what a warp reads of a row of dy is multiplied for all rows of its places that have it
//            in their window, by another row of the panel each; so shared memory gives a pixel
//            window times less often than products take it
//   B        w in the order of fragments, made once a block (dgrad_panel.h). Slots of one phase of
//            rows fill whole sets of 8 where that takes no more of them: sets without a tap in a
//            row of the window are left out there
//   out      slots lie beside each other in rows of dx: they go through shared memory, and come out
//            16 bytes at a time where dx has its channels innermost (dgrad_results.h)
#include "compiler/engines/conv_first_layer/dgrad.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/conv_first_layer/dgrad_panel.h"
#include "compiler/engines/conv_first_layer/dgrad_results.h"
#include "compiler/engines/conv_first_layer/dgrad_stages.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

class FirstLayerDgradKernel {
 public:
  FirstLayerDgradKernel(const Group& group, const Target& target, const ConvShape& shape,
                        const FirstLayerDgradKnobs& knobs)
      : target_(target),
        shape_(shape),
        p_(DgradPlanOf(group, shape, knobs)),
        blocks_(knobs.blocks),
        b_(group, target,
           fmt::format("conv_first_layer, dgrad: pixels={}, rows={}, {} filters a stage",
                       p_.tiles * 16, p_.rows, p_.chunk)),
        x_{b_,
           group,
           shape_,
           p_,
           group.graph[shape.y].dtype,
           p_.made_bytes == 2 ? group.graph[shape.x].dtype : DType::kF32} {
    for (const char* reserved : {"bx", "tx", "step", "chunk"}) b_.Name(reserved);
  }

  Lowered Lower() {
    const int64_t most = int64_t{blocks_} * std::max(target_.multiprocessors, 1);
    const int64_t step_count = std::max<int64_t>(CeilDiv(p_.pieces, most), 1);
    const int64_t blocks = CeilDiv(p_.pieces, step_count);
    Block body;
    const DgradLane lane = EnterLane(body);
    const Arrays arrays = Declare(body, lane);
    const Expr steps = b_.Arg("steps", step_count), grid = b_.Arg("grid", blocks);
    const DgradStages stages(x_, arrays.staged, body);
    const DgradPieces pieces(x_, steps, grid);
    const DgradPiece first_piece = pieces.At(body, b_.Idx(0));
    stages.StartAll(body, stages.Enter(body, first_piece, b_.Idx(0), b_.Idx(0)));
    body.push_back({tile::CommitAsync{}});
    FillDgradPanel(x_, lane, body, arrays.panel);

    Block loop;
    const std::string acc = Registers(b_, loop, "acc", DType::kF32, x_.accumulators());
    Clear(b_, loop, acc, DType::kF32, x_.accumulators());
    Block stage;
    MultiplyStage(stage, lane, arrays, stages, pieces, acc);
    loop.push_back(
        {tile::For{"chunk", b_.index_type(), b_.Idx(p_.chunks), Bind::kSerial, std::move(stage)}});
    const DgradPiece piece = pieces.At(loop, Var(b_, "step"));
    const Expr row_size =
        b_.Let(loop, "row_size", b_.Extent(shape_.x, shape_.spatial + 1) * b_.Idx(shape_.channels));
    const DgradResults results(x_, lane, piece, arrays.made, row_size);
    results.HandOver(loop, acc);
    loop.push_back({tile::Barrier{}});
    results.Store(loop);
    body.push_back({tile::For{"step", b_.index_type(), steps, Bind::kSerial, std::move(loop)}});
    body.push_back({tile::WaitAsync{0}});

    Lowered lowered;
    body = BlockAndThread(b_.index_type(), grid, kDgradThreads, std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, kDgradThreads, lowered,
              std::min(blocks_, x_.accumulators() <= 64 ? 3 : 2));
    return lowered;
  }

 private:
  DgradLane EnterLane(Block& body) {
    DgradLane at;
    at.lane = b_.Let(body, "lane", Var(b_, "tx") % b_.Idx(kWarpLanes));
    const Expr warp = b_.Let(body, "warp", Var(b_, "tx") / b_.Idx(kWarpLanes));
    at.g = b_.Let(body, "g", at.lane / b_.Idx(4));
    at.t4 = b_.Let(body, "t4", at.lane % b_.Idx(4));
    const Expr cols = b_.Idx(p_.warp_cols);
    at.warp_row = b_.Let(body, "warp_row", warp / cols * b_.Idx(p_.rows));
    at.warp_col = b_.Let(body, "warp_col", warp % cols * b_.Idx(p_.tiles * 16));
    return at;
  }

  // Arrays in shared memory, and where a lane's matrix rows stand in a stage.
  struct Arrays {
    Expr lane_at;
    std::string staged, panel, made;
  };
  Arrays Declare(Block& body, const DgradLane& lane) {
    // Matrix i of ldmatrix: pixels (i % 2) * 8 on, filters (i / 2) * 8 on.
    const Expr pixel =
        lane.warp_row * b_.Idx(p_.staged_cols()) + lane.warp_col + lane.lane % b_.Idx(16);
    const Expr filter = lane.lane / b_.Idx(16) * b_.Idx(kDgradVector);
    Arrays arrays;
    arrays.lane_at = b_.Let(body, "lane_at", pixel * b_.Idx(p_.pitch()) + filter);
    arrays.staged = SharedArray(b_, body, "dy_pixels", x_.type, 2 * p_.staged_elements());
    arrays.panel = SharedArray(b_, body, "w_panel", x_.type, p_.panel_elements());
    arrays.made = SharedArray(b_, body, "made", x_.made_type, p_.made_elements());
    return arrays;
  }

  // The stage that is copied while chunk `chunk` of piece `step` is multiplied: the next chunk, or
  // the first one of the next piece.
  DgradStages::Stage EnterNext(Block& body, const DgradStages& stages, const DgradPieces& pieces,
                               const Expr& number) {
    const Expr step = Var(b_, "step"), chunk = Var(b_, "chunk");
    Expr next = b_.Let(body, "next_chunk", chunk + b_.Idx(1)), ahead = step;
    if (p_.chunks == 1) {
      ahead = step + b_.Idx(1);
      next = b_.Idx(0);
    } else {
      const Expr more = tile::Lt(next, b_.Idx(p_.chunks));
      ahead = step + tile::Select(more, b_.Idx(0), b_.Idx(1));
      next = tile::Select(more, next, b_.Idx(0));
    }
    next = b_.Let(body, "next", next);
    ahead = b_.Let(body, "ahead", ahead);
    const DgradPiece piece = pieces.At(body, ahead);
    return stages.Enter(body, piece, next, number + b_.Idx(1));
  }

  // A chunk of the piece: waits for it, multiplies it, and starts the next one meanwhile.
  void MultiplyStage(Block& body, const DgradLane& lane, const Arrays& arrays,
                     const DgradStages& stages, const DgradPieces& pieces, const std::string& acc) {
    const Expr step = Var(b_, "step"), chunk = Var(b_, "chunk");
    const Expr number = b_.Let(body, "number", step * b_.Idx(p_.chunks) + chunk);
    const DgradStages::Stage next = EnterNext(body, stages, pieces, number);
    // The barrier after the wait also tells that nobody reads the other slot any more.
    body.push_back({tile::WaitAsync{0}});
    body.push_back({tile::Barrier{}});
    const Expr slot = number % b_.Idx(2) * b_.Idx(p_.staged_elements());
    const Expr dy_at = b_.Let(body, "dy_at", slot + arrays.lane_at);
    const int64_t chunk_steps = x_.chunk_steps(), step_elements = x_.step_elements();
    const Expr w_at =
        b_.Let(body, "w_at", chunk * b_.Idx(chunk_steps * step_elements) + lane.lane * b_.Idx(4));
    const int64_t steps = p_.col.window * chunk_steps;
    const auto multiply = [&](Block& one, const Expr& j, const Expr& kk, const auto& between) {
      const Expr w_step = (j * b_.Idx(p_.chunks * chunk_steps) + kk) * b_.Idx(step_elements);
      Multiply(one, arrays, dy_at + j * b_.Idx(p_.pitch()) + kk * b_.Idx(16), w_at + w_step, acc,
               between);
    };
    if (stages.kept() == 0 || steps > 8) {
      stages.StartAll(body, next);
      Loop(b_, body, "kk", b_.Idx(chunk_steps), Bind::kSerial, [&](Block& some, const Expr& kk) {
        Loop(b_, some, "j", b_.Idx(p_.col.window), Bind::kSerial,
             [&](Block& one, const Expr& j) { multiply(one, j, kk, [](bool) {}); });
      });
    } else {
      // Copies among the products, so that neither waits for the other to be issued.
      const size_t turns = stages.kept(), each = CeilDiv(turns * 4, steps * 3);
      for (int64_t s = 0; s < steps; ++s) {
        size_t turn = std::min(static_cast<size_t>(s) * each, turns);
        const size_t last = s + 1 == steps ? turns : std::min(turn + each, turns);
        multiply(body, b_.Idx(s % p_.col.window), b_.Idx(s / p_.col.window), [&](bool all) {
          for (const size_t end = all ? last : std::min(turn + 1, last); turn < end; ++turn)
            stages.StartKept(body, next, turn);
        });
      }
    }
    body.push_back({tile::CommitAsync{}});
  }

  // One column of the window, 16 filters. Calls between(false) after each fragment of dy, and
  // between(true) at the end.
  template <class F>
  void Multiply(Block& body, const Arrays& arrays, const Expr& dy_from, const Expr& w_from,
                const std::string& acc, F&& between) {
    const std::string fragments =
        Registers(b_, body, "w_fragments", x_.type, p_.row.window * p_.sets * 4);
    const Expr w_at = b_.Let(body, "w_step", w_from), dy_at = b_.Let(body, "dy_step", dy_from);
    for (int64_t i = 0; i < p_.row.window; ++i)
      for (const int64_t set : p_.used[i])
        WideCopy(body, x_.type, fragments, b_.Idx((i * p_.sets + set) * 4), arrays.panel,
                 w_at + b_.Idx((i * p_.sets + set) * 128), 4);
    for (int64_t y = 0; y < p_.rows + p_.row.window - 1; ++y) {
      for (int64_t m = 0; m < p_.tiles; ++m) {
        const std::string a = Registers(b_, body, "dy_fragment", x_.type, 8);
        const Expr from = dy_at + b_.Idx((y * p_.staged_cols() + m * 16) * p_.pitch());
        body.push_back({tile::LoadMatrix{a, b_.Idx(0), arrays.staged, from, 4, false}});
        for (int64_t i = 0; i < p_.row.window; ++i) {
          const int64_t row = y - i;
          if (row < 0 || row >= p_.rows) continue;
          for (const int64_t set : p_.used[i])
            body.push_back({tile::Mma{acc, b_.Idx(x_.SumAt(row, m, set)), a, b_.Idx(0), fragments,
                                      b_.Idx((i * p_.sets + set) * 4)}});
        }
        between(false);
      }
    }
    between(true);
  }

  const Target& target_;
  ConvShape shape_;
  FirstLayerDgradPlan p_;
  int blocks_;
  KernelBuilder b_;
  DgradContext x_;
};

}  // namespace

Lowered LowerFirstLayerDgrad(const Group& group, const Target& target, const ConvShape& shape,
                             const FirstLayerDgradKnobs& knobs) {
  return FirstLayerDgradKernel(group, target, shape, knobs).Lower();
}

}  // namespace kiln::compiler
