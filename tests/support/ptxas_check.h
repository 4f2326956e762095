// PtxasCheck: what ptxas says of kernels beyond the numbers that every one has: spills, stack
// frames, wgmma that it serialises (C75xx). Through NVRTC with the library's own options.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/program.h"

namespace kiln::testing {

bool HasNvrtc();

class PtxasCheck {
 public:
  // `where` names the program in messages.
  void Add(const Program& program, const std::string& where);
  size_t kernels() const { return kernels_.size(); }
  // Two at a time; a sentence for each kernel that is not clean.
  std::vector<std::string> Run() const;

 private:
  struct Kernel {
    KernelSource source;
    std::string where;
  };
  std::map<std::string, Kernel> kernels_;  // by entry and architecture
};

}  // namespace kiln::testing
