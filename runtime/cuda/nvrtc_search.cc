// The search path of NVRTC. Files of toolkits and of PyPI wheels are found by glob; called by
// Nvrtc::Open.
#include "runtime/cuda/nvrtc_search.h"

#include <fmt/format.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "ir/base/env.h"

namespace kiln::runtime {
namespace {

constexpr int kMajors[] = {13, 12};

std::vector<std::string> Glob(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::ranges::reverse(paths);  // the newest version first
  return paths;
}

std::string Variable(const char* name) {
  const char* value = ForeignEnv(name);
  return value != nullptr ? value : "";
}

// The prefix of the running program where it is a Python interpreter: /opt/env/bin/python3.11 →
// /opt/env. None in a process with raised privileges: the prefix may be a user's.
std::string InterpreterPrefix() {
  if (IsPrivileged()) return {};
  char path[PATH_MAX];
  ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  size_t bin = program.rfind("/bin/python");
  return bin == std::string::npos ? "" : program.substr(0, bin);
}

// Folders that hold Python packages.
std::vector<std::string> PackageFolders() {
  std::vector<std::string> folders;
  std::string python_path = Variable("PYTHONPATH");
  for (size_t begin = 0; begin < python_path.size();) {
    size_t end = std::min(python_path.find(':', begin), python_path.size());
    if (end > begin) folders.push_back(python_path.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string home = Variable("HOME");
  for (const std::string& prefix :
       {Variable("VIRTUAL_ENV"), Variable("CONDA_PREFIX"), InterpreterPrefix(),
        home.empty() ? home : home + "/.local", std::string("/usr/local"), std::string("/usr")}) {
    if (prefix.empty()) continue;
    for (const char* kind : {"site-packages", "dist-packages"}) {
      std::ranges::copy(Glob(fmt::format("{}/lib/python3*/{}", prefix, kind)),
                        std::back_inserter(folders));
    }
  }
  return folders;
}

}  // namespace

std::vector<std::string> NvrtcCandidates(int driver_major) {
  std::vector<int> majors(std::begin(kMajors), std::end(kMajors));
  std::ranges::stable_partition(
      majors, [&](int major) { return driver_major == 0 || major <= driver_major; });

  const std::vector<std::string> packages = PackageFolders();
  const std::string conda = Variable("CONDA_PREFIX");
  std::vector<std::string> candidates;
  // All places for one major before the next: a cubin of a newer major does not load into an older
  // driver.
  for (int major : majors) {
    std::string name = fmt::format("libnvrtc.so.{}", major);
    candidates.push_back(name);
    std::ranges::copy(Glob(fmt::format("/usr/local/cuda*/lib64/{}", name)),
                      std::back_inserter(candidates));
    if (!conda.empty())
      std::ranges::copy(Glob(fmt::format("{}/lib/{}", conda, name)),
                        std::back_inserter(candidates));
    for (const std::string& folder : packages) {
      std::ranges::copy(Glob(fmt::format("{}/nvidia/*/lib/{}", folder, name)),
                        std::back_inserter(candidates));
    }
  }
  candidates.push_back("libnvrtc.so");
  return candidates;
}

}  // namespace kiln::runtime
