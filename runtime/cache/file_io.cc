// POSIX file reading and writing for the caches.
#include "runtime/cache/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ir/base/write_guard.h"
#include "runtime/cache/trust.h"

namespace kiln::runtime {
namespace {

// O_NONBLOCK, so that opening a FIFO or a device does not wait; it means nothing to regular files.
constexpr int kAlways = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

Status CheckRegular(const Descriptor& file, const std::string& path, struct stat& info) {
  if (::fstat(file.get(), &info) != 0) return IoError("look at", path);
  if (S_ISREG(info.st_mode)) return {};
  return Status::Error(Code::kInvalidValue, "{} is not a regular file", path);
}

Status WriteAll(const Descriptor& file, const std::string& path, std::string_view content) {
  const WriteGuard guard;
  while (!content.empty()) {
    ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return IoError("write", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<std::string> ReadAll(const Descriptor& file, const std::string& path, int64_t most_bytes,
                            bool must_be_trusted) {
  struct stat info = {};
  RETURN_IF_ERROR(CheckRegular(file, path, info));
  if (must_be_trusted) {
    if (const Status trust = CheckTrust(info, path, PathPart::kLast, OwnIdentity()); !trust.ok())
      return Status::Text(Code::kInvalidValue, trust.message());
  }
  if (info.st_size > most_bytes) {
    return Status::Error(Code::kInvalidValue, "{} has {} bytes, and at most {} are read", path,
                         info.st_size, most_bytes);
  }
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t have = 0;
  while (have < content.size()) {
    ssize_t got = ::read(file.get(), content.data() + have, content.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError("read", path);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  content.resize(have);
  return content;
}

Result<std::string> Read(int folder, const std::string& name, const std::string& path, int flags,
                         int64_t most_bytes) {
  const Descriptor file(::openat(folder, name.c_str(), O_RDONLY | kAlways | flags));
  if (file.ok()) return ReadAll(file, path, most_bytes, (flags & O_NOFOLLOW) != 0);
  // No file, a link where none may be, a folder on the way that is none, a socket.
  const bool is_damage =
      errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == EISDIR || errno == ENXIO;
  return Status::Error(is_damage ? Code::kInvalidValue : Code::kInternal, "cannot read {}: {}",
                       path, std::strerror(errno));
}

Status Write(int folder, const std::string& name, const std::string& path,
             std::string_view content) {
  const Descriptor file(
      ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | kAlways, 0600));
  if (!file.ok()) return IoError("create", path);
  return WriteAll(file, path, content);
}

bool EndsInsideALine(const Descriptor& file, int64_t bytes) {
  char last = '\n';
  return bytes > 0 && ::pread(file.get(), &last, 1, bytes - 1) == 1 && last != '\n';
}

Status Append(int folder, const std::string& name, const std::string& path, int flags,
              std::string_view line) {
  const Descriptor file(
      ::openat(folder, name.c_str(), O_RDWR | O_CREAT | O_APPEND | kAlways | flags, 0600));
  struct stat info = {};
  if (!file.ok()) return IoError("open", path);
  RETURN_IF_ERROR(CheckRegular(file, path, info));
  // Seeing another process in the middle of its write adds an empty line, which readers skip.
  std::string text = EndsInsideALine(file, info.st_size) ? "\n" : "";
  text += line;
  // One write call, so that lines of several processes do not mix.
  return WriteAll(file, path, text + "\n");
}

}  // namespace

int Descriptor::Release() { return std::exchange(number_, -1); }

void Descriptor::Close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

Status IoError(std::string_view action, const std::string& path) {
  return Status::Error(Code::kInternal, "cannot {} {}: {}", action, path, std::strerror(errno));
}

Result<std::string> ReadFile(const std::string& path, int64_t most_bytes) {
  return Read(AT_FDCWD, path, path, 0, most_bytes);
}

Status WriteFile(const std::string& path, std::string_view content) {
  return Write(AT_FDCWD, path, path, content);
}

Status AppendLine(const std::string& path, std::string_view line) {
  return Append(AT_FDCWD, path, path, 0, line);
}

Result<std::string> ReadFileAt(int folder, const std::string& name, const std::string& path,
                               int64_t most_bytes) {
  return Read(folder, name, path, O_NOFOLLOW, most_bytes);
}

Status WriteFileAt(int folder, const std::string& name, const std::string& path,
                   std::string_view content) {
  return Write(folder, name, path, content);
}

Status AppendLineAt(int folder, const std::string& name, const std::string& path,
                    std::string_view line) {
  return Append(folder, name, path, O_NOFOLLOW, line);
}

}  // namespace kiln::runtime
