#include "cli/path_sources.h"

#include <algorithm>
#include <filesystem>

#include "cli/python_sites.h"
#include "ir/base/env.h"

namespace kiln::cli {
namespace {

std::string FirstVariable(std::initializer_list<const char*> names, std::string otherwise) {
  for (const char* name : names)
    if (const char* value = ForeignEnv(name); value != nullptr && *value != '\0') return value;
  return otherwise;
}

std::string InSites(const std::vector<std::string>& sites, const char* pattern) {
  for (const std::string& site : sites)
    if (std::vector<std::string> found = GlobPaths(site, pattern); !found.empty())
      return found.front();
  return {};
}

std::string OfLibraryPath(const LoaderSettings& settings) {
  for (const std::string& folder : LibraryPathFolders(settings))
    for (const char* name : {"libcudnn.so.9", "libcudnn.so"})
      if (const std::string path = folder + "/" + name;
          !folder.empty() && std::filesystem::exists(path))
        return path;
  return {};
}

// The file libcudnn.so* below a folder whose name comes last: the longest version.
std::string Below(const std::string& folder) {
  namespace fs = std::filesystem;
  constexpr int kMostEntries = 1'000'000;
  if (folder.empty()) return {};
  std::vector<fs::path> found;
  std::error_code error;
  int left = kMostEntries;
  for (fs::recursive_directory_iterator
           at(folder, fs::directory_options::skip_permission_denied, error),
       end;
       !error && at != end && left > 0; at.increment(error), --left)
    if (at->path().filename().string().starts_with("libcudnn.so")) found.push_back(at->path());
  const auto last = std::ranges::max_element(
      found, {}, [](const fs::path& path) { return path.filename().string(); });
  return last == found.end() ? "" : last->string();
}

std::string OfCupy() {
  const std::string home = FirstVariable({"HOME"}, "");
  const std::string folder = FirstVariable({"CUPY_CUDA_LIB_PATH"}, home + "/.cupy/cuda_lib");
  const auto found = GlobPaths(folder, "*/cudnn/*/lib*/libcudnn.so.*[0-9]");
  return found.empty() ? "" : found.front();
}

}  // namespace

std::string FileOf(PathSource source, const std::vector<std::string>& sites,
                   const LoaderSettings& settings) {
  switch (source) {
    case PathSource::kNone:
      return {};
    case PathSource::kWheel:
      return InSites(sites, "nvidia/cudnn/lib/libcudnn.so.*[0-9]");
    case PathSource::kJitWheel:
      return InSites(sites, "nvidia/cudnn_jit/lib/libcudnn.so.*[0-9]");
    case PathSource::kLibraryPath:
      return OfLibraryPath(settings);
    case PathSource::kCudnnHome:
      return Below(FirstVariable({"CUDNN_HOME", "CUDNN_PATH"}, ""));
    case PathSource::kCudaHome:
      return Below(FirstVariable({"CUDA_HOME", "CUDA_PATH"}, "/usr/local/cuda"));
    case PathSource::kCupyFolder:
      return OfCupy();
    case PathSource::kByName:
      return FindLibrary(settings, {}, "libcudnn.so").path;
  }
  return {};
}

}  // namespace kiln::cli
