// Downloads, comparison on all cores, and the oracle as the judge.
#include "bench/contract/check.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "bench/contract/parallel.h"
#include "tests/support/oracle/compare.h"

namespace kiln::bench {
namespace {

using oracle::Dims;
using oracle::DType;
using oracle::Value;

constexpr int kSamples = 64;
// Products of f32 operands that were rounded to TF32 are off by 2^-12 or so of a typical result;
// sums in f32 of thousands of exact ones by less than a tenth of this.
constexpr double kRoundedError = 0x1p-15;
constexpr size_t kEnoughSamples = 16;
// Error, relative to a typical one, of sums of many results by two plans, of which one may add the
// results rounded and the other as they were. A rounding to f16 is off by 2^-12.2 of a result in
// the root mean square, and errors add up as results of random signs do, so that the worst of some
// hundred sums is 3 to 4 times that off.
constexpr double kSumsError = 0x1p-10;
// Products that the samples of one output may cost.
constexpr double kSampleBudget = 4e8;
constexpr int64_t kChunk = 1 << 18;

// Reads values of a type fast: 8- and 16-bit ones from a table.
class Reader {
 public:
  explicit Reader(DType type) : type_(type), bytes_(oracle::Row(type).bytes) {
    if (bytes_ > 2) return;
    table_.resize(size_t{1} << (8 * bytes_));
    for (size_t i = 0; i < table_.size(); ++i) {
      const uint8_t pattern[2] = {static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)};
      table_[i] = static_cast<float>(oracle::Decode(type, pattern));
    }
  }
  double operator()(const uint8_t* values, int64_t at) const {
    const uint8_t* from = values + at * bytes_;
    if (bytes_ == 1) return table_[*from];
    if (bytes_ == 2) return table_[static_cast<size_t>(from[0] | from[1] << 8)];
    if (type_ != DType::kF32) return oracle::Decode(type_, from);
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }

 private:
  DType type_;
  int bytes_;
  std::vector<float> table_;
};

// Two units in the last place: each side may have rounded the other way.
double RelativeOf(DType type) {
  const int mantissa = oracle::Row(type).mantissa;
  return mantissa > 0 ? std::ldexp(2.0, 1 - mantissa) : 0;
}
double SmallestStepOf(DType type) {
  const oracle::DTypeRow& row = oracle::Row(type);
  return row.mantissa > 0 ? std::ldexp(2.0, row.min_exponent - row.mantissa + 1) : 1;
}

double RootMeanSquare(DType type, const uint8_t* values, int64_t count) {
  constexpr int64_t kMost = 1 << 16;
  const Reader read(type);
  const int64_t step = std::max<int64_t>(count / kMost, 1);
  double sum = 0;
  int64_t terms = 0;
  for (int64_t i = 0; i < count; i += step, ++terms) sum += read(values, i) * read(values, i);
  return terms > 0 ? std::sqrt(sum / static_cast<double>(terms)) : 0;
}

Dims IndexOf(const testing::CaseTensor& tensor, int64_t offset) {
  // Dense: dims by falling stride take the offset apart.
  std::vector<size_t> order(tensor.dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return tensor.strides[a] > tensor.strides[b]; });
  Dims index(order.size(), 0);
  for (const size_t dim : order) {
    if (tensor.dims[dim] == 1) continue;
    index[dim] = offset / tensor.strides[dim];
    offset %= tensor.strides[dim];
  }
  return index;
}

int64_t OffsetOf(const testing::CaseTensor& tensor, const Dims& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * tensor.strides[i];
  return offset;
}

}  // namespace

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) device_->FreeHost(data_);
}

uint8_t* HostBuffer::AtLeast(size_t bytes) {
  if (bytes <= size_) return data_;
  if (data_ != nullptr) device_->FreeHost(data_);
  data_ = static_cast<uint8_t*>(device_->AllocateHost(bytes));
  size_ = data_ != nullptr ? bytes : 0;
  return data_;
}

