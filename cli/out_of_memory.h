// An allocation that failed, with its size: std::bad_alloc does not know it. The tool replaces the
// global operator new (out_of_memory.cc), so that every allocation of its process fails so.
#pragma once

#include <cstddef>
#include <new>

namespace kiln::cli {

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t wanted) : wanted_(wanted) {}
  size_t wanted() const { return wanted_; }  // bytes
  const char* what() const noexcept override { return "out of memory"; }

 private:
  size_t wanted_;
};

}  // namespace kiln::cli
