// Log lines for people: LOG(kInfo, "...", ...) writes to stderr through spdlog at the level
// KILN_LOG names. cuDNN's own logging (CUDNN_LOGLEVEL_DBG, cudnnSetCallback) is
// api/lifecycle/logging.h, which also sees these lines.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string_view>

namespace kiln {

enum class Severity : uint8_t { kError, kWarn, kInfo, kDebug, kTrace };

bool LogEnabled(Severity severity);
void LogLine(Severity severity, std::string_view line);

// A second reader of every line at kInfo or above (cuDNN's callback). An empty function removes it.
void SetLogTap(std::function<void(Severity, std::string_view)> tap);

}  // namespace kiln

#define LOG(severity, ...)                                                     \
  do {                                                                         \
    if (::kiln::LogEnabled(::kiln::Severity::severity))                        \
      ::kiln::LogLine(::kiln::Severity::severity, ::fmt::format(__VA_ARGS__)); \
  } while (0)
