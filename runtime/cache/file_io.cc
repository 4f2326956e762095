// POSIX file reading and writing for the caches.
#include "runtime/cache/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kiln::runtime {
namespace {

// Closes on leaving the scope.
class File {
 public:
  File(const std::string& path, int flags)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  bool ok() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

Status IoError(std::string_view action, const std::string& path) {
  return Status::Error(Code::kInternal, "cannot {} {}: {}", action, path, std::strerror(errno));
}

Status WriteAll(const File& file, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return IoError("write", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  File file(path, O_RDONLY);
  struct stat info;
  if (!file.ok() || ::fstat(file.get(), &info) != 0) return IoError("read", path);
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

Status WriteFile(const std::string& path, std::string_view content) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.ok()) return IoError("create", path);
  return WriteAll(file, path, content);
}

Status AppendLine(const std::string& path, std::string_view line) {
  File file(path, O_WRONLY | O_CREAT | O_APPEND);
  if (!file.ok()) return IoError("open", path);
  // One write call, so that lines of several processes do not mix.
  return WriteAll(file, path, std::string(line) + "\n");
}

}  // namespace kiln::runtime
