// dlopen over a list of candidates, with a record of what was tried: the record becomes the error's
// sentence and a line of `kiln doctor`. Libraries are never closed: CUDA's do not support it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/base/result.h"

namespace kiln::runtime {

class DynamicLibrary {
 public:
  // Opens the first candidate that loads. `what` begins the error's sentence ("the CUDA driver"),
  // `advice` ends it.
  static Result<DynamicLibrary> Open(std::string_view what, std::span<const std::string> candidates,
                                     std::string_view advice);

  // The address of `symbol`; null where the library does not export it.
  void* Find(const char* symbol) const;
  const std::string& path() const { return path_; }  // the file's, as the loader knows it

 private:
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace kiln::runtime
