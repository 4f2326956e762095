#include "compiler/passes/narrow_numbers.h"

#include <algorithm>

#include "compiler/passes/primitive_writer.h"
#include "ir/base/check.h"
#include "ir/shape.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::kAbsent;
using graph::Tensor;
using graph::TensorId;
using S = ScalarOp;

constexpr double kCodes = 16;  // of 4 bits
constexpr double kWords = 0x1p32;

// The arithmetic of codes and of the numbers around them.
struct Writers {
  PrimitiveWriter integer, real;
  Writers(Graph& g, const std::string& name, DType real_type = DType::kF32)
      : integer(g, DType::kI32, name), real(g, real_type, name) {}
};

// ---- e2m1: sign, two bits of exponent, one of mantissa ------------------------------------------

// Codes count the magnitudes 0, .5, 1, 1.5 | 2, 3 | 4, 6 in steps of .5, of 1 and of 2, and an even
// code has an even mantissa: rounding to codes is rounding to the nearest even number. Halving and
// doubling are exact, and what is added is added to whole numbers.
TensorId CodeOfE2M1(Writers& w, TensorId x) {
  PrimitiveWriter &i = w.integer, &r = w.real;
  const TensorId size = r.Map(S::kAbs, {x});
  const auto rounded = [&](TensorId steps) { return r.Round(steps, DType::kI32); };
  const TensorId below_two = rounded(r.Mul(size, r.Number(2)));
  const TensorId below_four = i.Add(rounded(size), i.Number(2));
  // A minimum drops NaN, which becomes the largest number, as the hardware's conversion has it.
  const TensorId most = r.Map(S::kMin, {size, r.Number(6)});
  const TensorId above = i.Add(rounded(r.Mul(most, r.Number(0.5))), i.Number(4));
  const TensorId code = i.Select(r.Map(S::kLt, {size, r.Number(2)}), below_two,
                                 i.Select(r.Map(S::kLt, {size, r.Number(4)}), below_four, above));
  // Zero has a sign, too; the reciprocal of a number that is too large has lost its own.
  const TensorId zero_is_negative = r.Map(S::kLt, {r.Map(S::kRecip, {x}), r.Number(0)});
  const TensorId negative = r.Map(S::kOr, {r.Map(S::kLt, {x, r.Number(0)}), zero_is_negative});
  return i.Select(negative, i.Add(code, i.Number(kCodes / 2)), code);
}

TensorId ValueOfE2M1(Writers& w, TensorId code) {
  PrimitiveWriter &i = w.integer, &r = w.real;
  const TensorId negative = i.Map(S::kGe, {code, i.Number(kCodes / 2)});
  const TensorId m = i.Select(negative, i.Sub(code, i.Number(kCodes / 2)), code);
  const TensorId above = r.Select(i.Map(S::kLt, {m, i.Number(6)}), r.Sub(m, r.Number(2)),
                                  r.Sub(r.Mul(m, r.Number(2)), r.Number(8)));
  const TensorId size = r.Select(i.Map(S::kLt, {m, i.Number(4)}), r.Mul(m, r.Number(0.5)), above);
  return r.Round(r.Select(negative, r.Map(S::kNeg, {size}), size), DType::kF16);
}

// ---- integers: two's complement -----------------------------------------------------------------

struct Range {
  double low, high;
  double codes;  // how many there are
};

Range RangeOf(DType type) {
  if (type == DType::kU32) return {.low = 0, .high = kWords - 1, .codes = kWords};
  if (type == DType::kU4) return {.low = 0, .high = kCodes - 1, .codes = kCodes};
  return {.low = -kCodes / 2, .high = kCodes / 2 - 1, .codes = kCodes};
}

TensorId ValueOfInteger(Graph& g, DType type, TensorId code, const std::string& name) {
  const DType carrier = CarrierOf(type);
  PrimitiveWriter w(g, ArithmeticType(carrier), name);
  if (type == DType::kU4) return w.Round(code, carrier);
  // i4 codes from 8 on stand for negative numbers; words of u32 that are negative for large ones.
  const bool is_word = type == DType::kU32;
  const TensorId wraps =
      is_word ? w.Map(S::kLt, {code, w.Number(0)}) : w.Map(S::kGe, {code, w.Number(kCodes / 2)});
  const TensorId other = w.Add(code, w.Number(is_word ? kWords : -kCodes));
  return w.Round(w.Select(wraps, other, code), carrier);
}

TensorId CodeOfInteger(Graph& g, DType type, TensorId value, const std::string& name) {
  PrimitiveWriter w(g, ArithmeticType(CarrierOf(type)), name);
  if (type == DType::kU4) return w.Round(value, DType::kI32);
  const Range range = RangeOf(type);
  const bool is_word = type == DType::kU32;
  const TensorId wraps =
      is_word ? w.Map(S::kGe, {value, w.Number(kWords / 2)}) : w.Map(S::kLt, {value, w.Number(0)});
  const TensorId other = w.Add(value, w.Number(is_word ? -range.codes : range.codes));
  return w.Round(w.Select(wraps, other, value), DType::kI32);
}

