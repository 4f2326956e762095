// Turn: of several processes that lack one kernel, one compiles it and the others wait for it, as
// ranks of one training job do that start together. A file says who is at work by a lock, which the
// system takes from a process that ends in any way; the file itself says nothing and may be left.
//
// It is a courtesy: where no file can be made or locked, and where somebody is slower than the
// patience of those who wait, more than one compiles, which costs time and nothing else. Used by
// KernelCache.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "runtime/cache/folder.h"

namespace kiln::runtime {

class Turn {
 public:
  // Waits for whoever has the turn that `file` in the folder names, at most so long. Without a
  // folder there is no turn.
  Turn(std::optional<Folder> folder, std::string file, std::chrono::milliseconds patience);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool taken() const { return descriptor_.ok(); }

 private:
  std::optional<Folder> folder_;
  std::string file_;
  Descriptor descriptor_;
};

}  // namespace kiln::runtime
