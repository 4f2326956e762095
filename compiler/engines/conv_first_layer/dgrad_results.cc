#include "compiler/engines/conv_first_layer/dgrad_results.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

// ---- registers to shared memory

void DgradResults::StoreSums(Block& out, const std::string& acc, int64_t sum, int count,
                             const Expr& to) const {
  KernelBuilder& b = x_.b;
  const auto value = [&](int e) {
    return tile::Cast(x_.made_type, tile::Load(acc, DType::kF32, b.Idx(sum + e)));
  };
  if (count == 1) {
    out.push_back({tile::Store{made_, to, value(0)}});
    return;
  }
  const std::string pair = Registers(b, out, "pair", x_.made_type, 2);
  for (int e = 0; e < 2; ++e) out.push_back({tile::Store{pair, b.Idx(e), value(e)}});
  WideCopy(out, x_.made_type, made_, to, pair, b.Idx(0), 2);
}

void DgradResults::HandOver(Block& body, const std::string& acc) const {
  KernelBuilder& b = x_.b;
  const FirstLayerDgradPlan& p = x_.p;
  const Expr warp_at = lane_.warp_row * b.Idx(p.row.stride * p.made_pitch());
  const Expr first = b.Let(body, "made_at", warp_at + (lane_.warp_col + lane_.g) * b.Idx(p.run));
  // Pairs of slots are neighbours where runs begin at even places.
  const int at_once = p.run % 2 == 0 && p.run_slots % 2 == 0 ? 2 : 1;
  for (int64_t set = 0; set < p.sets; ++set) {
    for (int e = 0; e < 2; e += at_once) {
      const Expr slot = b.Let(body, "slot", lane_.t4 * b.Idx(2) + b.Idx(set * 8 + e));
      const Expr phase = slot / b.Idx(p.run_slots), element = slot % b.Idx(p.run_slots);
      const Expr at = b.Let(body, "slot_at", first + phase * b.Idx(p.made_pitch()) + element);
      Block store;
      for (int64_t row = 0; row < p.rows; ++row)
        for (int64_t m = 0; m < p.tiles; ++m)
          for (int half = 0; half < 2; ++half)
            StoreSums(
                store, acc, x_.SumAt(row, m, set) + half * 2 + e, at_once,
                at + b.Idx(row * p.row.stride * p.made_pitch() + (m * 16 + half * 8) * p.run));
      When(body, tile::And(tile::Lt(phase, b.Idx(p.row.stride)), tile::Lt(element, b.Idx(p.run))),
           std::move(store));
    }
  }
  const std::string check = Registers(b, body, "check", DType::kF32, 1);
  const Expr checked = tile::Load(check, DType::kF32, b.Idx(0));
  body.push_back({tile::Store{check, b.Idx(0), ZeroOf(DType::kF32)}});
  Loop(b, body, "z", b.Idx(x_.accumulators()), Bind::kUnroll, [&](Block& one, const Expr& z) {
    const Expr sum = tile::Load(acc, DType::kF32, z);
    const Expr added = tile::Op(ScalarOp::kFma, {sum, tile::Float(0), checked});
    one.push_back({tile::Store{check, b.Idx(0), added}});
  });
  Block again;
  MakeAgain(again, first);
  body.push_back(
      {tile::If{tile::Op(ScalarOp::kEq, {checked, tile::Float(0)}), {}, std::move(again)}});
}

// ---- shared memory to dx

void DgradResults::Store(Block& body) const {
  KernelBuilder& b = x_.b;
  const FirstLayerDgradPlan& p = x_.p;
  const int64_t along = p.made_pitch() / kDgradVector;
  const int64_t count = p.block_rows() * p.row.stride * along;
  const Expr first_h = b.Let(body, "first_h", piece_.first_row * b.Idx(p.row.stride));
  const Expr first_e = b.Let(body, "first_e", piece_.first_col * b.Idx(p.run));
  Loop(b, body, "i", b.Idx(CeilDiv(count, kDgradThreads)), Bind::kSerial,
       [&](Block& one, const Expr& i) {
         const Expr place = b.Let(one, "vector", i * b.Idx(kDgradThreads) + Var(b, "tx"));
         const Expr row = b.Let(one, "made_row", place / b.Idx(along));
         const Expr in_row = (place - row * b.Idx(along)) * b.Idx(kDgradVector);
         Vector v;
         v.row = b.Let(one, "h", first_h + row);
         v.first = b.Let(one, "first", first_e + in_row);
         v.at = b.Let(one, "at", place * b.Idx(kDgradVector));
         Expr guard = tile::And(piece_.exists, tile::Lt(place, b.Idx(count)));
         if (!x_.is_flat()) guard = tile::And(guard, tile::Lt(v.row, b.Extent(x_.shape.x, 2)));
         guard = tile::And(guard, tile::Lt(v.first, row_size_));
         Block inside;
         StoreVector(inside, v);
         When(one, guard, std::move(inside));
       });
}

