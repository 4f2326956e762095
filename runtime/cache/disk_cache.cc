// The cache directory: atomic publication by rename, checks on every read, and pruning by last use.
// The time of last use is the manifest's mtime, since many systems mount with noatime.
#include "runtime/cache/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "ir/base/log.h"
#include "runtime/cache/file_io.h"
#include "runtime/cache/manifest.h"

namespace kiln::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.txt";
constexpr int64_t kTouchAfterSeconds = 60;    // a hit renews the mtime at most this often
constexpr int64_t kStaleStageSeconds = 3600;  // a crashed process' staging folder
constexpr int64_t kRescanBytes = int64_t{64}
                                 << 20;  // other processes store too: look again after this much

int64_t Nanoseconds(const timespec& t) { return t.tv_sec * int64_t{1000000000} + t.tv_nsec; }

int64_t NowSeconds() { return static_cast<int64_t>(::time(nullptr)); }

std::string Join(const std::string& folder, std::string_view name) {
  return fmt::format("{}/{}", folder, name);
}

// mkdir -p with mode 0700 for what it makes.
Status MakeFolders(const std::string& path) {
  for (size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at + 1);
    std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      struct stat info;
      // A parent that exists but is not ours to write gives EACCES or EROFS; it will do.
      if (::stat(part.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
      return Status::Error(Code::kInternal, "cannot create {}: {}", part, std::strerror(errno));
    }
  }
  return {};
}

// Code is run from here, so nobody else may be able to put any.
Status CheckTrust(const std::string& directory) {
  struct stat info;
  if (::stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return Status::Error(Code::kInternal, "{} is not a folder", directory);
  }
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Status::Error(
        Code::kInternal,
        "{} belongs to user {}, not to us ({}); set KILN_CACHE_DIR to another folder", directory,
        info.st_uid, ::geteuid());
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return Status::Error(Code::kInternal,
                         "{} is writable by everyone (mode {:o}); its kernels cannot be trusted",
                         directory, info.st_mode & 07777);
  }
  return {};
}

bool IsKey(const std::string& name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void RenewLastUse(const std::string& manifest) {
  struct stat info;
  if (::stat(manifest.c_str(), &info) != 0 || NowSeconds() - info.st_mtime < kTouchAfterSeconds)
    return;
  ::utimensat(AT_FDCWD, manifest.c_str(), nullptr, 0);
}

// What is wrong with the files of an entry, or empty; the manifest itself is sound.
std::string FindDamage(const std::string& entry, const ManifestFile& file, std::string* content) {
  auto read = ReadFile(Join(entry, file.name));
  if (!read.ok()) return read.status().message();
  if (!file.Matches(*read)) {
    return fmt::format(
        "{} is damaged: its {} bytes are not the {} bytes that the manifest describes", file.name,
        read->size(), file.bytes);
  }
  *content = *std::move(read);
  return {};
}

CacheEntry Inspect(const std::string& path, const std::string& key, bool check_payload) {
  CacheEntry entry;
  entry.key = key;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(path, error)) {
    struct stat info;
    if (::lstat(file.path().c_str(), &info) != 0) continue;
    entry.bytes += info.st_size;
    // The manifest's, or any file's where an entry has lost its manifest.
    if (entry.last_used_ns == 0 || file.path().filename() == kManifest) {
      entry.last_used_ns = Nanoseconds(info.st_mtim);
    }
  }
  auto text = ReadFile(Join(path, kManifest));
  auto manifest = text.ok() ? ParseManifest(*text) : std::nullopt;
  if (!manifest) {
    entry.damage = text.ok() ? "the manifest is damaged" : text.status().message();
    return entry;
  }
  entry.fields = manifest->fields;
  std::string content;
  if (check_payload) entry.damage = FindDamage(path, manifest->source, &content);
  if (check_payload && entry.damage.empty())
    entry.damage = FindDamage(path, manifest->payload, &content);
  return entry;
}

