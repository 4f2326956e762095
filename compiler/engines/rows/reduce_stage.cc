// A stage that reduces: accumulate over the vectors that a thread has, then combine what the
// threads of a team have.
#include <map>
#include <optional>

#include "compiler/engines/rows/stages.h"
#include "compiler/kernel/accumulation.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

class StageReduction {
 public:
  StageReduction(const RowsFrame& f, RowsTotals& totals, RowsTile tile,
                 const RowsPlan::Stage& stage)
      : f_(f), totals_(totals), tile_(std::move(tile)), stage_(stage) {}

  void Reduce(Block& body, const RowsPlan::Stage* distances) {
    for (const size_t r : stage_.reduces) totals_.DeclareParts(body, r, parts_);
    if (distances == nullptr) ReadShifts(body);
    AllocKept(body);
    std::map<size_t, Totals> totals = TotalsOf(body);
    EachChunk(f_, tile_, body, stage_,
              [&](Block& of_chunk, const Expr& chunk, const RowsTile& tile) {
                EachRow(f_, of_chunk, tile.number, [&](Block& of_row, const Row& row) {
                  const RowValues values = RowValuesFor(f_, totals_, tile, of_row, row, stage_);
                  EachVector(f_, of_row, row, chunk, [&](Block& out, const Place& place) {
                    Accumulate(out, stage_, tile, row, values, place);
                  });
                });
                for (auto& [r, of] : totals) of.AfterStep(of_chunk, chunk, parts_.at(r));
              });
    for (auto& [r, of] : totals) of.Finish(body, parts_.at(r));
    tile_.held.insert(kept_.begin(), kept_.end());
    totals_.FoldLanes(body, stage_, parts_);
    std::optional<RowsTotals::Joint> joint;
    if (distances != nullptr) {
      joint = {.sum = distances->moment->sum, .moment = distances->reduces[0]};
      MeasureDistances(body, *distances, *joint);
    }
    totals_.Combine(body, stage_, joint, tile_.turn);
    for (const auto& [r, shifts] : shifts_)
      EachRow(f_, body, tile_.number, [&, r = r](Block& out, const Row& row) {
        totals_.Unshift(out, r, row.slot, Shift(r, row));
      });
  }

  RowsTile Tile() && { return std::move(tile_); }

 private:
  const graph::Graph& g() const { return f_.graph(); }

  void AllocKept(Block& body) {
    for (const TensorId kept : stage_.keeps) {
      kept_[kept] = f_.b.Name(g()[kept].name + "_kept");
      body.push_back(
          {tile::Alloc{kept_[kept], g()[kept].dtype, tile::Space::kReg, f_.HeldElements()}});
    }
  }

  // Sums along rows that are read chunk by chunk, where a thread adds more terms than f32 takes.
  std::map<size_t, Totals> TotalsOf(Block& body) const {
    std::map<size_t, Totals> totals;
    const int64_t vectors = CeilDiv(f_.plan.vectors, int64_t{f_.shape.team});
    for (const size_t r : stage_.reduces) {
      const bool adds = f_.reduce(r).As<graph::ReduceAttrs>().combine == graph::Combine::kAdd;
      if (!adds || !f_.shape.streams || !Totals::Needs(totals_.TypeOf(r), vectors, kMostTerms))
        continue;
      totals.emplace(r, Totals(f_.b, totals_.TypeOf(r), vectors, f_.shape.vectors, kMostTerms));
      totals.at(r).Declare(body, int64_t{f_.shape.rows} * f_.plan.lanes, Bind::kUnroll);
    }
    return totals;
  }