Index DgradResults::PlaceOf(Block& out, const Expr& h, const Expr& element) const {
  KernelBuilder& b = x_.b;
  const int64_t channels = x_.shape.channels;
  Index at = {piece_.image, b.Let(out, "c", element % b.Idx(channels))};
  if (!x_.is_flat()) at.push_back(h);
  at.push_back(b.Let(out, "w_at", element / b.Idx(channels)));
  return BroadcastIndex(b, x_.group.graph[x_.shape.x], at);
}

// The place of the vector in a tensor whose rows lie as those of `made` do.
Expr DgradResults::RowOf(Block& body, TensorId id, const Vector& v) const {
  KernelBuilder& b = x_.b;
  Index row = {piece_.image, b.Idx(0)};
  if (!x_.is_flat()) row.push_back(v.row);
  row.push_back(b.Idx(0));
  return b.Let(body, "to", b.Offset(id, row) + v.first);
}

void DgradResults::StoreVector(Block& body, const Vector& v) const {
  KernelBuilder& b = x_.b;
  const TensorId dx = x_.shape.x;
  const std::string made = Registers(b, body, "made_regs", x_.made_type, kDgradVector);
  WideCopy(body, x_.made_type, made, b.Idx(0), made_, v.at, kDgradVector);
  const bool is_plain = graph::Outputs(x_.group.graph) == std::vector<TensorId>{dx} &&
                        IsPacked(dx) && x_.group.graph[dx].dtype == x_.made_type;
  if (!is_plain) return StoreLanes(body, v, made);
  const Expr to = RowOf(body, dx, v);
  WideCopy(body, x_.made_type, b.Pointer(dx), to, made, b.Idx(0), kDgradVector);
}

// The group's maps, element by element; results go 16 bytes at a time where all of them lie so.
void DgradResults::StoreLanes(Block& body, const Vector& v, const std::string& made) const {
  KernelBuilder& b = x_.b;
  const graph::Graph& g = x_.group.graph;
  const std::vector<TensorId> outputs = graph::Outputs(g);
  const bool packed = std::ranges::all_of(outputs, [&](TensorId id) { return IsPacked(id); });
  std::vector<std::string> regs;
  for (const TensorId id : outputs) {
    if (!packed) break;
    regs.push_back(Registers(b, body, g[id].name + "_w", g[id].dtype, kDgradVector));
  }
  Loop(b, body, "l", b.Idx(kDgradVector), Bind::kUnroll, [&](Block& one, const Expr& l) {
    Block inside;
    Block& out = packed ? one : inside;
    const Expr element = b.Let(one, "element_at", v.first + l);
    const Index at = PlaceOf(out, v.row, element);
    ValueScope values(b, out);
    const Expr value = tile::Cast(DType::kF32, tile::Load(made, x_.made_type, l));
    values.Bind(x_.shape.x, at, RoundThrough(g[x_.shape.x].dtype, value));
    for (size_t o = 0; o < outputs.size(); ++o) {
      const TensorId id = outputs[o];
      const Expr result = tile::Cast(g[id].dtype, values.Value(id, at));
      out.push_back({packed ? tile::Store{regs[o], l, result}
                            : tile::Store{b.Pointer(id), b.Offset(id, at), result}});
    }
    if (!packed) When(one, tile::Lt(element, row_size_), std::move(inside));
  });
  for (size_t o = 0; o < regs.size(); ++o) {
    const Expr to = RowOf(body, outputs[o], v);
    WideCopy(body, g[outputs[o]].dtype, b.Pointer(outputs[o]), to, regs[o], b.Idx(0), kDgradVector);
  }
}

// True if 8 elements of its rows from a multiple of 8 on are whole 16-byte pieces.
bool DgradResults::IsPacked(TensorId id) const {
  const Tensor &out = x_.group.graph[id], &x = x_.group.graph[x_.shape.x];
  const int64_t last = out.rank() - 1, rows = x_.shape.channels;
  if (out.dims != x.dims || out.alignment % 16 != 0) return false;
  if ((rows != 1 && out.strides[1] != 1) || out.dims[last] * rows % kDgradVector != 0) return false;
  if (out.dims[last] != 1 && out.strides[last] != rows) return false;
  if (!x_.is_flat() && out.dims[2] != 1 && out.strides[2] % kDgradVector != 0) return false;
  return out.dims[0] == 1 || out.strides[0] % kDgradVector == 0;
}

// ---- what is not finite

// Makes a lane's results that are not finite again, by a plain walk over their taps. `first` is
// where the lane's results begin in `made`.
void DgradResults::MakeAgain(Block& body, const Expr& first) const {
  const auto loop = [&](Block& out, const char* name, int64_t count, const auto& fill) {
    Loop(x_.b, out, name, x_.b.Idx(count), Bind::kSerial, fill);
  };
  loop(body, "row", x_.p.rows, [&](Block& rows, const Expr& row) {
    loop(rows, "place", x_.p.tiles * 2, [&](Block& places, const Expr& place) {
      loop(places, "n", x_.p.sets * 2,
           [&](Block& one, const Expr& n) { MakeOneAgain(one, first, row, place, n); });
    });
  });
}

