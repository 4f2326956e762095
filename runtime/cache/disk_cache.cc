// The cache directory: atomic publication by rename, checks on every read, and pruning by last use.
// The time of last use is the manifest's mtime, since many systems mount with noatime.
#include "runtime/cache/disk_cache.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/file_lock.h"
#include "runtime/cache/usage.h"

namespace kiln::runtime {
namespace {

constexpr const char* kStages = "tmp";
constexpr const char* kPruneLock = "lock";
constexpr int64_t kTouchAfterSeconds = 60;  // a hit renews the mtime at most this often
// A stage that nobody has locked is left by a killed process: after so long, as a living one locks
// its stage at once; where locks do not exist, after an hour.
constexpr int64_t kUnlockedStageSeconds = 10, kStaleStageSeconds = 3600;
constexpr int64_t kEstimateBytes = int64_t{64} << 20;  // stored by us: then the sum is looked after
constexpr int kMostPrunes = 8;                         // in a row, while other processes store
constexpr std::chrono::milliseconds kNoWait{0};

int64_t NowSeconds() { return static_cast<int64_t>(::time(nullptr)); }

void RenewLastUse(const Folder& entry) {
  const auto info = entry.Look(kManifestFile);
  if (!info || NowSeconds() - info->st_mtime < kTouchAfterSeconds) return;
  ::utimensat(entry.descriptor(), kManifestFile, nullptr, AT_SYMLINK_NOFOLLOW);
}

std::string RandomName() {
  uint64_t number[2] = {};
  if (::getrandom(number, sizeof number, 0) < 0) number[0] = static_cast<uint64_t>(::getpid());
  return fmt::format("{:016x}{:016x}", number[0], number[1]);
}

// A new folder in `tmp`, locked while it lives; removed at the end unless it was published.
class Stage {
 public:
  static Result<Stage> Make(const Folder& folder) {
    ASSIGN_OR_RETURN(Folder stages, folder.Sub(kStages, Missing::kIsMade));
    std::string name = RandomName();
    ASSIGN_OR_RETURN(Folder own, stages.Sub(name, Missing::kIsMade));
    return Stage(std::move(stages), std::move(own), std::move(name));
  }
  ~Stage() {
    if (!name_.empty()) stages_.Remove(name_);
  }
  Stage(Stage&& other) noexcept
      : stages_(std::move(other.stages_)),
        own_(std::move(other.own_)),
        lock_(std::move(other.lock_)),
        name_(std::exchange(other.name_, {})) {}

  const Folder& folder() const { return own_; }

  // errno of the rename, or 0: then the stage is the entry.
  int Publish(const Folder& shard, const std::string& key) {
    const int error = stages_.Move(name_, shard, key);
    if (error == 0) name_.clear();
    return error;
  }

 private:
  Stage(Folder stages, Folder own, std::string name)
      : stages_(std::move(stages)),
        own_(std::move(own)),
        lock_(own_.Lock()),
        name_(std::move(name)) {}

