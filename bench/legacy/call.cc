#include "bench/legacy/call.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/support/case_time.h"

namespace kiln::bench {
namespace {

// Results are compared in stretches of so many elements.
constexpr int64_t kStretch = 1 << 14, kStretches = 16;
// No multiple of any extent.
constexpr size_t kRandomCount = 131071;

// The most that two libraries may be apart, as a part of the value or of the usual size of values.
double Tolerance(size_t element_bytes) { return element_bytes == 2 ? 8e-3 : 5e-4; }

}  // namespace

oracle::DType ElementOf(cudnnDataType_t type) {
  if (type == CUDNN_DATA_HALF) return oracle::DType::kF16;
  return type == CUDNN_DATA_BFLOAT16 ? oracle::DType::kBF16 : oracle::DType::kF32;
}

size_t Shape::Bytes() const {
  return static_cast<size_t>(Count() * oracle::Row(ElementOf(type)).bytes);
}

void CallMemory::Fill(const Region& region) {
  constexpr uint8_t kNan = 0xff;
  if (region.role == Role::kOut)
    device_.FillAsync(region.buffer.data(), kNan, region.shape.Bytes());
  else
    FillWithRandom(device_, ElementOf(region.shape.type), region.buffer.data(),
                   region.shape.Bytes(),
                   {.low = region.low,
                    .high = region.high,
                    .seed = static_cast<uint32_t>(std::hash<std::string>()(region.name)),
                    .count = kRandomCount});
}

void* CallMemory::Get(const std::string& name, const Shape& shape, Role role, double low,
                      double high) {
  for (const Region& region : regions_)
    if (region.name == name) return region.buffer.data();
  regions_.push_back({.name = name,
                      .shape = shape,
                      .role = role,
                      .low = low,
                      .high = high,
                      .buffer = testing::Buffer(device_, shape.Bytes())});
  const Region& region = regions_.back();
  ok_ = ok_ && region.buffer.data() != nullptr;
  if (ok_) Fill(region);
  return region.buffer.data();
}

void CallMemory::Reset() {
  for (const Region& region : regions_) Fill(region);
}

int64_t CallMemory::Bytes() const {
  int64_t bytes = 0;
  for (const Region& region : regions_) {
    const int64_t times = region.role == Role::kAside ? 0 : region.role == Role::kBoth ? 2 : 1;
    bytes += times * static_cast<int64_t>(region.shape.Bytes());
  }
  return bytes;
}

std::vector<Sample> CallMemory::Results() const {
  std::vector<Sample> results;
  for (const Region& region : regions_) {
    if (region.role != Role::kOut && region.role != Role::kBoth) continue;
    const oracle::DType type = ElementOf(region.shape.type);
    const int64_t element = oracle::Row(type).bytes, count = region.shape.Count();
    const int64_t stretch = std::min(kStretch, count);
    std::vector<uint8_t> bytes(static_cast<size_t>(stretch * element));
    std::vector<double> values;
    for (int64_t s = 0; s < kStretches; ++s) {
      const int64_t from = (count - stretch) * s / (kStretches - 1);
      device_.CopyOut(bytes.data(), region.buffer.data() + from * element, bytes.size());
      for (int64_t i = 0; i < stretch; ++i)
        values.push_back(oracle::DecodeAt(type, bytes.data(), i));
      if (stretch == count) break;
    }
    results.push_back({.name = region.name,
                       .element_bytes = static_cast<size_t>(element),
                       .values = std::move(values)});
  }
  return results;
}

CallSetup::CallSetup(const testing::Cudnn& cudnn, testing::GpuDevice& device, CallMemory& memory)
    : cudnn_(cudnn),
      device_(device),
      memory_(memory),
      library_(dlopen(cudnn.path().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
  if (library_ == nullptr) error_ = fmt::format("{} is not loaded", cudnn.path());
}

CallSetup::~CallSetup() {
  for (const auto& undo : undo_) undo();
  if (library_ != nullptr) dlclose(library_);
}

void* CallSetup::Symbol(const char* name) {
  void* const symbol = library_ == nullptr ? nullptr : dlsym(library_, name);
  if (symbol == nullptr && error_.empty())
    error_ = fmt::format("{} does not export {}", cudnn_.path(), name);
  return symbol;
}

void CallSetup::Check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS && error_.empty()) error_ = cudnn_.ErrorOf(status, call).text;
}

cudnnTensorDescriptor_t CallSetup::Tensor(const Shape& shape) {
  const auto descriptor = New<cudnnTensorDescriptor_t>("Tensor");
  std::vector<int> extents(shape.dims.begin(), shape.dims.end()), strides(extents.size(), 1);
  const auto rank = static_cast<int>(extents.size());
  for (size_t d = extents.size(); d-- > 1;) strides[d - 1] = strides[d] * extents[d];
  if (shape.channels_last) {
    int stride = extents[1];
    strides[1] = 1;
    for (size_t d = extents.size(); d-- > 2; stride *= extents[d]) strides[d] = stride;
  }
  KILN_DO(*this, cudnnSetTensorNdDescriptor, descriptor, shape.type, rank, extents.data(),
          strides.data());
  return descriptor;
}

void* CallSetup::Own(size_t bytes) {
  if (bytes == 0) return nullptr;
  buffers_.emplace_back(device_, bytes);
  if (buffers_.back().data() == nullptr && error_.empty())
    error_ = fmt::format("device memory is out: {} bytes", bytes);
  return buffers_.back().data();
}

const int* CallSetup::Given(const std::vector<int>& values) {
  void* const place = Own(values.size() * sizeof(int));
  if (place != nullptr) device_.CopyIn(place, values.data(), values.size() * sizeof(int));
  return static_cast<const int*>(place);
}

std::string Difference(const std::vector<Sample>& ours, const std::vector<Sample>& theirs,
                       const LegacyCall& call) {
  for (size_t r = 0; r < ours.size(); ++r) {
    const auto& [name, element_bytes, a] = ours[r];
    const std::vector<double>& b = theirs[r].values;
    if (call.is_random) {
      const auto share = [](const std::vector<double>& v) {
        return static_cast<double>(std::ranges::count(v, 0)) / static_cast<double>(v.size());
      };
      if (std::fabs(share(a) - share(b)) < 0.01) continue;
      return fmt::format("{}: {:.3f} of ours are 0, and {:.3f} of NVIDIA's", name, share(a),
                         share(b));
    }
    double squares = 0;
    for (const double v : b) squares += v * v;
    const double usual = std::sqrt(squares / static_cast<double>(b.size()));
    const double tolerance = call.tolerance * Tolerance(element_bytes);
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::fabs(a[i] - b[i]) <= tolerance * (std::fabs(b[i]) + usual)) continue;
      return fmt::format("{}: sample {} is {}, and {} of NVIDIA's", name, i, a[i], b[i]);
    }
  }
  return "";
}

std::vector<LegacyCall> LegacyCalls() {
  std::vector<LegacyCall> calls;
  for (const auto& part : {NormCalls(), TensorCalls(), WindowCalls(), SpatialCalls()})
    calls.insert(calls.end(), part.begin(), part.end());
  return calls;
}

}  // namespace kiln::bench
