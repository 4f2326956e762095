#include "compiler/engines/conv_direct/mma_alone.h"

#include <utility>

#include "compiler/engines/contraction/tiles.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

namespace {

// The reads of a tap: an input's place, whether it exists, and the tap as w has it.
struct TapPlace {
  Index in, taps;
  Expr guard;
};

TapPlace PlaceOfTap(KernelBuilder& b, const ConvShape& shape, Block& walk, const Index& at,
                    const Expr& tap) {
  TapPlace p{.in = {at[0], nullptr}, .taps = Index(shape.spatial), .guard = nullptr};
  Expr rest = tap;
  for (int64_t axis = shape.spatial; axis-- > 0;) {
    p.taps[axis] = b.Let(walk, "at_tap", rest % b.Idx(shape.taps[axis]));
    rest = rest / b.Idx(shape.taps[axis]);
  }
  for (int64_t axis = 0; axis < shape.spatial; ++axis) {
    const Expr stride = b.Idx(shape.stride[axis]), pad = b.Idx(shape.pad[axis]);
    const Expr shift = p.taps[axis] * b.Idx(shape.dilation[axis]) - pad;
    const Expr from = b.Let(
        walk, "from", shape.is_dgrad() ? at[axis + 2] - shift : at[axis + 2] * stride + shift);
    const Expr place = shape.is_dgrad() ? b.Let(walk, "place", from / stride) : from;
    Expr inside =
        tile::And(tile::Ge(from, b.Idx(0)), tile::Lt(place, b.Extent(shape.in, axis + 2)));
    if (shape.is_dgrad() && shape.stride[axis] != 1)
      inside = tile::And(inside, tile::Op(ScalarOp::kEq, {place * stride, from}));
    p.guard = p.guard ? tile::And(p.guard, inside) : inside;
    p.in.push_back(place);
    if (shape.flip) p.taps[axis] = b.Idx(shape.taps[axis] - 1) - p.taps[axis];
  }
  return p;
}

}  // namespace

void MakeOutputAlone(KernelBuilder& b, const ConvShape& shape, DType type, Block& body,
                     const Index& at) {
  const std::string sum = Registers(b, body, "sum", DType::kF32, 1);
  body.push_back({tile::Store{sum, b.Idx(0), ZeroOf(DType::kF32)}});
  const Expr so_far = tile::Load(sum, DType::kF32, b.Idx(0));
  Block walk, add;
  const std::string tap = b.Name("tap"), k = b.Name("k");
  TapPlace place = PlaceOfTap(b, shape, walk, at, Var(b, tap));
  const Expr per_group = b.Idx(shape.channels), made = at[1];
  const Expr read = b.Let(add, "read", made / per_group * per_group + Var(b, k));
  place.in[1] = read;
  Index filter = {shape.is_dgrad() ? read : made, (shape.is_dgrad() ? made : read) % per_group};
  filter.insert(filter.end(), place.taps.begin(), place.taps.end());
  ValueScope values(b, add);
  const auto operand = [&](graph::TensorId id, const Index& index) {
    return tile::Cast(DType::kF32, tile::Cast(type, values.Value(id, index)));
  };
  const Expr x = operand(shape.in, place.in), w = operand(shape.w, filter);
  add.push_back({tile::Store{sum, b.Idx(0), tile::Op(ScalarOp::kFma, {x, w, so_far})}});
  Block channels;
  channels.push_back({tile::For{k, b.index_type(), per_group, Bind::kSerial, std::move(add)}});
  When(walk, place.guard, std::move(channels));
  body.push_back({tile::For{tap, b.index_type(), b.Idx(NumElements(shape.taps)), Bind::kSerial,
                            std::move(walk)}});
  ValueScope made_values(b, body);
  StoreOutputs(b, body, made_values, shape.out, at, so_far);
}

}  // namespace kiln::compiler
