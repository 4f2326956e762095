// The CUDA implementation of Device. See cuda_device.h.
#include "runtime/cuda/cuda_device.h"

#include <algorithm>
#include <map>
#include <vector>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cuda/cuda_context.h"
#include "runtime/cuda/cuda_kernel.h"
#include "runtime/cuda/fault_words.h"
#include "runtime/cuda/kernel_nodes.h"
#include "runtime/cuda/l2_flush.h"
#include "runtime/cuda/tensor_map.h"

namespace kiln::runtime {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(const Driver& driver, CuDevice device, Target target, CudaCompiler& compiler)
      : driver_(driver),
        device_(device),
        target_(std::move(target)),
        compiler_(compiler),
        contexts_(driver, device),
        faults_(driver, contexts_) {}

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
  Result<void*> AllocateOn(int64_t bytes, Stream stream) override;
  void FreeOn(void* pointer, Stream stream) override;
  Result<void*> Allocate(int64_t bytes) override;
  void Free(void* pointer) override;
  Status CopyIn(void* device, const void* host, int64_t bytes) override;
  Status CopyOut(void* host, const void* device, int64_t bytes) override;
  Status CopyWithin(void* to, const void* from, int64_t bytes) override;
  Status Fill(void* device, std::byte value, int64_t bytes) override;
  Status Synchronize(Stream stream) override;
  Result<double> Measure(std::function<Status()> run, int repeats, Stream stream) override;
  bool CanMeasure(Stream stream) override;
  Owner OwnerOf(const void* pointer) const override;
  Result<int32_t*> FaultWord() override;
  int32_t TakeFault() override;

 private:
  KernelSource Concrete(KernelSource source) const {
    if (source.arch == "native") source.arch = target_.arch;
    return source;
  }
  // Runs `body` with a context of this GPU current; `function` names what fails.
  template <class Body>
  Status InContext(const char* function, Body&& body);
  template <class Begin>
  Status ToTheEnd(const char* function, const Begin& begin);
  Result<std::shared_ptr<CudaKernel>> KernelOf(const KernelSource& source);
  CuResult LaunchHere(CuFunction function, const LaunchShape& shape, void** args,
                      Stream stream) const;
  CuResult LaunchIn(const FunctionInContext& function, const LaunchShape& shape, void** args,
                    Stream stream) const;
  Status LaunchElsewhere(const CudaKernel& kernel, const LaunchShape& shape, void** args,
                         Stream stream);
  CuResult LaunchAnew(const CudaKernel& kernel, const ContextRef& context, const LaunchShape& shape,
                      void** args, Stream stream) const;
  Status LaunchFailure(const CudaKernel& kernel, const LaunchShape& shape, CuResult result) const;

  // Since 12.3 also while a stream is captured.
  bool CanOverlap() const { return driver_.LaunchKernelEx != nullptr && driver_.version >= 12030; }

  const Driver& driver_;
  const CuDevice device_;
  const Target target_;
  CudaCompiler& compiler_;
  ContextPicker contexts_;
  std::mutex mutex_;
  std::map<Hash128, std::shared_ptr<CudaKernel>> kernels_;  // by SourceHash
  FaultWords faults_;
};

Hash128 SourceHash(const KernelSource& source) {
  return FieldHasher().Add(source.arch).Add(source.entry).Add(source.text).Finish();
}

Result<std::shared_ptr<CudaKernel>> CudaDevice::KernelOf(const KernelSource& source) {
  const Hash128 key = SourceHash(source);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kernels_.find(key); found != kernels_.end()) return found->second;
  }
  const KernelSource concrete = Concrete(source);
  ASSIGN_OR_RETURN(const CachedKernel cubin, compiler_.Compile(concrete));
  const std::lock_guard lock(mutex_);
  std::shared_ptr<CudaKernel>& kernel = kernels_[key];
  if (kernel == nullptr)
    kernel =
        std::make_shared<CudaKernel>(driver_, target_, source.entry, concrete.arch, cubin.payload);
  return kernel;
}

