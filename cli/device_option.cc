#include "cli/device_option.h"

#include "api/tuning/record_store.h"
#include "runtime/device_select.h"

namespace kiln::cli {

void AddDeviceOption(CLI::App& command, std::string& kind) {
  command.add_option("--device", kind, "auto takes a GPU where there is one")
      ->check(CLI::IsMember({"auto", "cuda", "cpu"}))
      ->capture_default_str();
}

Result<runtime::Device*> OpenDevice(const std::string& kind) {
  if (kind == "cuda") return runtime::CudaDeviceOfThread();
  if (kind == "cpu") return runtime::CpuDeviceOfProcess();
  return runtime::DefaultDevice();
}

compiler::Advisor RecordsAdvisor(const Target& target) {
  const api::TuneMode mode = api::TuneModeFromEnv();
  if (mode == api::TuneMode::kOff || mode == api::TuneMode::kHeuristic) return {};
  return [target](const compiler::Group& group) {
    return api::RecordStore::OfProcess().Best(group, target);
  };
}

}  // namespace kiln::cli
