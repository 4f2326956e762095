// Folder: an open directory that nobody else may change. Its path is walked from the root of the
// file system, each component is opened without following links and checked once it is open
// (trust.h), and everything in it is reached through its descriptor: whoever moves or replaces a
// folder on the way meanwhile changes nothing.
//
// A folder is opened for one operation of a cache and closed after it: a descriptor that stayed
// open would be another file's after a client closed all that it does not know.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/result.h"
#include "runtime/cache/file_io.h"
#include "runtime/cache/file_lock.h"

namespace kiln::runtime {

enum class Missing : uint8_t { kFails, kIsMade };  // with mode 0700

class Folder {
 public:
  // Opens the folder and follows links on the way where they are trusted. Code::kInvalidValue where
  // there is no such folder, kNotSupported with who could change it, kInternal with what the system
  // said.
  static Result<Folder> Open(const std::string& path, Missing missing);

  // Opens a folder in this one, which must not be a link. `name` has no slash.
  Result<Folder> Sub(const std::string& name, Missing missing) const;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }
  std::string PathOf(std::string_view name) const;

  // The names in the folder, sorted. A folder that cannot be read has none.
  std::vector<std::string> Names() const;
  // lstat of `name`: a link is described itself, not its target.
  std::optional<struct stat> Look(const std::string& name) const;

  Result<std::string> Read(const std::string& name, int64_t most_bytes = kLargestFile) const;
  Status Write(const std::string& name, std::string_view content) const;
  Status AppendLine(const std::string& name, std::string_view line) const;
  // Opens a regular file for reading and writing, and makes it where it is missing.
  Result<Descriptor> OpenFile(const std::string& name) const;
  // Renames `name`. Returns errno, or 0.
  int Move(const std::string& name, const Folder& to, const std::string& new_name) const;
  // Removes a file, or a folder with all that is in it; does nothing where there is none.
  void Remove(const std::string& name) const;
  void RemoveFile(const std::string& name) const;
  // Locks this folder until the descriptor is closed, for Probe to see. Where the file system has
  // no locks, nobody sees it.
  Descriptor Lock() const;
  // Tells whether somebody has the lock of the file or folder `name`.
  FileLock Probe(const std::string& name) const;

 private:
  Folder(Descriptor descriptor, std::string path);

  void RemoveFolder(const std::string& name, int depth) const;

  Descriptor descriptor_;  // O_PATH: needs no right to list
  std::string path_;
};

}  // namespace kiln::runtime
