// What `run` and `tune` share: where to run, and what tuning records say for that device.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "compiler/module.h"
#include "ir/base/result.h"
#include "runtime/device.h"

namespace kiln::cli {

// --device auto|cuda|cpu.
void AddDeviceOption(CLI::App& command, std::string& kind);
Result<runtime::Device*> OpenDevice(const std::string& kind);

// As the library uses them: nothing under KILN_TUNE=off and heuristic.
compiler::Advisor RecordsAdvisor(const Target& target);

}  // namespace kiln::cli
