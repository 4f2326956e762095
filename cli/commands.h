// The commands of the tool: each adds itself to the parser, in a file of its own. main.cc lists
// them.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/exit_status.h"

namespace kiln::cli {

// Adds a command. `exit_status` is written when the parsed command has run.
void AddRun(CLI::App& app, int& exit_status);
void AddDump(CLI::App& app, int& exit_status);
void AddExplain(CLI::App& app, int& exit_status);
void AddTune(CLI::App& app, int& exit_status);
void AddRecords(CLI::App& app, int& exit_status);
void AddPack(CLI::App& app, int& exit_status);
void AddCache(CLI::App& app, int& exit_status);
void AddDoctor(CLI::App& app, int& exit_status);

}  // namespace kiln::cli