  // The first element of each row, where the stage adds distances from it. No row has been stored
  // before all of its threads have read it.
  void ReadShifts(Block& body) {
    for (const size_t r : stage_.reduces) {
      if (!f_.plan.IsShifted(r)) continue;
      const TensorId operand = f_.reduce(r).inputs[0];
      shifts_[r] = f_.b.Name("shift");
      body.push_back(
          {tile::Alloc{shifts_[r], totals_.TypeOf(r), tile::Space::kReg, f_.shape.rows}});
      EachRow(f_, body, tile_.number, [&](Block& out, const Row& row) {
        ValueScope values = RowScope(f_, totals_, tile_, out, row);
        const auto at = [&](const Index& index) {
          return tile::Cast(totals_.TypeOf(r),
                            values.Value(operand, BroadcastIndex(f_.b, g()[operand], index)));
        };
        const Expr first = at(row.kept), other = at(OtherPlace(f_.b, f_.plan.row, row.kept));
        out.push_back({tile::Store{shifts_[r], row.slot, ShiftOf(f_.b, out, first, other)}});
      });
    }
  }
  Expr Shift(size_t r, const Row& row) const {
    return tile::Load(shifts_.at(r), totals_.TypeOf(r), row.slot);
  }

  // Squared distances of the thread's elements from their own mean.
  void MeasureDistances(Block& body, const RowsPlan::Stage& stage, const RowsTotals::Joint& joint) {
    totals_.DeclareParts(body, joint.moment, parts_);
    const double elements = static_cast<double>(f_.shape.vectors) * f_.plan.lanes;
    EachRow(f_, body, tile_.number, [&](Block& of_row, const Row& row) {
      const Expr sum = totals_.Of(joint.sum, row.slot);
      RowValues values;
      values.known.emplace_back(
          stage.moment->mean, f_.b.Let(of_row, "mean_of_thread",
                                       sum * tile::Float(1 / elements, totals_.TypeOf(joint.sum))));
      EachVector(f_, of_row, row, f_.b.Idx(0), [&](Block& out, const Place& place) {
        Accumulate(out, stage, tile_, row, values, place);
      });
    });
    totals_.FoldLanes(body, stage, parts_);
  }

  void Accumulate(Block& out, const RowsPlan::Stage& stage, const RowsTile& tile, const Row& row,
                  const RowValues& of_row, const Place& place) const {
    const StageLeaves leaves = FetchLeaves(f_, tile, out, stage, place);
    EachLane(f_, out, place.index, [&](Block& body, const Element& element) {
      ValueScope values(f_.b, body);
      BindLeaves(f_, body, values, leaves, of_row, place, element);
      for (const size_t r : stage.reduces) {
        const TensorId operand = f_.reduce(r).inputs[0];
        const DType type = totals_.TypeOf(r);
        Expr value = tile::Cast(
            type, values.Value(operand, BroadcastIndex(f_.b, g()[operand], element.index)));
        if (const auto kept = kept_.find(operand); kept != kept_.end())
          body.push_back({tile::Store{kept->second, place.slot + element.lane,
                                      tile::Cast(g()[operand].dtype, value)}});
        if (shifts_.contains(r)) value = value - Shift(r, row);
        const Expr slot = row.slot * f_.b.Idx(f_.plan.lanes) + element.lane;
        const Expr so_far = tile::Load(parts_.at(r), type, slot);
        body.push_back({tile::Store{parts_.at(r), slot, totals_.Combined(r, so_far, value)}});
      }
    });
  }

  const RowsFrame& f_;
  RowsTotals& totals_;
  RowsTile tile_;
  const RowsPlan::Stage& stage_;
  RowsTotals::Parts parts_;               // registers of partial results
  Arrays kept_;                           // registers of operands that later stages read
  std::map<size_t, std::string> shifts_;  // registers of sums that add distances from them
};

}  // namespace

RowsTile ReduceStage(const RowsFrame& f, RowsTotals& totals, Block& out, RowsTile tile,
                     const RowsPlan::Stage& stage, const RowsPlan::Stage* distances) {
  StageReduction reduction(f, totals, std::move(tile), stage);
  reduction.Reduce(out, distances);
  return std::move(reduction).Tile();
}

}  // namespace kiln::compiler
