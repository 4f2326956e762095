// The path of NVIDIA's libcudnn.so.9 on this machine. There may be several: a system's package, a
// toolkit's, and the one of a Python environment, which is what frameworks run with. Tests and
// benchmarks compare with the newest.
#pragma once

#include <string>
#include <vector>

namespace kiln::testing {

struct NvidiaLibrary {
  std::string path;
  size_t version = 0;  // cudnnGetVersion: 91900 is 9.19.0
};

// All that load, newest first.
std::vector<NvidiaLibrary> FindNvidiaLibraries();

// `named` where it is not empty, else the newest; empty where there is none.
std::string NvidiaLibraryPath(const std::string& named);

// cudnnGetVersion of a library, asked in a child process: 0 where it does not load.
size_t ProbeVersion(const std::string& path);

// Loads the parts of an NVIDIA libcudnn.so.9 beside `path` by their full paths, if LD_LIBRARY_PATH
// holds parts of one, before it looks for them by name: the variable would come before its RUNPATH,
// and those parts may be of another release. Does nothing elsewhere, so that benchmarks time its
// own loading, and for a library of one file, as ours is. Gives an error in words, or empty.
std::string LoadPartsBeside(const std::string& path);

}  // namespace kiln::testing
