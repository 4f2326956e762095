// libcuda of the emulated GPU: a device without hardware that runs what it is given, so that every
// kernel can be run, not only compiled, on machines without a GPU. Modules are PTX, which
// libnvrtc_emulated.so hands out as cubins; a launch interprets them, one at a time, to its end.
// All else is the stand-in's (tests/support/cuda_standin), some of whose functions have their weak
// definitions replaced here.
//
//   KILN_DEVICE=cuda KILN_LIBCUDA=…/libcuda.so.1 KILN_NVRTC=…/libnvrtc_emulated.so
//   KILN_CACHE_DIR=… (of its own: "cubins" are PTX here)  LD_LIBRARY_PATH=… for tests that open
//   libcuda
//
// EMULATED_GPU_ARCH       sm_90 (default) or sm_80
// EMULATED_GPU_SMS        multiprocessors; default those of an H200 or an A100
// EMULATED_GPU_STEPS      instructions of warps after which a launch has failed; default 10^9
// EMULATED_GPU_VERBOSE    1: a line for each launch, with its instructions and seconds
//
// A kernel that reads what is not allocated, comes to an instruction that is not known, or whose
// threads wait for each other, fails with a sentence on stderr and the error code that a GPU's
// driver has for it.
#include "runtime/cuda/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "tests/support/cuda_standin/h200.h"
#include "tests/support/emulated_gpu/machine.h"
#include "tests/support/emulated_gpu/tensor_map.h"

using namespace kiln::runtime;
using namespace kiln::emulated;

extern "C" CuResult cuCtxGetId(CuContext context, unsigned long long* id);  // the stand-in's