// All entries of one of the folders that keys are spread over by their first two digits.
void AddShard(const fs::path& shard, bool check_payloads, std::vector<CacheEntry>& entries) {
  if (shard.filename().string().size() != 2) return;
  std::error_code error;
  for (const auto& folder : fs::directory_iterator(shard, error)) {
    std::string key = folder.path().filename();
    if (IsKey(key)) entries.push_back(Inspect(folder.path(), key, check_payloads));
  }
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
    status_ =
        Status::Error(Code::kInternal, "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return;
  }
  directory_ = Join(root, fmt::format("v{}", kCacheFormat));
  status_ = MakeFolders(directory_);
  if (status_.ok()) status_ = CheckTrust(directory_);
}

std::string DiskCache::EntryPath(const std::string& key) const {
  return fmt::format("{}/{}/{}", directory_, key.substr(0, 2), key);
}

std::optional<std::string> DiskCache::Load(const CacheRequest& request, const Hash128& key) {
  if (!usable()) return std::nullopt;
  std::string entry = EntryPath(key.Hex());
  std::string manifest_path = Join(entry, kManifest);
  auto text = ReadFile(manifest_path);
  if (!text.ok()) {
    // A folder without a manifest would bar the way of the rename in Store for ever.
    if (::access(entry.c_str(), F_OK) == 0 && ::access(manifest_path.c_str(), F_OK) != 0)
      Discard(entry);
    return std::nullopt;
  }
  auto manifest = ParseManifest(*text);
  std::string damage = manifest ? "" : "the manifest is damaged";
  std::string source, payload;
  if (damage.empty()) damage = FindDamage(entry, manifest->source, &source);
  if (damage.empty()) damage = FindDamage(entry, manifest->payload, &payload);
  if (!damage.empty()) {
    LOG(kInfo, "kernel cache: {}: {}; the entry is removed", entry, damage);
    Discard(entry);
    return std::nullopt;
  }
  // A sound entry of something else with the same hash: not ours to use, and not ours to remove.
  if (manifest->fields != request.fields || source != request.source) return std::nullopt;
  RenewLastUse(manifest_path);
  return payload;
}

std::string DiskCache::TurnPath(const Hash128& key) const {
  const std::string tmp = Join(directory_, "tmp");
  if (!usable() || !MakeFolders(tmp).ok()) return {};
  return fmt::format("{}/{}.turn", tmp, key.Hex());
}

Result<std::string> DiskCache::MakeStage() const {
  std::string tmp = Join(directory_, "tmp");
  RETURN_IF_ERROR(MakeFolders(tmp));
  std::string stage = Join(tmp, "XXXXXX");
  if (::mkdtemp(stage.data()) == nullptr) {
    return Status::Error(Code::kInternal, "cannot create a folder in {}: {}", tmp,
                         std::strerror(errno));
  }
  return stage;
}

Status DiskCache::CheckWritable() const {
  if (!usable()) return status_;
  ASSIGN_OR_RETURN(std::string stage, MakeStage());
  ::rmdir(stage.c_str());
  return {};
}

Status DiskCache::Publish(const CacheRequest& request, const std::string& key,
                          std::string_view payload) const {
  ASSIGN_OR_RETURN(std::string stage, MakeStage());
  std::string entry = EntryPath(key);
  Status status = WriteFile(Join(stage, request.source_file), request.source);
  if (status.ok()) status = WriteFile(Join(stage, request.payload_file), payload);
  if (status.ok()) status = WriteFile(Join(stage, kManifest), PrintManifest(request, payload));
  if (status.ok()) status = MakeFolders(entry.substr(0, entry.rfind('/')));
  if (status.ok() && ::rename(stage.c_str(), entry.c_str()) == 0) return {};
  int rename_error = errno;
  std::error_code ignored;
  fs::remove_all(stage, ignored);
  if (!status.ok()) return status;
  if (rename_error == ENOTEMPTY || rename_error == EEXIST) return {};  // another process was faster
  return Status::Error(Code::kInternal, "cannot rename {} to {}: {}", stage, entry,
                       std::strerror(rename_error));
}

void DiskCache::Store(const CacheRequest& request, const Hash128& key, std::string_view payload) {
  if (!usable()) return;
  if (Status status = Publish(request, key.Hex(), payload); !status.ok()) {
    if (!write_failure_logged_.exchange(true)) {
      LOG(kWarn, "kernel cache: not stored: {}; kernels will be compiled again in the next process",
          status.message());
    }
    return;
  }
  AccountFor(static_cast<int64_t>(payload.size() + request.source.size()));
}

