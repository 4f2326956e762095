// Attributes that cuDNN 9.22 to 9.25 gave tensors, by descriptors: values that the graph knows,
// ragged offsets that count several elements, booleans of a byte. Against plain loops in f64.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/numerics/later_attributes.h"

namespace {

using client::Desc;
using kiln::testing::Count;
using kiln::testing::Ints;
using kiln::testing::LaterAttributes;
using kiln::testing::Numbers;
using kiln::testing::Values;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum Uid : int64_t { kX = 1, kW, kMask, kY, kConstant, kOfX, kOfY };

// Magnitudes by which products and selections of floats are exact to their rounding.
Values Sizes(const Values& values) {
  Values sizes;
  for (const double v : values)
    sizes.push_back(std::isfinite(v) ? std::ldexp(std::abs(v), -10) : 0);
  return sizes;
}

class LaterTensors : public LaterAttributes {
 protected:
  // `value` is rounded to the type. What the address held is overwritten before the graph is made.
  static Desc Constant(cudnnDataType_t type, double& value, const Ints& dims = {1, 1, 1}) {
    alignas(8) char bytes[8] = {};
    const kiln::DType dtype = kiln::testing::TypeOf(type);
    kiln::StoreValue(dtype, value, bytes);
    value = kiln::LoadValue(dtype, bytes);
    Desc t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    t.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{kConstant})
        .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
        .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
        .Set(CUDNN_ATTR_TENSOR_STRIDES, Ints(dims.size(), 1))
        .Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true)
        .Set(CUDNN_ATTR_TENSOR_CONSTANT_VALUE, static_cast<void*>(bytes))
        .Finalize();
    std::memset(bytes, 0x7e, sizeof(bytes));
    return t;
  }

  // y = x * constant; the pack has no pointer for the constant.
  void CheckConstant(cudnnDataType_t type, double value) {
    SCOPED_TRACE(testing::Message() << "type " << type << ", value " << value);
    memory_.clear();
    const Ints dims = {3, 7, 11};
    Values x = Numbers(dims, 3);
    x[5] = 0;
    const Desc constant = Constant(type, value);
    ASSERT_EQ(constant.status(), CUDNN_STATUS_SUCCESS) << constant.error();
    Run(client::Pointwise(CUDNN_POINTWISE_MUL, Put(kX, dims, CUDNN_DATA_FLOAT, &x), &constant,
                          Put(kY, dims, CUDNN_DATA_FLOAT, nullptr)));
    if (HasFatalFailure()) return;
    Values y;
    for (const double v : x) y.push_back(v * value);
    Expect(kY, "y", y, Sizes(y));
  }

  struct Sequences {
    int64_t heads = 2, rows = 5, depth = 8;
    std::vector<int64_t> lengths = {5, 0, 3};
    int64_t unit = 1;
    cudnnDataType_t counts = CUDNN_DATA_INT32;
  };

  // The beginnings of the batches, and the end of the last, with `gap` rows behind each, in
  // elements.
  static Values Places(const Sequences& s, int64_t gap) {
    Values places = {0};
    for (const int64_t n : s.lengths)
      places.push_back(places.back() + static_cast<double>((n + gap) * s.heads * s.depth));
    return places;
  }

  Desc Ragged(int64_t uid, const Sequences& s, int64_t of, Values places) {
    for (double& place : places) place /= static_cast<double>(s.unit);
    const Desc offsets = Put(of, {std::ssize(places), 1, 1, 1}, s.counts, &places);
    const int64_t token = s.heads * s.depth;
    Desc t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    t.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
        .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT)
        .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
        .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, Ints{std::ssize(s.lengths), s.heads, s.rows, s.depth})
        .Set(CUDNN_ATTR_TENSOR_STRIDES, Ints{s.rows * token, s.depth, token, 1})
        .Set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offsets)
        .Set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_MULTIPLIER, s.unit)
        .Finalize();
    EXPECT_EQ(t.status(), CUDNN_STATUS_SUCCESS) << t.error();
    return t;
  }

  // y = -x, of sequences that lie at other places; nothing else of y's memory is touched.
  void CheckRagged(const Sequences& s) {
    SCOPED_TRACE(testing::Message() << "offsets of type " << s.counts << " count " << s.unit);
    memory_.clear();
    const Values from = Places(s, 0), to = Places(s, 2);
    const auto of_x = static_cast<int64_t>(from.back()), of_y = static_cast<int64_t>(to.back());
    Values x = Numbers({of_x}, 4);
    Put(kX, {of_x}, CUDNN_DATA_FLOAT, &x);
    Put(kY, {of_y}, CUDNN_DATA_FLOAT, nullptr);  // NaN
    Run(client::Pointwise(CUDNN_POINTWISE_NEG, Ragged(kX, s, kOfX, from), nullptr,
                          Ragged(kY, s, kOfY, to)));
    if (HasFatalFailure()) return;
    Values y(static_cast<size_t>(of_y), kNan);
    for (size_t b = 0; b < s.lengths.size(); ++b)
      for (int64_t i = 0; i < s.rows * s.heads * s.depth; ++i) {
        const auto at = static_cast<int64_t>(to[b]) + i;
        if (at >= static_cast<int64_t>(to[b + 1])) break;
        // Places behind x's own batch hold no element of it: they count as zero.
        const auto x_at = static_cast<int64_t>(from[b]) + i;
        y[static_cast<size_t>(at)] =
            x_at < static_cast<int64_t>(from[b + 1]) ? -x[static_cast<size_t>(x_at)] : 0;
      }
    Expect(kY, "y", y, Sizes(y));
  }
};

