// The log: one spdlog sink on stderr, and at most one tap. Lines look like
//   [kiln 12:01:07.123 warning] cache: /root/.cache/kiln is not writable
// The level is KILN_LOG's; a tap sees kInfo and above at any level, since cuDNN's callback has its
// own mask.
#include "ir/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ir/base/env.h"
#include "ir/base/printable.h"
#include "ir/base/write_guard.h"

namespace kiln {
namespace {

constexpr std::array kSpdlogLevels = {
    spdlog::level::err,   spdlog::level::warn,  spdlog::level::info,
    spdlog::level::debug, spdlog::level::trace,
};

spdlog::level::level_enum LevelOf(Severity severity) {
  return kSpdlogLevels[static_cast<size_t>(severity)];
}

struct Logger {
  spdlog::logger out{"kiln", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  std::atomic<bool> tapped = false;
  std::mutex tap_mutex;
  std::shared_ptr<const std::function<void(Severity, std::string_view)>> tap;

  Logger() {
    out.set_pattern("[kiln %H:%M:%S.%e %l] %v");
    out.set_level(spdlog::level::from_str(GetEnv(Env::kLog)));
    out.flush_on(spdlog::level::trace);
  }
};

Logger& TheLogger() {
  static Logger* const logger = new Logger;  // never destroyed, as the Store of env.cc
  return *logger;
}

bool TapSees(const Logger& logger, Severity severity) {
  return severity <= Severity::kInfo && logger.tapped.load(std::memory_order_relaxed);
}

}  // namespace

bool LogEnabled(Severity severity) {
  const Logger& logger = TheLogger();
  return logger.out.should_log(LevelOf(severity)) || TapSees(logger, severity);
}

// Lines quote what clients and files bring, so that control bytes are escaped here.
void LogLine(Severity severity, std::string_view text) {
  Logger& logger = TheLogger();
  const std::string line = Printable(text, Lines::kKept);
  if (logger.out.should_log(LevelOf(severity))) {
    const WriteGuard guard;  // stderr may be a file that is full
    logger.out.log(LevelOf(severity), spdlog::string_view_t(line.data(), line.size()));
  }
  if (!TapSees(logger, severity)) return;
  // Called without the lock, so that a tap may log or replace itself.
  const auto tap = [&] {
    const std::lock_guard lock(logger.tap_mutex);
    return logger.tap;
  }();
  if (tap) (*tap)(severity, line);
}

void SetLogTap(std::function<void(Severity, std::string_view)> tap) {
  Logger& logger = TheLogger();
  const std::lock_guard lock(logger.tap_mutex);
  logger.tapped = static_cast<bool>(tap);
  logger.tap =
      tap ? std::make_shared<const std::function<void(Severity, std::string_view)>>(std::move(tap))
          : nullptr;
}

}  // namespace kiln
