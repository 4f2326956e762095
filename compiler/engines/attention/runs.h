// Runs of rows that tensor maps read and write though no map has the whole tensor: a sequence each
// of ragged tensors, a page each of paged ones, a head each of those in memory.
// codegen/cuda/device/attention/attention_runs_sm90.cuh says what a map of a run is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/attention/moves.h"
#include "ir/tensor_map.h"

namespace kiln::compiler {

struct RowRun {
  graph::TensorId tensor = -1;                // in memory
  int64_t rows = 0;                           // of the longest run
  int64_t stride = 0;                         // elements from one row to the next
  int64_t unit = 0;                           // elements of which the places of runs are multiples
  bool is_paged = false;                      // runs follow each other along the places
  bool is_written = false;                    // a result's
  std::vector<graph::TensorId> lengths = {};  // behind the least of which rows are zeroes
  // Ragged: the element of each place, and where they end; else absent.
  graph::TensorId places = graph::kAbsent, end = graph::kAbsent;
  bool is_ragged() const { return places != graph::kAbsent; }
  // True if some boxes have to be moved without the map.
  bool has_pieces() const { return is_ragged() || !is_written; }
};

// The runs that an operand's rows lie in; none where rows are anything else, or lie apart.
std::optional<RowRun> RunOf(const graph::Graph& graph, const OperandRows& rows);
// The runs of a result, which goes to where `scatter` puts it; null: to its own place.
std::optional<RowRun> StoreRunOf(const graph::Graph& graph, graph::TensorId id,
                                 const graph::Node* scatter);

// The map of a run, for rows of `depth` and without a box; or why there is none.
Result<TensorMapSpec> MapOfRun(const graph::Graph& graph, const RowRun& run, int64_t depth);
// Sets boxes for tiles of `rows` rows, a multiple of 16.
void SetBox(TensorMapSpec& map, const RowRun& run, int64_t rows);

// Adds name_run(head, row, end, result: i32[2] out), see the device file, for boxes of `box` rows.
void AddRun(KernelBuilder& b, tile::Call& call, const std::string& name, const RowRun& run,
            const OperandRows& rows, const HeadIndex& heads, int64_t box);

}  // namespace kiln::compiler