Result<std::shared_ptr<LoadedKernel>> CudaDevice::Load(const KernelSource& source) {
  RETURN_IF_ERROR(contexts_.Pick().status());  // not after half a second of compiling
  ASSIGN_OR_RETURN(std::shared_ptr<CudaKernel> kernel, KernelOf(source));
  ASSIGN_OR_RETURN(const ContextRef context, contexts_.Pick());
  RETURN_IF_ERROR(kernel->In(context).status());
  return std::shared_ptr<LoadedKernel>(std::move(kernel));
}

bool CudaDevice::IsReady(const KernelSource& source) {
  if (!contexts_.Pick().ok()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (kernels_.contains(SourceHash(source))) return true;
  }
  return compiler_.Find(Concrete(source)).has_value();
}

// Results of a launch in a context that the function or the stream is not of.
bool IsStale(CuResult result) {
  return result == kCuErrorInvalidHandle || result == kCuErrorInvalidContext ||
         result == kCuErrorContextIsDestroyed;
}

Status CudaDevice::Launch(const LoadedKernel& kernel, const LaunchShape& shape, void** args,
                          Stream stream) {
  if (IsForked()) [[unlikely]]
    return CheckNotForked();
  const auto& k = static_cast<const CudaKernel&>(kernel);
  if (const CuFunction function = k.LastIn(contexts_.CurrentId())) [[likely]] {
    const CuResult result = LaunchHere(function, shape, args, stream);
    if (result == kCuSuccess) [[likely]]
      return {};
    if (!IsStale(result)) return LaunchFailure(k, shape, result);
  }
  return LaunchElsewhere(k, shape, args, stream);
}

CuResult CudaDevice::LaunchHere(CuFunction function, const LaunchShape& shape, void** args,
                                Stream stream) const {
  const auto &grid = shape.grid, &block = shape.block;
  if (shape.cooperative && driver_.LaunchKernelEx == nullptr) return kCuErrorNotSupported;
  if (shape.cooperative || (shape.may_overlap && CanOverlap())) {
    CuLaunchAttribute attribute{.id = shape.cooperative
                                          ? CuLaunchAttribute::kCooperative
                                          : CuLaunchAttribute::kProgrammaticStreamSerialization,
                                .value = {1}};
    const CuLaunchConfig config{.grid = {grid[0], grid[1], grid[2]},
                                .block = {block[0], block[1], block[2]},
                                .dynamic_shared_bytes = shape.dynamic_shared_bytes,
                                .stream = stream,
                                .attributes = &attribute,
                                .attribute_count = 1};
    return driver_.LaunchKernelEx(&config, function, args, nullptr);
  }
  return driver_.LaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                              shape.dynamic_shared_bytes, stream, args, nullptr);
}

CuResult CudaDevice::LaunchIn(const FunctionInContext& function, const LaunchShape& shape,
                              void** args, Stream stream) const {
  const ContextScope scope(driver_, function.context.handle);
  if (scope.result() != kCuSuccess) return scope.result();
  return LaunchHere(function.function, shape, args, stream);
}

// The kernel's last launch was in another context, or the current one is not the stream's. Where
// the thread has a context of this GPU it counts, and then the stream's own.
Status CudaDevice::LaunchElsewhere(const CudaKernel& kernel, const LaunchShape& shape, void** args,
                                   Stream stream) {
  ASSIGN_OR_RETURN(ContextRef context, contexts_.Pick(stream));
  ASSIGN_OR_RETURN(const FunctionInContext here, kernel.In(context));
  CuResult result = LaunchIn(here, shape, args, stream);
  if (const auto own = IsStale(result) ? contexts_.Of(stream) : std::nullopt;
      own.has_value() && *own != context) {
    context = *own;
    ASSIGN_OR_RETURN(const FunctionInContext there, kernel.In(context));
    result = LaunchIn(there, shape, args, stream);
  }
  if (IsStale(result) && !contexts_.has_ids())
    result = LaunchAnew(kernel, context, shape, args, stream);
  if (result == kCuSuccess) return {};
  return LaunchFailure(kernel, shape, result);
}