// To the nearest whole number first, which makes 0 of NaN, then into the range.
TensorId RoundInteger(Graph& g, DType type, TensorId raw, const std::string& name) {
  const DType carrier = CarrierOf(type), from = ArithmeticType(g[raw].dtype);
  PrimitiveWriter reader(g, from, name), w(g, ArithmeticType(carrier), name);
  const Range range = RangeOf(type);
  const TensorId whole = reader.Round(raw, carrier);
  const TensorId high = w.Map(S::kMin, {whole, w.Number(range.high)});
  return w.Round(w.Map(S::kMax, {high, w.Number(range.low)}), carrier);
}

TensorId ValueOf(Graph& g, DType type, TensorId code, const std::string& name) {
  if (type == DType::kB1) return code;
  if (type != DType::kE2M1) return ValueOfInteger(g, type, code, name);
  Writers w(g, name);
  return ValueOfE2M1(w, code);
}

TensorId CodeOf(Graph& g, DType type, TensorId value, const std::string& name) {
  if (type == DType::kB1) return value;
  if (type != DType::kE2M1) return CodeOfInteger(g, type, value, name);
  Writers w(g, name);
  return CodeOfE2M1(w, value);
}

// ---- places in memory ---------------------------------------------------------------------------

// 0, 1, … along one of `dims`, and 1 element along the others.
TensorId Counting(PrimitiveWriter& w, const Dims& dims, size_t along) {
  Dims one(dims.size(), 1);
  one[along] = dims[along];
  return w.Iota(static_cast<int64_t>(along), std::move(one));
}

TensorId Reshaped(PrimitiveWriter& w, TensorId x, const Dims& dims) {
  return w.graph()[x].dims == dims ? x : w.Reshape(x, dims);
}

// Dense in the new order: a reshape may follow.
TensorId Transposed(PrimitiveWriter& w, TensorId x, const Dims& permutation) {
  if (std::ranges::is_sorted(permutation)) return x;
  const TensorId y = w.Transpose(x, permutation);
  w.graph()[y].strides = PackedStrides(w.graph()[y].dims);
  return y;
}

// The code of element `lane` of each byte; of b1, its truth.
TensorId CodeIn(PrimitiveWriter& w, DType type, TensorId byte, TensorId lane) {
  if (type == DType::kB1) return w.Map(S::kBit, {byte, lane});
  const TensorId low = w.Map(S::kMod, {byte, w.Number(kCodes)});
  const TensorId high = w.Div(byte, w.Number(kCodes));
  return w.Select(w.Map(S::kEq, {lane, w.Number(0)}), low, high);
}

// `id` becomes bytes: the outer dims, as many bytes as the inner ones fill, and 1, for the elements
// of each.
void MakeBytes(Graph& g, TensorId id, const PackedRun& run) {
  Tensor& t = g[id];
  const int per_byte = PerByte(t.dtype);
  Dims dims, strides;
  for (const int64_t d : run.outer) {
    dims.push_back(t.dims[d]);
    strides.push_back(t.dims[d] > 1 ? t.strides[d] / per_byte : 1);
  }
  dims.insert(dims.end(), {CeilDiv(run.extent, per_byte), 1});
  strides.insert(strides.end(), {1, 1});
  t.dtype = DType::kU8;
  t.dims = std::move(dims);
  t.strides = std::move(strides);
}

Dims OrderOf(const PackedRun& run) {
  Dims order = run.outer;
  order.insert(order.end(), run.inner.begin(), run.inner.end());
  return order;
}

Dims Gathered(const Dims& dims, const Dims& order) {
  Dims result;
  for (const int64_t d : order) result.push_back(dims[d]);
  return result;
}

Dims Inverse(const Dims& permutation) {
  Dims inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = static_cast<int64_t>(i);
  return inverse;
}

// The codes of a tensor whose elements fill bytes along its inner dims.
TensorId ReadRun(Graph& g, TensorId id, const PackedRun& run) {
  const Tensor t = g[id];
  const Dims order = OrderOf(run), in_order = Gathered(t.dims, order);
  MakeBytes(g, id, run);
  Dims lanes = g[id].dims;
  lanes.back() = PerByte(t.dtype);
  PrimitiveWriter w(g, DType::kI32, t.name);
  TensorId codes = CodeIn(w, t.dtype, id, Counting(w, lanes, lanes.size() - 1));
  Dims flat = lanes;
  flat.pop_back();
  flat.back() *= PerByte(t.dtype);
  codes = w.Reshape(codes, flat);
  if (flat.back() != run.extent) {
    flat.back() = run.extent;
    codes = w.SliceFront(codes, flat);
  }
  return Transposed(w, Reshaped(w, codes, in_order), Inverse(order));
}

