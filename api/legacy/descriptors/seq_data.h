// cudnnSeqDataDescriptor_t: vectors of a batch of sequences, or of beams of them, in memory that is
// packed in any order of time, batch and beam. Read by the calls of multi-head attention.
// Reference 7.2.7, 7.2.12, 7.2.34 and 7.2.53.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/result.h"

namespace kiln::api::legacy {

struct SeqData {
  static constexpr std::string_view kName = "cudnnSeqDataDescriptor_t";

  int32_t type = 0;                    // cudnnDataType_t
  std::array<int32_t, 4> dims = {};    // by cudnnSeqDataAxis_t; all 0: not set
  std::array<int32_t, 4> axes = {};    // from the outermost to the innermost, the vector
  std::vector<int32_t> lengths = {};   // [batch][beam]
  std::array<std::byte, 8> fill = {};  // one element, as the client gave it; read back alone

  int64_t Extent(int axis) const { return dims[static_cast<size_t>(axis)]; }
  bool is_set() const { return dims[0] > 0; }
  // True if every sequence has as many steps as the container.
  bool is_full() const;
};

// The object behind the pointer; BAD_PARAM where `object` is none.
Result<const SeqData*> SeqDataFrom(const void* object);

// "float, time 4, batch 3, beam 2, vectors of 5", for messages.
std::string Text(const SeqData& data);

}  // namespace kiln::api::legacy
