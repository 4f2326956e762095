// Whole files as bytes, with errors as sentences. Used by the caches and for records; nothing else
// in the runtime reads or writes files. Only regular files are touched: a FIFO does not block, and
// a file of terabytes is not read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/base/result.h"

namespace kiln::runtime {

// More than any file that Kiln writes.
inline constexpr int64_t kLargestFile = int64_t{256} << 20;

// Closes on leaving the scope.
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

// "cannot read <path>: Permission denied", from errno.
Status IoError(std::string_view action, const std::string& path);

// Code::kInvalidValue says that what is there cannot be right (no file, no regular file, too
// large), kInternal that the system did not let us look.
Result<std::string> ReadFile(const std::string& path, int64_t most_bytes = kLargestFile);
// Creates the file with mode 0600; fails if it exists.
Status WriteFile(const std::string& path, std::string_view content);
// One atomic append; creates the file with mode 0600. A line that was cut off before is closed
// first, by an end of line.
Status AppendLine(const std::string& path, std::string_view line);

// The same for `name` in an open folder; `path` is for the sentences. Links are not followed, and
// a file that others may change is not read (kInvalidValue).
Result<std::string> ReadFileAt(int folder, const std::string& name, const std::string& path,
                               int64_t most_bytes = kLargestFile);
Status WriteFileAt(int folder, const std::string& name, const std::string& path,
                   std::string_view content);
Status AppendLineAt(int folder, const std::string& name, const std::string& path,
                    std::string_view line);

}  // namespace kiln::runtime