void HostBuffer::Swap(HostBuffer& other) {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

Distance Farthest(DType type, const uint8_t* actual, const uint8_t* reference, int64_t count,
                  double allowed) {
  const Reader read(type);
  const double relative = RelativeOf(type);
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  std::vector<Distance> found(static_cast<size_t>(chunks));
  ParallelFor(chunks, Cores(), [&](int64_t chunk, int) {
    Distance worst;
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      const double a = read(actual, i), b = read(reference, i);
      if (a == b) continue;
      const double ratio =
          std::fabs(a - b) / (allowed + relative * std::max(std::fabs(a), std::fabs(b)));
      if (ratio <= worst.ratio) continue;
      worst = {.ratio = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio,
               .element = i};
    }
    found[static_cast<size_t>(chunk)] = worst;
  });
  Distance worst;
  for (const Distance& d : found) {
    if (d.ratio > worst.ratio) worst = d;
  }
  return worst;
}

int64_t FindNan(DType type, const uint8_t* values, int64_t count) {
  if (!oracle::IsFloating(type)) return -1;
  const Reader read(type);
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  std::atomic<int64_t> first = count;
  ParallelFor(chunks, Cores(), [&](int64_t chunk, int) {
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      if (!std::isnan(read(values, i))) continue;
      for (int64_t seen = first; i < seen && !first.compare_exchange_weak(seen, i);) {
      }
      return;
    }
  });
  return first == count ? -1 : first.load();
}

Checker::Checker(testing::GpuDevice& device, CheckBuffers& buffers, const Problem& problem,
                 const ProblemData& data)
    : device_(device), buffers_(buffers), problem_(problem), oracle_(problem, data) {
  for (const int tensor : problem.graph.Outputs()) {
    Output output{.tensor = tensor, .begin = total_bytes_};
    output.bytes = BytesOf(problem.graph.tensors[static_cast<size_t>(tensor)]);
    total_bytes_ += (output.bytes + 255) / 256 * 256;
    MakeSamples(output);
    outputs_.push_back(std::move(output));
  }
}

bool Checker::has_samples() const {
  return std::ranges::all_of(outputs_, [](const Output& o) { return !o.samples.empty(); });
}

void Checker::MakeSamples(Output& output) {
  const Dims& dims = TensorOf(output).dims;
  const double cost = oracle_.CostOf(output.tensor);
  if (cost > kSampleBudget) return;  // infinite, too
  const auto affordable = static_cast<int64_t>(kSampleBudget / cost);
  output.samples.resize(
      static_cast<size_t>(std::min({int64_t{kSamples}, affordable, oracle::Count(dims)})));
  uint64_t state = 0x9e3779b97f4a7c15;
  for (size_t i = 0; i < output.samples.size(); ++i) {
    Dims& index = output.samples[i].index;
    for (const int64_t extent : dims) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const auto random = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(extent));
      // The first and the last element, then any.
      index.push_back(i == 0 ? 0 : i == 1 ? extent - 1 : random);
    }
  }
  ParallelFor(static_cast<int64_t>(output.samples.size()), Cores(), [&](int64_t i, int) {
    Sample& sample = output.samples[static_cast<size_t>(i)];
    sample.expected = oracle_.At(output.tensor, sample.index);
  });
  // A sample that any value would satisfy checks nothing: an output of such samples alone has none.
  std::erase_if(output.samples,
                [](const Sample& sample) { return !std::isfinite(sample.expected.e); });
  for (const Sample& sample : output.samples)
    output.largest_error = std::max(output.largest_error, sample.expected.e);
}

std::string Checker::CheckElement(const Output& output, const uint8_t* bytes, const Sample& sample,
                                  double scale) const {
  const testing::CaseTensor& tensor = TensorOf(output);
  auto image = oracle::Image::Poisoned(tensor.dtype, {1}, {1}, 1);
  const auto size = static_cast<size_t>(oracle::Row(tensor.dtype).bytes);
  std::memcpy(&image.bytes[oracle::Image::kGuard],
              bytes + OffsetOf(tensor, sample.index) * static_cast<int64_t>(size), size);
  const auto comparison = oracle::Compare({.dims = {1}, .values = {sample.expected}}, image,
                                          {.scale = scale, .output_ulps = 1});
  if (comparison.ok()) return "";
  return fmt::format("{}{} is {}, the oracle says {} ± {:.2g}", tensor.name,
                     oracle::ToText(sample.index), image.Load()[0],
                     oracle::Round(tensor.dtype, sample.expected.v), scale * sample.expected.e);
}

