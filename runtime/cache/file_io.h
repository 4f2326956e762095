// Whole files as bytes, with errors as sentences. Used by the caches and for records; nothing else
// in the runtime reads or writes files. Only regular files are touched: a FIFO does not block, and
// a file of terabytes is not read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/base/result.h"

namespace kiln::runtime {

// A limit above the size of any file that Kiln writes.
inline constexpr int64_t kLargestFile = int64_t{256} << 20;

// A file descriptor that is closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    number_ = other.Release();
    return *this;
  }

  int get() const { return number_; }
  bool ok() const { return number_ >= 0; }
  int Release();
  void Close();

 private:
  int number_;
};

// An error from errno, such as "cannot read <path>: Permission denied".
Status IoError(std::string_view action, const std::string& path);

// Reads the whole file. Code::kInvalidValue says that what is there cannot be right (no file, no
// regular file, too large), kInternal that the system did not let us look.
Result<std::string> ReadFile(const std::string& path, int64_t most_bytes = kLargestFile);
// Creates the file with mode 0600; fails if it exists.
Status WriteFile(const std::string& path, std::string_view content);
// Appends the line by one atomic write; creates the file with mode 0600. An unfinished last line is
// closed first, by an end of line.
Status AppendLine(const std::string& path, std::string_view line);

// Read or write `name` in an open folder; `path` is for the sentences. Links are not followed, and
// a file that others may change is not read (kInvalidValue).
Result<std::string> ReadFileAt(int folder, const std::string& name, const std::string& path,
                               int64_t most_bytes = kLargestFile);
Status WriteFileAt(int folder, const std::string& name, const std::string& path,
                   std::string_view content);
Status AppendLineAt(int folder, const std::string& name, const std::string& path,
                    std::string_view line);

}  // namespace kiln::runtime
