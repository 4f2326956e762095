#include "api/lifecycle/logging.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>

#include "api/lifecycle/announcement.h"
#include "api/lifecycle/call_log.h"
#include "api/lifecycle/refusals.h"
#include "api/spec/cudnn_types.h"
#include "api/spec/generation.h"
#include "ir/base/env.h"
#include "ir/base/log.h"
#include "ir/base/write_guard.h"

namespace kiln::api {
namespace internal {
std::atomic<int> call_log_state{-1};
}

namespace {

struct State {
  std::mutex mutex;
  unsigned environment_mask = 0;
  FILE* destination = nullptr;
  unsigned mask = 0;
  void* user_data = nullptr;
  cudnnCallback_t callback = nullptr;
  bool read = false;
};

// Leaked: entry points may be called while static objects of the client are destroyed.
State& TheState() {
  static State* state = new State;
  return *state;
}

constexpr unsigned Bit(cudnnSeverity_t severity) { return 1u << severity; }

bool IsSet(const char* variable) {
  const char* value = ForeignEnv(variable);
  return value != nullptr && std::strcmp(value, "0") != 0 && *value != '\0';
}

unsigned MaskFromEnvironment() {
  unsigned mask = 0;
  const char* level = ForeignEnv("CUDNN_LOGLEVEL_DBG");
  int n = level == nullptr ? 0 : std::atoi(level);
  if (n >= 1 || IsSet("CUDNN_LOGERR_DBG")) mask |= Bit(CUDNN_SEV_FATAL) | Bit(CUDNN_SEV_ERROR);
  if (n >= 2 || IsSet("CUDNN_LOGWARN_DBG")) mask |= Bit(CUDNN_SEV_WARNING);
  if (n >= 3 || IsSet("CUDNN_LOGINFO_DBG")) mask |= Bit(CUDNN_SEV_INFO);
  return mask;
}

bool Emit(cudnnSeverity_t severity, int public_status, const std::string& text);

// Called with the lock held.
void ReadEnvironment(State& state) {
  if (state.read) return;
  state.read = true;
  SetLogTap([](Severity severity, std::string_view line) {
    if (severity > Severity::kInfo) return;
    constexpr cudnnSeverity_t kPublic[] = {CUDNN_SEV_ERROR, CUDNN_SEV_WARNING, CUDNN_SEV_INFO};
    Emit(kPublic[static_cast<int>(severity)], 0, std::string(line));
  });
  const char* destination = ForeignEnv("CUDNN_LOGDEST_DBG");
  if (destination == nullptr) return;
  state.environment_mask = MaskFromEnvironment();
  if (std::strcmp(destination, "stdout") == 0)
    state.destination = stdout;
  else if (std::strcmp(destination, "stderr") == 0)
    state.destination = stderr;
  else
    state.destination = std::fopen(destination, "a");
}

// Called with the lock held.
bool Wants(const State& state, cudnnSeverity_t severity) {
  unsigned mask = state.callback != nullptr ? state.mask
                  : state.destination       ? state.environment_mask
                                            : 0;
  return (mask & Bit(severity)) != 0;
}

void UpdateCallState(const State& state) {
  internal::call_log_state.store(Wants(state, CUDNN_SEV_INFO) ? 1 : 0, std::memory_order_relaxed);
}

cudnnDebug_t Describe(int public_status) {
  using std::chrono::microseconds;
  static const auto start = std::chrono::system_clock::now();
  auto now = std::chrono::system_clock::now();
  auto micros = std::chrono::duration_cast<microseconds>(now.time_since_epoch()).count();
  cudnnDebug_t debug{};
  debug.cudnn_version = static_cast<unsigned>(VersionThatIsSaid().number);
  // The status of the generation that this library is, whatever this header's enumeration says.
  std::memcpy(&debug.cudnnStatus, &public_status, sizeof(public_status));
  debug.time_sec = static_cast<unsigned>(micros / 1000000);
  debug.time_usec = static_cast<unsigned>(micros % 1000000);
  debug.time_delta =
      static_cast<unsigned>(std::chrono::duration_cast<microseconds>(now - start).count());
  debug.pid = static_cast<unsigned long long>(getpid());
  debug.tid = static_cast<unsigned long long>(syscall(SYS_gettid));
  return debug;
}

struct Letters {
  char first, further;  // of a message's lines
};
constexpr Letters kLetters[] = {{'F', 'f'}, {'E', 'e'}, {'W', 'w'}, {'I', 'i'}};

// The message as files have it, in the form of 9.19's.
std::string Written(cudnnSeverity_t severity, const cudnnDebug_t& debug, const std::string& text) {
  const Letters letters = kLetters[severity];
  std::string out = fmt::format("{}! CuDNN (v{}) ", letters.first, debug.cudnn_version);
  for (const char c : text) {
    out += c;
    if (c == '\n') out += {letters.further, '!', ' '};
  }
  const auto seconds = static_cast<time_t>(debug.time_sec);
  std::tm date{};
  ::localtime_r(&seconds, &date);
  char time[32];
  std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &date);
  const unsigned since = debug.time_delta / 1'000'000;
  fmt::format_to(std::back_inserter(out),
                 "\n{0}! Time: {1}.{2:06} ({3}d+{4}h+{5}m+{6}s since start)\n"
                 "{0}! Process={7}; Thread={8}.\n\n",
                 letters.further, time, debug.time_usec, since / 86400, since / 3600 % 24,
                 since / 60 % 60, since % 60, debug.pid, debug.tid);
  return out;
}

// False if nobody asked for lines of this severity.
bool Emit(cudnnSeverity_t severity, int public_status, const std::string& text) {
  State& state = TheState();
  cudnnCallback_t callback = nullptr;
  void* user_data = nullptr;
  cudnnDebug_t debug = Describe(public_status);
  {
    std::lock_guard lock(state.mutex);
    ReadEnvironment(state);
    if (!Wants(state, severity)) return false;
    callback = state.callback;
    user_data = state.user_data;
    if (callback == nullptr) {
      const WriteGuard guard;
      const std::string written = Written(severity, debug, text);
      std::fwrite(written.data(), 1, written.size(), state.destination);
      std::fflush(state.destination);
    }
  }
  // Outside the lock: the callback may call the library.
  if (callback != nullptr) callback(severity, user_data, &debug, text.c_str());
  return true;
}

}  // namespace