namespace {

struct LoadedModule;
struct LoadedFunction {
  LoadedModule* module;
  const Function* function;
  std::string unknown;  // why it cannot be launched; empty: it can
};
struct LoadedModule {
  std::unique_ptr<Module> module;
  unsigned long long context;
  std::map<std::string, LoadedFunction> functions;
};

std::mutex launch_mutex;
uint64_t last_launch = 0;
Memory& TheMemory() {
  static auto* const memory = new Memory;
  return *memory;
}

int64_t Setting(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

bool IsA100() {
  const char* const arch = std::getenv("EMULATED_GPU_ARCH");
  return arch != nullptr && std::string_view(arch).starts_with("sm_80");
}

int AttributeOf(int attribute) {
  switch (attribute) {
    case CuDeviceAttribute::kMultiprocessorCount:
      return static_cast<int>(Setting("EMULATED_GPU_SMS", IsA100() ? 108 : 132));
    case CuDeviceAttribute::kComputeCapabilityMajor:
      return IsA100() ? 8 : 9;
    case CuDeviceAttribute::kMaxSharedMemoryPerBlockOptin:
      return IsA100() ? 166912 : AttributeOfH200(attribute);
    case CuDeviceAttribute::kL2CacheSize:
      return IsA100() ? 41943040 : AttributeOfH200(attribute);
  }
  return AttributeOfH200(attribute);
}

CuResult Complain(int code, const std::string& text) {
  std::fprintf(stderr, "the emulated GPU: %s\n", text.c_str());
  return code;
}

unsigned long long CurrentContext() {
  unsigned long long id = 0;
  cuCtxGetId(nullptr, &id);
  return id;
}

CuResult LaunchOn(const LoadedFunction& f, const unsigned (&grid)[3], const unsigned (&block)[3],
                  const unsigned (&cluster)[3], unsigned dynamic_shared_bytes, void** args) {
  const Function& function = *f.function;
  if (!f.unknown.empty())
    return Complain(kIllegalInstruction, fmt::format("kernel {}: {}", function.name, f.unknown));
  Launch launch;
  launch.module = f.module->module.get();
  launch.function = &function;
  launch.dynamic_shared_bytes = dynamic_shared_bytes;
  uint64_t threads = 1;
  for (int a = 0; a < 3; ++a) {
    launch.grid[a] = grid[a];
    launch.block[a] = block[a];
    launch.cluster[a] = function.cluster[a] > 0 ? static_cast<unsigned>(function.cluster[a])
                                                : std::max(cluster[a], 1u);
    threads *= block[a];
    if (grid[a] == 0 || block[a] == 0) return kInvalidValue;
  }
  const auto most_shared = AttributeOf(CuDeviceAttribute::kMaxSharedMemoryPerBlockOptin);
  if (threads > 1024 || function.dynamic_shared_at + dynamic_shared_bytes > most_shared ||
      (function.text->max_threads > 0 &&
       threads > static_cast<uint64_t>(function.text->max_threads)))
    return Complain(
        kInvalidValue,
        fmt::format("kernel {}: blocks of {} threads and {} bytes of shared memory", function.name,
                    threads, function.dynamic_shared_at + dynamic_shared_bytes));
  launch.param_bytes = static_cast<size_t>(function.param_bytes);
  launch.param_pieces.resize(launch.param_bytes / 64 + 1);
  // Tensor maps among them are aligned to 64 bytes.
  for (size_t p = 0; p < function.params.size(); ++p)
    std::memcpy(launch.params() + function.params[p].offset, args[p],
                static_cast<size_t>(function.params[p].bytes));
  launch.most_steps = Setting("EMULATED_GPU_STEPS", 1'000'000'000);
  launch.most_blocks = AttributeOf(CuDeviceAttribute::kMultiprocessorCount) * 2;
  launch.lag = static_cast<int>(Setting("EMULATED_GPU_LAG", 0));
  launch.memory = &TheMemory();
  const std::lock_guard lock(launch_mutex);
  launch.number = ++last_launch;
  const auto begin = std::chrono::steady_clock::now();
  CuResult result = kCuSuccess;
  try {
    launch.Run();
  } catch (const Fault& fault) {
    result = Complain(fault.code, fault.text);
  }
  if (Setting("EMULATED_GPU_VERBOSE", 0) != 0)
    std::fprintf(stderr,
                 "the emulated GPU: %s, %u x %u x %u blocks of %d: %lld instructions in %.3f s\n",
                 function.name.c_str(), grid[0], grid[1], grid[2], static_cast<int>(threads),
                 static_cast<long long>(launch.steps),
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return result;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

CuResult cuDeviceGetName(char* name, int size, CuDevice) {
  std::strncpy(name, IsA100() ? "NVIDIA A100" : "NVIDIA H200", static_cast<size_t>(size));
  return kCuSuccess;
}
CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice) {
  return *value = AttributeOf(attribute), kCuSuccess;
}
CuResult cuGetErrorName(CuResult result, const char** text) {
  switch (result) {
    case kInvalidValue:
      return *text = "CUDA_ERROR_INVALID_VALUE", kCuSuccess;
    case kInvalidPtx:
      return *text = "CUDA_ERROR_INVALID_PTX", kCuSuccess;
    case kIllegalAddress:
      return *text = "CUDA_ERROR_ILLEGAL_ADDRESS", kCuSuccess;
    case kLaunchTimeout:
      return *text = "CUDA_ERROR_LAUNCH_TIMEOUT", kCuSuccess;
    case kIllegalInstruction:
      return *text = "CUDA_ERROR_ILLEGAL_INSTRUCTION", kCuSuccess;
    case kMisalignedAddress:
      return *text = "CUDA_ERROR_MISALIGNED_ADDRESS", kCuSuccess;
    case kLaunchFailed:
      return *text = "CUDA_ERROR_LAUNCH_FAILED", kCuSuccess;
  }
  return *text = "an error of the emulated GPU", kCuSuccess;
}
CuResult cuGetErrorString(CuResult result, const char** text) {
  return cuGetErrorName(result, text);
}

CuResult cuModuleLoadData(CuModule* out, const void* image) {
  const unsigned long long context = CurrentContext();
  if (context == 0) return kCuErrorContextIsDestroyed;
  std::string error;
  auto module = LoadModule(static_cast<const char*>(image), error);
  if (module == nullptr) return Complain(kInvalidPtx, error);
  auto* const loaded =
      new LoadedModule{.module = std::move(module), .context = context, .functions = {}};
  for (auto& [name, function] : loaded->module->functions) {
    const auto unknown = loaded->module->undecoded.find(name);
    loaded->functions[name] = {
        .module = loaded,
        .function = &function,
        .unknown = unknown == loaded->module->undecoded.end() ? "" : unknown->second};
  }
  for (const PtxVariable& global : loaded->module->text.globals)
    TheMemory().Add(loaded->module->globals[global.name].get(), static_cast<size_t>(global.bytes));
  return *out = reinterpret_cast<CuModule>(loaded), kCuSuccess;
}
CuResult cuModuleUnload(CuModule module) {
  auto* const loaded = reinterpret_cast<LoadedModule*>(module);
  const std::lock_guard lock(launch_mutex);
  for (const auto& [name, memory] : loaded->module->globals) TheMemory().Remove(memory.get());
  return delete loaded, kCuSuccess;
}
CuResult cuModuleGetFunction(CuFunction* out, CuModule module, const char* name) {
  auto& functions = reinterpret_cast<LoadedModule*>(module)->functions;
  const auto known = functions.find(name);
  if (known == functions.end()) return 500;  // CUDA_ERROR_NOT_FOUND
  return *out = reinterpret_cast<CuFunction>(&known->second), kCuSuccess;
}
CuResult cuFuncGetAttribute(int* value, int attribute, CuFunction function) {
  const auto* const loaded = reinterpret_cast<const LoadedFunction*>(function);
  *value = attribute == CuFunctionAttribute::kSharedSizeBytes
               ? static_cast<int>(loaded->function->shared_bytes)
               : 0;
  return kCuSuccess;
}

CuResult cuLaunchKernel(CuFunction function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned dynamic_shared_bytes, CuStream,
                        void** args, void**) {
  const auto* const loaded = reinterpret_cast<const LoadedFunction*>(function);
  if (loaded->module->context != CurrentContext()) return kCuErrorInvalidHandle;
  return LaunchOn(*loaded, {x, y, z}, {block_x, block_y, block_z}, {1, 1, 1}, dynamic_shared_bytes,
                  args);
}
CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunction function, void** args, void**) {
  constexpr int kClusterDimension = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
  const auto* const loaded = reinterpret_cast<const LoadedFunction*>(function);
  if (loaded->module->context != CurrentContext()) return kCuErrorInvalidHandle;
  unsigned cluster[3] = {1, 1, 1};
  for (unsigned a = 0; a < config->attribute_count; ++a) {
    const CuLaunchAttribute& attribute = config->attributes[a];
    if (attribute.id == kClusterDimension) std::copy_n(attribute.value, 3, cluster);
    const uint64_t blocks = uint64_t{config->grid[0]} * config->grid[1] * config->grid[2];
    const auto most = static_cast<uint64_t>(AttributeOf(CuDeviceAttribute::kMultiprocessorCount));
    if (attribute.id == CuLaunchAttribute::kCooperative && attribute.value[0] != 0 && blocks > most)
      return Complain(kCooperativeLaunchTooLarge,
                      fmt::format("kernel {}: {} blocks are to run together, {} do",
                                  loaded->function->name, blocks, most));
  }
  return LaunchOn(*loaded, config->grid, config->block, cluster, config->dynamic_shared_bytes,
                  args);
}

// ---- memory

CuResult cuMemAlloc_v2(CuAddress* address, size_t bytes) {
  const size_t rounded = (bytes + 255) / 256 * 256;
  void* const memory = std::aligned_alloc(256, rounded);
  if (memory == nullptr) return kCuErrorOutOfMemory;
  std::memset(memory, 0xff, rounded);
  TheMemory().Add(memory, bytes);
  return *address = reinterpret_cast<CuAddress>(memory), kCuSuccess;
}
CuResult cuMemFree_v2(CuAddress address) {
  void* const memory = reinterpret_cast<void*>(address);
  if (!TheMemory().Remove(memory))
    return Complain(kInvalidValue, fmt::format("{:#x} is freed and not allocated", address));
  return std::free(memory), kCuSuccess;
}
// Launches are over when they return, so that the order of a stream is that of the calls.
CuResult cuMemAllocAsync(CuAddress* address, size_t bytes, CuStream) {
  return cuMemAlloc_v2(address, bytes);
}
CuResult cuMemFreeAsync(CuAddress address, CuStream) { return cuMemFree_v2(address); }
CuResult cuMemAllocHost_v2(void** memory, size_t bytes) {
  CuAddress address = 0;
  const CuResult result = cuMemAlloc_v2(&address, bytes);
  return *memory = reinterpret_cast<void*>(address), result;
}
CuResult cuMemFreeHost(void* memory) { return cuMemFree_v2(reinterpret_cast<CuAddress>(memory)); }
CuResult cuMemcpyHtoD_v2(CuAddress to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), kCuSuccess;
}
CuResult cuMemcpyDtoH_v2(void* to, CuAddress from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), kCuSuccess;
}
CuResult cuMemcpyDtoD_v2(CuAddress to, CuAddress from, size_t bytes) {
  return std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes),
         kCuSuccess;
}
CuResult cuMemcpyDtoDAsync_v2(CuAddress to, CuAddress from, size_t bytes, CuStream) {
  return cuMemcpyDtoD_v2(to, from, bytes);
}
CuResult cuMemsetD8_v2(CuAddress to, unsigned char value, size_t bytes) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), kCuSuccess;
}
CuResult cuMemsetD8Async(CuAddress to, unsigned char value, size_t bytes, CuStream) {
  return cuMemsetD8_v2(to, value, bytes);
}

