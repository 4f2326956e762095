// Whole files as bytes, with errors as sentences. Used by the caches; nothing else in the runtime
// reads or writes files.
#pragma once

#include <string>
#include <string_view>

#include "ir/base/result.h"

namespace kiln::runtime {

Result<std::string> ReadFile(const std::string& path);
// Creates the file with mode 0600; fails if it exists.
Status WriteFile(const std::string& path, std::string_view content);
// One atomic append; creates the file with mode 0600.
Status AppendLine(const std::string& path, std::string_view line);

}  // namespace kiln::runtime