// Pruning costs a walk of the directory, so it happens only where an estimate is above the limit,
// and that is made at a process' first store and when what was seen and stored since may have
// crossed it.
void DiskCache::AccountFor(int64_t bytes) {
  int64_t before = stored_since_scan_.fetch_add(bytes);
  if (before >= 0 && before + bytes < kRescanBytes &&
      scanned_bytes_ + before + bytes <= limit_bytes_)
    return;
  stored_since_scan_ = 0;
  int64_t total = Estimate();
  // A tenth below the limit, so that a full cache is not pruned at every store.
  if (total > limit_bytes_) total = Prune(limit_bytes_ - limit_bytes_ / 10).kept_bytes;
  scanned_bytes_ = total;
}

std::vector<CacheEntry> DiskCache::List(bool check_payloads) const {
  std::vector<CacheEntry> entries;
  if (!usable()) return entries;
  std::error_code error;
  for (const auto& shard : fs::directory_iterator(directory_, error))
    AddShard(shard.path(), check_payloads, entries);
  std::ranges::sort(entries, {}, &CacheEntry::key);
  return entries;
}

// Bytes of all entries: a process that stores its first kernel does not wait for a walk over a
// hundred thousand (10 s). Keys are hashes, so that some hundred entries of any shards are a fair
// draw; fewer are counted exactly.
int64_t DiskCache::Estimate() const {
  constexpr size_t kEnough = 512;
  if (!usable()) return 0;
  std::error_code error;
  std::vector<CacheEntry> entries;
  int64_t seen = 0, shards = 0;
  for (const auto& shard : fs::directory_iterator(directory_, error)) {
    if (shard.path().filename().string().size() != 2) continue;
    ++shards;
    if (entries.size() >= kEnough) continue;
    ++seen;
    AddShard(shard.path(), /*check_payloads=*/false, entries);
  }
  int64_t bytes = 0;
  for (const CacheEntry& entry : entries) bytes += entry.bytes;
  return seen == 0 ? 0 : bytes * shards / seen;
}

void DiskCache::Remove(const std::string& key) {
  if (usable() && IsKey(key)) Discard(EntryPath(key));
}

PruneReport DiskCache::Prune(int64_t limit_bytes) {
  PruneReport report;
  if (!usable()) return report;
  int lock = ::open(Join(directory_, "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 || ::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (lock >= 0) ::close(lock);
    report.busy = true;
    return report;
  }
  SweepStages();
  auto entries = List(/*check_payloads=*/false);
  std::ranges::stable_sort(entries, {}, &CacheEntry::last_used_ns);
  for (const CacheEntry& entry : entries) report.kept_bytes += entry.bytes;
  report.kept_entries = static_cast<int64_t>(entries.size());
  for (const CacheEntry& entry : entries) {
    if (report.kept_bytes <= limit_bytes) break;
    Remove(entry.key);
    report.kept_bytes -= entry.bytes;
    report.removed_bytes += entry.bytes;
    --report.kept_entries;
    ++report.removed_entries;
  }
  ::close(lock);
  return report;
}

// Moved away by one rename first, so that a reader finds all of an entry or nothing.
void DiskCache::Discard(const std::string& entry) const {
  auto stage = MakeStage();
  if (!stage.ok()) return;
  std::error_code ignored;
  // An empty folder is replaced by the renamed one; "entry may have gone already" is not an error.
  ::rename(entry.c_str(), stage->c_str());
  fs::remove_all(*stage, ignored);
}

void DiskCache::SweepStages() const {
  std::error_code error;
  for (const auto& stage : fs::directory_iterator(Join(directory_, "tmp"), error)) {
    struct stat info;
    if (::lstat(stage.path().c_str(), &info) != 0 ||
        NowSeconds() - info.st_mtime < kStaleStageSeconds)
      continue;
    std::error_code ignored;
    fs::remove_all(stage.path(), ignored);
  }
}

}  // namespace kiln::runtime
