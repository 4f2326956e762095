// cudnnFFTCausalConv1d{Forward,Backward} and cudnnLongFFTCausalConv1d{Forward,Backward,
// GetBufferSizes} of cudnn_subquadratic_ops.h (9.26): long filters, a row for each channel, whose
// first tap stands on the place itself.
//
//   y[n,c,l] = sum over k of w[c,k] x[n, c, l - k]        dx, dw: its gradients, in the tensors'
//   type
//
// The names speak of transforms, which is how NVIDIA's library does it; which shapes they take is
// the contract, and so is the size of a long call's buffers, which programs compute by themselves.
// The backward direction of the long form is given neither x nor w: Forward leaves copies of both
// in the reserve space, which transforms would fill three times over.
#include "api/legacy/calls/causal_conv.h"
#include "api/legacy/calls/long_convolution.h"
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

using namespace causal;  // NOLINT: what this file shares with those of the other functions

struct Problem {
  int32_t batch, dim, length, taps;
  int32_t type;
  int32_t all_dim = dim;  // channels of the client's, of which a part's are `dim`
};

bool IsPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// ---- checks

Status CheckCommon(const Problem& p) {
  RETURN_IF_ERROR(CheckExtent(p.batch, 1, "batch"));
  RETURN_IF_ERROR(CheckExtent(p.dim, 1, "dim"));
  RETURN_IF_ERROR(CheckExtent(p.length, 1, "seqLen"));
  RETURN_IF_ERROR(CheckExtent(p.taps, 1, "kernelSize"));
  return CheckType(p.type, "dataType");
}

// Strides have 32 bits.
Status CheckRows(const Problem& p) {
  const int64_t row = p.batch > 1 ? int64_t{p.dim} * p.length : p.length;
  if (row <= INT32_MAX) return {};
  return Status::Error(Code::kNotSupported, "{} channels of {} are more than {} elements", p.dim,
                       p.length, INT32_MAX);
}

Status CheckMedium(const Problem& p) {
  RETURN_IF_ERROR(CheckCommon(p));
  const int most = p.type == CUDNN_DATA_DOUBLE ? 4096 : 16384;
  if (!IsPowerOfTwo(p.taps) || p.taps < 128 || p.taps > most)
    return Status::Error(Code::kNotSupported,
                         "kernelSize is {}; it is a power of 2 between 128 and {}", p.taps, most);
  if (p.length % p.taps != 0)
    return Status::Error(Code::kNotSupported, "seqLen {} is no multiple of kernelSize {}", p.length,
                         p.taps);
  return {};
}

Status CheckLong(const Problem& p) {
  RETURN_IF_ERROR(CheckCommon(p));
  const int most = p.type == CUDNN_DATA_DOUBLE ? 1 << 23 : 1 << 24;
  if (p.taps == p.length && IsPowerOfTwo(p.taps) && p.taps >= 4096 && p.taps <= most) return {};
  return Status::Error(
      Code::kNotSupported,
      "kernelSize is {} and seqLen {}; both are one power of 2 between 4096 and {}", p.taps,
      p.length, most);
}

using Named = std::pair<const void*, std::string_view>;

Status CheckPointers(std::initializer_list<Named> pointers) {
  for (const auto& [pointer, name] : pointers) RETURN_IF_ERROR(NotNull(pointer, name));
  for (const auto& [pointer, name] : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % 16 == 0) continue;
    return Status::Error(Code::kBadParam, "{} is {}, no multiple of 16 bytes", name, pointer);
  }
  return {};
}

// ---- tensors

TensorDesc ImageDesc(const Problem& p) {
  TensorDesc desc = {.type = p.type, .rank = 3};
  desc.dims = {p.batch, p.dim, p.length};
  desc.strides = {(p.batch > 1 ? p.all_dim : 1) * p.length, p.length, 1};
  return desc;
}

TensorDesc FilterDescOf(const Problem& p) {
  TensorDesc desc = {.type = p.type, .rank = 3};
  desc.dims = {p.dim, 1, p.taps};
  desc.strides = {p.taps, p.taps, 1};
  return desc;
}

// ---- graphs

// From how many taps on filters are transformed: the engine of few channels a group takes fewer,
// and other sums are ten times as slow (docs/log).
constexpr int kTransformed = 512;

// Products of f32 are faster than memory on the tensor cores of sm_90 alone, as sums of TF32.
constexpr int64_t kLargestRadix = 32, kLargestRadixOfSm90 = 256;

