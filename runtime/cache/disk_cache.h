// The kernel cache's directory. One entry is a folder whose name is the key:
//
//   <root>/v1/3f/3f9c…/kernel.cu      the source, for people, and compared whole on a hit
//                      kernel.cubin   the payload
//                      manifest.txt   the key's fields, lengths and hashes; written last
//   <root>/v1/tmp/…                   staging; an entry appears by one rename of its folder
//   <root>/v1/tmp/3f9c….turn          locked by the process that compiles this entry (turn.h)
//   <root>/v1/lock                    held, without waiting, by the process that prunes
//   <root>/v1/usage                   bytes of all entries, added to by every process (usage.h)
//
// Nobody else may be able to change any folder on the way to an entry (folder.h); where somebody
// may, nothing is read or stored.
//
// Entries need no coordination of processes: losing the race to store is success,
// whatever is damaged is a miss and is removed, and a failure to write is a line in the log. Called
// by KernelCache (kernel_cache.h) and, through it, by `kiln cache`.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/hash.h"
#include "ir/base/result.h"
#include "runtime/cache/folder.h"

namespace kiln::runtime {

// One named part of what a payload depends on: {"arch", "sm_90a"}. Names are [a-z_]+; values are
// any text.
struct KeyField {
  std::string name;
  std::string value;

  bool operator==(const KeyField&) const = default;
};

// The field that names who compiled; no part of a pack's key (pack.h).
inline constexpr const char* kCompilerField = "compiler";

// A payload and everything that it depends on. A dependency that is left out makes the cache hand
// out stale payloads.
struct CacheRequest {
  std::vector<KeyField> fields;  // library, compiler, arch, options …, in a fixed order
  std::string source;
  std::string source_file = "kernel.cu";
  std::string payload_file = "kernel.cubin";

  Hash128 Key() const;
};

struct CacheEntry {
  std::string key;               // 32 hex digits
  std::vector<KeyField> fields;  // empty where the manifest is damaged
  std::string damage;            // a sentence, or empty for a sound entry
  int64_t bytes = 0;             // of its files
  int64_t last_used_ns = 0;      // since 1970
};

struct PruneReport {
  int64_t removed_entries = 0, kept_entries = 0;
  int64_t removed_bytes = 0, kept_bytes = 0;  // with what killed processes left half-written
  bool busy = false;                          // another process is pruning; nothing was done
};

class DiskCache {
 public:
  // `root` may be empty, missing or unusable: then usable() is false, status() says why, and Load
  // misses. A negative limit is none.
  DiskCache(std::string root, int64_t limit_bytes);

  bool usable() const { return status_.ok(); }
  const Status& status() const { return status_; }
  // Success where an entry could be stored now. Leaves nothing behind.
  Status CheckWritable() const;
  const std::string& directory() const { return directory_; }  // <root>/v1

  std::optional<std::string> Load(const CacheRequest& request, const Hash128& key);
  void Store(const CacheRequest& request, const Hash128& key, std::string_view payload);

  // The folder of the turn files, by which processes say which entries they compile (turn.h);
  // nothing where no file can be made.
  std::optional<Folder> TurnFolder() const;
  static std::string TurnFile(const Hash128& key);

  // Every entry, by key. `check_payloads` also reads and hashes the files, as Load does.
  std::vector<CacheEntry> List(bool check_payloads) const;
  void Remove(const std::string& key);
  // Removes what killed processes left, and the entries that were used longest ago until at most
  // `limit_bytes` are left; a negative limit is none.
  PruneReport Prune(int64_t limit_bytes);

 private:
  Result<Folder> Open(Missing missing) const;
  Status Publish(const CacheRequest& request, const std::string& key, std::string_view payload,
                 int64_t* bytes) const;
  void AccountFor(const Folder& folder, int64_t bytes);
  PruneReport PruneLocked(const Folder& folder, int64_t limit_bytes) const;

  std::string directory_;
  int64_t limit_bytes_;
  Status status_;
  std::atomic<int64_t> stored_since_estimate_{-1};  // bytes; -1 before the first
  std::atomic<bool> write_failure_logged_{false};
  mutable std::atomic<bool> open_failure_logged_{false};
};

}  // namespace kiln::runtime
