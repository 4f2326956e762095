// Options that `run` and `tune` share: where to run, and what tuning records say for that device.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "compiler/module.h"
#include "ir/base/result.h"
#include "runtime/device.h"

namespace kiln::cli {

// Adds --device auto|cuda|cpu to a command.
void AddDeviceOption(CLI::App& command, std::string& kind);
Result<runtime::Device*> OpenDevice(const std::string& kind);

// Tuning records as the library uses them: none under KILN_TUNE=off and heuristic.
compiler::Advisor RecordsAdvisor(const Target& target);

}  // namespace kiln::cli