TEST_F(LaterTensors, ConstantsOfEveryType) {
  for (const auto type :
       {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_DOUBLE})
    for (const double value : {0.3, -1e-3, 0.0, 1.0, kInfinity, kNan}) CheckConstant(type, value);
  for (const auto type : {CUDNN_DATA_INT32, CUDNN_DATA_INT64})
    for (const double value : {0.0, 1.0, -7.0}) CheckConstant(type, value);
}

// A plan must not serve another value of the constant.
TEST_F(LaterTensors, ConstantsAreThoseOfTheirGraph) {
  for (const double value : {2.0, 3.0, 2.0}) CheckConstant(CUDNN_DATA_FLOAT, value);
}

TEST_F(LaterTensors, OffsetsCountElements) {
  for (const auto counts : {CUDNN_DATA_INT32, CUDNN_DATA_INT64})
    for (const int64_t unit : {1, 2, 8, 16}) CheckRagged({.unit = unit, .counts = counts});
  CheckRagged({.heads = 1, .rows = 1, .depth = 3, .lengths = {1}, .unit = 3});
  CheckRagged({.heads = 3, .rows = 7, .depth = 5, .lengths = {0, 7, 1, 0, 6}, .unit = 15});
}

class ByteBooleans : public LaterAttributes {};

Values WithSpecials(const Ints& dims, int seed) {
  Values x = Numbers(dims, seed);
  x[0] = kNan, x[1] = kInfinity, x[2] = -kInfinity, x[3] = 0;
  return x;
}

TEST_F(ByteBooleans, AreWritten) {
  for (const Ints& dims : {Ints{5, 7, 3}, Ints{1, 1, 4}, Ints{2, 3, 67}}) {
    memory_.clear();
    Values x = WithSpecials(dims, 5), w = Numbers(dims, 6);
    const Desc of_w = Put(kW, dims, CUDNN_DATA_FLOAT, &w);
    Run(client::Pointwise(CUDNN_POINTWISE_CMP_GT, Put(kX, dims, CUDNN_DATA_FLOAT, &x), &of_w,
                          Put(kMask, dims, CUDNN_DATA_BYTE_BOOLEAN, nullptr)));
    if (HasFatalFailure()) return;
    std::vector<char> bytes(static_cast<size_t>(Count(dims)));
    device_->CopyOut(bytes.data(), memory_.at(kMask).buffer->data(), bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i)
      ASSERT_EQ(int{bytes[i]}, x[i] > w[i] ? 1 : 0) << x[i] << " > " << w[i] << " at " << i;
  }
}

TEST_F(ByteBooleans, AreRead) {
  const Ints dims = {3, 5, 23};
  Values x = WithSpecials(dims, 7), w = Numbers(dims, 8), mask;
  for (int64_t i = 0; i < Count(dims); ++i) mask.push_back(i % 3 == 1 || i % 7 == 0);
  Desc parameters(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  parameters.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_BINARY_SELECT)
      .Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .Finalize();
  Desc op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parameters)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, Put(kX, dims, CUDNN_DATA_FLOAT, &x))
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, Put(kW, dims, CUDNN_DATA_FLOAT, &w))
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, Put(kMask, dims, CUDNN_DATA_BYTE_BOOLEAN, &mask))
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, Put(kY, dims, CUDNN_DATA_FLOAT, nullptr))
      .Finalize();
  Run(op);
  if (HasFatalFailure()) return;
  Values y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(mask[i] != 0 ? x[i] : w[i]);
  Expect(kY, "y", y, Sizes(y));
}

}  // namespace
