// The parts of multi-head attention as compute calls, each one graph: products of rows with a
// matrix of weights, attention itself in the spelling that engines recognise
// (compiler/patterns/attention.h, attention_grad.h), gradients of weights. The functions of
// attn_forward.cc and attn_backward.cc put them together.
#pragma once

#include <array>
#include <optional>

#include "api/legacy/calls/dropout.h"
#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {

// Vectors of sequences: extents of batch, beam and time, and how many vectors apart neighbours
// along each lie in memory.
enum RowAxis : size_t { kBatch, kBeam, kTime };
struct Rows {
  std::array<int64_t, 3> extents = {1, 1, 1}, strides = {1, 1, 1};
  int64_t count() const { return extents[kBatch] * extents[kBeam] * extents[kTime]; }
};
// Vectors one behind the other, the axes of `order` from the outermost on.
Rows PackedRows(std::array<int64_t, 3> extents, std::array<RowAxis, 3> order);

// The calls of one function. They run, or tell what workspace they would want (`measures`), which
// needs no memory behind the pointers.
class AttnCalls {
 public:
  AttnCalls(Handle& handle, Workspace scratch, bool only_fma)
      : handle_(handle), scratch_(scratch), only_fma_(only_fma) {}
  static AttnCalls Measuring(Handle& handle, bool only_fma) {
    AttnCalls calls(handle, {}, only_fma);
    calls.measures_ = true;
    return calls;
  }

  Handle& handle() const { return handle_; }
  bool measures() const { return measures_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  template <class Make>
  Status Run(Call& call, const Make& make) {
    call.Add(only_fma_);
    const auto wished = [&](CallGraph& g) {
      g.wishes.only_fma = only_fma_;
      return make(g);
    };
    if (!measures_) [[likely]]
      return call.Run(scratch_, wished);
    ASSIGN_OR_RETURN(const int64_t bytes, call.WorkspaceBytes(wished));
    workspace_bytes_ = std::max(workspace_bytes_, bytes);
    return {};
  }

 private:
  Handle& handle_;
  Workspace scratch_;
  bool only_fma_;
  bool measures_ = false;
  int64_t workspace_bytes_ = 0;  // that any wanted
};

// Steps from a sequence's length on are padding. `lengths` is on the device: [batch][beam], or
// [batch] where `per_beam` is false. NULL: there is none.
struct Padding {
  const void* lengths = nullptr;
  bool per_beam = false;
  std::optional<int32_t> step = {};  // the one step that the rows are of
};

struct DropoutUse {
  float dropout = 0;      // 0: none
  void* words = nullptr;  // as KeepDropoutState writes them
};

// y = residual + unless_padding(dropout_out(dropout_in(x) w + bias)), vector by vector.
struct RowsOp {
  const char* name = nullptr;
  int32_t type = 0;
  Rows from = {}, to = {};
  const void* x = nullptr;  // vectors of x_width elements
  void* y = nullptr;
  int64_t x_width = 0, y_width = 0;
  // [x_width, y_width]. Without it vectors stay what they are, or y has each of x several times,
  // one behind the other, or the sum of the parts of each, as the widths say.
  const void* w = nullptr;
  std::array<int64_t, 2> w_strides = {};
  const void* bias = nullptr;      // [y_width]
  const void* residual = nullptr;  // as y
  Padding padding = {};
  DropoutUse dropout_in = {}, dropout_out = {};
};
Status RunRows(AttnCalls& calls, const RowsOp& op);

// A query's first key, or the one behind its last: `key` for all queries, the query's number plus
// `key`, or what stands at its place in `places`, which is on the device. kNone bounds nothing.
struct WindowBound {
  enum class Kind : int8_t { kNone, kOne, kShifted, kPlaces } kind = Kind::kNone;
  int32_t key = 0;
  const void* places = nullptr;  // [queries]
};

// Memory, and how vectors of heads lie in it: [batch, heads, vectors, width].
struct HeadVectors {
  TensorDesc desc;
  void* data = nullptr;
};

// h = softmax(scale q k') v by heads, over the keys from `lo` to before `hi` and the sequence's
// length; 0 where there is none. `stats` is the logarithm of the sum of exponentials, of f32 (f64
// for double); without memory it is not written.
struct AttendOp {
  HeadVectors q, k, v, h, stats;
  WindowBound lo, hi;
  const void* key_lengths = nullptr;  // [batch], on the device; NULL: all keys
  double scale = 1;
  DropoutUse dropout = {};
};
Status RunAttention(AttnCalls& calls, const AttendOp& op);

// dq, dk and dv from dh and what the forward direction read and wrote.
struct AttendGradients {
  HeadVectors dh, dq, dk, dv;
};
Status RunAttentionBackward(AttnCalls& calls, const AttendOp& op, const AttendGradients& gradients);

// dw[x_width, y_width] = the sum of x' dy over `rows` vectors, db[y_width] that of dy; both are
// added to what is there where `adds` says so. All are packed.
struct WeightGradientOp {
  int32_t type = 0;
  int64_t rows = 0, x_width = 0, y_width = 0;
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dw = nullptr;
  void* db = nullptr;  // or NULL
  bool adds = false;
};
Status RunWeightGradient(AttnCalls& calls, const WeightGradientOp& op);

// to[batch of beam or time][…] = the `steps` numbers at `from` for each beam: what the rows of a
// query look up. Rows of one beam lie side by side where `time_is_inner`.
Status RunSpread(AttnCalls& calls, const void* from, void* to, int64_t steps, int64_t beams,
                 bool time_is_inner);

// A packed or strided tensor's descriptor; extents and strides must fit 32 bits.
TensorDesc DescOf(int32_t type, std::initializer_list<int64_t> dims,
                  std::initializer_list<int64_t> strides);

}  // namespace kiln::api::legacy
