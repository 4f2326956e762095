// One problem measured: the row of the JSON.
#pragma once

#include <string>

#include "bench/contract/list.h"
#include "bench/contract/time.h"

namespace kiln::bench {

// Results of one library.
struct SideResult {
  Timing first, best;
  std::string best_label;  // engine and knobs, and the list that gave it
  int offered = 0, plans = 0, timed = 0;
  std::string error;  // why there is no time
};

struct Row {
  std::string wrong;  // which of our plans computed what instead of what; empty when all are right
  std::string note;   // on NVIDIA's results
  std::string fault;  // of the device, which is lost then
  bool has_oracle = false;
  SideResult kiln, nvidia, blas;
};

// One line of JSON, without a line's end.
std::string ToJson(const Problem& problem, const Row& row);
// A row for a problem on which the process ended.
std::string LostRow(const Problem& problem, const std::string& why);
// One line for people.
std::string ToText(const Problem& problem, const Row& row);

}  // namespace kiln::bench
