// A file of which parts are read: packs are large, and a process wants few of their kernels. Code
// is run from them, so that a file that others may change is refused: it belongs to this user, to
// root, or to whoever the library's own file belongs to (an installation that many users share).
#pragma once

#include <cstdint>
#include <string>

#include "ir/base/result.h"
#include "runtime/cache/file_io.h"

namespace kiln::runtime {

class PartialFile {
 public:
  // Links are followed. Code::kInvalidValue where there is no regular file, kNotSupported with who
  // could change it, kInternal with what the system said.
  static Result<PartialFile> Open(const std::string& path);

  int64_t bytes() const { return bytes_; }
  // Fewer bytes where the file ends.
  Result<std::string> Read(uint64_t offset, uint64_t bytes) const;

 private:
  PartialFile(Descriptor file, std::string path, int64_t bytes)
      : file_(std::move(file)), path_(std::move(path)), bytes_(bytes) {}

  Descriptor file_;
  std::string path_;
  int64_t bytes_;
};

}  // namespace kiln::runtime