LongConvolution LongOf(const Problem& p, const TensorDesc& image, const Target& target) {
  const bool has_products = target.arch == "sm_90a" && p.type != CUDNN_DATA_DOUBLE;
  return {.batch = p.batch,
          .dim = p.dim,
          .length = p.length,
          .taps = p.taps,
          .compute = ComputeType(image),
          .largest_radix = has_products ? kLargestRadixOfSm90 : kLargestRadix};
}

Result<TensorId> Forward(CallGraph& g, const Problem& p, const Target& target, const Operand& of_x,
                         const Operand& of_w) {
  ASSIGN_OR_RETURN(const TensorId x, g.Read(of_x));
  ASSIGN_OR_RETURN(const TensorId w, g.Read(of_w));
  if (p.taps >= kTransformed) {
    g.wishes.keeps_bits = true;
    return LongForward(g, LongOf(p, *of_x.desc, target), x, w);
  }
  g.wishes.only_fma = KeepsBits(p.type);
  return Convolve(g, GraphOp::kConvFprop, {.taps = p.taps, .first_is_own = true}, {x, w},
                  *of_x.desc);
}

// ---- parts

// Channels are computed some at a time: spectra take 16 bytes of workspace for each place (f32),
// four of them at once.
constexpr int64_t kMostPlaces = int64_t{1} << 24;

// `run(part, first)` for channels from `first` on.
template <class Run>
Status ForEachPart(const Problem& p, Run&& run) {
  const int64_t places = int64_t{p.batch} * p.length;
  const int64_t most = (p.taps >= kTransformed ? kMostPlaces : int64_t{INT32_MAX}) / places;
  const int64_t parts = (p.dim + std::max<int64_t>(most, 1) - 1) / std::max<int64_t>(most, 1);
  const int64_t step = (p.dim + parts - 1) / parts;
  for (int64_t first = 0; first < p.dim; first += step) {
    Problem part = p;
    part.dim = static_cast<int32_t>(std::min(step, p.dim - first));
    RETURN_IF_ERROR(run(part, first));
  }
  return {};
}

// The address of that channel's row of `row` elements.
void* RowOf(const Problem& p, const void* memory, int64_t first, int64_t row) {
  return const_cast<char*>(static_cast<const char*>(memory)) + first * row * ElementBytes(p.type);
}

struct Pointers {
  const void *x = nullptr, *w = nullptr, *dy = nullptr;
  void *y = nullptr, *dx = nullptr, *dw = nullptr;
  void *kept_x = nullptr, *kept_w = nullptr;  // copies that a forward call leaves
};

struct Gradients {
  Operand x, w, dy, dx, dw;
};

Status Backward(CallGraph& g, const Problem& p, const Target& target, const Gradients& of) {
  ASSIGN_OR_RETURN(const TensorId x, g.Read(of.x));
  ASSIGN_OR_RETURN(const TensorId w, g.Read(of.w));
  ASSIGN_OR_RETURN(const TensorId dy, g.Read(of.dy));
  if (p.taps >= kTransformed) {
    g.wishes.keeps_bits = true;
    const LongGradients gradients = LongBackward(g, LongOf(p, *of.x.desc, target), x, w, dy);
    RETURN_IF_ERROR(g.Write(gradients.dx, of.dx));
    return g.Write(gradients.dw, of.dw);
  }
  g.wishes.only_fma = KeepsBits(p.type);
  const Taps taps = {.taps = p.taps, .first_is_own = true};
  RETURN_IF_ERROR(g.Write(Convolve(g, GraphOp::kConvDgrad, taps, {dy, w}, *of.x.desc), of.dx));
  return g.Write(Convolve(g, GraphOp::kConvWgrad, taps, {x, dy}, *of.w.desc), of.dw);
}

// ---- buffers of the long form

struct Buffers {
  void* workspace;
  size_t workspace_bytes;
  void* reserve;
  size_t reserve_bytes;
};

// NVIDIA's size, of either buffer: spectra of all rows and filters as the columns of two transforms
// of about a square root of the length.
int64_t BufferBytes(const Problem& p) {
  const int64_t transform = int64_t{2} * p.taps;
  int bits = 0;
  while (int64_t{1} << bits < transform) ++bits;
  const int64_t columns = int64_t{1} << (bits + 1) / 2, rows = int64_t{1} << bits / 2;
  const int64_t spectrum = (p.type == CUDNN_DATA_DOUBLE ? 8 : 4) * 2 * (columns / 2 + 1) * rows;
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  return aligned(int64_t{p.batch} * p.dim * spectrum) + aligned(p.dim * spectrum);
}

