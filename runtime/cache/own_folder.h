// The file of the library or program that this code was linked into, and its folder: what is
// shipped beside it is found from there. The kernel names the file, so that the answer is the same
// for a program that was started by PATH, by a link or by the loader, for a library that was opened
// by a relative path, and after the working folder was changed or deleted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::runtime {

// Absolute paths without links; empty where the system does not tell.
std::string OwnFile();
std::string OwnFolder();

// The file that `maps`, as /proc/self/maps has it, has mapped at `address`; empty for none.
std::string FileMappedAt(std::string_view maps, uintptr_t address);

}  // namespace kiln::runtime
