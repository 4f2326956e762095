#include "runtime/cache/pack_set.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cache/own_folder.h"
#include "runtime/cache/record_files.h"

namespace kiln::runtime {
namespace {

namespace fs = std::filesystem;

// "312 kernels for sm_90a by nvrtc 13.0 (109338064 bytes)"
std::string About(const Pack& pack) {
  std::set<std::string_view> archs, compilers;
  for (const PackedKernel& kernel : pack.kernels()) {
    archs.insert(kernel.arch);
    compilers.insert(kernel.compiler);
  }
  return fmt::format("{} kernels for {} by {}", pack.kernels().size(), fmt::join(archs, ", "),
                     fmt::join(compilers, ", "));
}

}  // namespace

std::vector<std::string> PackPaths() {
  std::vector<std::string> paths = BetweenColons(GetEnv(Env::kPacks));
  std::error_code error;
  if (const std::string own = OwnFolder(); !own.empty()) {
    const std::string shipped = own + "/../share/kiln/packs";
    if (fs::is_directory(shipped, error)) paths.push_back(shipped);
  }
  return paths;
}

std::vector<std::string> PackFiles(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.path().extension() == kPackExtension) files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

void PackSet::Open(const std::string& file) {
  Result<Pack> pack = Pack::Open(file);
  if (!pack.ok()) {
    LOG(kWarn, "pack: not used: {}", pack.status().message());
    return;
  }
  LOG(kInfo, "pack {}: {}", file, About(*pack));
  packs_.push_back(*std::move(pack));
}

void PackSet::OpenOnce() {
  std::call_once(once_, [this] {
    for (const std::string& path : paths_)
      for (const std::string& file : PackFiles(path)) Open(file);
  });
}

std::optional<std::string> PackSet::Find(const CacheRequest& request, int driver_major) {
  if (paths_.empty()) return std::nullopt;
  OpenOnce();
  if (packs_.empty()) return std::nullopt;
  const Hash128 key = PackKey(request);
  for (const Pack& pack : packs_) {
    const PackedKernel* const kernel = pack.Find(key);
    if (kernel == nullptr || kernel->text_bytes != request.source.size()) continue;
    if (driver_major > 0 && kernel->toolkit_major > static_cast<uint32_t>(driver_major)) continue;
    Result<std::string> cubin = pack.Read(*kernel);
    if (cubin.ok()) return *std::move(cubin);
    LOG(kWarn, "pack: {}; the kernel is compiled", cubin.status().message());
  }
  return std::nullopt;
}

}  // namespace kiln::runtime
