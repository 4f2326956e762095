// CompileCheck: gathers the CUDA texts of programs, each text once, and compiles them with NVRTC on
// two threads.
#pragma once

#include <map>
#include <span>
#include <string>
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
  // each time, each for every arch, or for one arch each, in turn, with `one_arch_each`. Returns a
  // sentence for each failure and each warning.
  std::vector<std::string> Run(const runtime::Nvrtc& nvrtc, std::span<const char* const> archs,
                               size_t limit, bool one_arch_each) const;

 private:
  struct Text {
    std::string text, where;
  };
  std::map<std::string, Text> texts_;  // by entry, which hashes the text
};

// Whether KILN_TEST_ALL asks for everything that is sampled otherwise.
bool TestAll();

}  // namespace kiln::compiler
