// Recurrent networks in small extents, as text: forward and both gradients.
#include "ir/base/check.h"
#include "tests/compiler/sample_graphs.h"

namespace kiln::compiler {
namespace {

// An lstm with a projection and two layers, of sequences of one length.
constexpr const char* kProjected = R"(graph rnn_projected {
  tensor %x uid=1 f32 [3,2,4]
  tensor %w uid=2 f32 [370]
  tensor %dy uid=3 f32 [3,2,3]
  tensor %y uid=4 f32 [3,2,3]
  tensor %hy uid=5 f32 [2,2,3]
  tensor %cy uid=6 f32 [2,2,5]
  tensor %reserve uid=7 f32 [378]
  tensor %dx uid=8 f32 [3,2,4]
  tensor %gradients uid=9 f32 [276]
  tensor %dw uid=10 f32 [370]
  %y, %hy, %cy, %reserve = rnn_forward(%x, %w) compute=f32 cell=lstm layers=2 hidden=5 projected=3
  %dx, %gradients = rnn_backward_data(%y, %dy, %w, %reserve) compute=f32 cell=lstm layers=2 hidden=5 projected=3
  %dw = rnn_backward_weights(%x, %y, %reserve, %gradients) compute=f32 cell=lstm layers=2 hidden=5 projected=3
})";

// A gru in both directions, batch by batch, with lengths, a state and padding.
constexpr const char* kRagged = R"(graph rnn_ragged {
  tensor %x uid=1 f32 [3,2,4] strides=[4,12,1]
  tensor %w uid=2 f32 [330]
  tensor %hx uid=3 f32 [2,2,5]
  tensor %lengths uid=4 i32 [2]
  tensor %dy uid=5 f32 [3,2,10] strides=[10,30,1]
  tensor %y uid=6 f32 [3,2,10] strides=[10,30,1]
  tensor %hy uid=7 f32 [2,2,5]
  tensor %reserve uid=8 f32 [240]
  tensor %dx uid=9 f32 [3,2,4] strides=[4,12,1]
  tensor %gradients uid=10 f32 [240]
  tensor %dhx uid=11 f32 [2,2,5]
  tensor %dw uid=12 f32 [330]
  %y, %hy, _, %reserve = rnn_forward(%x, %w, %hx, _, %lengths) compute=f32 cell=gru hidden=5 projected=5 bidirectional padding=2
  %dx, %gradients, %dhx = rnn_backward_data(%y, %dy, %w, %reserve, %hx, _, _, _, %lengths) compute=f32 cell=gru hidden=5 projected=5 bidirectional padding=2
  %dw = rnn_backward_weights(%x, %y, %reserve, %gradients, %hx, %lengths) compute=f32 cell=gru hidden=5 projected=5 bidirectional padding=2
})";

SampleGraph Parsed(const char* name, const char* text) {
  Result<graph::Graph> g = graph::Parse(text);
  CHECK(g.ok(), "{}: {}", name, g.status().message());
  return {name, *std::move(g)};
}

}  // namespace

std::vector<SampleGraph> RnnSamples() {
  return {Parsed("rnn_projected", kProjected), Parsed("rnn_ragged", kRagged)};
}

}  // namespace kiln::compiler
