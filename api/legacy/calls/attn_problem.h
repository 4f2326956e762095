// AttnProblem: what one call of multi-head attention is about. Checks of its descriptors, the
// extents of its parts, where they lie in work and reserve space, the windows that the host gives.
// Forward and backward (attn_forward.cc, attn_backward.cc) are made of it and of attn_graph.h.
#pragma once

#include <span>

#include "api/legacy/calls/attn_graph.h"
#include "api/legacy/descriptors/attn_descriptor.h"
#include "api/legacy/descriptors/seq_data.h"

namespace kiln::api::legacy {

struct AttnSequences {
  const SeqData *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr;
};

// Parts of work and reserve space, for the largest problem of a descriptor.
//
//   work     lo | hi | steps' numbers before they are spread | staged | what plans take
//   reserve  dropout's words | lengths of queries, of keys | q | k | v | h | stats | dq | dk | dv
//
// `staged` is q, k, v and h in inference, dh in BackwardData, copies in BackwardWeights.
class AttnMemory {
 public:
  // NOT_SUPPORTED where a part has more elements than 32 bits count.
  static Result<AttnMemory> Of(const AttnDesc& desc);

  struct Part {
    int64_t offset = 0, bytes = 0;
  };
  Part lo, hi, host_lo, host_hi, staged;          // of the work space
  std::array<Part, 4> inference;                  // q, k, v, h, of the work space
  Part words, query_lengths, key_lengths, stats;  // of the reserve space
  std::array<Part, 4> training;                   // q, k, v, h
  std::array<Part, 3> gradients;                  // dq, dk, dv
  int64_t work_bytes = 0, reserve_bytes = 0;      // without what plans take
};

class AttnProblem {
 public:
  // `step`: the one that is computed, or all if it is negative.
  static Result<AttnProblem> Of(const AttnDesc& desc, const AttnSequences& sequences, int step);

  const AttnDesc& desc() const { return *desc_; }
  int64_t keys() const { return keys_.extents[kTime]; }
  const Rows& queries() const { return queries_; }  // in the client's memory, of the step alone
  const Rows& key_rows() const { return keys_; }
  const Rows& RowsOf(Projected what) const {
    return what == Projected::kK || what == Projected::kV ? keys_ : queries_;
  }
  // The rows as staged: packed, the rows of a batch one behind the other.
  const Rows& StagedOf(Projected what) const {
    return what == Projected::kK || what == Projected::kV ? staged_keys_ : staged_queries_;
  }
  bool all_full(Projected what) const {
    return what == Projected::kK || what == Projected::kV ? full_keys_ : full_queries_;
  }
  int64_t first_row() const { return first_row_; }  // of the client's queries
  std::optional<int32_t> step() const { return step_; }
  // Heads that attention itself has: 1 where nothing tells them apart.
  int64_t heads() const;
  // Elements of a staged vector of q, k, v or h (kO), all heads.
  int64_t StagedWidth(Projected what) const;
  // True if attention reads the client's own vectors: no projection, no padding, one head.
  bool IsDirect(Projected what) const;
  // True if beam and time of the client's queries are one dim as they lie.
  bool queries_merge() const {
    return RowsAreSteps() || queries_.strides == staged_queries_.strides;
  }

  Padding PaddingOf(Projected what, const void* lengths) const;
  HeadVectors Vectors(Projected what, const Rows& rows, void* data) const;
  HeadVectors Stats(void* data) const;

  // Windows in a form that graphs read; numbers that no rule gives go to the work space.
  Status TakeWindows(AttnCalls& calls, const AttnMemory& memory, const int* lo, const int* hi,
                     void* work, AttendOp& op) const;

 private:
  Result<WindowBound> BoundOf(AttnCalls& calls, std::span<const int32_t> keys, bool is_low,
                              void* host, void* spread) const;
  bool RowsAreSteps() const { return queries_.extents[kBeam] == 1 || queries_.extents[kTime] == 1; }

  const AttnDesc* desc_ = nullptr;
  Rows queries_, keys_, staged_queries_, staged_keys_;
  bool full_queries_ = false, full_keys_ = false, time_is_inner_ = true;
  int64_t first_row_ = 0;
  std::optional<int32_t> step_;
};

// The work and reserve space of a call, checked. `reserve` is NULL in inference.
Status CheckWork(const AttnMemory& memory, const void* work, size_t bytes);
Status CheckReserve(const AttnMemory& memory, const void* reserve, size_t bytes);
Status CheckWeights(const AttnDesc& desc, const void* weights, size_t bytes);

// Dropout of the descriptor behind the pointer; none where it is NULL or drops nothing. BAD_PARAM
// where it is no descriptor or has no states.
Result<const DropoutDesc*> DropoutOf(const void* object);

inline void* At(void* base, const AttnMemory::Part& part) {
  return static_cast<char*>(base) + part.offset;
}

// The workspace of plans: the work space behind the parts.
inline Workspace ScratchBehind(const AttnMemory& memory, void* work, size_t bytes) {
  return {.data = static_cast<char*>(work) + memory.work_bytes,
          .bytes = static_cast<int64_t>(bytes) - memory.work_bytes,
          .is_parameter = true};
}

// The parts of the API's functions, which GetMultiHeadAttnBuffers measures too.
struct AttnForward {
  const AttnProblem& problem;
  const AttnMemory& memory;
  const int *lo, *hi;
  const void *query_lengths, *key_lengths;
  const void *queries, *residuals, *keys, *values;
  void* out;
  const void* weights;
  void *work, *reserve;
};
Status RunForward(AttnCalls& calls, const AttnForward& f);

struct AttnBackward {
  const AttnProblem& problem;
  const AttnMemory& memory;
  const int *lo, *hi;
  const void *query_lengths, *key_lengths;
  const void* dout;
  const void *queries, *keys, *values;
  void *dqueries, *dkeys, *dvalues;
  const void* weights;
  void* dweights;
  bool adds;
  void *work, *reserve;
};
Status RunBackwardData(AttnCalls& calls, const AttnBackward& b);
Status RunBackwardWeights(AttnCalls& calls, const AttnBackward& b);

}  // namespace kiln::api::legacy
