// The kernel of a recurrence's gradient, from the last step to the first. Gradients of the gates go
// to scratch memory rounded, as they go to memory, and from there through the transposed matrices
// to the state before:
//
//   dr = dy + dh                   where it is projected; barrier
//   dgates of units, from W8^T dr or dy + dh; barrier
//   dh = R^T dgates; barrier
#include "compiler/engines/recurrence/loop.h"

namespace kiln::compiler {
namespace {

namespace bwd = graph::recurrence_grad;

using graph::kAbsent;
using graph::RnnCell;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

class GradKernel : private RecurrenceLoop {
 public:
  GradKernel(const Group& group, const Target& target, const RecurrenceKnobs& knobs)
      : RecurrenceLoop(group, target, knobs, "the gradient"),
        is_lstm_(shape_.attrs.cell == RnnCell::kLstm),
        is_gru_(shape_.attrs.cell == RnnCell::kGru),
        of_state_(shape_.blocks.gates * shape_.hidden) {
    matrix_ = Stage(In(bwd::kR), of_state_, 1, shape_.projected,
                    [](const Expr& d, const Expr& k, const Expr&, const Expr& unit, const Expr&) {
                      return Index{d, k, unit};
                    });
    if (shape_.is_projected)
      projection_ = Stage(In(bwd::kProjection), shape_.projected, 1, shape_.hidden,
                          [](const Expr& d, const Expr& k, const Expr&, const Expr& unit,
                             const Expr&) { return Index{d, k, unit}; });
    dh_ = State(shape_.projected);
    gates_ = State(of_state_);
    if (is_lstm_) dc_ = State(shape_.hidden);
    if (is_gru_) direct_ = State(shape_.hidden);
    if (shape_.is_projected) dr_ = State(shape_.projected);
  }

  Lowered Lower() {
    Block body;
    Begin(body, dh_, bwd::kDhy, shape_.projected, projected_);
    if (is_lstm_) Begin(body, dc_, bwd::kDcy, shape_.hidden, hidden_);
    Barrier(body);
    const DType t = b_.index_type();
    const std::string count = b_.Name("k");
    Block loop;
    Step(loop, b_.Let(loop, "step", steps_ - Idx(1) - tile::Var(count, t)));
    body.push_back({tile::For{count, t, steps_, Bind::kSerial, std::move(loop)}});
    End(body, dh_, bwd::kDhx, shape_.projected, projected_);
    if (is_lstm_) End(body, dc_, bwd::kDcx, shape_.hidden, hidden_);
    return Finish(std::move(body));
  }

 private:
  void Begin(Block& body, const std::string& state, size_t operand, int64_t width,
             const Expr& width_arg) {
    Units(body, width, width_arg, nullptr, "", {},
          [&](Block& out, const Row& row, const Lane& lane) {
            Expr d = Real(0);
            if (In(operand) != kAbsent) d = Read(out, In(operand), {d_, row.batch, lane.unit});
            out.push_back({tile::Store{state, row.state * width_arg + lane.unit, d}});
          });
  }
  void End(Block& body, const std::string& state, size_t result, int64_t width,
           const Expr& width_arg) {
    if (!IsWritten(Out(result))) return;
    Units(body, width, width_arg, nullptr, "", {},
          [&](Block& out, const Row& row, const Lane& lane) {
            const Expr d = Load(state, row.state * width_arg + lane.unit);
            Write(out, Out(result), {d_, row.batch, lane.unit},
                  tile::Select(tile::Lt(Idx(0), row.length), d, Real(0)));
          });
  }

  void Step(Block& loop, const Expr& step) {
    if (shape_.is_projected) {
      Projected(loop, step);
      Barrier(loop);
    }
    Units(
        loop, shape_.hidden, hidden_, shape_.is_projected ? &projection_ : nullptr, dr_,
        [&](const Row& row) { return row.state * projected_; },
        [&](Block& out, const Row& row, const Lane& lane) {
          const Moment at = At(out, row, step);
          Block inside, behind;
          Cell(inside, row, lane, at, step);
          for (int64_t k = 0; k < shape_.blocks.gradients; ++k)
            Write(behind, Out(bwd::kDgates), Blocked(row, lane, at, k), Real(0));
          out.push_back({tile::If{at.is_inside, std::move(inside), std::move(behind)}});
        });
    Barrier(loop);
    Units(
        loop, shape_.projected, projected_, &matrix_, gates_,
        [&](const Row& row) { return row.state * Idx(shape_.blocks.gates) * hidden_; },
        [&](Block& out, const Row& row, const Lane& lane) {
          const Moment at = At(out, row, step);
          Block inside;
          Expr dh = lane.sums[0];
          const Expr place = row.state * projected_ + lane.unit;
          if (is_gru_) dh = dh + Load(direct_, place);
          inside.push_back({tile::Store{dh_, place, dh}});
          out.push_back({tile::If{at.is_inside, std::move(inside), {}}});
        });
    Barrier(loop);
  }

  Expr Slope(Block& out, const Row& row, const Lane& lane, const Moment& at) {
    const Expr dy = Read(out, In(bwd::kDy), {at.time, row.batch, d_ * projected_ + lane.unit});
    return dy + Load(dh_, row.state * projected_ + lane.unit);
  }

