#include "tests/codegen/llvm/kernel_runner.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

#include "ir/base/check.h"
#include "ir/tile/tools.h"

namespace kiln::test {
namespace {

// As StoreValue, except that an e5m2 infinity is stored as one: rounding saturates, but codes in
// memory may hold it.
void StoreExactly(DType type, double value, void* bytes) {
  StoreValue(type, value, bytes);
  if (type == DType::kE5M2 && std::isinf(value))
    *static_cast<uint8_t*>(bytes) = value < 0 ? 0xfc : 0x7c;
}

}  // namespace

runtime::CpuDevice& TestDevice(const runtime::Jit::Options& options) {
  static std::mutex mutex;
  static auto* devices = new std::map<std::pair<bool, bool>, std::unique_ptr<runtime::CpuDevice>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<runtime::CpuDevice>& device =
      (*devices)[{options.use_native_half, options.use_vector_math}];
  if (!device) {
    auto made = runtime::CpuDevice::Create({.threads = 2, .cache = {.root = ""}, .jit = options});
    CHECK(made.ok(), "{}", made.status().message());
    device = std::move(*made);
  }
  return *device;
}

Result<std::vector<std::vector<double>>> RunCompiled(const std::string& text,
                                                     const std::vector<KernelArgument>& args,
                                                     std::array<uint32_t, 3> grid,
                                                     runtime::CpuDevice& device) {
  ASSIGN_OR_RETURN(const tile::Kernel kernel, tile::Parse(text));
  const KernelSource source{
      .kind = SourceKind::kTileIr, .entry = kernel.name, .text = text, .arch = "native"};
  ASSIGN_OR_RETURN(const std::shared_ptr<runtime::LoadedKernel> loaded, device.Load(source));

  // The bytes of each argument: a buffer's pointer, or the scalar itself.
  std::vector<std::vector<unsigned char>> memory(args.size());
  std::vector<uint64_t> words(args.size());
  std::vector<void*> pointers;
  for (size_t i = 0; i < args.size(); ++i) {
    if (const auto* buffer = std::get_if<Buffer>(&args[i])) {
      const int size = SizeOf(buffer->type);
      memory[i].resize(buffer->values.size() * size + 1);
      for (size_t j = 0; j < buffer->values.size(); ++j)
        StoreExactly(buffer->type, buffer->values[j], &memory[i][j * size]);
      words[i] = reinterpret_cast<uint64_t>(memory[i].data());
    } else {
      const Scalar& scalar = std::get<Scalar>(args[i]);
      StoreValue(scalar.type, scalar.value, &words[i]);
    }
    pointers.push_back(&words[i]);
  }
  const runtime::LaunchShape shape{.grid = grid, .block = {1, 1, 1}, .dynamic_shared_bytes = 0};
  RETURN_IF_ERROR(device.Launch(*loaded, shape, pointers.data(), nullptr));

  std::vector<std::vector<double>> results;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto* buffer = std::get_if<Buffer>(&args[i]);
    if (!buffer) continue;
    std::vector<double>& values = results.emplace_back();
    for (size_t j = 0; j < buffer->values.size(); ++j) {
      values.push_back(LoadValue(buffer->type, &memory[i][j * SizeOf(buffer->type)]));
    }
  }
  return results;
}

Result<Outcome> RunBoth(const std::string& text, const std::vector<KernelArgument>& args,
                        std::array<uint32_t, 3> grid) {
  Outcome outcome;
  ASSIGN_OR_RETURN(outcome.compiled, RunCompiled(text, args, grid));

  ASSIGN_OR_RETURN(const tile::Kernel kernel, tile::Parse(text));
  std::vector<std::vector<double>> buffers;
  for (const KernelArgument& arg : args) {
    if (const auto* buffer = std::get_if<Buffer>(&arg)) {
      std::vector<double>& values = buffers.emplace_back();
      for (const double v : buffer->values) values.push_back(RoundTo(buffer->type, v));
    }
  }
  std::vector<tile::Argument> arguments;
  size_t next = 0;
  for (const KernelArgument& arg : args) {
    if (std::holds_alternative<Buffer>(arg)) {
      arguments.push_back({.buffer = &buffers[next++], .scalar = {}});
    } else {
      const double value = std::get<Scalar>(arg).value;
      arguments.push_back(
          {.buffer = nullptr, .scalar = {.f = value, .i = static_cast<int64_t>(value)}});
    }
  }
  RETURN_IF_ERROR(tile::Interpret(kernel, arguments));
  outcome.interpreted = std::move(buffers);
  return outcome;
}

bool SameValue(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

double UlpDistance(DType type, double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (a == b) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) {
    // An overflow one step early or late is one step.
    const double largest = type == DType::kF32 ? std::numeric_limits<float>::max()
                                               : std::numeric_limits<double>::max();
    const bool next =
        std::fabs(a) >= largest && std::fabs(b) >= largest && std::signbit(a) == std::signbit(b);
    return next ? 1 : std::numeric_limits<double>::infinity();
  }
  const double larger = std::fmax(std::fabs(a), std::fabs(b));
  const double unit = type == DType::kF32
                          ? std::fmax(std::ldexp(1.0, std::ilogb(larger) - 23), 0x1p-149)
                          : std::fmax(std::ldexp(1.0, std::ilogb(larger) - 52), 0x1p-1074);
  return std::fabs(a - b) / unit;
}

}  // namespace kiln::test
