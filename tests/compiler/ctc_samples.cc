// The CTC loss in small extents, as text: of logits and of probabilities, with states of a path in
// registers and in memory.
#include "ir/base/check.h"
#include "tests/compiler/sample_graphs.h"

namespace kiln::compiler {
namespace {

constexpr const char* kLogits = R"(graph ctc_logits {
  tensor %p uid=1 f32 [5,3,4]
  tensor %l uid=2 i32 [6]
  tensor %n uid=3 i32 [3]
  tensor %t uid=4 i32 [3]
  tensor %c uid=5 f32 [3]
  tensor %d uid=6 f32 [5,3,4]
  %c, %d = ctc_loss(%p, %l, %n, %t) compute=f32 max_label=2
})";

// 300 labels: two states a thread.
constexpr const char* kProbabilities = R"(graph ctc_probabilities {
  tensor %p uid=1 f64 [5,3,4]
  tensor %l uid=2 i32 [900]
  tensor %n uid=3 i32 [3]
  tensor %t uid=4 i32 [3]
  tensor %b uid=5 f64 [5,3,4]
  tensor %c uid=6 f64 [3]
  tensor %d uid=7 f64 [5,3,4]
  %c, %d = ctc_loss(%p, %l, %n, %t, %b) compute=f64 softmax=false skip_infeasible max_label=300
})";

constexpr const char* kLong = R"(graph ctc_long {
  tensor %p uid=1 f16 [5,2,4]
  tensor %l uid=2 i32 [6000]
  tensor %n uid=3 i32 [2]
  tensor %t uid=4 i32 [2]
  tensor %c uid=5 f32 [2]
  %c = ctc_loss(%p, %l, %n, %t) compute=f32 max_label=3000
})";

SampleGraph Parsed(const char* name, const char* text) {
  Result<graph::Graph> g = graph::Parse(text);
  CHECK(g.ok(), "{}: {}", name, g.status().message());
  return {name, *std::move(g)};
}

}  // namespace

std::vector<SampleGraph> CtcSamples() {
  return {Parsed("ctc_logits", kLogits), Parsed("ctc_probabilities", kProbabilities),
          Parsed("ctc_long", kLong)};
}

}  // namespace kiln::compiler
