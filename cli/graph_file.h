// GRAPH arguments: a file, a line of a file, or the standard input, read as a legal graph.
#pragma once

#include <string>

#include "ir/graph/graph.h"

namespace kiln::cli {

// Reads "FILE", "FILE:LINE" or "-". Errors start with FILE:LINE:COLUMN wherever the mistake has a
// place in the text.
Result<graph::Graph> ReadGraph(const std::string& argument);

// Reads all of a file, up to a size that no file of graphs has.
Result<std::string> ReadFile(const std::string& path);

// Prints "kiln: sentence" and returns the exit status for it.
int Fail(const Status& status);

}  // namespace kiln::cli