// For drivers that do not tell whether the context is the one in which the kernel was loaded. Where
// loading it anew does not help (a stream of another context), nothing has changed.
CuResult CudaDevice::LaunchAnew(const CudaKernel& kernel, const ContextRef& context,
                                const LaunchShape& shape, void** args, Stream stream) const {
  const Result<FunctionInContext> anew = kernel.LoadAnew(context);
  if (!anew.ok()) return kCuErrorInvalidHandle;
  const CuResult result = LaunchIn(*anew, shape, args, stream);
  if (result == kCuSuccess) {
    kernel.Replace(*anew);
  } else if (!target_.minimal_launch) {
    const ContextScope scope(driver_, context.handle);
    driver_.ModuleUnload(anew->module);
  }
  return result;
}

Status CudaDevice::LaunchFailure(const CudaKernel& kernel, const LaunchShape& shape,
                                 CuResult result) const {
  return Status::Error(Code::kExecutionFailed,
                       "kernel {}, grid {}x{}x{}, block {}x{}x{}, {} bytes of shared memory: {}",
                       kernel.entry(), shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                       shape.block[1], shape.block[2], shape.dynamic_shared_bytes,
                       driver_.Describe(result));
}

CuKernelNodeParams NodeParams(CuFunction function, const LaunchShape& shape, void** args) {
  return {.function = function,
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
  ASSIGN_OR_RETURN(const ContextRef context, contexts_.Pick());
  ASSIGN_OR_RETURN(const FunctionInContext here,
                   static_cast<const CudaKernel&>(kernel).In(context));
  const ContextScope scope(driver_, context.handle);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  const CuKernelNodeParams params = NodeParams(here.function, shape, args);
  ASSIGN_OR_RETURN(CuGraphNode node, AddKernelNode(driver_, static_cast<CuGraph>(graph),
                                                   static_cast<CuGraphNode>(after), params));
  if (shape.cooperative) RETURN_IF_ERROR(MakeCooperative(driver_, node));
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

// In whichever context the node was made.
bool CudaDevice::IsNodeOf(NativeNode node, const LoadedKernel& kernel) {
  const CuFunction function = FunctionOf(driver_, static_cast<CuGraphNode>(node));
  return static_cast<const CudaKernel&>(kernel).Find(function).has_value();
}

Status CudaDevice::SetNode(NativeNode node, const LoadedKernel& kernel, const LaunchShape& shape,
                           void** args) {
  RETURN_IF_ERROR(CheckNotForked());
  const CuFunction function = FunctionOf(driver_, static_cast<CuGraphNode>(node));
  const auto there = static_cast<const CudaKernel&>(kernel).Find(function);
  if (!there.has_value() || !contexts_.IsAlive(there->context))
    return Status::Text(Code::kCudaGraphMismatch,
                        "the context in which the CUDA graph was populated is gone");
  const ContextScope scope(driver_, there->context.handle);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  const CuKernelNodeParams params = NodeParams(function, shape, args);
  return driver_.Check(driver_.GraphKernelNodeSetParams(static_cast<CuGraphNode>(node), &params),
                       "cuGraphKernelNodeSetParams");
}

template <class Body>
Status CudaDevice::InContext(const char* function, Body&& body) {
  ASSIGN_OR_RETURN(const ContextRef context, contexts_.Pick());
  const ContextScope scope(driver_, context.handle);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  return driver_.Check(body(), function);
}

Status CudaDevice::EncodeTensorMap(const TensorMapSpec& spec, void* address, TensorMapBytes& map) {
  // The driver wants a context for it, though nothing reaches the GPU.
  ASSIGN_OR_RETURN(const ContextRef context, contexts_.Pick());
  const ContextScope scope(driver_, context.handle);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  return EncodeMap(driver_, spec, address, map);
}

Status CudaDevice::MoveTensorMap(TensorMapBytes& map, void* address) {
  // The usual case, without a scope: this is on the way of each launch.
  CuResult result = contexts_.IsPickedCurrent() ? driver_.TensorMapReplaceAddress(&map, address)
                                                : kCuErrorInvalidContext;
  if (result == kCuErrorInvalidContext) {
    ASSIGN_OR_RETURN(const ContextRef context, contexts_.Pick());
    const ContextScope scope(driver_, context.handle);
    result = scope.result();
    if (result == kCuSuccess) result = driver_.TensorMapReplaceAddress(&map, address);
  }
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

// Since 11.2, and nothing that a launch alone may ask for.
Result<void*> CudaDevice::AllocateOn(int64_t bytes, Stream stream) {
  if (target_.minimal_launch || driver_.MemAllocAsync == nullptr || driver_.MemFreeAsync == nullptr)
    return Device::AllocateOn(bytes, stream);
  CuAddress address = 0;
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  RETURN_IF_ERROR(InContext("cuMemAllocAsync", [&] {
                    return driver_.MemAllocAsync(&address, size, static_cast<CuStream>(stream));
                  }).Within(fmt::format("{} bytes on {}", bytes, target_.name)));
  return reinterpret_cast<void*>(address);
}

void CudaDevice::FreeOn(void* pointer, Stream stream) {
  if (pointer == nullptr) return;
  const Status status = InContext("cuMemFreeAsync", [&] {
    return driver_.MemFreeAsync(Address(pointer), static_cast<CuStream>(stream));
  });
  if (!status.ok()) LOG(kWarn, "{}", status.message());
}

// A copy or fill that the driver only begins is waited for: it may return at once, or once the
// bytes are staged, and a stream that does not wait for the default stream would overtake it.
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

Owner CudaDevice::OwnerOf(const void* pointer) const {
  constexpr int kDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  int ordinal = 0;
  CuDevice device = 0;
  const bool is_known =
      !IsForked() &&
      driver_.PointerGetAttribute(&ordinal, kDeviceOrdinal, reinterpret_cast<CuAddress>(pointer)) ==
          kCuSuccess &&
      ordinal >= 0 && driver_.DeviceGet(&device, ordinal) == kCuSuccess;
  if (!is_known) return Owner::kNobody;
  return device == device_ ? Owner::kThisDevice : Owner::kOtherDevice;
}

Result<int32_t*> CudaDevice::FaultWord() {
  ASSIGN_OR_RETURN(const ContextRef context, contexts_.Pick());
  return faults_.In(context);
}

int32_t CudaDevice::TakeFault() { return IsForked() ? 0 : faults_.Take(); }

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
  ASSIGN_OR_RETURN(const ContextRef context, contexts_.Pick());
  const ContextScope scope(driver_, context.handle);
  RETURN_IF_ERROR(driver_.Check(scope.result(), "cuCtxPushCurrent"));
  EventPair events(driver_);
  if (events.end == nullptr) return Status::Error(Code::kCudaDriver, "cuEventCreate failed");
  const Result<std::unique_ptr<L2Flush>> flush = L2Flush::Make(*this);
  if (!flush.ok()) {  // as where kernels come from packs, without a compiler
    LOG(kWarn, "times are with data in the L2 cache and with the host's share: {}",
        flush.status().message());
  }
  RETURN_IF_ERROR(run());  // outside the clock: first use
  RETURN_IF_ERROR(driver_.Check(driver_.StreamSynchronize(stream), "cuStreamSynchronize"));
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    // The flush also keeps the GPU busy while the host prepares the run, so that host time is not
    // measured.
    if (flush.ok()) RETURN_IF_ERROR((*flush)->Run(stream));
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

// Drivers may not know a rate, or say 0, and a graph compiles all the same: 0 for what is no rate
// of any GPU.
int64_t Rate(const Driver& driver, CuDevice device, int attribute, int64_t most) {
  int value = 0;
  if (driver.DeviceGetAttribute(&value, attribute, device) != kCuSuccess) return 0;
  return value > 0 && value <= most ? value : 0;
}

void TakeRates(const Driver& driver, CuDevice device, Target& target) {
  constexpr int64_t kMostKilohertz = 100'000'000, kMostBits = 1 << 20, kHertz = 1000;
  constexpr int64_t kTransfersOfClock = 2, kBitsOfByte = 8;
  target.clock_hz = kHertz * Rate(driver, device, CuDeviceAttribute::kClockRate, kMostKilohertz);
  target.memory_bytes_per_second =
      kHertz * Rate(driver, device, CuDeviceAttribute::kMemoryClockRate, kMostKilohertz) *
      kTransfersOfClock * Rate(driver, device, CuDeviceAttribute::kMemoryBusWidth, kMostBits) /
      kBitsOfByte;
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
  TakeRates(driver, device, target);
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
