// Chooses the importer: JSON starts with '{', and only a recorded graph has "ops"; everything else
// is Kiln's text.
#include "ir/graph/import.h"

#include "ir/graph/builder.h"
#include "ir/graph/import_frontend.h"
#include "ir/graph/import_json.h"
#include "ir/graph/import_recorded.h"
#include "ir/graph/uids.h"

namespace kiln::graph {

Result<Graph> ImportAny(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos)
    return Status::Error(Code::kBadParam, "1:1: the graph is empty");
  if (text[start] != '{') {
    ASSIGN_OR_RETURN(Graph graph, Parse(text));
    GiveUids(graph);
    RETURN_IF_ERROR(Legalize(graph));
    return graph;
  }
  ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(text));
  return document.contains("ops") ? ImportRecorded(text) : ImportFrontend(text);
}

}  // namespace kiln::graph