// The codes of a tensor of any strides: each element finds its byte.
TensorId ReadAnywhere(Graph& g, TensorId id) {
  const Tensor t = g[id];
  const int64_t span = SpanElements(t.dims, t.strides);
  const size_t rank = t.dims.size();
  const DType index_type = span > INT32_MAX ? DType::kI64 : DType::kI32;
  PrimitiveWriter w(g, DType::kI32, t.name), index(g, index_type, t.name);
  g[id].dtype = DType::kU8;
  g[id].dims.assign(rank, 1);
  const auto per_byte = static_cast<double>(PerByte(t.dtype));
  g[id].dims.back() = CeilDiv(span, PerByte(t.dtype));
  g[id].strides = PackedStrides(g[id].dims);
  TensorId at = index.Iota(0, Dims(rank, 1));  // 0
  for (size_t d = 0; d < rank; ++d) {
    if (t.dims[d] <= 1 || t.strides[d] == 0) continue;
    const TensorId stride = index.Number(static_cast<double>(t.strides[d]), kLaunchNumberUid);
    at = index.Add(at, index.Mul(Counting(index, t.dims, d), stride));
  }
  const TensorId byte = index.Div(at, index.Number(per_byte)),
                 lane = index.Map(S::kMod, {at, index.Number(per_byte)});
  return CodeIn(w, t.dtype, w.Gather(id, byte, static_cast<int64_t>(rank) - 1, t.dims), lane);
}

TensorId ReadCodes(Graph& g, TensorId id) {
  const Tensor t = g[id];
  if (t.dtype == DType::kU32) {
    g[id].dtype = DType::kI32;
    return id;
  }
  if (t.by_value) {
    g[id].dtype = DType::kU8;
    PrimitiveWriter w(g, DType::kI32, t.name);
    return CodeIn(w, t.dtype, id, w.Number(0));
  }
  const auto run = PackedRunOf(t.dims, t.strides, PerByte(t.dtype));
  return run ? ReadRun(g, id, *run) : ReadAnywhere(g, id);
}

// The bytes of elements that lie side by side along the last dim, the first in the low bits.
TensorId Joined(PrimitiveWriter& w, DType type, TensorId codes) {
  Dims one = w.graph()[codes].dims, start(one.size(), 0);
  one.back() = 1;
  TensorId byte = kAbsent;
  for (int lane = 0; lane < PerByte(type); ++lane) {
    start.back() = lane;
    const TensorId code = w.Slice(codes, start, one);
    const TensorId weight = w.Number(1 << lane * Info(type).bits);
    const TensorId part = type == DType::kB1 ? w.Select(code, weight, w.Number(0))
                          : lane == 0        ? code
                                             : w.Mul(code, weight);
    byte = lane == 0 ? part : w.Add(byte, part);
  }
  return byte;
}

}  // namespace

DType CarrierOf(DType type) {
  switch (type) {
    case DType::kE2M1:
      return DType::kF16;
    case DType::kI4:
    case DType::kU4:
      return DType::kI8;
    case DType::kB1:
      return DType::kBool;
    default:
      CHECK(type == DType::kU32, "{} needs no carrier", Info(type).text);
      return DType::kI64;
  }
}

NarrowNumbers RoundNarrow(Graph& g, DType type, TensorId raw, std::string name) {
  if (type == DType::kB1) return {.value = raw};
  if (type != DType::kE2M1) return {.value = RoundInteger(g, type, raw, name)};
  Writers w(g, name, g[raw].dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  const TensorId code = CodeOfE2M1(w, raw);
  return {.value = ValueOfE2M1(w, code), .code = code};
}

TensorId ReadNarrow(Graph& g, TensorId id) {
  const Tensor t = g[id];
  const TensorId value = ValueOf(g, t.dtype, ReadCodes(g, id), t.name);
  g[value].strides = t.strides;  // reshapes that read `id` were made for those
  return value;
}

TensorId WordsOf(Graph& g, TensorId raw, std::string name) {
  const TensorId value = RoundNarrow(g, DType::kU32, raw, name).value;
  return CodeOfInteger(g, DType::kU32, value, std::move(name));
}

void WriteNarrow(Graph& g, const NarrowNumbers& numbers, TensorId id) {
  const Tensor t = g[id];
  TensorId code = numbers.code;
  if (code == kAbsent) code = CodeOf(g, t.dtype, numbers.value, t.name);
  PrimitiveWriter w(g, DType::kI32, t.name);
  if (t.dtype == DType::kU32) {
    g[id].dtype = DType::kI32;
    return w.Write(code, id);
  }
  const int per_byte = PerByte(t.dtype);
  const auto run = PackedRunOf(t.dims, t.strides, per_byte);
  CHECK(run.has_value(), "%{} shares bytes", t.name);
  MakeBytes(g, id, *run);
  const Dims order = OrderOf(*run);
  Dims lanes = g[id].dims;
  lanes.back() = per_byte;
  Dims flat = lanes;
  flat.pop_back();
  flat.back() = run->extent;
  code = Reshaped(w, Transposed(w, code, order), flat);
  const auto axis = static_cast<int64_t>(flat.size()) - 1;
  if (run->extent % per_byte != 0) {  // what is left over of a byte is 0, as all that lies outside
    flat.back() = AlignUp(run->extent, per_byte);
    code = w.Gather(code, Counting(w, flat, flat.size() - 1), axis, flat);
  }
  w.Write(Joined(w, t.dtype, w.Reshape(code, lanes)), id);
}

}  // namespace kiln::compiler
