#include "runtime/cache/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>

#include "runtime/cache/trust.h"

namespace kiln::runtime {
namespace {

constexpr int kMostLinks = 40;  // the kernel's own limit of a path
constexpr int kDeepest = 64;    // folders in folders that Remove goes into
constexpr mode_t kPrivate = 0700;

std::deque<std::string> Components(const std::string& path) {
  std::deque<std::string> parts;
  for (size_t at = 0; at < path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, slash - at);
    if (!part.empty() && part != ".") parts.push_back(part);
    at = slash + 1;
  }
  return parts;
}

Result<std::string> Absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  std::array<char, PATH_MAX> folder;
  if (::getcwd(folder.data(), folder.size()) != nullptr)
    return fmt::format("{}/{}", folder.data(), path);
  return Status::Error(Code::kInternal, "{} is relative to a working folder that is gone: {}", path,
                       std::strerror(errno));
}

// O_DIRECTORY makes the system mount what is mounted on demand.
int OpenFolderAt(int folder, const std::string& name) {
  return ::openat(folder, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

Status Check(const Descriptor& descriptor, const std::string& path, PathPart part) {
  struct stat info;
  if (::fstat(descriptor.get(), &info) != 0) return IoError("look at", path);
  return CheckTrust(info, path, part, OwnIdentity());
}

// The folder `name`, made where it may be; not yet checked.
Result<Descriptor> OpenOrMake(int folder, const std::string& name, const std::string& path,
                              Missing missing) {
  Descriptor opened(OpenFolderAt(folder, name));
  if (!opened.ok() && errno == ENOENT && missing == Missing::kIsMade) {
    if (::mkdirat(folder, name.c_str(), kPrivate) != 0 && errno != EEXIST)
      return IoError("create", path);
    opened = Descriptor(OpenFolderAt(folder, name));
  }
  if (opened.ok()) return opened;
  if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) {
    return Status::Error(Code::kInvalidValue, "{}: {}", path,
                         errno == ENOENT ? "no such folder" : "not a folder");
  }
  return IoError("open", path);
}

// The target of the trusted link `name`; empty where `name` is no link.
Result<std::string> ReadLink(int folder, const std::string& name, const std::string& path) {
  const Descriptor link(::openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  std::array<char, PATH_MAX> target;
  struct stat info;
  if (!link.ok() || ::fstat(link.get(), &info) != 0 || !S_ISLNK(info.st_mode)) return std::string();
  RETURN_IF_ERROR(Check(link, path, PathPart::kOnTheWay));
  const ssize_t length = ::readlinkat(link.get(), "", target.data(), target.size());
  if (length <= 0) return IoError("follow", path);
  return std::string(target.data(), static_cast<size_t>(length));
}

}  // namespace

Folder::Folder(Descriptor descriptor, std::string path)
    : descriptor_(std::move(descriptor)), path_(std::move(path)) {}

std::string Folder::PathOf(std::string_view name) const {
  return fmt::format("{}/{}", path_ == "/" ? "" : path_, name);
}

Result<Folder> Folder::Open(const std::string& path, Missing missing) {
  ASSIGN_OR_RETURN(const std::string absolute, Absolute(path));
  std::deque<std::string> parts = Components(absolute);
  const auto root = [] { return Descriptor(OpenFolderAt(AT_FDCWD, "/")); };
  Folder at(root(), "/");
  if (!at.descriptor_.ok()) return IoError("open", "/");
  RETURN_IF_ERROR(
      Check(at.descriptor_, "/", parts.empty() ? PathPart::kLast : PathPart::kOnTheWay));
  for (int links = 0; !parts.empty();) {
    const std::string name = std::move(parts.front());
    const std::string next_path = at.PathOf(name);
    parts.pop_front();
    Descriptor next(OpenFolderAt(at.descriptor(), name));
    if (!next.ok() && (errno == ENOTDIR || errno == ELOOP)) {
      ASSIGN_OR_RETURN(const std::string target, ReadLink(at.descriptor(), name, next_path));
      if (!target.empty()) {
        if (++links > kMostLinks)
          return Status::Error(Code::kInvalidValue, "{}: too many links", path);
        const std::deque<std::string> inserted = Components(target);
        parts.insert(parts.begin(), inserted.begin(), inserted.end());
        if (target.starts_with('/')) at = Folder(root(), "/");
        continue;
      }
    }
    if (!next.ok()) {
      ASSIGN_OR_RETURN(next, OpenOrMake(at.descriptor(), name, next_path, missing));
    }
    RETURN_IF_ERROR(Check(next, next_path, parts.empty() ? PathPart::kLast : PathPart::kOnTheWay));
    at = Folder(std::move(next), next_path);
  }
  return at;
}

Result<Folder> Folder::Sub(const std::string& name, Missing missing) const {
  ASSIGN_OR_RETURN(Descriptor opened, OpenOrMake(descriptor(), name, PathOf(name), missing));
  RETURN_IF_ERROR(Check(opened, PathOf(name), PathPart::kLast));
  return Folder(std::move(opened), PathOf(name));
}

std::vector<std::string> Folder::Names() const {
  std::vector<std::string> names;
  Descriptor listed(::openat(descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!listed.ok()) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(listed.get()), &::closedir);
  if (stream == nullptr) return names;
  (void)listed.Release();  // the stream closes it
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::optional<struct stat> Folder::Look(const std::string& name) const {
  struct stat info;
  if (::fstatat(descriptor(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return info;
}

Result<std::string> Folder::Read(const std::string& name, int64_t most_bytes) const {
  return ReadFileAt(descriptor(), name, PathOf(name), most_bytes);
}

Status Folder::Write(const std::string& name, std::string_view content) const {
  return WriteFileAt(descriptor(), name, PathOf(name), content);
}

Status Folder::AppendLine(const std::string& name, std::string_view line) const {
  return AppendLineAt(descriptor(), name, PathOf(name), line);
}

Result<Descriptor> Folder::OpenFile(const std::string& name) const {
  Descriptor file(::openat(descriptor(), name.c_str(),
                           O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                           0600));
  struct stat info;
  if (!file.ok() || ::fstat(file.get(), &info) != 0) return IoError("open", PathOf(name));
  if (S_ISREG(info.st_mode)) return file;
  return Status::Error(Code::kInvalidValue, "{} is not a regular file", PathOf(name));
}

int Folder::Move(const std::string& name, const Folder& to, const std::string& new_name) const {
  const int done = ::renameat(descriptor(), name.c_str(), to.descriptor(), new_name.c_str());
  return done == 0 ? 0 : errno;
}

void Folder::RemoveFile(const std::string& name) const {
  ::unlinkat(descriptor(), name.c_str(), 0);
}

void Folder::Remove(const std::string& name) const { RemoveFolder(name, 0); }

void Folder::RemoveFolder(const std::string& name, int depth) const {
  if (::unlinkat(descriptor(), name.c_str(), 0) == 0 || errno == ENOENT || depth > kDeepest) return;
  const Folder folder(Descriptor(OpenFolderAt(descriptor(), name)), PathOf(name));
  if (!folder.descriptor_.ok()) return;
  for (const std::string& inner : folder.Names()) folder.RemoveFolder(inner, depth + 1);
  ::unlinkat(descriptor(), name.c_str(), AT_REMOVEDIR);
}

Descriptor Folder::Lock() const {
  Descriptor file(::openat(descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.ok()) (void)LockFile(file.get(), std::chrono::milliseconds(0));
  return file;
}

FileLock Folder::Probe(const std::string& name) const {
  const Descriptor file(
      ::openat(descriptor(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return file.ok() ? LockFile(file.get(), std::chrono::milliseconds(0)) : FileLock::kUnsupported;
}

}  // namespace kiln::runtime
