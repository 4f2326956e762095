// A folder of its own for a test, removed at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace kiln::runtime {

class TemporaryFolder {
 public:
  // In `base`; Bazel's own folder may be one that other users cannot enter.
  explicit TemporaryFolder(const char* base = std::getenv("TEST_TMPDIR")) {
    path_ = std::string(base != nullptr ? base : "/tmp") + "/kiln_test_XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kiln::runtime
