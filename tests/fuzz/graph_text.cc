// The parser of the graph's text: any bytes are refused with a sentence or become a graph; what
// becomes one prints to a text that parses to the same text, and the rest of ir/graph takes it or
// refuses it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/graph/graph.h"
#include "tests/fuzz/fuzz.h"

namespace kiln::graph {
namespace {

void RoundTrip(const Graph& graph) {
  const std::string text = Print(graph);
  const Result<Graph> again = Parse(text);
  fuzz::Require(again.ok(), "printed text does not parse: {}\n{}",
                again.ok() ? "" : again.status().message(), text);
  fuzz::Require(Print(*again) == text, "print, parse, print differ:\n{}\n{}", text, Print(*again));
}

void Examine(std::string_view text) {
  Result<Graph> graph = Parse(text);
  if (!graph.ok()) return fuzz::RequireSentence(graph.status().message());
  RoundTrip(*graph);
  for (const auto step : {Normalize, InferShapes}) {
    if (Status status = step(*graph); !status.ok()) return fuzz::RequireSentence(status.message());
  }
  if (Status status = Verify(*graph); !status.ok()) return fuzz::RequireSentence(status.message());
  RoundTrip(*graph);
  const std::string canonical = CanonicalText(*graph);
  const Result<Graph> renamed = Parse(canonical);
  fuzz::Require(renamed.ok(), "canonical text does not parse:\n{}", canonical);
  fuzz::Require(CanonicalText(*renamed) == canonical,
                "canonical text is not its own canonical text:\n{}", canonical);
}

}  // namespace
}  // namespace kiln::graph

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kiln::graph::Examine({reinterpret_cast<const char*>(data), size});
  return 0;
}
