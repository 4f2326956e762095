// The importers of graphs: Kiln's text, cudnn-frontend's JSON, recorded backend graphs. Any bytes
// are refused with a sentence or become a graph that the verifier takes and that prints and parses.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/graph/import.h"
#include "tests/fuzz/fuzz.h"

namespace kiln::graph {
namespace {

void Examine(std::string_view text) {
  const Result<Graph> graph = ImportAny(text);
  if (!graph.ok()) return fuzz::RequireSentence(graph.status().message());
  const Status status = Verify(*graph);
  fuzz::Require(status.ok(), "an imported graph is not legal: {}",
                status.ok() ? "" : status.message());
  // Tensors that a caller passes are told apart by uids.
  for (const auto& ids : {Inputs(*graph), Outputs(*graph)})
    for (const TensorId id : ids)
      fuzz::Require((*graph)[id].uid >= 0, "%{} has no uid", (*graph)[id].name);
  const std::string printed = Print(*graph);
  const Result<Graph> again = Parse(printed);
  fuzz::Require(again.ok(), "an imported graph's text does not parse: {}\n{}",
                again.ok() ? "" : again.status().message(), printed);
  fuzz::Require(Print(*again) == printed, "print, parse, print differ:\n{}", printed);
}

}  // namespace
}  // namespace kiln::graph

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kiln::graph::Examine({reinterpret_cast<const char*>(data), size});
  return 0;
}
