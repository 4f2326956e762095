#include "runtime/cache/partial_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/cache/own_folder.h"
#include "runtime/cache/trust.h"

namespace kiln::runtime {
namespace {

// The library's own code comes from a file of that owner.
bool BelongsToTheInstallation(const struct stat& info) {
  struct stat own = {};
  return ::stat(OwnFile().c_str(), &own) == 0 && own.st_uid == info.st_uid &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

Result<PartialFile> PartialFile::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO must not keep us waiting.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.ok()) {
    const bool is_missing = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    return is_missing ? Status::Error(Code::kInvalidValue, "there is no file {}", path)
                      : IoError("read", path);
  }
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return IoError("look at", path);
  if (!S_ISREG(info.st_mode))
    return Status::Error(Code::kInvalidValue, "{} is not a regular file", path);
  const Status trust = CheckTrust(info, path, PathPart::kLast, OwnIdentity());
  if (!trust.ok() && !BelongsToTheInstallation(info)) return trust;
  return PartialFile(std::move(file), path, info.st_size);
}

Result<std::string> PartialFile::Read(uint64_t offset, uint64_t bytes) const {
  const auto end = static_cast<uint64_t>(bytes_);
  if (offset > end) return std::string();
  std::string content(std::min(bytes, end - offset), '\0');
  size_t have = 0;
  while (have < content.size()) {
    const ssize_t got = ::pread(file_.get(), content.data() + have, content.size() - have,
                                static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError("read", path_);
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  content.resize(have);
  return content;
}

}  // namespace kiln::runtime
