// LIST arguments of `kiln tune`: names of graphs, files and folders to read graphs from.
#pragma once

#include <string>
#include <vector>

#include "ir/base/result.h"

namespace kiln::cli {

// Arguments for ReadGraph, in order:
//   a folder          its *.kiln and *.json, sorted (what KILN_CAPTURE writes)
//   a file *.jsonl    each of its lines; FILE:LINE is that line
//   a file *.txt      a list: each line names a graph, as an argument here, relative to the list's
//                     folder; # begins a comment
//   anything else     is a graph itself
Result<std::vector<std::string>> ExpandGraphList(const std::string& argument);

}  // namespace kiln::cli
