// kiln cache list|verify|prune: the kernels on disk.
#include <algorithm>
#include <ctime>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/graph_file.h"
#include "cli/units.h"
#include "ir/base/env.h"
#include "runtime/cuda/cuda_compiler.h"

namespace kiln::cli {
namespace {

constexpr const char* kFooter =
    "The cache is a folder: KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln, else ~/.cache/kiln. Each "
    "kernel is\n"
    "a folder there with its source, its code, and a manifest of all that the code depends on, so "
    "that\n"
    "nothing in it is ever stale. It may be deleted at any time.\n"
    "\n"
    "Examples:\n"
    "  kiln cache list                kernels, the last used first\n"
    "  kiln cache verify              reads every file and removes what is damaged; status 1 if "
    "any was\n"
    "  kiln cache prune --max-mb 100  removes what was used longest ago; --max-mb 0 removes all";

using runtime::CacheEntry;

std::string FieldOf(const CacheEntry& entry, std::string_view name) {
  const auto field = std::ranges::find(entry.fields, name, &runtime::KeyField::name);
  return field == entry.fields.end() ? "?" : field->value;
}

// The CPU's list of features is long, and all of it is in the manifest.
std::string ArchText(const CacheEntry& entry) {
  const std::string arch = FieldOf(entry, "arch");
  return arch.substr(0, arch.find(' ', arch.find(' ') + 1));
}

std::string DateText(int64_t nanoseconds) {
  const std::time_t seconds = nanoseconds / 1'000'000'000;
  std::tm utc = {};
  char text[32] = "";
  if (gmtime_r(&seconds, &utc) != nullptr) std::strftime(text, sizeof text, "%F %TZ", &utc);
  return text;
}

Result<runtime::KernelCache*> OpenCache() {
  runtime::KernelCache& cache = runtime::ProcessKernelCache();
  if (!cache.disk().usable()) return Status(cache.disk().status());
  return &cache;
}

Status List() {
  ASSIGN_OR_RETURN(runtime::KernelCache* const cache, OpenCache());
  std::vector<CacheEntry> entries = cache->List();
  std::ranges::stable_sort(entries, std::ranges::greater(), &CacheEntry::last_used_ns);
  int64_t bytes = 0;
  for (const CacheEntry& entry : entries) {
    bytes += entry.bytes;
    PrintOut("{}  {}  {:>10}  {:<10}  {}\n", entry.key, DateText(entry.last_used_ns),
             BytesText(entry.bytes), ArchText(entry),
             entry.damage.empty() ? FieldOf(entry, "entry") : "damaged: " + entry.damage);
  }
  PrintOut("{} kernels, {} in {}\n", entries.size(), BytesText(bytes), cache->disk().directory());
  return {};
}

Result<bool> Verify() {
  ASSIGN_OR_RETURN(runtime::KernelCache* const cache, OpenCache());
  const std::vector<CacheEntry> damaged = cache->Verify();
  for (const CacheEntry& entry : damaged) PrintOut("removed {}: {}\n", entry.key, entry.damage);
  PrintOut("{} kernels are sound, {} were damaged\n", cache->List().size(), damaged.size());
  return damaged.empty();
}

Status Prune(int64_t limit_bytes) {
  ASSIGN_OR_RETURN(runtime::KernelCache* const cache, OpenCache());
  const runtime::PruneReport report = cache->Prune(limit_bytes);
  if (report.busy) {
    return Status::Error(Code::kExecutionFailed, "another process is pruning {}",
                         cache->disk().directory());
  }
  PrintOut("removed {} kernels, {}; kept {}, {}\n", report.removed_entries,
           BytesText(report.removed_bytes), report.kept_entries, BytesText(report.kept_bytes));
  return {};
}

}  // namespace

void AddCache(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("cache", "the kernels on disk: list, verify, prune");
  command->footer(kFooter);
  command->require_subcommand(1);
  const auto finish = [&exit_status](const Status& status) {
    if (!status.ok()) exit_status = Fail(status);
  };
  command->add_subcommand("list", "every kernel, the last used first")->callback([finish] {
    finish(List());
  });
  command->add_subcommand("verify", "read every file, remove what is damaged")
      ->callback([finish, &exit_status] {
        const Result<bool> sound = Verify();
        if (!sound.ok()) return finish(sound.status());
        if (!*sound) exit_status = kExitFailed;
      });
  auto megabytes = std::make_shared<int64_t>(EnvInt(Env::kCacheSizeMb) >> 20);
  CLI::App* prune = command->add_subcommand("prune", "remove the kernels used longest ago");
  const CLI::Option* given = prune->add_option("--max-mb", *megabytes, "megabytes that may stay")
                                 ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
                                 ->capture_default_str();
  // The variable's limit need not be whole megabytes, and may be none.
  prune->callback([finish, megabytes, given] {
    finish(Prune(given->count() > 0 ? *megabytes << 20 : EnvInt(Env::kCacheSizeMb)));
  });
}

}  // namespace kiln::cli
