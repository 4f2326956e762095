// The kernel of a recurrence. States alternate between two copies, so that a step needs one
// barrier; with a projection two: the units' states go to a third place, from which it is made.
#include "compiler/engines/recurrence/loop.h"

namespace kiln::compiler {
namespace {

namespace fwd = graph::recurrence;

using graph::kAbsent;
using graph::RnnCell;
using tile::Bind;
using tile::Block;
using tile::Expr;

class ForwardKernel : private RecurrenceLoop {
 public:
  ForwardKernel(const Group& group, const Target& target, const RecurrenceKnobs& knobs)
      : RecurrenceLoop(group, target, knobs, "steps"),
        is_lstm_(shape_.attrs.cell == RnnCell::kLstm) {
    const int64_t gates = shape_.blocks.gates;
    matrix_ = Stage(In(fwd::kR), shape_.projected, gates, shape_.hidden,
                    [](const Expr& d, const Expr& k, const Expr& gate, const Expr& unit,
                       const Expr& units) { return Index{d, gate * units + unit, k}; });
    if (shape_.is_projected)
      projection_ = Stage(In(fwd::kProjection), shape_.hidden, 1, shape_.projected,
                          [](const Expr& d, const Expr& k, const Expr&, const Expr& unit,
                             const Expr&) { return Index{d, unit, k}; });
    h_ = State(shape_.projected, 2);
    if (is_lstm_) c_ = State(shape_.hidden);
    if (shape_.is_projected) units_ = State(shape_.hidden);
  }

  Lowered Lower() {
    Block body;
    Begin(body);
    Barrier(body);
    const std::string step = b_.Name("step");
    Block loop;
    Step(loop, tile::Var(step, b_.index_type()));
    body.push_back({tile::For{step, b_.index_type(), steps_, Bind::kSerial, std::move(loop)}});
    End(body);
    return Finish(std::move(body));
  }

 private:
  // The place of a row's state in the copy `parity`.
  Expr StateAt(const Row& row, const Expr& parity) {
    const Expr rows = Idx(shape_.directions) * b_.Arg("batch", shape_.batch);
    return (parity * rows + row.state) * projected_;
  }
  Expr CellAt(const Row& row, const Expr& unit) const { return row.state * hidden_ + unit; }

  void Begin(Block& body) {
    Units(body, shape_.projected, projected_, nullptr, "", {},
          [&](Block& out, const Row& row, const Lane& lane) {
            Expr h = Real(0);
            if (In(fwd::kHx) != kAbsent) h = Read(out, In(fwd::kHx), {d_, row.batch, lane.unit});
            out.push_back({tile::Store{h_, StateAt(row, Idx(0)) + lane.unit, h}});
          });
    if (!is_lstm_) return;
    Units(body, shape_.hidden, hidden_, nullptr, "", {},
          [&](Block& out, const Row& row, const Lane& lane) {
            Expr c = Real(0);
            if (In(fwd::kCx) != kAbsent) c = Read(out, In(fwd::kCx), {d_, row.batch, lane.unit});
            out.push_back({tile::Store{c_, CellAt(row, lane.unit), c}});
          });
  }

  void Step(Block& loop, const Expr& step) {
    const Expr now = b_.Let(loop, "now", step % Idx(2)), next = Idx(1) - now;
    Units(
        loop, shape_.hidden, hidden_, &matrix_, h_,
        [&](const Row& row) { return StateAt(row, now); },
        [&](Block& out, const Row& row, const Lane& lane) {
          const Moment at = At(out, row, step);
          Block inside, behind;
          Cell(inside, row, lane, at, now, next);
          if (!shape_.is_projected) KeepState(behind, row, lane, now, next);
          Clear(behind, row, lane, at);
          out.push_back({tile::If{at.is_inside, std::move(inside), std::move(behind)}});
        });
    Barrier(loop);
    if (!shape_.is_projected) return;
    Units(
        loop, shape_.projected, projected_, &projection_, units_,
        [&](const Row& row) { return row.state * hidden_; },
        [&](Block& out, const Row& row, const Lane& lane) {
          const Moment at = At(out, row, step);
          Block inside, behind;
          const Expr h = b_.Let(inside, "projected_h", Rounded(lane.sums[0]));
          StoreState(inside, row, lane, at, next, h);
          KeepState(behind, row, lane, now, next);
          Write(behind, Out(fwd::kY), PlaceOfY(row, lane, at), Real(0));
          out.push_back({tile::If{at.is_inside, std::move(inside), std::move(behind)}});
        });
    Barrier(loop);
  }

  Index PlaceOfY(const Row& row, const Lane& lane, const Moment& at) const {
    return {at.time, row.batch, d_ * projected_ + lane.unit};
  }
  void StoreState(Block& out, const Row& row, const Lane& lane, const Moment& at, const Expr& next,
                  const Expr& h) {
    out.push_back({tile::Store{h_, StateAt(row, next) + lane.unit, h}});
    Write(out, Out(fwd::kY), PlaceOfY(row, lane, at), h);
  }
  void KeepState(Block& out, const Row& row, const Lane& lane, const Expr& now, const Expr& next) {
    out.push_back(
        {tile::Store{h_, StateAt(row, next) + lane.unit, Load(h_, StateAt(row, now) + lane.unit)}});
  }

