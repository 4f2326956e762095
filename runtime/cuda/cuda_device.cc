// The CUDA implementation of Device. See cuda_device.h.
#include "runtime/cuda/cuda_device.h"

#include <algorithm>
#include <map>
#include <vector>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cuda/cuda_context.h"
#include "runtime/cuda/kernel_nodes.h"
#include "runtime/cuda/l2_flush.h"
#include "runtime/cuda/tensor_map.h"

namespace kiln::runtime {
namespace {

struct CudaKernel final : LoadedKernel {
  std::string entry;
  CuContext context = nullptr;
  CuModule module = nullptr;
  CuFunction function = nullptr;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const Driver& driver, CuDevice device, Target target, CudaCompiler& compiler)
      : driver_(driver),
        device_(device),
        target_(std::move(target)),
        compiler_(compiler),
        contexts_(driver, device) {}

  const Target& target() const override { return target_; }
  Result<std::shared_ptr<LoadedKernel>> Load(const KernelSource& source) override;
  bool IsReady(const KernelSource& source) override;
  void Prepare(const KernelSource& source) override { (void)compiler_.Compile(Concrete(source)); }
  Status EncodeTensorMap(const TensorMapSpec& spec, void* address, TensorMapBytes& map) override;
  Status MoveTensorMap(TensorMapBytes& map, void* address) override;
  Status Launch(const LoadedKernel& kernel, const LaunchShape& shape, void** args,
                Stream stream) override;
  bool has_graphs() const override { return !target_.minimal_launch && HasKernelNodes(driver_); }
  Result<NativeNode> AddNode(NativeGraph graph, NativeNode after, const LoadedKernel& kernel,
                             const LaunchShape& shape, void** args) override;
  Result<std::vector<NativeNode>> NodesOf(NativeGraph graph) override;
  bool IsNodeOf(NativeNode node, const LoadedKernel& kernel) override;
  Status SetNode(NativeNode node, const LoadedKernel& kernel, const LaunchShape& shape,
                 void** args) override;
  Result<void*> Allocate(int64_t bytes) override;
  void Free(void* pointer) override;
  Status CopyIn(void* device, const void* host, int64_t bytes) override;
  Status CopyOut(void* host, const void* device, int64_t bytes) override;
  Status CopyWithin(void* to, const void* from, int64_t bytes) override;
  Status Fill(void* device, std::byte value, int64_t bytes) override;
  Status Synchronize(Stream stream) override;
  Result<double> Measure(std::function<Status()> run, int repeats, Stream stream) override;
  bool CanMeasure(Stream stream) override;
  bool IsElsewhere(const void* pointer) const override;

 private:
  struct LoadedKey {
    uint64_t context_id;
    Hash128 source;
    auto operator<=>(const LoadedKey&) const = default;
  };

  KernelSource Concrete(KernelSource source) const {
    if (source.arch == "native") source.arch = target_.arch;
    return source;
  }
  // Runs `body` with a context of this GPU current; `function` names what fails.
  template <class Body>
  Status InContext(const char* function, Body&& body);
  template <class Begin>
  Status ToTheEnd(const char* function, const Begin& begin);
  Status LoadModule(const std::string& cubin, CudaKernel& kernel) const;
  void AllowLargeSharedMemory(const CudaKernel& kernel) const;
  Status LaunchFailure(const CudaKernel& kernel, const LaunchShape& shape, CuResult result) const;

  // Since 12.3 also while a stream is captured.
  bool CanOverlap() const { return driver_.LaunchKernelEx != nullptr && driver_.version >= 12030; }

