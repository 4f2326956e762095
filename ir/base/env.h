// The registry of environment variables. Values are read once, at first use, and checked against
// env.def; a mistake is a warning (EnvWarnings) and the default counts.
//
// A process with raised privileges (setuid, setgid or file capabilities) runs with rights that
// whoever set its environment may lack: there no variable counts, so that none can name code to
// load or files to read and write.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace kiln {

// The values that a variable may have.
struct EnvKind {
  enum class Type : uint8_t { kText, kChoice, kCount, kSize, kMinor };
  Type type = Type::kText;
  const char* choices = "";       // kChoice: "a|b|c"
  int64_t least = 0, most = 0;    // kCount, kSize (in bytes) and kMinor
  int64_t major = 0;              // kMinor
  const char* default_unit = "";  // kSize: what a number without a unit counts

  static constexpr EnvKind Text() { return {}; }
  static constexpr EnvKind Choice(const char* choices) {
    return {.type = Type::kChoice, .choices = choices};
  }
  static constexpr EnvKind Count(int64_t least, int64_t most) {
    return {.type = Type::kCount, .least = least, .most = most};
  }
  // An amount of memory: "512", "512MB", "1.5 GiB" (powers of 1024), or -1 for any amount.
  static constexpr EnvKind Size(const char* default_unit) {
    return {.type = Type::kSize, .most = int64_t{1} << 50, .default_unit = default_unit};
  }
  // A version, "9.19", of which the last number is the value.
  static constexpr EnvKind Minor(int64_t major, int64_t least, int64_t most) {
    return {.type = Type::kMinor, .least = least, .most = most, .major = major};
  }
};

enum class Env {
#define KILN_ENV(Name, ...) k##Name,
#include "ir/base/env.def"
#undef KILN_ENV
};

struct EnvRow {
  const char* variable;
  const char* default_value;
  EnvKind kind;
  const char* meaning;
};

std::span<const EnvRow> EnvRows();

// The value in force: the environment's where it is legal, else the default.
const std::string& GetEnv(Env which);
bool EnvFlag(Env which);
// The number of a Count, Minor or Size variable; a size is in bytes, and -1 is any size.
int64_t EnvInt(Env which);

// The value of a variable that is not Kiln's (HOME, PYTHONPATH). Null where it is not set, and in a
// process with raised privileges, since it may name code or files.
const char* ForeignEnv(const char* variable);

// True if this process has more rights than whoever started it.
bool IsPrivileged();

// One sentence for each KILN_* variable of the environment that has no effect: it is unknown, has
// an illegal value, or may not count here. Sorted by name.
std::vector<std::string> EnvWarnings();

// Forgets what was read, so that a test's change of the environment is seen.
void ResetEnvForTest();
// Makes tests take this process for one with raised privileges, or for what it is.
void SetPrivilegedForTest(bool privileged);

}  // namespace kiln
