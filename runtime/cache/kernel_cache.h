// The kernel cache: a memory map of shared futures over the directory of disk_cache.h and the packs
// of pack_set.h. The future
// makes a compile single-flight: of many threads that ask for one kernel, one compiles and the
// others wait for it; of many processes by turn.h. A failed compile is told to those who waited and
// then forgotten, so that it can be tried again.
//
// Used by the CUDA device (cubins), the CPU plug-in (objects) and `kiln cache`.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/cache/disk_cache.h"
#include "runtime/cache/pack_set.h"

namespace kiln::runtime {

struct CachedKernel {
  enum class Origin : uint8_t { kMemory, kDisk, kPack, kCompiled };
  std::shared_ptr<const std::string> payload;
  Origin origin = Origin::kCompiled;
};

class KernelCache {
 public:
  struct Options {
    std::string root;  // empty: memory only
    int64_t disk_limit_bytes = int64_t{2} << 30;
    int64_t memory_limit_bytes = int64_t{256} << 20;
    std::chrono::milliseconds patience{60'000};  // with another process that compiles the same
    std::vector<std::string> packs = {};         // files and folders
  };
  // KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln, else $HOME/.cache/kiln; KILN_CACHE_SIZE_MB;
  // the packs of PackPaths.
  static Options OptionsFromEnv();

  explicit KernelCache(Options options);

  using CompileFunction = std::function<Result<std::string>()>;
  // The kernel from memory, else from disk, else by `compile`, which runs in the calling thread.
  Result<CachedKernel> Get(const CacheRequest& request, const CompileFunction& compile);

  // The kernel from memory or disk alone; a compile under way is not waited for.
  std::optional<CachedKernel> Find(const CacheRequest& request);

  // The kernel from memory or a pack, whoever compiled it: the request's field "compiler" is empty.
  // What a pack has is not stored on disk. `driver_major`: PackSet::Find.
  std::optional<CachedKernel> FindInPacks(const CacheRequest& request, int driver_major);

  // Entries for `kiln cache`. Where there is no directory, disk().status() says why.
  std::vector<CacheEntry> List() const { return disk_.List(/*check_payloads=*/false); }
  // Removes the damaged entries and returns them.
  std::vector<CacheEntry> Verify();
  PruneReport Prune(int64_t limit_bytes) { return disk_.Prune(limit_bytes); }
  const DiskCache& disk() const { return disk_; }

 private:
  using Outcome = Result<CachedKernel>;
  using Future = std::shared_future<Outcome>;

  // The kernel of the key: the one that is kept or being made, else what `make` gives.
  Outcome Share(const Hash128& key, const std::function<Outcome()>& make);
  std::optional<CachedKernel> FindInMemory(const Hash128& key);
  Outcome LoadOrCompile(const CacheRequest& request, const Hash128& key,
                        const CompileFunction& compile);
  void Retain(const Hash128& key, int64_t bytes);
  void Forget(const Hash128& key);

  DiskCache disk_;
  PackSet packs_;
  const int64_t memory_limit_bytes_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;  // guards what follows; never held while compiling or reading
  std::unordered_map<Hash128, Future, Hash128Hasher> futures_;
  std::deque<std::pair<Hash128, int64_t>> finished_;  // oldest first
  int64_t finished_bytes_ = 0;
};

}  // namespace kiln::runtime