// ---- order: everything is done when it is asked for

CuResult cuCtxSynchronize() { return kCuSuccess; }
CuResult cuStreamCreate(CuStream* stream, unsigned) {
  static int any;
  return *stream = &any, kCuSuccess;
}
CuResult cuStreamDestroy_v2(CuStream) { return kCuSuccess; }
CuResult cuStreamSynchronize(CuStream) { return kCuSuccess; }

// ---- tensor maps, refused where a driver refuses them

namespace {
constexpr unsigned kMostRank = 5;

CuResult EncodeCommon(TensorMap& map, int type, unsigned rank, void* address, const uint64_t* dims,
                      const uint64_t* strides, const uint32_t* element_strides, int swizzle,
                      int fill) {
  map = {};
  if (type < 0 || type > 12 || rank < 1 || rank > kMostRank || swizzle < 0 || swizzle > 3)
    return kInvalidValue;
  if (reinterpret_cast<uint64_t>(address) % 16 != 0) return kInvalidValue;
  map.magic = TensorMap::kMagic;
  map.address = reinterpret_cast<uint64_t>(address);
  map.type = static_cast<uint8_t>(type);
  map.rank = static_cast<uint8_t>(rank);
  map.swizzle = static_cast<uint8_t>(swizzle);
  map.fills_nan = static_cast<uint8_t>(fill);
  for (unsigned k = 0; k < rank; ++k) {
    if (dims[k] == 0 || dims[k] > uint64_t{1} << 32 || element_strides[k] < 1 ||
        element_strides[k] > 8)
      return kInvalidValue;
    map.dims[k] = static_cast<uint32_t>(std::min<uint64_t>(dims[k], UINT32_MAX));
    map.element_strides[k] = static_cast<uint8_t>(element_strides[k]);
    if (k == 0) continue;
    if (strides[k - 1] % 16 != 0 || strides[k - 1] >= uint64_t{1} << 40) return kInvalidValue;
    map.strides[k - 1] = strides[k - 1];
  }
  return kCuSuccess;
}
// A row of a box has whole chunks of 16 bytes, and is not wider than its swizzle.
bool FitsRow(const TensorMap& map) {
  const int64_t bytes = RowElements(map) * map.ElementBytes();
  return bytes % 16 == 0 && (map.swizzle == 0 || bytes <= 16 << map.swizzle);
}
}  // namespace

