// Dropout by itself, and cudnnSetDropoutDescriptor, which writes the states. Reference 3.2.35,
// 3.2.80 and 4.1.7.
#include "api/legacy/calls/dropout.h"

#include <algorithm>

#include "api/legacy/functions.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::TensorId;

void* Word(void* memory, size_t i) { return static_cast<int64_t*>(memory) + i; }

Status Drop(CallGraph& g, const DropoutDesc& desc, const Operand& x, const Operand& y,
            const DropoutWords& words) {
  ASSIGN_OR_RETURN(const TensorId value, g.Read(x));
  ASSIGN_OR_RETURN(const TensorId dropped,
                   Dropped(g, value, desc.dropout, ComputeType(*x.desc), words));
  return g.Write(dropped, y);
}

Status CheckCall(const DropoutDesc& desc, const TensorDesc& x, const void* from,
                 const TensorDesc& y, const void* to, size_t reserve_bytes) {
  if (desc.states == nullptr)
    return Status::Text(Code::kBadParam, "the dropout descriptor has no states");
  if (reserve_bytes < kDropoutStateBytes)
    return Status::Error(Code::kBadParam, "{} bytes of reserve space; {} are needed", reserve_bytes,
                         kDropoutStateBytes);
  RETURN_IF_ERROR(CheckSet(x, "the tensor descriptor"));
  RETURN_IF_ERROR(CheckSameDims(x, y));
  RETURN_IF_ERROR(CheckSameType(x, y));
  return CheckInPlace(from, x, to, y);
}

}  // namespace

// One i64 on the device.
TensorDesc DropoutWordOf(int32_t rank) {
  TensorDesc word = {.type = CUDNN_DATA_INT64, .rank = rank};
  std::fill_n(word.dims.begin(), rank, 1);
  std::fill_n(word.strides.begin(), rank, 1);
  return word;
}

DropoutWords DropoutWordsOf(Call& call, const TensorDesc& word, void* memory) {
  DropoutWords words;
  words.seed = call.Memory(word, Word(memory, 0));
  words.offset = call.Memory(word, Word(memory, 1));
  return words;
}

Result<TensorId> Dropped(CallGraph& g, TensorId value, float dropout, DType compute,
                         const DropoutWords& words) {
  ASSIGN_OR_RETURN(const TensorId seed, g.Read(words.seed));
  ASSIGN_OR_RETURN(const TensorId offset, g.Read(words.offset));
  const double keep = 1 - static_cast<double>(dropout);
  const Dims dims = g.DimsOf(value);
  const TensorId drawn = g.builder().Apply(
      GraphOp::kRng, {seed, offset},
      graph::RngAttrs{.distribution = graph::RngDistribution::kBernoulli, .probability = keep},
      {.dtype = DType::kF32, .compute = DType::kF32, .dims = dims});
  const auto constant = [&](double v, DType type) {
    return g.Constant(v, static_cast<int64_t>(dims.size()), type);
  };
  const TensorId is_kept =
      g.builder().Apply(GraphOp::kPointwise, {drawn, constant(0.5, DType::kF32)},
                        graph::PointwiseAttrs{.mode = PointwiseMode::kCmpGt},
                        {.dtype = DType::kBool, .compute = DType::kF32});
  const TensorId scaled = g.Pointwise(PointwiseMode::kMul,
                                      {value, constant(keep > 0 ? 1 / keep : 0, compute)}, compute);
  return g.Pointwise(PointwiseMode::kBinarySelect, {scaled, constant(0, compute), is_kept},
                     compute);
}

Status KeepDropoutState(Handle& handle, const DropoutDesc& desc, void* reserve) {
  const TensorDesc word = DropoutWordOf(4);
  Call call(handle, "dropout, reserve");
  const DropoutWords states = DropoutWordsOf(call, word, desc.states),
                     kept = DropoutWordsOf(call, word, reserve);
  return call.Run({}, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId seed, g.Read(states.seed));
    ASSIGN_OR_RETURN(const TensorId offset, g.Read(states.offset));
    RETURN_IF_ERROR(g.Write(seed, kept.seed));
    return g.Write(offset, kept.offset);
  });
}