  const Driver& driver_;
  const CuDevice device_;
  const Target target_;
  CudaCompiler& compiler_;
  ContextPicker contexts_;
  std::mutex mutex_;
  std::map<LoadedKey, std::shared_ptr<CudaKernel>> loaded_;
};

Hash128 SourceHash(const KernelSource& source) {
  return FieldHasher().Add(source.arch).Add(source.entry).Add(source.text).Finish();
}

Result<std::shared_ptr<LoadedKernel>> CudaDevice::Load(const KernelSource& source) {
  ASSIGN_OR_RETURN(CuContext context, contexts_.Pick());
  LoadedKey key = {.context_id = contexts_.IdOf(context), .source = SourceHash(source)};
  {
    std::lock_guard lock(mutex_);
    if (auto found = loaded_.find(key); found != loaded_.end())
      return std::shared_ptr<LoadedKernel>(found->second);
  }
  const KernelSource concrete = Concrete(source);
  ASSIGN_OR_RETURN(CachedKernel cubin, compiler_.Compile(concrete));

  auto kernel = std::make_shared<CudaKernel>();
  kernel->entry = source.entry;
  kernel->context = context;
  // The lock makes one module of a kernel that two threads load at once.
  std::lock_guard lock(mutex_);
  if (auto found = loaded_.find(key); found != loaded_.end())
    return std::shared_ptr<LoadedKernel>(found->second);
  RETURN_IF_ERROR(LoadModule(*cubin.payload, *kernel)
                      .Within(fmt::format("kernel {} ({})", source.entry, concrete.arch)));
  loaded_.emplace(key, kernel);
  return std::shared_ptr<LoadedKernel>(std::move(kernel));
}

bool CudaDevice::IsReady(const KernelSource& source) {
  const Result<CuContext> context = contexts_.Pick();
  if (!context.ok()) return false;
  {
    std::lock_guard lock(mutex_);
    if (loaded_.contains({.context_id = contexts_.IdOf(*context), .source = SourceHash(source)}))
      return true;
  }
  return compiler_.Find(Concrete(source)).has_value();
}

Status CudaDevice::LoadModule(const std::string& cubin, CudaKernel& kernel) const {
  ContextScope scope(driver_, kernel.context);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  std::optional<RelaxedCapture> relaxed;
  if (!target_.minimal_launch) relaxed.emplace(driver_);

  CuResult result = driver_.ModuleLoadData(&kernel.module, cubin.data());
  if (result == kCuErrorNoBinaryForGpu) {
    return Status::Error(Code::kArchMismatch, "{} ({}) does not run this code: {}", target_.name,
                         target_.arch, driver_.Describe(result));
  }
  RETURN_IF_ERROR(driver_.Check(result, "cuModuleLoadData"));
  RETURN_IF_ERROR(driver_.Check(
      driver_.ModuleGetFunction(&kernel.function, kernel.module, kernel.entry.c_str()),
      "cuModuleGetFunction"));
  if (target_.minimal_launch) return {};
  // Under lazy loading the code would reach the GPU at the first launch, which may be inside a
  // capture.
  if (driver_.FuncLoad != nullptr) {
    RETURN_IF_ERROR(driver_.Check(driver_.FuncLoad(kernel.function), "cuFuncLoad"));
  }
  AllowLargeSharedMemory(kernel);
  return {};
}

// Dynamic shared memory above 48 KB has to be allowed for the function, once; launching then needs
// no more than the number. A failure shows itself at the launch that asks for too much.
void CudaDevice::AllowLargeSharedMemory(const CudaKernel& kernel) const {
  int static_bytes = 0;
  if (driver_.FuncGetAttribute(&static_bytes, CuFunctionAttribute::kSharedSizeBytes,
                               kernel.function) != kCuSuccess) {
    return;
  }
  int dynamic_bytes = static_cast<int>(target_.shared_bytes_per_block) - static_bytes;
  driver_.FuncSetAttribute(kernel.function, CuFunctionAttribute::kMaxDynamicSharedSizeBytes,
                           dynamic_bytes);
}

Status CudaDevice::Launch(const LoadedKernel& kernel, const LaunchShape& shape, void** args,
                          Stream stream) {
  if (IsForked()) [[unlikely]]
    return CheckNotForked();
  const auto& k = static_cast<const CudaKernel&>(kernel);
  ContextScope scope(driver_, k.context);
  CuResult result = scope.result();
  if (result == kCuSuccess && shape.may_overlap && CanOverlap()) {
    CuLaunchAttribute overlaps{.id = CuLaunchAttribute::kProgrammaticStreamSerialization,
                               .value = {1}};
    const auto &grid = shape.grid, &block = shape.block;
    const CuLaunchConfig config{.grid = {grid[0], grid[1], grid[2]},
                                .block = {block[0], block[1], block[2]},
                                .dynamic_shared_bytes = shape.dynamic_shared_bytes,
                                .stream = stream,
                                .attributes = &overlaps,
                                .attribute_count = 1};
    result = driver_.LaunchKernelEx(&config, k.function, args, nullptr);
  } else if (result == kCuSuccess) [[likely]] {
    result = driver_.LaunchKernel(k.function, shape.grid[0], shape.grid[1], shape.grid[2],
                                  shape.block[0], shape.block[1], shape.block[2],
                                  shape.dynamic_shared_bytes, stream, args, nullptr);
  }
  if (result == kCuSuccess) [[likely]]
    return {};
  return LaunchFailure(k, shape, result);
}

Status CudaDevice::LaunchFailure(const CudaKernel& kernel, const LaunchShape& shape,
                                 CuResult result) const {
  return Status::Error(Code::kExecutionFailed,
                       "kernel {}, grid {}x{}x{}, block {}x{}x{}, {} bytes of shared memory: {}",
                       kernel.entry, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                       shape.block[1], shape.block[2], shape.dynamic_shared_bytes,
                       driver_.Describe(result));
}

CuKernelNodeParams NodeParams(const CudaKernel& kernel, const LaunchShape& shape, void** args) {
  return {.function = kernel.function,
          .grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
          .block = {shape.block[0], shape.block[1], shape.block[2]},
          .dynamic_shared_bytes = shape.dynamic_shared_bytes,
          .args = args,
          .extra = nullptr,
          .kernel = nullptr,
          .context = nullptr};
}

// NOTE: a launch that may overlap becomes a node like any other: its kernel's wait returns at once.
Result<NativeNode> CudaDevice::AddNode(NativeGraph graph, NativeNode after,
                                       const LoadedKernel& kernel, const LaunchShape& shape,
                                       void** args) {
  RETURN_IF_ERROR(CheckNotForked());
  const auto& k = static_cast<const CudaKernel&>(kernel);
  ContextScope scope(driver_, k.context);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  ASSIGN_OR_RETURN(CuGraphNode node,
                   AddKernelNode(driver_, static_cast<CuGraph>(graph),
                                 static_cast<CuGraphNode>(after), NodeParams(k, shape, args)));
  return NativeNode{node};
}

Result<std::vector<NativeNode>> CudaDevice::NodesOf(NativeGraph graph) {
  RETURN_IF_ERROR(CheckNotForked());
  if (!has_graphs()) {
    return Status::Error(Code::kNotSupported, "graphs need a driver of CUDA 12.0{}",
                         target_.minimal_launch ? " and KILN_LAUNCH=full" : "");
  }
  ASSIGN_OR_RETURN(std::vector<CuGraphNode> chain, NodeChain(driver_, static_cast<CuGraph>(graph)));
  return std::vector<NativeNode>(chain.begin(), chain.end());
}

bool CudaDevice::IsNodeOf(NativeNode node, const LoadedKernel& kernel) {
  return RunsFunction(driver_, static_cast<CuGraphNode>(node),
                      static_cast<const CudaKernel&>(kernel).function);
}

Status CudaDevice::SetNode(NativeNode node, const LoadedKernel& kernel, const LaunchShape& shape,
                           void** args) {
  RETURN_IF_ERROR(CheckNotForked());
  const auto& k = static_cast<const CudaKernel&>(kernel);
  ContextScope scope(driver_, k.context);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  const CuKernelNodeParams params = NodeParams(k, shape, args);
  return driver_.Check(driver_.GraphKernelNodeSetParams(static_cast<CuGraphNode>(node), &params),
                       "cuGraphKernelNodeSetParams");
}

template <class Body>
Status CudaDevice::InContext(const char* function, Body&& body) {
  ASSIGN_OR_RETURN(CuContext context, contexts_.Pick());
  ContextScope scope(driver_, context);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  return driver_.Check(body(), function);
}

Status CudaDevice::EncodeTensorMap(const TensorMapSpec& spec, void* address, TensorMapBytes& map) {
  // The driver wants a context for it, though nothing reaches the GPU.
  ASSIGN_OR_RETURN(CuContext context, contexts_.Pick());
  ContextScope scope(driver_, context);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  return EncodeMap(driver_, spec, address, map);
}

Status CudaDevice::MoveTensorMap(TensorMapBytes& map, void* address) {
  ASSIGN_OR_RETURN(CuContext context, contexts_.Pick());
  ContextScope scope(driver_, context);
  CuResult result = scope.result();
  if (result == kCuSuccess) result = driver_.TensorMapReplaceAddress(&map, address);
  if (result == kCuSuccess) [[likely]]
    return {};
  return Status::Error(Code::kMisalignedPointer,
                       "a tensor map over {}: {}; 16-byte aligned ones do", address,
                       driver_.Describe(result));
}

CuAddress Address(const void* pointer) { return reinterpret_cast<CuAddress>(pointer); }

Result<void*> CudaDevice::Allocate(int64_t bytes) {
  CuAddress address = 0;
  // The driver allocates no empty block.
  size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  RETURN_IF_ERROR(InContext("cuMemAlloc", [&] {
                    return driver_.MemAlloc(&address, size);
                  }).Within(fmt::format("{} bytes on {}", bytes, target_.name)));
  return reinterpret_cast<void*>(address);
}

void CudaDevice::Free(void* pointer) {
  if (pointer == nullptr) return;
  Status status = InContext("cuMemFree", [&] { return driver_.MemFree(Address(pointer)); });
  if (!status.ok()) LOG(kWarn, "{}", status.message());
}

// What only begins it may return at once, or once the bytes are staged; a stream that does not wait
// for the default stream would overtake it.
template <class Begin>
Status CudaDevice::ToTheEnd(const char* function, const Begin& begin) {
  return InContext(function, [&] {
    const CuResult result = begin();
    return result == kCuSuccess ? driver_.StreamSynchronize(nullptr) : result;
  });
}

Status CudaDevice::CopyIn(void* device, const void* host, int64_t bytes) {
  if (bytes == 0) return {};
  return ToTheEnd("cuMemcpyHtoD", [&] {
    return driver_.MemcpyHtoD(Address(device), host, static_cast<size_t>(bytes));
  });
}

Status CudaDevice::CopyWithin(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return {};
  return ToTheEnd("cuMemcpyDtoD", [&] {
    return driver_.MemcpyDtoD(Address(to), Address(from), static_cast<size_t>(bytes));
  });
}

Status CudaDevice::Fill(void* device, std::byte value, int64_t bytes) {
  if (bytes == 0) return {};
  return ToTheEnd("cuMemsetD8", [&] {
    return driver_.MemsetD8(Address(device), static_cast<unsigned char>(value),
                            static_cast<size_t>(bytes));
  });
}

Status CudaDevice::CopyOut(void* host, const void* device, int64_t bytes) {
  if (bytes == 0) return {};
  return InContext("cuMemcpyDtoH", [&] {
    return driver_.MemcpyDtoH(host, Address(device), static_cast<size_t>(bytes));
  });
}

Status CudaDevice::Synchronize(Stream stream) {
  return InContext("cuStreamSynchronize", [&] { return driver_.StreamSynchronize(stream); });
}

// Host memory, and what the driver does not know, is nobody's.
bool CudaDevice::IsElsewhere(const void* pointer) const {
  constexpr int kDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  int ordinal = 0;
  CuDevice device = 0;
  return !IsForked() &&
         driver_.PointerGetAttribute(&ordinal, kDeviceOrdinal,
                                     reinterpret_cast<CuAddress>(pointer)) == kCuSuccess &&
         ordinal >= 0 && driver_.DeviceGet(&device, ordinal) == kCuSuccess && device != device_;
}

// The default stream answers with an error while a stream that it waits for is being captured.
bool CudaDevice::CanMeasure(Stream stream) {
  constexpr int kNotCapturing = 0;
  const Status asked = InContext("cuStreamIsCapturing", [&] {
    for (const Stream s : {stream, Stream{nullptr}}) {
      int capture = kNotCapturing;
      const CuResult result = driver_.StreamIsCapturing(s, &capture);
      if (result != kCuSuccess) return result;
      if (capture != kNotCapturing) return kCuErrorStreamCaptureUnsupported;
    }
    return kCuSuccess;
  });
  return asked.ok();
}

// Two events that are destroyed with the scope.
struct EventPair {
  explicit EventPair(const Driver& d) : driver(d) {
    if (driver.EventCreate(&start, 0) == kCuSuccess) driver.EventCreate(&end, 0);
  }
  ~EventPair() {
    if (start != nullptr) driver.EventDestroy(start);
    if (end != nullptr) driver.EventDestroy(end);
  }
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;

