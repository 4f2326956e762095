// One pass of the columns engine:
//
//   what the columns of the thread have (means, scales)   read once, into registers
//   for each tile of places:   leaves of `unroll` places  all of them before the first use
//                              accumulate, or the last stage's maps and wide stores
//   the block's walkers meet in shared memory; a partial result of each column goes out
//
// Sums have a fixed order, so results are the same from run to run.
#include <algorithm>

#include "compiler/engines/columns/block_sums.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

// Registers of the results of one place that go out as vectors.
Arrays AllocResults(const PassFrame& f, Block& out, const std::vector<TensorId>& outputs) {
  const graph::Graph& g = f.graph();
  Arrays results;
  for (const TensorId y : outputs) {
    if (f.plan.lanes == 1 || WalkOf(g[y], f.row().inner) != Walk::kContiguous) continue;
    results[y] = f.b.Name(g[y].name + "_w");
    out.push_back({tile::Alloc{results[y], g[y].dtype, tile::Space::kReg, f.plan.lanes}});
  }
  return results;
}

// The stage's maps at all places.
void StorePlaces(const PassFrame& f, const Arrays& column_values, Block& out,
                 const std::vector<LoadedPlace>& places, const std::vector<TensorId>& outputs) {
  const graph::Graph& g = f.graph();
  std::vector<Arrays> results;
  for (size_t p = 0; p < places.size(); ++p) results.push_back(AllocResults(f, out, outputs));
  EachLane(f, column_values, out, places, [&](Block& body, LaneOfPlaces& at) {
    for (size_t p = 0; p < places.size(); ++p) {
      for (const TensorId y : outputs) {
        const Index index = BroadcastIndex(f.b, g[y], at.indices[p]);
        const Expr value = tile::Cast(g[y].dtype, at.scopes[p].Value(y, index));
        const auto regs = results[p].find(y);
        if (regs == results[p].end())
          body.push_back({tile::Store{f.b.Pointer(y), f.b.Offset(y, index), value}});
        else
          body.push_back({tile::Store{regs->second, at.lane, value}});
      }
    }
  });
  for (size_t p = 0; p < places.size(); ++p) {
    for (const auto& [y, regs] : results[p]) {
      const Expr to = f.b.Let(out, g[y].name + "_at", f.b.Offset(y, places[p].index));
      WideCopy(out, g[y].dtype, f.b.Pointer(y), to, regs, f.b.Idx(0), f.plan.lanes);
    }
  }
}

// The body of a block: all that it does for its columns.
Block BlockBody(const PassFrame& f) {
  Block body, walk;
  const ThreadColumns columns = FindColumns(f, body);
  const Arrays values = ReadColumnValues(f, columns, body);
  ThreadSums sums(f, columns);
  sums.Declare(body);
  WalkPlaces(f, columns, walk, [&](Block& out, const std::vector<Expr>& at) {
    const std::vector<LoadedPlace> places = LoadPlaces(f, columns, out, at);
    if (f.stage.reduces.empty())
      return StorePlaces(f, values, out, places, f.plan.chain.wide_outputs);
    sums.Add(out, values, places);
    if (!f.plan.early.empty()) StorePlaces(f, values, out, places, f.plan.early);
  });
  if (f.plan.across)
    body.push_back({tile::If{columns.exists, std::move(walk), {}}});
  else
    std::ranges::move(walk, std::back_inserter(body));
  BlockSums of_block(f, columns, sums);
  for (const size_t r : f.order) of_block.Publish(body, r);
  return body;
}

}  // namespace

void LowerColumnsPass(const ColumnsPlan& plan, const Target& target, size_t stage,
                      const ColumnsShape& shape, const ColumnsScratch& scratch, Lowered& lowered) {
  KernelBuilder b(plan.chain.row.group, target,
                  fmt::format("columns, pass {}: {}, threads={}, width={}, lanes={}, unroll={}",
                              stage, plan.across ? "across" : "along", shape.threads, shape.width,
                              plan.lanes, shape.unroll));
  ColumnsParameters args(b, plan, shape);
  for (const char* reserved : {"bx", "by", "tx"}) b.Name(reserved);
  PassFrame f{plan, plan.chain.stages[stage], stage, shape, scratch, b, args, plan.InOrder(stage)};
  f.splits = args.Arg("splits", shape.splits);
  f.blocks = args.Arg("blocks", shape.blocks);
  const DType type = b.index_type();
  Block threads, splits, blocks;
  threads.push_back({tile::For{"tx", type, b.Idx(shape.threads), Bind::kThreadX, BlockBody(f)}});
  splits.push_back({tile::For{"by", type, f.splits, Bind::kBlockY, std::move(threads)}});
  blocks.push_back({tile::For{"bx", type, f.blocks, Bind::kBlockX, std::move(splits)}});
  b.Finish(std::move(blocks), {shape.blocks, shape.splits, 1}, shape.threads, lowered,
           shape.resident);
}

}  // namespace kiln::compiler
