// Candidates for libnvrtc.so: names for the loader first, then files that exist.
#pragma once

#include <string>
#include <vector>

namespace kiln::runtime {

// The candidates in the order to try. Majors up to `driver_major` come first, newest first; 0 is no
// preference.
std::vector<std::string> NvrtcCandidates(int driver_major);

}  // namespace kiln::runtime
