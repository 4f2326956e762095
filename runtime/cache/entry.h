// One entry of the cache directory as it lies on disk: its parts, how large it is, when it was last
// used, and what is wrong with it. Called by DiskCache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/cache/folder.h"
#include "runtime/cache/manifest.h"

namespace kiln::runtime {

inline constexpr const char* kManifestFile = "manifest.txt";

// A key is 32 hex digits; the entries are spread over folders named by the first two.
bool IsKey(const std::string& name);
bool IsShard(const std::string& name);
std::string ShardOf(const std::string& key);

struct EntryParts {
  Manifest manifest;
  std::string source, payload;
};

// Read and check all of an entry. Code::kInvalidValue where it is damaged, kInternal where the
// system does not let us read it.
Result<Manifest> ReadManifest(const Folder& entry);
Result<EntryParts> ReadEntry(const Folder& entry);

enum class Depth : uint8_t { kSizes, kManifest, kPayload };

// Adds the entries of a shard; `depth` says how much of each is read.
void AddEntries(const Folder& shard, Depth depth, std::vector<CacheEntry>& entries);

int64_t Nanoseconds(const timespec& time);

}  // namespace kiln::runtime
