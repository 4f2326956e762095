// Places of the parts of a network in its weight space, its reserve and its gradients.
#include "ir/graph/rnn.h"

#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

int64_t GatesOf(const RnnAttrs& a) { return BlocksOf(a.cell).gates; }

// Input matrices of a pseudo-layer; the first layer has none where it skips them.
int64_t InputElements(const RnnAttrs& a, int64_t input, int64_t layer) {
  if (a.skip_input && layer == 0) return 0;
  return GatesOf(a) * a.hidden * LayerInput(a, input, layer);
}

int64_t MatrixElements(const RnnAttrs& a, int64_t input, int64_t layer) {
  return InputElements(a, input, layer) + GatesOf(a) * a.hidden * a.projected +
         (IsProjected(a) ? a.projected * a.hidden : 0);
}

// Elements of all matrices of the layers before `layer`.
int64_t MatricesBefore(const RnnAttrs& a, int64_t input, int64_t layer) {
  if (layer == 0) return 0;
  return DirectionsOf(a) *
         (MatrixElements(a, input, 0) + (layer - 1) * MatrixElements(a, input, 1));
}

int64_t BiasElements(const RnnAttrs& a) {
  return GatesOf(a) * a.hidden * (HasInputBias(a) + HasRecurrentBias(a));
}

}  // namespace

CellBlocks BlocksOf(RnnCell cell) {
  constexpr CellBlocks kBlocks[] = {{1, 1, 1}, {1, 1, 1}, {4, 4, 4}, {3, 4, 4}};
  return kBlocks[static_cast<size_t>(cell)];
}

int64_t LayerInput(const RnnAttrs& a, int64_t input, int64_t layer) {
  return layer == 0 ? input : a.projected * DirectionsOf(a);
}

int64_t RnnWeightElements(const RnnAttrs& a, int64_t input) {
  return MatricesBefore(a, input, a.layers) + a.layers * DirectionsOf(a) * BiasElements(a);
}

RnnPlace RnnMatrixPlace(const RnnAttrs& a, int64_t input, int64_t pseudo_layer, int64_t id) {
  const int64_t directions = DirectionsOf(a), layer = pseudo_layer / directions, gates = GatesOf(a);
  const int64_t first =
      MatricesBefore(a, input, layer) + pseudo_layer % directions * MatrixElements(a, input, layer);
  if (id < gates) {
    if (a.skip_input && layer == 0) return {};
    const int64_t columns = LayerInput(a, input, layer);
    return {.offset = first + id * a.hidden * columns, .rows = a.hidden, .columns = columns};
  }
  const int64_t recurrent = first + InputElements(a, input, layer);
  if (id < 2 * gates)
    return {.offset = recurrent + (id - gates) * a.hidden * a.projected,
            .rows = a.hidden,
            .columns = a.projected};
  if (!IsProjected(a) || id > 2 * gates) return {};
  return {.offset = recurrent + gates * a.hidden * a.projected,
          .rows = a.projected,
          .columns = a.hidden};
}

RnnPlace RnnBiasPlace(const RnnAttrs& a, int64_t input, int64_t pseudo_layer, int64_t id) {
  const int64_t gates = GatesOf(a);
  const bool is_input = id < gates;
  if (id >= 2 * gates || !(is_input ? HasInputBias(a) : HasRecurrentBias(a))) return {};
  const int64_t first = MatricesBefore(a, input, a.layers) + pseudo_layer * BiasElements(a);
  const int64_t skipped = !is_input && !HasInputBias(a) ? gates : 0;
  return {.offset = first + (id - skipped) * a.hidden, .rows = a.hidden, .columns = 1};
}

RnnReservePlaces RnnReserveOf(const RnnAttrs& a, int64_t steps, int64_t batch, int64_t layer) {
  const int64_t rows = steps * batch, directions = DirectionsOf(a);
  const int64_t unit = rows * directions * a.hidden, y = rows * directions * a.projected;
  RnnReservePlaces places;
  int64_t at = 0;
  for (int64_t l = 0; l <= layer; ++l) {
    places = {.gates = at};
    at += unit * BlocksOf(a.cell).kept;
    if (a.cell == RnnCell::kLstm) {
      places.cells = at;
      at += unit;
    }
    if (IsProjected(a)) {
      places.hidden = at;
      at += unit;
    }
    if (l + 1 == a.layers) continue;
    places.y = at;
    at += y;
    if (!HasDropout(a)) continue;
    places.mask = at;
    at += y;
  }
  return places;
}

int64_t RnnReserveElements(const RnnAttrs& a, int64_t steps, int64_t batch) {
  const int64_t rows = steps * batch * DirectionsOf(a);
  const int64_t blocks =
      BlocksOf(a.cell).kept + (a.cell == RnnCell::kLstm ? 1 : 0) + (IsProjected(a) ? 1 : 0);
  return rows *
         (a.layers * blocks * a.hidden + (a.layers - 1) * a.projected * (HasDropout(a) ? 2 : 1));
}

RnnGradientPlaces RnnGradientsOf(const RnnAttrs& a, int64_t steps, int64_t batch, int64_t layer) {
  const int64_t rows = steps * batch * DirectionsOf(a),
                dgates = rows * BlocksOf(a.cell).gradients * a.hidden,
                dprojected = IsProjected(a) ? rows * a.projected : 0;
  const int64_t first = layer * (dgates + dprojected);
  return {.dgates = first, .dprojected = IsProjected(a) ? first + dgates : -1};
}

int64_t RnnGradientElements(const RnnAttrs& a, int64_t steps, int64_t batch) {
  return RnnGradientsOf(a, steps, batch, a.layers).dgates;
}

RnnExtents RnnExtentsOf(const RnnAttrs& a, const Tensor& data, const Tensor* lengths) {
  if (data.rank() == 3)
    return {.steps = data.dims[0], .batch = data.dims[1], .width = data.dims[2]};
  return {.steps = a.steps,
          .batch = lengths != nullptr ? NumElements(lengths->dims) : 0,
          .width = data.dims.back(),
          .packed = true};
}

RecurrenceAttrs LoopAttrs(const RnnAttrs& a) {
  return {.cell = a.cell,
          .clip = a.clip,
          .clip_propagates_nan = a.clip_propagates_nan,
          .clip_lower = a.clip_lower,
          .clip_upper = a.clip_upper};
}

}  // namespace kiln::graph
