// The places of rows of attention's operands and results, asked once a row and ahead of its copies:
// a row of a page waits for its entry of the page table, a row of a ragged tensor for its offsets.
// Skeletons that copy by threads (codegen/cuda/device/attention/attention_loaded_sm90.cuh) call
// these.
#pragma once

#include <string>

#include "compiler/engines/attention/moves.h"

namespace kiln::compiler {

// Adds functions name_place(head, row, result: place[1] out): the element of memory that the row
// begins with; -1: it is zeroes; -2: it is moved by the function of AddRowsLoad, since not all of
// its pieces lie together from a multiple of 16 bytes on; and name_piece(to, place, column), which
// starts the asynchronous copy of 8 neighbours, or writes zeroes. Returns whether -2 may be.
bool AddRowPlaces(KernelBuilder& b, tile::Call& call, const std::string& name,
                  const std::string& memory, const OperandRows& rows, const HeadIndex& heads);
// Adds the functions for a result, with -1 for rows that are stored nowhere: name_place, and
// name_piece(values, place, column). -2 is for the function of AddRowsStore.
bool AddStorePlaces(KernelBuilder& b, tile::Call& call, const std::string& name, graph::TensorId id,
                    const graph::Node* scatter);

}  // namespace kiln::compiler
