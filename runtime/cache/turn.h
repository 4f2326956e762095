// Turn: of several processes that lack one kernel, one compiles it and the others wait for it, as
// ranks of one training job do that start together. A file says who is at work by a lock, which the
// system takes from a process that ends in any way; the file itself says nothing and may be left.
//
// It is a courtesy: where no file can be made, and where somebody is slower than the patience of
// those who wait, more than one compiles, which costs time and nothing else. Used by KernelCache.
#pragma once

#include <chrono>
#include <string>

namespace kiln::runtime {

class Turn {
 public:
  // Waits for whoever has the turn that `path` names, at most so long. An empty path is no turn.
  Turn(std::string path, std::chrono::milliseconds patience);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool taken() const { return descriptor_ >= 0; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace kiln::runtime
