// KILN_CAPTURE: each distinct graph that becomes a plan, as a file that `kiln tune`, `run` and
// `dump` take. Called by the session.
#pragma once

#include "ir/graph/graph.h"

namespace kiln::api {

// Writes `folder`/<operations>-<hash>.kiln unless it is there. The name follows from the structure
// and the extents, so processes may share the folder; a file appears whole. What fails is a line in
// the log.
void CaptureGraph(const std::string& folder, const graph::Graph& graph);

}  // namespace kiln::api
