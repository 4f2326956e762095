// The graphs that bench/bandwidth times.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kiln::bench {

// {T} is the data type, {N} the extent that grows, {C} and {H} others, {P} half of {H}, {L} a
// layout.
struct GraphRow {
  const char* name;
  const char* graph;
  int64_t large, small;        // N of large tensors of 16-bit elements, and one for the oracle
  const char* only = nullptr;  // the one data type; else f16, bf16 and f32
  int64_t columns = 0;
  int64_t image = 0;
  const char* layout = "";
};

std::span<const GraphRow> BandwidthGraphs();
// The data types that a graph is timed in.
std::vector<std::string> TypesOf(const GraphRow& row);
// The graph as the line of a case, named as the row.
std::string CaseOf(const GraphRow& row, const std::string& type, int64_t n);

}  // namespace kiln::bench
