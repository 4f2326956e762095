// compilers.txt in the cache directory: which NVRTC made the kernels there. Append-only, one line
// each:
//
//   nvrtc 13.0 (109338064 bytes) <tab> KILN_NVRTC <tab> driver major <tab> path <tab> size <tab>
//   mtime
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::runtime {

// The facts that decide which NVRTC a process would load.
struct CompilerChoice {
  std::string requested;  // KILN_NVRTC
  int driver_major = 0;
};

// The identity of an NVRTC file: two builds of one version differ in size.
std::string CompilerIdentity(int major, int minor, const std::string& path);

void RememberCompiler(const std::string& directory, const CompilerChoice& choice,
                      const std::string& identity, const std::string& path);

// The newest identity recorded for `choice` whose file is as it was; empty where there is none.
std::string BelievedCompiler(const std::string& directory, const CompilerChoice& choice);

// Every identity ever recorded, newest first.
std::vector<std::string> KnownCompilers(const std::string& directory);

}  // namespace kiln::runtime