std::string Checker::Check(const ProblemMemory& memory, double scale,
                           std::string* reference_is_wrong) {
  if (buffers_.actual.AtLeast(static_cast<size_t>(total_bytes_)) == nullptr)
    return fmt::format("no {} bytes of host memory to check with", total_bytes_);
  for (const Output& output : outputs_) {
    device_.CopyOut(buffers_.actual.data() + output.begin, memory.TensorAt(output.tensor),
                    static_cast<size_t>(output.bytes));
  }
  for (const Output& output : outputs_) {
    std::string wrong = CheckOutput(output, scale, reference_is_wrong);
    if (!wrong.empty()) return wrong;
  }
  if (!has_reference_) buffers_.actual.Swap(buffers_.reference);
  has_reference_ = true;
  return "";
}

std::string Checker::CheckOutput(const Output& output, double scale,
                                 std::string* reference_is_wrong) {
  const testing::CaseTensor& tensor = TensorOf(output);
  const uint8_t* actual = buffers_.actual.data() + output.begin;
  const int64_t count = oracle::Count(tensor.dims);
  if (const int64_t nan = FindNan(tensor.dtype, actual, count); nan >= 0) {
    return fmt::format("{}{} is NaN or was not written", tensor.name,
                       oracle::ToText(IndexOf(tensor, nan)));
  }
  for (const Sample& sample : output.samples) {
    std::string wrong = CheckElement(output, actual, sample, scale);
    if (!wrong.empty()) return wrong;
  }
  if (problem_.keeps_f32 && output.samples.size() >= kEnoughSamples) {
    const double error = RelativeError(output);
    if (error > kRoundedError)
      return fmt::format("{} is off by {:.2g} of its values in the mean: its operands were rounded",
                         tensor.name, error);
  }
  if (!has_reference_) return "";
  double allowed = 2 * scale * output.largest_error + SmallestStepOf(tensor.dtype);
  if (output.samples.empty())
    allowed +=
        kSumsError * RootMeanSquare(tensor.dtype, buffers_.reference.data() + output.begin, count);
  const Distance far =
      Farthest(tensor.dtype, actual, buffers_.reference.data() + output.begin, count, allowed);
  return far.ratio <= 1 ? "" : Adjudicate(output, far.element, scale, reference_is_wrong);
}

double Checker::RelativeError(const Output& output) const {
  const testing::CaseTensor& tensor = TensorOf(output);
  const Reader read(tensor.dtype);
  double errors = 0, values = 0;
  for (const Sample& sample : output.samples) {
    const double actual =
        read(buffers_.actual.data() + output.begin, OffsetOf(tensor, sample.index));
    errors += (actual - sample.expected.v) * (actual - sample.expected.v);
    values += sample.expected.v * sample.expected.v;
  }
  return values > 0 ? std::sqrt(errors / values) : 0;
}

std::string Checker::Adjudicate(const Output& output, int64_t element, double scale,
                                std::string* reference_is_wrong) const {
  const testing::CaseTensor& tensor = TensorOf(output);
  const uint8_t* actual = buffers_.actual.data() + output.begin;
  const uint8_t* reference = buffers_.reference.data() + output.begin;
  const Reader read(tensor.dtype);
  Sample sample{.index = IndexOf(tensor, element)};
  if (output.samples.empty()) {
    return fmt::format("{}{} is {}, another plan's {}; the oracle has no rule", tensor.name,
                       oracle::ToText(sample.index), read(actual, element),
                       read(reference, element));
  }
  sample.expected = oracle_.At(output.tensor, sample.index);
  std::string wrong = CheckElement(output, actual, sample, scale);
  if (wrong.empty()) *reference_is_wrong = CheckElement(output, reference, sample, scale);
  return wrong;
}

}  // namespace kiln::bench
