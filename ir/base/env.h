// The registry of environment variables. Values are read once, at first use, and checked against
// env.def; a mistake is reported through the log and, for the CLI, as an error (EnvErrors).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace kiln {

enum class Env {
#define KILN_ENV(Name, ...) k##Name,
#include "ir/base/env.def"
#undef KILN_ENV
};

struct EnvRow {
  const char* variable;
  const char* default_value;
  const char* legal;  // "a|b|c", or empty for free text
  const char* meaning;
};

std::span<const EnvRow> EnvRows();

// The value in force: the environment's where it is legal, else the default.
const std::string& GetEnv(Env which);
bool EnvFlag(Env which);
// A count; a value that is no number counts as the default.
int64_t EnvInt(Env which);

// One sentence for each KILN_* variable of the environment that is unknown or has an illegal value.
std::vector<std::string> EnvErrors();

// Tests only: forget what was read, so that a changed environment is seen.
void ResetEnvForTest();

}  // namespace kiln