  const Driver& driver;
  CuEvent start = nullptr, end = nullptr;
};

Result<double> CudaDevice::Measure(std::function<Status()> run, int repeats, Stream stream) {
  if (repeats < 1) return Status::Error(Code::kInvalidValue, "{} repeats measure nothing", repeats);
  ASSIGN_OR_RETURN(CuContext context, contexts_.Pick());
  ContextScope scope(driver_, context);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  EventPair events(driver_);
  if (events.end == nullptr) return Status::Error(Code::kCudaDriver, "cuEventCreate failed");
  ASSIGN_OR_RETURN(const std::unique_ptr<L2Flush> flush, L2Flush::Make(*this));
  RETURN_IF_ERROR(run());  // outside the clock: first use
  RETURN_IF_ERROR(driver_.Check(driver_.StreamSynchronize(stream), "cuStreamSynchronize"));
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    // The flush also keeps the GPU busy while the host prepares the run, so that host time is not
    // measured.
    RETURN_IF_ERROR(flush->Run(stream));
    CuResult result = driver_.EventRecord(events.start, stream);
    RETURN_IF_ERROR(driver_.Check(result, "cuEventRecord"));
    RETURN_IF_ERROR(run());
    float milliseconds = 0;
    result = driver_.EventRecord(events.end, stream);
    if (result == kCuSuccess) result = driver_.EventSynchronize(events.end);
    if (result == kCuSuccess)
      result = driver_.EventElapsedTime(&milliseconds, events.start, events.end);
    RETURN_IF_ERROR(driver_.Check(result, "measuring by events"));
    seconds.push_back(milliseconds * 1e-3);
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

// 9.0 is "sm_90a": our kernels for these use instructions that only the exact architecture has.
std::string ArchName(int sm_version) {
  return fmt::format("sm_{}{}", sm_version, sm_version >= 90 ? "a" : "");
}

}  // namespace

Result<Target> CudaTarget(const Driver& driver, int ordinal) {
  CuDevice device = 0;
  RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&device, ordinal), "cuDeviceGet"));
  CuResult failure = kCuSuccess;
  auto ask = [&](int attribute) {
    int value = 0;
    if (CuResult r = driver.DeviceGetAttribute(&value, attribute, device); r != kCuSuccess)
      failure = r;
    return value;
  };
  char name[256] = "";
  failure = driver.DeviceGetName(name, sizeof name, device);

  Target target;
  target.kind = TargetKind::kCuda;
  target.name = name;
  target.sm_version = ask(CuDeviceAttribute::kComputeCapabilityMajor) * 10 +
                      ask(CuDeviceAttribute::kComputeCapabilityMinor);
  target.arch = ArchName(target.sm_version);
  target.multiprocessors = ask(CuDeviceAttribute::kMultiprocessorCount);
  target.max_threads_per_block = ask(CuDeviceAttribute::kMaxThreadsPerBlock);
  target.shared_bytes_per_block = ask(CuDeviceAttribute::kMaxSharedMemoryPerBlockOptin);
  target.registers_per_multiprocessor = ask(CuDeviceAttribute::kMaxRegistersPerMultiprocessor);
  target.l2_bytes = ask(CuDeviceAttribute::kL2CacheSize);
  target.minimal_launch = GetEnv(Env::kLaunch) == "minimal";
  RETURN_IF_ERROR(driver.Check(failure, "cuDeviceGetAttribute"));
  return target;
}

