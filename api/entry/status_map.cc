// This generation: its version, its status values and their names, from api/spec/statuses.tsv and
// enums.tsv.
#include <array>
#include <cstddef>

#include "api/entry/entry.h"
#include "api/spec/generation.h"
#include "ir/base/env.h"

namespace kiln::api {
namespace {

struct StatusRow {
  Code code;
  cudnnStatus_t status;
};
struct StatusName {
  int value;
  std::string_view name;
};

#if CUDNN_MAJOR == 8
#include "api/spec/status_v8.inc"
#else
#include "api/spec/status_v9.inc"
#endif

constexpr size_t kCodes = static_cast<size_t>(Code::kCudaDriver) + 1;
static_assert(std::size(kStatusRows) == kCodes,
              "api/spec/statuses.tsv must have a row for each Code");

constexpr std::array<int, kCodes> kValues = [] {
  std::array<int, kCodes> values{};
  for (size_t i = 0; i < kCodes; ++i) {
    // Rows stand in the order of the enumeration; one out of place does not compile.
    values[i] = static_cast<size_t>(kStatusRows[i].code) == i
                    ? static_cast<int>(kStatusRows[i].status)
                    : throw i;
  }
  return values;
}();

std::string_view NameOfStatus(int value) {
  for (const StatusName& row : kStatusNames) {
    if (row.value == value) return row.name;
  }
  return "CUDNN_UNKNOWN_STATUS";
}

}  // namespace

const Generation& ThisGeneration() {
  static constexpr Generation kGeneration{.major = CUDNN_MAJOR,
                                          .minor = CUDNN_MINOR,
                                          .patch = CUDNN_PATCHLEVEL,
                                          .version = CUDNN_VERSION,
                                          .status_values = kValues,
                                          .status_name = NameOfStatus};
  return kGeneration;
}

SaidVersion VersionThatIsSaid() {
  const Generation& headers = ThisGeneration();
#if CUDNN_MAJOR == 9
  // Nobody said which patch another minor version than the headers' has.
  if (const auto minor = static_cast<int>(EnvInt(Env::kCudnnVersion)); minor != headers.minor)
    return {.major = 9, .minor = minor, .patch = 0, .number = 90000 + minor * 100};
#endif
  return {.major = headers.major,
          .minor = headers.minor,
          .patch = headers.patch,
          .number = headers.version};
}

}  // namespace kiln::api
