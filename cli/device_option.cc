#include "cli/device_option.h"

#include <fmt/format.h>

#include <vector>

#include "api/tuning/record_store.h"
#include "cli/choices.h"
#include "runtime/device_select.h"

namespace kiln::cli {

void AddDeviceOption(CLI::App& command, std::string& kind) {
  const std::vector<std::string> kinds = {"auto", "cuda", "cpu"};
  CLI::Option* option = command.add_option("--device", kind, "auto takes a GPU where there is one");
  AnswerQuestion(option,
                 [kinds] { return fmt::format("the devices are {}", fmt::join(kinds, ", ")); });
  option->check(CLI::IsMember(kinds))->capture_default_str();
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
