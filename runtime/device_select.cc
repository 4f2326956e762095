// Choosing and opening devices. See device_select.h.
#include "runtime/device_select.h"

#include <map>
#include <mutex>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cache/own_folder.h"
#include "runtime/cpu_plugin.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/dynamic_library.h"

namespace kiln::runtime {
namespace {

constexpr const char* kPluginFile = "libkiln_cpu.so";

// bazel-out/k8-fastbuild/bin/tests/api → bazel-out/k8-fastbuild/bin; empty outside a build tree.
std::string BuildTreeRoot(const std::string& folder) {
  size_t out = folder.find("/bazel-out/");
  if (out == std::string::npos) return {};
  constexpr std::string_view kBin = "/bin/";
  size_t bin = folder.find(kBin, out);
  return bin == std::string::npos ? "" : folder.substr(0, bin + kBin.size() - 1);
}

}  // namespace

std::vector<std::string> CpuPluginCandidates() {
  if (const std::string& path = GetEnv(Env::kCpuPlugin); !path.empty()) return {path};
  std::vector<std::string> candidates;
  if (std::string folder = OwnFolder(); !folder.empty()) {
    candidates.push_back(fmt::format("{}/{}", folder, kPluginFile));
    candidates.push_back(fmt::format("{}/../lib/{}", folder, kPluginFile));
    if (std::string root = BuildTreeRoot(folder); !root.empty()) {
      candidates.push_back(fmt::format("{}/runtime/cpu/{}", root, kPluginFile));
    }
  }
  candidates.push_back(kPluginFile);
  return candidates;
}

Result<CpuPlugin> OpenCpuPlugin(std::span<const std::string> candidates) {
  ASSIGN_OR_RETURN(
      DynamicLibrary library,
      DynamicLibrary::Open(
          "the CPU plug-in", candidates,
          "It comes with Kiln, beside libcudnn.so; KILN_CPU_PLUGIN names another place"));
  auto create = reinterpret_cast<CpuDeviceCreateFunction>(library.Find(kCpuPluginSymbol));
  if (create == nullptr) {
    return Status::Error(Code::kPrerequisiteMissing,
                         "{} is no CPU plug-in of Kiln: it does not export {}", library.path(),
                         kCpuPluginSymbol);
  }
  char error[1024] = "";
  Device* device = create(error, sizeof error);
  if (device == nullptr)
    return Status::Error(Code::kPrerequisiteMissing, "{}: {}", library.path(), error);
  return CpuPlugin{.device = device, .path = library.path()};
}

Result<CpuPlugin> ProcessCpuPlugin() {
  static const auto* opened = new Result<CpuPlugin>(OpenCpuPlugin(CpuPluginCandidates()));
  return *opened;
}

Result<Device*> CpuDeviceOfProcess() {
  ASSIGN_OR_RETURN(CpuPlugin plugin, ProcessCpuPlugin());
  return plugin.device;
}

Result<Device*> CudaDeviceOfThread() {
  ASSIGN_OR_RETURN(const Driver* driver, ProcessDriver());
  ASSIGN_OR_RETURN(int ordinal, CurrentCudaOrdinal(*driver));
  static std::mutex mutex;
  static auto* devices =
      new std::map<int, std::unique_ptr<Device>>;  // leaked: plans may outlive main
  std::lock_guard lock(mutex);
  std::unique_ptr<Device>& device = (*devices)[ordinal];
  if (device == nullptr) {
    ASSIGN_OR_RETURN(device, OpenCudaDevice(*driver, ordinal, ProcessCudaCompiler()));
  }
  return device.get();
}

Result<Device*> DefaultDevice() {
  const std::string& wanted = GetEnv(Env::kDevice);
  if (wanted == "cpu") return CpuDeviceOfProcess();
  auto cuda = CudaDeviceOfThread();
  // The client's memory is a GPU's.
  const bool was_there = cuda.status().code() == Code::kNotInitialized;
  if (cuda.ok() || wanted == "cuda" || was_there) return cuda;
  auto cpu = CpuDeviceOfProcess();
  if (cpu.ok()) {
    static const bool told = [&] {
      LOG(kInfo, "running on the CPU: {}", cuda.status().message());
      return true;
    }();
    (void)told;
    return cpu;
  }
  return Status::Error(Code::kPrerequisiteMissing, "no device to run on. GPU: {}. CPU: {}",
                       cuda.status().message(), cpu.status().message());
}

}  // namespace kiln::runtime
