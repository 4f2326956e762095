// Options that `run`, `dump` and `explain` share: which engine and knobs the leading group is asked
// to take.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "compiler/module.h"
#include "ir/base/result.h"

namespace kiln::cli {

struct EngineOptions {
  std::string engine;              // a name of the registry, or empty
  std::vector<std::string> knobs;  // "tile_m=128"
  bool least_workspace = false;
  int64_t workspace_limit = -1;

  void AddTo(CLI::App& command);
  // The engine and knobs that were asked for. Errors list the engines there are; whether knobs
  // exist and are legal, the compiler says.
  Result<compiler::EngineChoice> Choice() const;
};

// Adds --arch to a command that needs no device.
void AddArchOption(CLI::App& command, std::string& arch);

}  // namespace kiln::cli