  void Projected(Block& loop, const Expr& step) {
    Units(loop, shape_.projected, projected_, nullptr, "", {},
          [&](Block& out, const Row& row, const Lane& lane) {
            const Moment at = At(out, row, step);
            const Index place = {at.time, row.batch, d_, lane.unit};
            Block inside, behind;
            const Expr dr = b_.Let(inside, "dr", Rounded(Slope(inside, row, lane, at)));
            inside.push_back({tile::Store{dr_, row.state * projected_ + lane.unit, dr}});
            Write(inside, Out(bwd::kDprojected), place, dr);
            Write(behind, Out(bwd::kDprojected), place, Real(0));
            out.push_back({tile::If{at.is_inside, std::move(inside), std::move(behind)}});
          });
  }

  Index Blocked(const Row& row, const Lane& lane, const Moment& at, int64_t block) const {
    return {at.time, row.batch, d_, Idx(block) * hidden_ + lane.unit};
  }

  // `values` at the step before, where there is one, else the initial state. Places are clamped.
  Expr Before(Block& out, const Row& row, const Moment& at, const Expr& step, TensorId values,
              TensorId initial, const std::function<Index(const Expr& time)>& place,
              const Expr& unit) {
    Expr time = tile::Op(ScalarOp::kMax, {at.time - Idx(1), Idx(0)});
    if (shape_.directions == 2) {
      const Expr turned = tile::Op(ScalarOp::kMin, {at.time + Idx(1), steps_ - Idx(1)});
      time = tile::Select(tile::Op(ScalarOp::kEq, {d_, Idx(1)}), turned, time);
    }
    time = b_.Let(out, "time_before", time);
    const Expr kept = Read(out, values, place(time));
    Expr first = Real(0);
    if (initial != kAbsent) first = Read(out, initial, {d_, row.batch, unit});
    return b_.Let(out, "before", tile::Select(tile::Lt(Idx(0), step), kept, first));
  }

  // ir/graph/ops_recurrence.cc has the formulas.
  void Cell(Block& out, const Row& row, const Lane& lane, const Moment& at, const Expr& step) {
    const Expr dh =
        b_.Let(out, "dh", shape_.is_projected ? lane.sums[0] : Slope(out, row, lane, at));
    std::vector<Expr> k;
    for (int64_t block = 0; block < shape_.blocks.kept; ++block)
      k.push_back(Read(out, In(bwd::kGates), Blocked(row, lane, at, block)));
    const Expr one = Real(1), place = row.state * hidden_ + lane.unit;
    std::vector<Expr> slopes;
    switch (shape_.attrs.cell) {
      case RnnCell::kRelu:
        slopes = {tile::Select(tile::Lt(Real(0), k[0]), dh, Real(0))};
        break;
      case RnnCell::kTanh:
        slopes = {dh * (one - k[0] * k[0])};
        break;
      case RnnCell::kLstm: {
        const Expr c = Read(out, In(bwd::kCells), Blocked(row, lane, at, 0));
        const Expr before = Before(
            out, row, at, step, In(bwd::kCells), In(bwd::kCx),
            [&](const Expr& time) { return Index{time, row.batch, d_, lane.unit}; }, lane.unit);
        const Expr t = b_.Let(out, "tanh_c", Tanh(Use(c)));
        const Expr through = dh * k[3] * (one - t * t) * UseSlope(c);
        const Expr dc = b_.Let(out, "dc", Load(dc_, place) + through);
        slopes = {dc * k[2] * k[0] * (one - k[0]), dc * Use(before) * k[1] * (one - k[1]),
                  dc * k[0] * (one - k[2] * k[2]), dh * t * k[3] * (one - k[3])};
        out.push_back({tile::Store{dc_, place, dc * k[1] * UseSlope(before)}});
        break;
      }
      case RnnCell::kGru: {
        const Expr before = Before(
            out, row, at, step, In(bwd::kY), In(bwd::kHx),
            [&](const Expr& time) { return Index{time, row.batch, d_ * projected_ + lane.unit}; },
            lane.unit);
        const Expr n = b_.Let(out, "dn", dh * (one - k[1]) * (one - k[2] * k[2]));
        slopes = {n * k[3] * k[0] * (one - k[0]), dh * (before - k[2]) * k[1] * (one - k[1]), n,
                  n * k[0]};
        out.push_back({tile::Store{direct_, place, dh * k[1]}});
        break;
      }
    }
    for (size_t block = 0; block < slopes.size(); ++block) {
      const Expr slope = b_.Let(out, "slope", Rounded(slopes[block]));
      Write(out, Out(bwd::kDgates), Blocked(row, lane, at, static_cast<int64_t>(block)), slope);
      // The new gate's gradient of the state stands in the place of that of the input.
      if (is_gru_ && block == 2) continue;
      const int64_t slot = is_gru_ && block == 3 ? 2 : static_cast<int64_t>(block);
      const Expr gate = (row.state * Idx(shape_.blocks.gates) + Idx(slot)) * hidden_ + lane.unit;
      out.push_back({tile::Store{gates_, gate, slope}});
    }
  }

  const bool is_lstm_, is_gru_;
  const int64_t of_state_;  // gradients of the state's gates, of a sequence
  Staged matrix_, projection_;
  std::string dh_, gates_, dc_, direct_, dr_;
};

}  // namespace

Lowered LowerRecurrenceGrad(const Group& group, const Target& target,
                            const RecurrenceKnobs& knobs) {
  return GradKernel(group, target, knobs).Lower();
}

}  // namespace kiln::compiler