  // Clears what a unit keeps for the gradient, and y, behind the end of a sequence.
  void Clear(Block& out, const Row& row, const Lane& lane, const Moment& at) {
    for (int64_t k = 0; k < shape_.blocks.kept; ++k)
      Write(out, Out(fwd::kGates), Kept(row, lane, at, k), Real(0));
    Write(out, Out(fwd::kCells), Kept(row, lane, at, 0), Real(0));
    Write(out, Out(fwd::kHidden), Kept(row, lane, at, 0), Real(0));
    if (!shape_.is_projected) Write(out, Out(fwd::kY), PlaceOfY(row, lane, at), Real(0));
  }
  Index Kept(const Row& row, const Lane& lane, const Moment& at, int64_t block) const {
    return {at.time, row.batch, d_, Idx(block) * hidden_ + lane.unit};
  }

  // Products are added by one instruction, so that no compiler chooses which: a kernel that keeps
  // its gates gives the same bits as one that does not.
  static Expr Fma(Expr a, Expr b, Expr c) {
    return tile::Op(ScalarOp::kFma, {std::move(a), std::move(b), std::move(c)});
  }

  // ir/graph/ops_recurrence.cc has the formulas.
  void Cell(Block& out, const Row& row, const Lane& lane, const Moment& at, const Expr& now,
            const Expr& next) {
    std::vector<Expr> x, a;
    for (int64_t g = 0; g < shape_.blocks.gates; ++g) {
      const Expr unit = Idx(g) * hidden_ + lane.unit;
      x.push_back(Read(out, In(fwd::kXg), {at.time, row.batch, d_, unit}));
      Expr sum = lane.sums[static_cast<size_t>(g)];
      if (In(fwd::kBias) != kAbsent) sum = sum + Read(out, In(fwd::kBias), {d_, unit});
      a.push_back(b_.Let(out, "a", sum));
    }
    std::vector<Expr> kept;
    const auto keep = [&](const char* name, Expr value) {
      kept.push_back(b_.Let(out, name, std::move(value)));
      return kept.back();
    };
    Expr h;
    switch (shape_.attrs.cell) {
      case RnnCell::kRelu:
        h = keep("active", tile::Op(ScalarOp::kMaxNan, {x[0] + a[0], Real(0)}));
        break;
      case RnnCell::kTanh:
        h = keep("active", Tanh(x[0] + a[0]));
        break;
      case RnnCell::kLstm: {
        const Expr i = keep("i_gate", Sigmoid(x[0] + a[0])),
                   f = keep("f_gate", Sigmoid(x[1] + a[1])), g = keep("g_gate", Tanh(x[2] + a[2])),
                   o = keep("o_gate", Sigmoid(x[3] + a[3]));
        const Expr before = b_.Let(out, "c_before", Load(c_, CellAt(row, lane.unit)));
        const Expr c = b_.Let(out, "c", Fma(f, Use(before), i * g));
        out.push_back({tile::Store{c_, CellAt(row, lane.unit), c}});
        Write(out, Out(fwd::kCells), Kept(row, lane, at, 0), c);
        h = o * Tanh(Use(c));
        break;
      }
      case RnnCell::kGru: {
        const Expr r = keep("r_gate", Sigmoid(x[0] + a[0])),
                   z = keep("z_gate", Sigmoid(x[1] + a[1])),
                   n = keep("n_gate", Tanh(Fma(r, a[2], x[2])));
        keep("reset_in", a[2]);
        h = Fma(z, Load(h_, StateAt(row, now) + lane.unit), (Real(1) - z) * n);
        break;
      }
    }
    for (size_t k = 0; k < kept.size(); ++k)
      Write(out, Out(fwd::kGates), Kept(row, lane, at, static_cast<int64_t>(k)), kept[k]);
    h = b_.Let(out, "h_new", Rounded(h));
    Write(out, Out(fwd::kHidden), Kept(row, lane, at, 0), h);
    if (shape_.is_projected)
      out.push_back({tile::Store{units_, CellAt(row, lane.unit), h}});
    else
      StoreState(out, row, lane, at, next, h);
  }

  // Stores the last states; 0 for sequences without steps.
  void End(Block& body) {
    const auto last = [&](const Row& row, const Expr& value) {
      return tile::Select(tile::Lt(Idx(0), row.length), value, Real(0));
    };
    if (IsWritten(Out(fwd::kHy)))
      Units(body, shape_.projected, projected_, nullptr, "", {},
            [&](Block& out, const Row& row, const Lane& lane) {
              const Expr h = Load(h_, StateAt(row, steps_ % Idx(2)) + lane.unit);
              Write(out, Out(fwd::kHy), {d_, row.batch, lane.unit}, last(row, h));
            });
    if (IsWritten(Out(fwd::kCy)))
      Units(body, shape_.hidden, hidden_, nullptr, "", {},
            [&](Block& out, const Row& row, const Lane& lane) {
              const Expr c = Load(c_, CellAt(row, lane.unit));
              Write(out, Out(fwd::kCy), {d_, row.batch, lane.unit}, last(row, c));
            });
  }

  const bool is_lstm_;
  Staged matrix_, projection_;
  std::string h_, c_, units_;
};

}  // namespace

Lowered LowerRecurrence(const Group& group, const Target& target, const RecurrenceKnobs& knobs) {
  return ForwardKernel(group, target, knobs).Lower();
}

}  // namespace kiln::compiler
