#include "runtime/cache/usage.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "ir/base/write_guard.h"
#include "runtime/cache/file_lock.h"

namespace kiln::runtime {
namespace {

constexpr const char* kFile = "usage";
constexpr size_t kDigits = 20;  // always written, so that no reader sees half of a number
// The lock is held for two system calls. Without it a sum may lose an addition, no more.
constexpr std::chrono::milliseconds kPatience{200};

std::optional<int64_t> Parse(std::string_view text) {
  int64_t value = 0;
  if (text.size() < kDigits) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + kDigits, value);
  if (error != std::errc() || end != text.data() + kDigits || value < 0) return std::nullopt;
  return value;
}

std::optional<int64_t> ReadFrom(const Descriptor& file) {
  char text[kDigits];
  const ssize_t got = ::pread(file.get(), text, kDigits, 0);
  return Parse({text, static_cast<size_t>(std::max<ssize_t>(got, 0))});
}

// The file's new value, from its old one.
using Change = std::function<std::optional<int64_t>(std::optional<int64_t>)>;

std::optional<int64_t> Apply(const Folder& folder, const Change& change) {
  const Result<Descriptor> file = folder.OpenFile(kFile);
  if (!file.ok()) return std::nullopt;
  const FileLock lock = LockFile(file->get(), kPatience);
  const std::optional<int64_t> value = change(ReadFrom(*file));
  if (value) {
    const std::string text = fmt::format("{:0{}}\n", std::max<int64_t>(*value, 0), kDigits);
    const WriteGuard guard;
    if (::pwrite(file->get(), text.data(), text.size(), 0) < 0) return std::nullopt;
  }
  if (lock == FileLock::kTaken) UnlockFile(file->get());
  return value;
}

}  // namespace

std::optional<int64_t> ReadUsage(const Folder& folder) {
  const Result<std::string> text = folder.Read(kFile, 2 * kDigits);
  return text.ok() ? Parse(*text) : std::nullopt;
}

std::optional<int64_t> AddUsage(const Folder& folder, int64_t bytes) {
  return Apply(folder, [bytes](std::optional<int64_t> old) -> std::optional<int64_t> {
    int64_t sum = 0;
    if (!old || __builtin_add_overflow(*old, bytes, &sum)) return std::nullopt;
    return sum;
  });
}

void CorrectUsage(const Folder& folder, std::optional<int64_t> seen, int64_t counted) {
  (void)Apply(folder, [&](std::optional<int64_t> old) -> std::optional<int64_t> {
    return counted + (seen && old ? std::max<int64_t>(*old - *seen, 0) : 0);
  });
}

}  // namespace kiln::runtime
