// CompileCheck: gathers the CUDA texts of programs, each text once an architecture, and compiles
// them with NVRTC on two threads.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/program.h"
#include "runtime/cuda/nvrtc.h"

namespace kiln::compiler {

class CompileCheck {
 public:
  // `where` names the program in messages.
  void Add(const Program& program, const std::string& where);
  size_t texts() const { return texts_.size(); }

  // Compiles up to `limit` texts, evenly spread over the order of their names and so the same ones
  // each time, each for the architecture of its plan. Returns a sentence for each failure and each
  // warning.
  std::vector<std::string> Run(const runtime::Nvrtc& nvrtc, size_t limit) const;

 private:
  struct Text {
    KernelSource source;
    std::string where;
  };
  // By entry, which hashes the text, and architecture: architectures mix all over the order.
  std::map<std::pair<std::string, std::string>, Text> texts_;
};

// True if KILN_TEST_ALL asks for everything that is sampled otherwise.
bool TestAll();

}  // namespace kiln::compiler