// Its product must fit 64 bits: no machine has a ten-thousandth of that.
Status CheckBytes(const Problem& p) {
  if (int64_t{p.batch} * p.dim < int64_t{1} << 34) return {};
  return Status::Error(Code::kNotSupported, "batch {} and dim {} are too many rows", p.batch,
                       p.dim);
}

Status CheckBuffers(const Problem& p, const Buffers& buffers) {
  RETURN_IF_ERROR(CheckBytes(p));
  const auto bytes = static_cast<size_t>(BufferBytes(p));
  for (const auto& [given, name] : {std::pair{buffers.workspace_bytes, "workspaceSizeInBytes"},
                                    {buffers.reserve_bytes, "reserveSpaceSizeInBytes"}}) {
    if (given >= bytes) continue;
    return Status::Error(Code::kBadParam, "{} is {}; the call needs {}", name, given, bytes);
  }
  return {};
}

// The reserve space: x, then w, which begins at a multiple of 256 bytes. Both are smaller than
// their spectra.
void* FilterIn(void* reserve, const Problem& p) {
  const int64_t bytes = int64_t{p.batch} * p.dim * p.length * ElementBytes(p.type);
  return static_cast<char*>(reserve) + (bytes + 255) / 256 * 256;
}

Workspace LentOr(const Buffers& buffers) {
  return {.data = buffers.workspace,
          .bytes = static_cast<int64_t>(buffers.workspace_bytes),
          .is_from_session = true};
}

// ---- calls

Status RunForward(const char* function, void* stream, const Problem& p, const Pointers& at,
                  const Workspace& workspace) {
  RETURN_IF_ERROR(CheckRows(p));
  RETURN_IF_ERROR(CheckApart(at.x, at.y, "x and y"));
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  return ForEachPart(p, [&](const Problem& part, int64_t first) -> Status {
    const TensorDesc image = ImageDesc(part), filter = FilterDescOf(part);
    const auto rows = [&](const void* from) { return RowOf(p, from, first, p.length); };
    const auto filters = [&](const void* from) { return RowOf(p, from, first, p.taps); };
    Call call(handle, function);
    call.Add(part);
    const Operand x = call.Memory(image, rows(at.x)), w = call.Memory(filter, filters(at.w)),
                  y = call.Memory(image, rows(at.y));
    std::vector<std::pair<Operand, Operand>> copies;
    if (at.kept_x != nullptr)
      copies = {{x, call.Memory(image, rows(at.kept_x))},
                {w, call.Memory(filter, filters(at.kept_w))}};
    return call.Run(workspace, [&](CallGraph& g) -> Status {
      ASSIGN_OR_RETURN(const TensorId value, Forward(g, part, handle.session->target(), x, w));
      RETURN_IF_ERROR(g.Write(value, y));
      for (const auto& [from, to] : copies) {
        ASSIGN_OR_RETURN(const TensorId copied, g.Read(from));
        RETURN_IF_ERROR(g.Write(copied, to));
      }
      return {};
    });
  });
}

Status RunBackward(const char* function, void* stream, const Problem& p, const Pointers& at,
                   const Workspace& workspace) {
  RETURN_IF_ERROR(CheckRows(p));
  RETURN_IF_ERROR(CheckApart(at.x, at.dx, "x and dx"));
  RETURN_IF_ERROR(CheckApart(at.dy, at.dx, "dy and dx"));
  RETURN_IF_ERROR(CheckApart(at.w, at.dw, "weight and dweight"));
  ASSIGN_OR_RETURN(Handle handle, HandleOn(stream));
  return ForEachPart(p, [&](const Problem& part, int64_t first) -> Status {
    const TensorDesc image = ImageDesc(part), filter = FilterDescOf(part);
    const auto rows = [&](const void* from) { return RowOf(p, from, first, p.length); };
    const auto filters = [&](const void* from) { return RowOf(p, from, first, p.taps); };
    Call call(handle, function);
    call.Add(part);
    const Gradients of = {.x = call.Memory(image, rows(at.x)),
                          .w = call.Memory(filter, filters(at.w)),
                          .dy = call.Memory(image, rows(at.dy)),
                          .dx = call.Memory(image, rows(at.dx)),
                          .dw = call.Memory(filter, filters(at.dw))};
    return call.Run(workspace,
                    [&](CallGraph& g) { return Backward(g, part, handle.session->target(), of); });
  });
}

}  // namespace