void DgradResults::MakeOneAgain(Block& one, const Expr& first, const Expr& row, const Expr& place,
                                const Expr& n) const {
  KernelBuilder& b = x_.b;
  const FirstLayerDgradPlan& p = x_.p;
  const Expr slot =
      b.Let(one, "slot", n / b.Idx(2) * b.Idx(8) + lane_.t4 * b.Idx(2) + n % b.Idx(2));
  const Expr phase = b.Let(one, "phase", slot / b.Idx(p.run_slots));
  const Expr in_run = b.Let(one, "in_run", slot % b.Idx(p.run_slots));
  const Expr to = b.Let(one, "to",
                        first + (row * b.Idx(p.row.stride) + phase) * b.Idx(p.made_pitch()) +
                            place * b.Idx(8 * p.run) + in_run);
  const Expr coarse_row = piece_.first_row + lane_.warp_row + row;
  const Expr h = b.Let(one, "h", coarse_row * b.Idx(p.row.stride) + phase);
  const Expr coarse_col = piece_.first_col + lane_.warp_col + lane_.g + place * b.Idx(8);
  const Expr element = b.Let(one, "element_at", coarse_col * b.Idx(p.run) + in_run);
  Expr guard = tile::And(piece_.exists, tile::Lt(phase, b.Idx(p.row.stride)));
  guard = tile::And(guard, tile::Lt(in_run, b.Idx(p.run)));
  if (!x_.is_flat()) guard = tile::And(guard, tile::Lt(h, b.Extent(x_.shape.x, 2)));
  guard = tile::And(guard, tile::Lt(element, row_size_));
  Block remake, inside;
  const Expr sum = SumOf(remake, PlaceOf(remake, h, element));
  remake.push_back({tile::Store{made_, to, tile::Cast(x_.made_type, sum)}});
  const Expr old = tile::Cast(DType::kF32, tile::Load(made_, x_.made_type, to));
  const Expr is_finite = tile::Op(ScalarOp::kEq, {old * tile::Float(0), tile::Float(0)});
  inside.push_back({tile::If{is_finite, {}, std::move(remake)}});
  When(one, guard, std::move(inside));
}

Expr DgradResults::SumOf(Block& body, const Index& at) const {
  KernelBuilder& b = x_.b;
  const std::string sum = Registers(b, body, "sum", DType::kF32, 1);
  body.push_back({tile::Store{sum, b.Idx(0), ZeroOf(DType::kF32)}});
  Loop(b, body, "tap", b.Idx(NumElements(x_.shape.taps)), Bind::kSerial,
       [&](Block& walk, const Expr& tap) { AddTap(walk, at, tap, sum); });
  return tile::Load(sum, DType::kF32, b.Idx(0));
}

// sum[0] += the products of one tap with dy's place that it meets, if there is one.
void DgradResults::AddTap(Block& walk, const Index& at, const Expr& tap,
                          const std::string& sum) const {
  KernelBuilder& b = x_.b;
  const ConvShape& shape = x_.shape;
  Index in = {piece_.image, nullptr}, filter = {nullptr, at[1]};
  Expr guard;
  Dims after(shape.spatial, 1);
  for (int64_t axis = shape.spatial - 1; axis > 0; --axis)
    after[axis - 1] = after[axis] * shape.taps[axis];
  for (int64_t axis = 0; axis < shape.spatial; ++axis) {
    const Expr number = b.Let(walk, "tap_at", tap / b.Idx(after[axis]) % b.Idx(shape.taps[axis]));
    const Expr stride = b.Idx(shape.stride[axis]);
    const Expr from = b.Let(
        walk, "from", at[axis + 2] + b.Idx(shape.pad[axis]) - number * b.Idx(shape.dilation[axis]));
    const Expr place = b.Let(walk, "from_at", from / stride);
    Expr inside = tile::And(tile::Ge(from, b.Idx(0)), tile::Lt(place, b.Extent(shape.y, axis + 2)));
    inside = tile::And(inside, tile::Op(ScalarOp::kEq, {place * stride, from}));
    guard = guard ? tile::And(guard, inside) : inside;
    in.push_back(place);
    filter.push_back(shape.flip ? b.Idx(shape.taps[axis] - 1) - number : number);
  }
  Block channels;
  Loop(b, channels, "k", b.Extent(shape.y, 1), Bind::kSerial, [&](Block& add, const Expr& k) {
    in[1] = filter[0] = k;
    ValueScope values(b, add);
    const auto operand = [&](TensorId id, const Index& index) {
      return tile::Cast(DType::kF32, tile::Cast(x_.type, values.Value(id, index)));
    };
    const Expr dy = operand(shape.y, in), w = operand(shape.w, filter);
    const Expr so_far = tile::Load(sum, DType::kF32, b.Idx(0));
    add.push_back({tile::Store{sum, b.Idx(0), tile::Op(ScalarOp::kFma, {dy, w, so_far})}});
  });
  When(walk, guard, std::move(channels));
}

}  // namespace kiln::compiler