CuResult cuTensorMapEncodeTiled(void* out, int type, unsigned rank, void* address,
                                const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                                const uint32_t* element_strides, int interleave, int swizzle, int,
                                int fill) {
  TensorMap map;
  const CuResult result =
      EncodeCommon(map, type, rank, address, dims, strides, element_strides, swizzle, fill);
  if (result != kCuSuccess || interleave != 0) return kInvalidValue;
  for (unsigned k = 0; k < rank; ++k) {
    if (box[k] < 1 || box[k] > 256) return kInvalidValue;
    map.box[k] = static_cast<uint16_t>(box[k]);
  }
  if (!FitsRow(map)) return kInvalidValue;
  return std::memcpy(out, &map, sizeof map), kCuSuccess;
}
CuResult cuTensorMapEncodeIm2col(void* out, int type, unsigned rank, void* address,
                                 const uint64_t* dims, const uint64_t* strides, const int* lower,
                                 const int* upper, unsigned channels, unsigned pixels,
                                 const uint32_t* element_strides, int interleave, int swizzle, int,
                                 int fill) {
  TensorMap map;
  const CuResult result =
      EncodeCommon(map, type, rank, address, dims, strides, element_strides, swizzle, fill);
  if (result != kCuSuccess || interleave != 0 || rank < 3) return kInvalidValue;
  const int bits = rank == 3 ? 16 : rank == 4 ? 8 : 5;
  for (unsigned k = 0; k < rank - 2; ++k) {
    const int most = (1 << (bits - 1)) - 1;
    if (lower[k] < -most - 1 || lower[k] > most || upper[k] < -most - 1 || upper[k] > most)
      return kInvalidValue;
    map.lower[k] = static_cast<int16_t>(lower[k]);
    map.upper[k] = static_cast<int16_t>(upper[k]);
  }
  if (channels < 1 || channels > 256 || pixels < 1 || pixels > 1024) return kInvalidValue;
  map.is_im2col = 1;
  map.channels = static_cast<uint16_t>(channels);
  map.pixels = static_cast<uint16_t>(pixels);
  if (!FitsRow(map)) return kInvalidValue;
  return std::memcpy(out, &map, sizeof map), kCuSuccess;
}
CuResult cuTensorMapReplaceAddress(void* out, void* address) {
  if (reinterpret_cast<uint64_t>(address) % 16 != 0) return kInvalidValue;
  const auto moved = reinterpret_cast<uint64_t>(address);
  std::memcpy(static_cast<uint8_t*>(out) + offsetof(TensorMap, address), &moved, sizeof moved);
  return kCuSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