Result<int> CurrentCudaOrdinal(const Driver& driver) {
  CuContext context = nullptr;
  RETURN_IF_ERROR(driver.Check(driver.CtxGetCurrent(&context), "cuCtxGetCurrent"));
  if (context == nullptr) return 0;
  CuDevice current = 0;
  RETURN_IF_ERROR(driver.Check(driver.CtxGetDevice(&current), "cuCtxGetDevice"));
  int count = 0;
  RETURN_IF_ERROR(driver.Check(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CuDevice device = -1;
    if (driver.DeviceGet(&device, ordinal) == kCuSuccess && device == current) return ordinal;
  }
  return Status::Error(Code::kCudaDriver,
                       "the current context's device {} is none of the {} visible GPUs", current,
                       count);
}

Result<std::unique_ptr<Device>> OpenCudaDevice(const Driver& driver, int ordinal,
                                               CudaCompiler& compiler) {
  ASSIGN_OR_RETURN(Target target, CudaTarget(driver, ordinal));
  CuDevice device = 0;
  RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&device, ordinal), "cuDeviceGet"));
  return std::unique_ptr<Device>(new CudaDevice(driver, device, std::move(target), compiler));
}

Result<std::unique_ptr<Device>> OpenCudaDevice() {
  ASSIGN_OR_RETURN(const Driver* driver, ProcessDriver());
  ASSIGN_OR_RETURN(int ordinal, CurrentCudaOrdinal(*driver));
  return OpenCudaDevice(*driver, ordinal, ProcessCudaCompiler());
}

}  // namespace kiln::runtime