Status AdvanceDropoutState(Handle& handle, const DropoutDesc& desc, int64_t elements) {
  const TensorDesc word = DropoutWordOf(4);
  Call call(handle, "dropout, offset");
  const Operand before = call.Memory(word, Word(desc.states, 1)),
                after = call.Memory(word, Word(desc.states, 1));
  const Scalar count = call.Whole(&elements);
  return call.Run({}, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId offset, g.Read(before));
    return g.Write(
        g.Pointwise(PointwiseMode::kAdd, {offset, g.Read(count, word.rank)}, DType::kI64), after);
  });
}

Status SetDropoutDescriptor(void* object, void* handle, float dropout, void* states, size_t bytes,
                            unsigned long long seed) {
  ASSIGN_OR_RETURN(DropoutDesc * desc, Get<DropoutDesc>(object));
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(FillDropout(*desc, dropout, states, bytes, seed));
  if (states == nullptr) return {};
  const TensorDesc word = DropoutWordOf(4);
  Call call(*h, "cudnnSetDropoutDescriptor");
  const Operand first = call.Memory(word, Word(states, 0)),
                second = call.Memory(word, Word(states, 1));
  const Scalar value = call.Whole(&seed);
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(g.Write(g.Read(value, word.rank), first));
    return g.Write(g.Constant(0, word.rank, DType::kI64), second);
  });
}

Status DropoutForward(void* handle, void* object, void* x_desc, const void* x, void* y_desc,
                      void* y, void* reserve, size_t reserve_bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const DropoutDesc* desc, Get<DropoutDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* xd, Get<TensorDesc>(x_desc));
  ASSIGN_OR_RETURN(const TensorDesc* yd, Get<TensorDesc>(y_desc));
  RETURN_IF_ERROR(CheckCall(*desc, *xd, x, *yd, y, reserve_bytes));
  RETURN_IF_ERROR(NotNull(reserve, "the reserve space"));
  // The state that this call draws from is kept first, then drawn; a call of its own moves the
  // offset on, when all have read it.
  RETURN_IF_ERROR(KeepDropoutState(*h, *desc, reserve));
  const TensorDesc word = DropoutWordOf(xd->rank);
  Call call(*h, "cudnnDropoutForward");
  call.Add(desc->dropout);
  const Operand input = call.Memory(*xd, x), output = call.Memory(*yd, y);
  const DropoutWords drawn = DropoutWordsOf(call, word, reserve);
  RETURN_IF_ERROR(call.Run({}, [&](CallGraph& g) { return Drop(g, *desc, input, output, drawn); }));
  return AdvanceDropoutState(*h, *desc, Span(*xd));
}

Status DropoutBackward(void* handle, void* object, void* dy_desc, const void* dy, void* dx_desc,
                       void* dx, void* reserve, size_t reserve_bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const DropoutDesc* desc, Get<DropoutDesc>(object));
  ASSIGN_OR_RETURN(const TensorDesc* from, Get<TensorDesc>(dy_desc));
  ASSIGN_OR_RETURN(const TensorDesc* to, Get<TensorDesc>(dx_desc));
  RETURN_IF_ERROR(CheckCall(*desc, *from, dy, *to, dx, reserve_bytes));
  RETURN_IF_ERROR(NotNull(reserve, "the reserve space"));
  const TensorDesc word = DropoutWordOf(from->rank);
  Call call(*h, "cudnnDropoutBackward");
  call.Add(desc->dropout);
  const Operand input = call.Memory(*from, dy), output = call.Memory(*to, dx);
  const DropoutWords drawn = DropoutWordsOf(call, word, reserve);
  return call.Run({}, [&](CallGraph& g) { return Drop(g, *desc, input, output, drawn); });
}

}  // namespace kiln::api::legacy
