// Questions about the extents of operations' side operands (scales, statistics, offsets, masks …):
// each operation as clients have it, and again with one operand, or one group of operands, of other
// extents. `ask_side_operands` puts them to NVIDIA's library and writes side_operands.tsv;
// side_operands_test puts them to ours and compares.
#pragma once

#include <string>
#include <vector>

#include "tests/api/backend/operation_object.h"

namespace kiln::testing {

struct SideQuestion {
  std::string operation, operand, variant;
  Ints dims;                  // of the operand
  std::vector<Object> graph;  // operations; the last one has the operand

  std::string Key() const { return operation + "\t" + operand + "\t" + variant; }
};

std::vector<SideQuestion> SideQuestions();

// The statuses of the operations' finalize and of the graph's, CUDNN_STATUS_… without the prefix;
// `-` for a graph whose operations failed.
struct SideAnswer {
  std::string operation, graph = "-";
  int plans = -1;   // engine configs that the heuristics give; -1 where they were not asked
  int refused = 0;  // modes of the heuristics that end in an error

  bool IsTaken() const { return graph == "SUCCESS" && plans != 0; }
};

// `device` is the JSON of a device for the heuristics; empty: they are not asked.
SideAnswer Ask(const Library& library, const SideQuestion& question, const std::string& device);

}  // namespace kiln::testing
