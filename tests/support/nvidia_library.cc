// Candidates from fixed patterns, from the environments that PATH and variables point to, and from
// python3.
#include "tests/support/nvidia_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libcudnn.so.9";
// In the order of their dependencies.
constexpr std::array kParts = {"libcudnn_graph.so.9",
                               "libcudnn_ops.so.9",
                               "libcudnn_heuristic.so.9",
                               "libcudnn_engines_precompiled.so.9",
                               "libcudnn_engines_runtime_compiled.so.9",
                               "libcudnn_engines_tensor_ir.so.9",
                               "libcudnn_ext.so.9",
                               "libcudnn_cnn.so.9",
                               "libcudnn_adv.so.9"};

constexpr std::array kFolders = {"/usr/lib/x86_64-linux-gnu",
                                 "/usr/lib/aarch64-linux-gnu",
                                 "/usr/lib64",
                                 "/usr/local/lib",
                                 "/usr/local/cuda*/lib64",
                                 "/usr/local/cuda*/lib",
                                 "/usr/local/cuda*/targets/*/lib",
                                 "/opt/cudnn*/lib"};

// Roots of Python environments; under each, lib/python3*/{site,dist}-packages/nvidia/cudnn/lib.
constexpr std::array kPythonRoots = {"/usr",       "/usr/local",   "/opt/*",
                                     "/opt/*/*",   "/opt/*/.venv", "/root/.pyenv/versions/*",
                                     "/root/.venv"};

// Ours has such parts too, which are jumps of a few kilobytes; NVIDIA's precompiled engines are
// hundreds of megabytes.
bool HoldsParts(const fs::path& folder) {
  std::error_code missing;
  const auto bytes = fs::file_size(folder / kParts[3], missing);
  return !missing && bytes > 1 << 20;
}

std::vector<std::string> Glob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

// The environments of every python3 in PATH, where its link lies and where it leads, and of the
// variables.
std::vector<std::string> PythonRoots() {
  std::vector<std::string> roots(kPythonRoots.begin(), kPythonRoots.end());
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = std::getenv(variable)) roots.emplace_back(value);
  }
  if (const char* home = std::getenv("HOME")) roots.push_back(std::string(home) + "/.local");
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path python = fs::path(folder) / "python3";
    std::error_code missing;
    const fs::path real = fs::canonical(python, missing);
    if (missing) continue;
    roots.push_back(python.parent_path().parent_path().string());
    roots.push_back(real.parent_path().parent_path().string());
  }
  return roots;
}

// Folders that python3 itself would import from; it knows of .pth files and PYTHONPATH.
std::vector<std::string> AskPython() {
  std::vector<std::string> folders;
  FILE* python = popen(
      "python3 -c 'import nvidia.cudnn as c; print(*c.__path__, sep=\"\\n\")' 2>/dev/null", "r");
  if (python == nullptr) return folders;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), python) != nullptr) {
    std::string folder = line.data();
    folder.erase(folder.find_last_not_of('\n') + 1);
    folders.push_back(folder + "/lib");
  }
  pclose(python);
  return folders;
}

std::vector<std::string> Candidates() {
  std::vector<std::string> folders = AskPython();
  folders.insert(folders.end(), kFolders.begin(), kFolders.end());
  for (const std::string& root : PythonRoots()) {
    for (const char* packages : {"site-packages", "dist-packages"})
      folders.push_back(root + "/lib/python3*/" + packages + "/nvidia/cudnn/lib");
  }
  std::vector<std::string> paths;
  for (const std::string& folder : folders) {
    for (const std::string& found : Glob(folder + "/" + kName)) {
      std::error_code missing;
      const fs::path real = fs::canonical(found, missing);
      // Parts lie beside the real file; a link to it elsewhere is the same library.
      if (missing || !HoldsParts(real.parent_path())) continue;
      if (std::ranges::find(paths, real.string()) == paths.end()) paths.push_back(real.string());
    }
  }
  return paths;
}

bool LibraryPathHoldsParts() {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code missing;
    for (const char* part : kParts) {
      if (!folder.empty() && fs::exists(fs::path(folder) / part, missing)) return true;
    }
  }
  return false;
}

// Runs in the child. A static copy of the number would do, but a file that does not load is no
// candidate.
size_t LoadAndAsk(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  const auto version = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetVersion"));
  return version != nullptr ? version() : 0;
}

}  // namespace

size_t ProbeVersion(const std::string& path) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    const size_t version = LoadAndAsk(path.c_str());
    const bool written = write(ends[1], &version, sizeof(version)) == sizeof(version);
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  size_t version = 0;
  if (child < 0 || read(ends[0], &version, sizeof(version)) != sizeof(version)) version = 0;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return version;
}

std::vector<NvidiaLibrary> FindNvidiaLibraries() {
  std::vector<NvidiaLibrary> libraries;
  for (const std::string& path : Candidates()) {
    if (const size_t version = ProbeVersion(path); version != 0)
      libraries.push_back({.path = path, .version = version});
  }
  std::ranges::stable_sort(libraries, std::ranges::greater{}, &NvidiaLibrary::version);
  return libraries;
}

std::string NvidiaLibraryPath(const std::string& named) {
  if (!named.empty()) return named;
  const auto libraries = FindNvidiaLibraries();
  return libraries.empty() ? "" : libraries.front().path;
}

std::string LoadPartsBeside(const std::string& path) {
  std::error_code missing;
  const fs::path folder = fs::canonical(path, missing).parent_path();
  if (missing || !HoldsParts(folder) || !LibraryPathHoldsParts()) return "";
  for (const char* part : kParts) {
    const fs::path file = folder / part;
    if (!fs::exists(file, missing)) continue;
    // Local, as the library itself is: the parts name each other by soname, and nobody else may
    // bind to them.
    if (dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return dlerror();
  }
  return "";
}

}  // namespace kiln::testing