  Folder stages_, own_;
  Descriptor lock_;
  std::string name_;
};

// Moved away by one rename first, so that a reader finds all of an entry or nothing.
void Discard(const Folder& folder, const Folder& parent, const std::string& name) {
  const Result<Folder> stages = folder.Sub(kStages, Missing::kIsMade);
  if (!stages.ok()) return;
  const std::string moved = RandomName();
  if (parent.Move(name, *stages, moved) == 0) stages->Remove(moved);
}

// True if what could not be read is wrong itself, and would bar the rename in Store for ever. Else
// the system did not let us look.
bool IsInTheWay(const Status& status) {
  return status.code() == Code::kInvalidValue || status.code() == Code::kNotSupported;
}

int64_t BytesIn(const Folder& folder, const std::string& name) {
  const auto info = folder.Look(name);
  if (!info || !S_ISDIR(info->st_mode)) return info ? info->st_size : 0;
  const Result<Folder> inner = folder.Sub(name, Missing::kFails);
  int64_t bytes = 0;
  if (!inner.ok()) return 0;
  for (const std::string& file : inner->Names())
    if (const auto part = inner->Look(file)) bytes += part->st_size;
  return bytes;
}

// Removes what killed processes left in `tmp`; their bytes.
int64_t SweepStages(const Folder& folder) {
  const Result<Folder> stages = folder.Sub(kStages, Missing::kFails);
  int64_t bytes = 0;
  if (!stages.ok()) return 0;
  for (const std::string& name : stages->Names()) {
    const auto info = stages->Look(name);
    const int64_t age = info ? NowSeconds() - info->st_mtime : 0;
    if (age < kUnlockedStageSeconds) continue;
    const FileLock lock = stages->Probe(name);
    if (lock == FileLock::kBusy || (lock == FileLock::kUnsupported && age < kStaleStageSeconds))
      continue;
    bytes += BytesIn(*stages, name);
    stages->Remove(name);
  }
  return bytes;
}

std::vector<CacheEntry> Entries(const Folder& folder, Depth depth) {
  std::vector<CacheEntry> entries;
  for (const std::string& name : folder.Names()) {
    if (!IsShard(name)) continue;
    const Result<Folder> shard = folder.Sub(name, Missing::kFails);
    if (shard.ok()) AddEntries(*shard, depth, entries);
  }
  std::ranges::sort(entries, {}, &CacheEntry::key);
  return entries;
}

// Bytes of all entries: a process that stores its first kernel does not wait for a walk over a
// hundred thousand (10 s). Keys are hashes, so that some hundred entries of any shards are a fair
// draw; fewer are counted exactly.
int64_t EstimateBytes(const Folder& folder) {
  constexpr size_t kEnough = 512;
  std::vector<CacheEntry> entries;
  int64_t seen = 0, shards = 0;
  for (const std::string& name : folder.Names()) {
    if (!IsShard(name)) continue;
    ++shards;
    if (entries.size() >= kEnough) continue;
    ++seen;
    const Result<Folder> shard = folder.Sub(name, Missing::kFails);
    if (shard.ok()) AddEntries(*shard, Depth::kSizes, entries);
  }
  int64_t bytes = 0;
  for (const CacheEntry& entry : entries) bytes += entry.bytes;
  return seen == 0 ? 0
                   : static_cast<int64_t>(static_cast<double>(bytes) * static_cast<double>(shards) /
                                          static_cast<double>(seen));
}

Status NoRoot() {
  if (IsPrivileged()) {
    return Status::Text(Code::kInternal,
                        "this process has more rights than whoever started it (setuid, setgid or "
                        "capabilities), so that no variable and no home names a folder");
  }
  return Status::Text(Code::kInternal, "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
}

}  // namespace

Hash128 CacheRequest::Key() const {
  FieldHasher hasher;
  hasher.Add(int64_t{kCacheFormat}).Add(static_cast<int64_t>(fields.size()));
  for (const KeyField& field : fields) hasher.Add(field.name).Add(field.value);
  return hasher.Add(source_file).Add(payload_file).Add(source).Finish();
}

DiskCache::DiskCache(std::string root, int64_t limit_bytes) : limit_bytes_(limit_bytes) {
  if (root.empty()) {
    status_ = NoRoot();
    return;
  }
  directory_ = fmt::format("{}/v{}", root, kCacheFormat);
  status_ = Folder::Open(directory_, Missing::kIsMade).status();
}

Result<Folder> DiskCache::Open(Missing missing) const {
  if (!usable()) return Status(status_);
  Result<Folder> folder = Folder::Open(directory_, missing);
  // A folder that is missing has been removed, and comes again with the next kernel.
  if (!folder.ok() && folder.status().code() != Code::kInvalidValue &&
      !open_failure_logged_.exchange(true))
    LOG(kWarn, "kernel cache: not used: {}", folder.status().message());
  return folder;
}

std::optional<std::string> DiskCache::Load(const CacheRequest& request, const Hash128& key) {
  const Result<Folder> folder = Open(Missing::kFails);
  if (!folder.ok()) return std::nullopt;
  const std::string name = key.Hex();
  const Result<Folder> shard = folder->Sub(ShardOf(name), Missing::kFails);
  if (!shard.ok()) {
    if (IsInTheWay(shard.status()) && folder->Look(ShardOf(name)))
      Discard(*folder, *folder, ShardOf(name));
    return std::nullopt;
  }
  if (!shard->Look(name)) return std::nullopt;
  const auto read = [&]() -> Result<std::pair<Folder, EntryParts>> {
    ASSIGN_OR_RETURN(Folder entry, shard->Sub(name, Missing::kFails));
    ASSIGN_OR_RETURN(EntryParts parts, ReadEntry(entry));
    return std::pair(std::move(entry), std::move(parts));
  };
  Result<std::pair<Folder, EntryParts>> found = read();
  if (!found.ok()) {
    if (!IsInTheWay(found.status())) return std::nullopt;
    LOG(kInfo, "kernel cache: {}: {}; the entry is removed", shard->PathOf(name),
        found.status().message());
    Discard(*folder, *shard, name);
    return std::nullopt;
  }
  auto& [entry, parts] = *found;
  // A sound entry of something else with the same hash: not ours to use, and not ours to remove.
  if (parts.manifest.fields != request.fields || parts.source != request.source)
    return std::nullopt;
  RenewLastUse(entry);
  return std::move(parts.payload);
}

std::optional<Folder> DiskCache::TurnFolder() const {
  const Result<Folder> folder = Open(Missing::kIsMade);
  if (!folder.ok()) return std::nullopt;
  Result<Folder> stages = folder->Sub(kStages, Missing::kIsMade);
  return stages.ok() ? std::optional(*std::move(stages)) : std::nullopt;
}

std::string DiskCache::TurnFile(const Hash128& key) { return key.Hex() + ".turn"; }

Status DiskCache::CheckWritable() const {
  ASSIGN_OR_RETURN(const Folder folder, Open(Missing::kIsMade));
  return Stage::Make(folder).status();
}

Status DiskCache::Publish(const CacheRequest& request, const std::string& key,
                          std::string_view payload, int64_t* bytes) const {
  ASSIGN_OR_RETURN(const Folder folder, Open(Missing::kIsMade));
  ASSIGN_OR_RETURN(Stage stage, Stage::Make(folder));
  const std::string manifest = PrintManifest(request, payload);
  RETURN_IF_ERROR(stage.folder().Write(request.source_file, request.source));
  RETURN_IF_ERROR(stage.folder().Write(request.payload_file, payload));
  RETURN_IF_ERROR(stage.folder().Write(kManifestFile, manifest));
  ASSIGN_OR_RETURN(const Folder shard, folder.Sub(ShardOf(key), Missing::kIsMade));
  const int error = stage.Publish(shard, key);
  if (error == ENOTEMPTY || error == EEXIST) return {};  // another process was faster
  if (error != 0) {
    return Status::Error(Code::kInternal, "cannot rename {} to {}: {}", stage.folder().path(),
                         shard.PathOf(key), std::strerror(error));
  }
  *bytes = static_cast<int64_t>(request.source.size() + payload.size() + manifest.size());
  return {};
}

void DiskCache::Store(const CacheRequest& request, const Hash128& key, std::string_view payload) {
  if (!usable()) return;
  int64_t bytes = 0;
  if (Status status = Publish(request, key.Hex(), payload, &bytes); !status.ok()) {
    if (!write_failure_logged_.exchange(true)) {
      LOG(kWarn, "kernel cache: not stored: {}; kernels will be compiled again in the next process",
          status.message());
    }
    return;
  }
  if (const Result<Folder> folder = Open(Missing::kFails); folder.ok()) AccountFor(*folder, bytes);
}

// The sum of all processes' stores costs a lock and a line. It is compared with what is there at a
// process' first store and now and then, since processes that are killed do not tell.
void DiskCache::AccountFor(const Folder& folder, int64_t bytes) {
  std::optional<int64_t> total = AddUsage(folder, bytes);
  const int64_t before = stored_since_estimate_.fetch_add(bytes);
  if (!total || before < 0 || before + bytes >= kEstimateBytes) {
    stored_since_estimate_ = 0;
    SweepStages(folder);
    const int64_t estimate = EstimateBytes(folder);
    if (!total || estimate > *total + *total / 8) CorrectUsage(folder, total, estimate);
    total = std::max(total.value_or(0), estimate);
  }
  // A tenth below the limit, so that a full cache is not pruned at every store. Whoever stores
  // while another process prunes leaves it to that one, which looks again when it is done.
  for (int i = 0; i < kMostPrunes && limit_bytes_ >= 0 && total > limit_bytes_; ++i) {
    if (PruneLocked(folder, limit_bytes_ - limit_bytes_ / 10).busy) return;
    total = ReadUsage(folder);
  }
}

std::vector<CacheEntry> DiskCache::List(bool check_payloads) const {
  const Result<Folder> folder = Open(Missing::kFails);
  if (!folder.ok()) return {};
  return Entries(*folder, check_payloads ? Depth::kPayload : Depth::kManifest);
}

void DiskCache::Remove(const std::string& key) {
  const Result<Folder> folder = Open(Missing::kFails);
  if (!folder.ok() || !IsKey(key)) return;
  const Result<Folder> shard = folder->Sub(ShardOf(key), Missing::kFails);
  if (shard.ok()) Discard(*folder, *shard, key);
}

PruneReport DiskCache::Prune(int64_t limit_bytes) {
  const Result<Folder> folder = Open(Missing::kFails);
  return folder.ok() ? PruneLocked(*folder, limit_bytes) : PruneReport();
}

PruneReport DiskCache::PruneLocked(const Folder& folder, int64_t limit_bytes) const {
  PruneReport report;
  const Result<Descriptor> lock = folder.OpenFile(kPruneLock);
  if (lock.ok() && LockFile(lock->get(), kNoWait) == FileLock::kBusy) {
    report.busy = true;
    return report;
  }
  report.removed_bytes = SweepStages(folder);
  const std::optional<int64_t> told = ReadUsage(folder);
  std::vector<CacheEntry> entries = Entries(folder, Depth::kSizes);
  std::ranges::stable_sort(entries, {}, &CacheEntry::last_used_ns);
  for (const CacheEntry& entry : entries) report.kept_bytes += entry.bytes;
  report.kept_entries = static_cast<int64_t>(entries.size());
  for (const CacheEntry& entry : entries) {
    if (limit_bytes < 0 || report.kept_bytes <= limit_bytes) break;
    const Result<Folder> shard = folder.Sub(ShardOf(entry.key), Missing::kFails);
    if (!shard.ok()) continue;
    Discard(folder, *shard, entry.key);
    if (shard->Look(entry.key)) continue;  // the folder may be read only
    report.kept_bytes -= entry.bytes;
    report.removed_bytes += entry.bytes;
    --report.kept_entries;
    ++report.removed_entries;
  }
  CorrectUsage(folder, told, report.kept_bytes);
  return report;
}

}  // namespace kiln::runtime