Status FFTCausalConv1dForward(void* stream, const void* x, const void* weight, void* y, int batch,
                              int dim, int seq_len, int kernel_size, int type) {
  const Problem p = {batch, dim, seq_len, kernel_size, type};
  RETURN_IF_ERROR(CheckPointers({{x, "x"}, {weight, "weight"}, {y, "y"}}));
  RETURN_IF_ERROR(CheckMedium(p));
  return RunForward("cudnnFFTCausalConv1dForward", stream, p, {.x = x, .w = weight, .y = y},
                    kFromSession);
}

Status FFTCausalConv1dBackward(void* stream, const void* x, const void* weight, const void* dy,
                               void* dx, void* dweight, int batch, int dim, int seq_len,
                               int kernel_size, int type) {
  const Problem p = {batch, dim, seq_len, kernel_size, type};
  RETURN_IF_ERROR(
      CheckPointers({{x, "x"}, {weight, "weight"}, {dy, "dy"}, {dx, "dx"}, {dweight, "dweight"}}));
  RETURN_IF_ERROR(CheckMedium(p));
  return RunBackward("cudnnFFTCausalConv1dBackward", stream, p,
                     {.x = x, .w = weight, .dy = dy, .dx = dx, .dw = dweight}, kFromSession);
}

Status LongFFTCausalConv1dGetBufferSizes(int batch, int dim, int seq_len, int kernel_size, int type,
                                         size_t* workspace_bytes, size_t* reserve_bytes) {
  const Problem p = {batch, dim, seq_len, kernel_size, type};
  RETURN_IF_ERROR(NotNull(workspace_bytes, "workspaceSizeInBytes"));
  RETURN_IF_ERROR(NotNull(reserve_bytes, "reserveSpaceSizeInBytes"));
  RETURN_IF_ERROR(CheckLong(p));
  RETURN_IF_ERROR(CheckBytes(p));
  *workspace_bytes = *reserve_bytes = static_cast<size_t>(BufferBytes(p));
  return {};
}

Status LongFFTCausalConv1dForward(void* stream, const void* x, const void* weight, void* y,
                                  int batch, int dim, int seq_len, int kernel_size, int type,
                                  void* workspace, size_t workspace_bytes, void* reserve,
                                  size_t reserve_bytes) {
  const Problem p = {batch, dim, seq_len, kernel_size, type};
  const Buffers buffers = {workspace, workspace_bytes, reserve, reserve_bytes};
  RETURN_IF_ERROR(CheckPointers({{x, "x"},
                                 {weight, "weight"},
                                 {y, "y"},
                                 {workspace, "workspace"},
                                 {reserve, "reserveSpace"}}));
  RETURN_IF_ERROR(CheckLong(p));
  RETURN_IF_ERROR(CheckBuffers(p, buffers));
  return RunForward(
      "cudnnLongFFTCausalConv1dForward", stream, p,
      {.x = x, .w = weight, .y = y, .kept_x = reserve, .kept_w = FilterIn(reserve, p)},
      LentOr(buffers));
}

Status LongFFTCausalConv1dBackward(void* stream, const void* dy, void* dx, void* dweight, int batch,
                                   int dim, int seq_len, int kernel_size, int type, void* workspace,
                                   size_t workspace_bytes, void* reserve, size_t reserve_bytes) {
  const Problem p = {batch, dim, seq_len, kernel_size, type};
  const Buffers buffers = {workspace, workspace_bytes, reserve, reserve_bytes};
  RETURN_IF_ERROR(CheckPointers({{dy, "dy"},
                                 {dx, "dx"},
                                 {dweight, "dweight"},
                                 {workspace, "workspace"},
                                 {reserve, "reserveSpace"}}));
  RETURN_IF_ERROR(CheckLong(p));
  RETURN_IF_ERROR(CheckBuffers(p, buffers));
  return RunBackward("cudnnLongFFTCausalConv1dBackward", stream, p,
                     {.x = reserve, .w = FilterIn(reserve, p), .dy = dy, .dx = dx, .dw = dweight},
                     LentOr(buffers));
}

}  // namespace kiln::api::legacy
