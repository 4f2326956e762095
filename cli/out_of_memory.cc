#include "cli/out_of_memory.h"

#include <algorithm>
#include <cstdlib>

// The array and nothrow forms of the standard library call these.
void* operator new(size_t bytes) {
  if (void* memory = std::malloc(std::max<size_t>(bytes, 1))) return memory;
  throw kiln::cli::OutOfMemory(bytes);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
