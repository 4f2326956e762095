#include "runtime/cache/entry.h"

#include <algorithm>

namespace kiln::runtime {
namespace {

constexpr int64_t kLargestManifest = 1 << 20;
constexpr const char* kHexDigits = "0123456789abcdef";

bool IsHex(const std::string& name, size_t digits) {
  return name.size() == digits && name.find_first_not_of(kHexDigits) == std::string::npos;
}

Result<std::string> ReadPart(const Folder& entry, const ManifestFile& file) {
  ASSIGN_OR_RETURN(std::string content,
                   entry.Read(file.name, std::min<int64_t>(file.bytes, kLargestFile)));
  if (file.Matches(content)) return content;
  return Status::Error(
      Code::kInvalidValue,
      "{} is damaged: its {} bytes are not the {} bytes that the manifest describes", file.name,
      content.size(), file.bytes);
}

std::string DamageOf(const Folder& entry, Depth depth, std::vector<KeyField>& fields) {
  const Result<Manifest> manifest = ReadManifest(entry);
  if (!manifest.ok()) return manifest.status().message();
  fields = manifest->fields;
  if (depth < Depth::kPayload) return {};
  return ReadEntry(entry).status().message();
}

CacheEntry Inspect(const Folder& shard, const std::string& key, Depth depth) {
  CacheEntry found;
  found.key = key;
  const Result<Folder> entry = shard.Sub(key, Missing::kFails);
  if (!entry.ok()) {
    found.damage = entry.status().message();
    if (const auto info = shard.Look(key)) {
      found.bytes = info->st_size;
      found.last_used_ns = Nanoseconds(info->st_mtim);
    }
    return found;
  }
  for (const std::string& name : entry->Names()) {
    const auto info = entry->Look(name);
    if (!info) continue;
    found.bytes += info->st_size;
    // The manifest's time is the time of last use; an entry that has lost its manifest has any
    // file's.
    if (found.last_used_ns == 0 || name == kManifestFile)
      found.last_used_ns = Nanoseconds(info->st_mtim);
  }
  if (depth > Depth::kSizes) found.damage = DamageOf(*entry, depth, found.fields);
  return found;
}

}  // namespace

bool IsKey(const std::string& name) { return IsHex(name, 32); }
bool IsShard(const std::string& name) { return IsHex(name, 2); }
std::string ShardOf(const std::string& key) { return key.substr(0, 2); }

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

Result<Manifest> ReadManifest(const Folder& entry) {
  ASSIGN_OR_RETURN(const std::string text, entry.Read(kManifestFile, kLargestManifest));
  if (std::optional<Manifest> manifest = ParseManifest(text)) return *std::move(manifest);
  return Status::Text(Code::kInvalidValue, "the manifest is damaged");
}

Result<EntryParts> ReadEntry(const Folder& entry) {
  EntryParts parts;
  ASSIGN_OR_RETURN(parts.manifest, ReadManifest(entry));
  ASSIGN_OR_RETURN(parts.source, ReadPart(entry, parts.manifest.source));
  ASSIGN_OR_RETURN(parts.payload, ReadPart(entry, parts.manifest.payload));
  return parts;
}

void AddEntries(const Folder& shard, Depth depth, std::vector<CacheEntry>& entries) {
  const std::string prefix = shard.path().substr(shard.path().rfind('/') + 1);
  for (const std::string& key : shard.Names())
    if (IsKey(key) && ShardOf(key) == prefix) entries.push_back(Inspect(shard, key, depth));
}

}  // namespace kiln::runtime
