// The folder of the library or program that this code was linked into: what is shipped beside it is
// found from there.
#pragma once

#include <string>

namespace kiln::runtime {

// Resolved of links; empty where the system does not tell.
std::string OwnFolder();

}  // namespace kiln::runtime