bool internal::InitLogging() {
  State& state = TheState();
  {
    std::lock_guard lock(state.mutex);
    ReadEnvironment(state);
    UpdateCallState(state);
  }
  // Without the lock, as the log's lines come back here.
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    for (const std::string& text : EnvWarnings()) LOG(kWarn, "{}", text);
    LOG(kInfo, "{}", Announcement());
  }
  return call_log_state.load(std::memory_order_relaxed) > 0;
}

void LogCall(const char* function, std::initializer_list<uint64_t> arguments) {
  const std::string lines = ArgumentLines(function, {arguments.begin(), arguments.size()});
  Emit(CUDNN_SEV_INFO, 0, fmt::format("function {}() called:{}", function, lines));
}

void LogMade(const char* function, std::initializer_list<uint64_t> arguments) {
  const std::string lines = MadeLines(function, {arguments.begin(), arguments.size()});
  if (!lines.empty())
    Emit(CUDNN_SEV_INFO, 0, fmt::format("function {}() made:{}", function, lines));
}

void LogFailure(const char* function, const Status& status) {
  const int value = ThisGeneration().PublicStatus(status.code());
  const std::string_view name = ThisGeneration().status_name(value);
  const bool told =
      Emit(CUDNN_SEV_ERROR, value,
           fmt::format("function {}() returned {}: {}", function, name, status.message()));
  if (!told) WarnOfRefusal(function, status, name);
}

Status SetCallback(unsigned mask, void* user_data, AnyFunction function) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  ReadEnvironment(state);
  state.mask = mask;
  state.user_data = user_data;
  state.callback = reinterpret_cast<cudnnCallback_t>(function);
  UpdateCallState(state);
  return {};
}

Status GetCallback(unsigned* mask, void** user_data, AnyFunction* function) {
  if (mask == nullptr || user_data == nullptr || function == nullptr) {
    return Status::Text(Code::kBadParam,
                        "mask, udata and fptr must point at places for the answers");
  }
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  ReadEnvironment(state);
  *mask = state.callback ? state.mask : state.environment_mask;
  *user_data = state.user_data;
  *function = reinterpret_cast<AnyFunction>(state.callback);
  return {};
}

}  // namespace kiln::api
