// manifest.txt of a cache entry: lines for people, with lengths and hashes, closed by a hash of
// itself.
//
//   kiln kernel 1
//   arch = sm_90a
//   source kernel.cu 10234 8f0c…
//   payload kernel.cubin 3344 77ab…
//   end 9a02…
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache/disk_cache.h"

namespace kiln::runtime {

// The format of an entry; part of the directory's name, so that an old library never reads a new
// cache.
inline constexpr int kCacheFormat = 1;

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  std::string hash;  // 32 hex digits

  bool Matches(std::string_view content) const;
};

struct Manifest {
  std::vector<KeyField> fields;
  ManifestFile source, payload;
};

std::string PrintManifest(const CacheRequest& request, std::string_view payload);

// Parses exactly what PrintManifest writes; nothing where any byte differs.
std::optional<Manifest> ParseManifest(std::string_view text);

}  // namespace kiln::runtime
