// Loading of the CUDA driver. Called by ProcessDriver's users and, with a path of its own, by
// tests.
#include "runtime/cuda/driver.h"

#include <pthread.h>

#include <atomic>
#include <vector>

#include "ir/base/env.h"
#include "runtime/cuda/dynamic_library.h"

namespace kiln::runtime {
namespace {

// Set in a child process whose parent had opened the driver.
std::atomic<bool> forked{false};

enum class Need : uint8_t { kRequired, kOptional };

constexpr int kOldestVersion = 11080;  // the first driver API that knows sm_90

constexpr const char* kAdvice =
    "Install NVIDIA's driver, run the container with its GPUs (docker run --gpus all), set "
    "KILN_LIBCUDA to the "
    "path of libcuda.so.1, or run on the CPU with KILN_DEVICE=cpu";

std::vector<std::string> Candidates(const std::string& path) {
  if (!path.empty()) return {path};
  return {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"};
}

// Fills the table; the name of a required function that is missing, or null.
const char* Bind(const DynamicLibrary& library, Driver& driver) {
  const char* missing = nullptr;
#define DRIVER_FUNCTION(Name, symbol, need, parameters)                        \
  driver.Name = reinterpret_cast<decltype(driver.Name)>(library.Find(symbol)); \
  if (driver.Name == nullptr && Need::need == Need::kRequired) missing = symbol;
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION
  return missing;
}

Status ExplainInit(const Driver& driver, CuResult result) {
  if (result == kCuErrorNoDevice) {
    return Status::Error(Code::kPrerequisiteMissing,
                         "{} is loaded but sees no GPU ({}); CUDA_VISIBLE_DEVICES may hide it",
                         driver.path, driver.Describe(result));
  }
  if (result == kCuErrorStubLibrary) {
    return Status::Error(Code::kPrerequisiteMissing,
                         "{} is the toolkit's link-time stub, not a driver. {}", driver.path,
                         kAdvice);
  }
  if (result == kCuErrorSystemDriverMismatch) {
    return Status::Error(Code::kIncompatibleDriver,
                         "{} does not match the kernel module ({}); reboot after the update",
                         driver.path, driver.Describe(result));
  }
  return Status::Error(Code::kCudaDriver, "{}: cuInit failed: {}", driver.path,
                       driver.Describe(result));
}

}  // namespace

std::string Driver::Describe(CuResult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (GetErrorName == nullptr || GetErrorName(result, &name) != kCuSuccess || name == nullptr) {
    return fmt::format("CUDA error {}", result);
  }
  GetErrorString(result, &text);
  return fmt::format("{} ({})", name, text != nullptr ? text : "no text");
}

Status Driver::Check(CuResult result, const char* function) const {
  if (result == kCuSuccess) return {};
  Code code = result == kCuErrorOutOfMemory ? Code::kDeviceAllocationFailed : Code::kCudaDriver;
  return Status::Error(code, "{}: {}", function, Describe(result));
}

Result<std::unique_ptr<Driver>> OpenDriver(const std::string& path) {
  ASSIGN_OR_RETURN(DynamicLibrary library,
                   DynamicLibrary::Open("the CUDA driver", Candidates(path), kAdvice));
  auto driver = std::make_unique<Driver>();
  driver->path = library.path();
  if (const char* missing = Bind(library, *driver)) {
    return Status::Error(Code::kIncompatibleDriver,
                         "{} has no function {}: it is not a CUDA driver, or one older than "
                         "CUDA {}.{}",
                         driver->path, missing, kOldestVersion / 1000, kOldestVersion % 1000 / 10);
  }
  if (CuResult result = driver->Init(0); result != kCuSuccess) return ExplainInit(*driver, result);
  RETURN_IF_ERROR(driver->Check(driver->DriverGetVersion(&driver->version), "cuDriverGetVersion"));
  if (driver->version < kOldestVersion) {
    return Status::Error(Code::kIncompatibleDriver,
                         "{} is of CUDA {}.{}; Kiln needs {}.{} or later", driver->path,
                         driver->version / 1000, driver->version % 1000 / 10, kOldestVersion / 1000,
                         kOldestVersion % 1000 / 10);
  }
  return driver;
}

bool IsForked() { return forked.load(std::memory_order_relaxed); }

Status CheckNotForked() {
  if (!IsForked()) return {};
  return Status::Text(Code::kNotInitialized,
                      "CUDA does not survive a fork: the parent process had initialised it. Start "
                      "the process by exec (Python: the start method spawn), or fork first");
}

Result<const Driver*> ProcessDriver() {
  // Leaked: threads may be launching while static destructors run.
  static const auto* opened =
      new Result<std::unique_ptr<Driver>>(OpenDriver(GetEnv(Env::kCudaDriverPath)));
  if (!opened->ok()) return opened->status();
  static const bool heard = [] {
    pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
    return true;
  }();
  (void)heard;
  RETURN_IF_ERROR(CheckNotForked());
  return static_cast<const Driver*>((*opened)->get());
}

}  // namespace kiln::runtime
