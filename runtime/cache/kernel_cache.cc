// Single-flight compile in memory, the directory beneath. See kernel_cache.h.
#include "runtime/cache/kernel_cache.h"

#include "ir/base/env.h"
#include "ir/base/log.h"
#include "runtime/cache/turn.h"

namespace kiln::runtime {
namespace {

std::string RootFromEnv() {
  if (const std::string& root = GetEnv(Env::kCacheDir); !root.empty()) return root;
  if (const char* xdg = ForeignEnv("XDG_CACHE_HOME"); xdg != nullptr && xdg[0] == '/')
    return fmt::format("{}/kiln", xdg);
  if (const char* home = ForeignEnv("HOME"); home != nullptr && home[0] == '/')
    return fmt::format("{}/.cache/kiln", home);
  return {};
}

}  // namespace

KernelCache::Options KernelCache::OptionsFromEnv() {
  return {
      .root = RootFromEnv(), .disk_limit_bytes = EnvInt(Env::kCacheSizeMb), .packs = PackPaths()};
}

KernelCache::KernelCache(Options options)
    : disk_(std::move(options.root), options.disk_limit_bytes),
      packs_(std::move(options.packs)),
      memory_limit_bytes_(options.memory_limit_bytes),
      patience_(options.patience) {
  if (disk_.usable()) return;
  // Without a home there is nothing to mend; a folder that cannot be used is worth a warning.
  const std::string text =
      fmt::format("kernel cache: in memory only: {}", disk_.status().message());
  if (disk_.directory().empty() && !IsPrivileged()) {
    LOG(kInfo, "{}", text);
  } else {
    LOG(kWarn, "{}", text);
  }
}

Result<CachedKernel> KernelCache::Get(const CacheRequest& request, const CompileFunction& compile) {
  const Hash128 key = request.Key();
  return Share(key, [&] { return LoadOrCompile(request, key, compile); });
}

KernelCache::Outcome KernelCache::Share(const Hash128& key, const std::function<Outcome()>& make) {
  std::promise<Outcome> promise;
  {
    std::unique_lock lock(mutex_);
    auto [slot, is_first] = futures_.try_emplace(key);
    if (!is_first) {
      Future future = slot->second;
      lock.unlock();
      Outcome outcome = future.get();
      if (outcome.ok()) outcome->origin = CachedKernel::Origin::kMemory;
      return outcome;
    }
    slot->second = promise.get_future().share();
  }
  try {
    Outcome outcome = make();
    if (outcome.ok()) {
      Retain(key, static_cast<int64_t>(outcome->payload->size()));
    } else {
      Forget(key);
    }
    promise.set_value(outcome);
    return outcome;
  } catch (...) {  // a failed CHECK in the compiler: those who wait must not wait for ever
    Forget(key);
    promise.set_exception(std::current_exception());
    throw;
  }
}

std::optional<CachedKernel> KernelCache::FindInMemory(const Hash128& key) {
  std::unique_lock lock(mutex_);
  const auto slot = futures_.find(key);
  if (slot == futures_.end() ||
      slot->second.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return std::nullopt;
  Future future = slot->second;
  lock.unlock();
  Outcome outcome = future.get();
  if (!outcome.ok()) return std::nullopt;
  outcome->origin = CachedKernel::Origin::kMemory;
  return *std::move(outcome);
}

std::optional<CachedKernel> KernelCache::FindInPacks(const CacheRequest& request,
                                                     int driver_major) {
  const Hash128 key = request.Key();
  if (auto kernel = FindInMemory(key)) return kernel;
  auto payload = packs_.Find(request, driver_major);
  if (!payload) return std::nullopt;
  Outcome kernel = Share(key, [&] {
    return CachedKernel{.payload = std::make_shared<const std::string>(*std::move(payload)),
                        .origin = CachedKernel::Origin::kPack};
  });
  return kernel.ok() ? std::optional(*std::move(kernel)) : std::nullopt;
}

std::optional<CachedKernel> KernelCache::Find(const CacheRequest& request) {
  const Hash128 key = request.Key();
  if (auto kernel = FindInMemory(key)) return kernel;
  auto payload = disk_.Load(request, key);
  if (!payload) return std::nullopt;
  // Through Get, so that a compile that began meanwhile and this agree on one copy.
  auto kernel = Get(request, [&]() -> Result<std::string> { return *std::move(payload); });
  if (!kernel.ok()) return std::nullopt;
  if (kernel->origin == CachedKernel::Origin::kCompiled)
    kernel->origin = CachedKernel::Origin::kDisk;
  return *std::move(kernel);
}

Result<CachedKernel> KernelCache::LoadOrCompile(const CacheRequest& request, const Hash128& key,
                                                const CompileFunction& compile) {
  const auto from_disk = [&]() -> std::optional<CachedKernel> {
    auto payload = disk_.Load(request, key);
    if (!payload) return std::nullopt;
    return CachedKernel{.payload = std::make_shared<const std::string>(*std::move(payload)),
                        .origin = CachedKernel::Origin::kDisk};
  };
  if (auto kernel = from_disk()) return *kernel;
  const Turn turn(disk_.TurnFolder(), DiskCache::TurnFile(key), patience_);
  if (turn.taken()) {
    if (auto kernel = from_disk()) return *kernel;  // somebody's turn ended meanwhile
  }
  ASSIGN_OR_RETURN(std::string payload, compile());
  disk_.Store(request, key, payload);
  return CachedKernel{.payload = std::make_shared<const std::string>(std::move(payload)),
                      .origin = CachedKernel::Origin::kCompiled};
}

void KernelCache::Retain(const Hash128& key, int64_t bytes) {
  std::lock_guard lock(mutex_);
  finished_.emplace_back(key, bytes);
  finished_bytes_ += bytes;
  while (finished_bytes_ > memory_limit_bytes_ && finished_.size() > 1) {
    futures_.erase(finished_.front().first);
    finished_bytes_ -= finished_.front().second;
    finished_.pop_front();
  }
}

void KernelCache::Forget(const Hash128& key) {
  std::lock_guard lock(mutex_);
  futures_.erase(key);
}

std::vector<CacheEntry> KernelCache::Verify() {
  std::vector<CacheEntry> damaged;
  for (CacheEntry& entry : disk_.List(/*check_payloads=*/true)) {
    if (entry.damage.empty()) continue;
    disk_.Remove(entry.key);
    damaged.push_back(std::move(entry));
  }
  return damaged;
}

}  // namespace kiln::runtime
