#include "cli/loader.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "ir/base/env.h"

namespace kiln::cli {
namespace {

std::string Variable(const char* name) {
  const char* value = ForeignEnv(name);
  return value != nullptr ? value : "";
}

std::vector<std::string> Split(std::string_view text, const char* separators) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = std::min(text.find_first_of(separators), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// An entry of a path with $ORIGIN in place; empty where it has another token, whose value is a
// matter of how glibc was built.
std::string Expand(std::string entry, const std::string& origin) {
  for (const std::string_view token : {"${ORIGIN}", "$ORIGIN"})
    for (size_t at = entry.find(token); at != std::string::npos;
         at = entry.find(token, at + origin.size()))
      entry.replace(at, token.size(), origin);
  if (entry.find("$LIB") != std::string::npos || entry.find("${LIB}") != std::string::npos ||
      entry.find("$PLATFORM") != std::string::npos ||
      entry.find("${PLATFORM}") != std::string::npos)
    return {};
  return entry.empty() ? "." : entry;
}

class Search {
 public:
  Search(const LoaderSettings& settings, std::span<const LoadedObject> chain, std::string name)
      : settings_(settings), chain_(chain), name_(std::move(name)) {}

  FoundLibrary Run() {
    if (!TakePreloaded()) TakeByRules();
    return std::move(found_);
  }
  // Finds the library by the rules alone, where no library is preloaded yet.
  FoundLibrary RunByRules() {
    TakeByRules();
    return std::move(found_);
  }

 private:
  bool TakePreloaded();
  bool TakeByRules();
  bool TakeRpaths();
  bool TakeCached(bool has_default_folders);
  bool Take(LoaderRule rule, const std::vector<std::string>& entries, const std::string& origin,
            const std::string& owner);
  // True if the search ends at this file.
  bool TakeFile(LoaderRule rule, const std::string& path);

  const LoaderSettings& settings_;
  const std::span<const LoadedObject> chain_;
  const std::string name_;
  FoundLibrary found_;
};

bool Search::TakeFile(LoaderRule rule, const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) return false;
  const Result<ElfFile> file = ReadElf(path);
  if (file.ok() && !file->is_ours) return false;
  found_.rule = rule;
  if (file.ok())
    found_.path = path;
  else
    found_.damage = file.status().message();
  return true;
}

bool Search::Take(LoaderRule rule, const std::vector<std::string>& entries,
                  const std::string& origin, const std::string& owner) {
  for (const std::string& entry : entries) {
    const std::string folder = Expand(entry, origin);
    if (folder.empty() || !TakeFile(rule, folder + "/" + name_)) continue;
    found_.owner = owner;
    found_.folder = entry;
    return true;
  }
  return false;
}

// A preloaded library serves whoever asks for its DT_SONAME, or for the word that it was preloaded
// by. One that cannot be loaded is left out.
bool Search::TakePreloaded() {
  std::ifstream file(settings_.preload_file);
  std::string of_file{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> entries = Split(settings_.preload, " :");
  std::ranges::move(Split(of_file, " :\t\n"), std::back_inserter(entries));
  for (const std::string& entry : entries) {
    if (entry.empty()) continue;
    const bool is_path = entry.find('/') != std::string::npos;
    const std::string origin = chain_.empty() ? "" : FolderOf(chain_.back().path);
    const std::string path =
        is_path ? Expand(entry, origin)
                : Search(settings_, chain_.last(std::min<size_t>(chain_.size(), 1)), entry)
                      .RunByRules()
                      .path;
    if (path.empty()) continue;
    const Result<ElfFile> object = ReadElf(path);
    if (!object.ok() || !object->is_ours) continue;
    if (object->soname != name_ && entry != name_) continue;
    found_ = {.rule = LoaderRule::kPreload, .path = path};
    return true;
  }
  return false;
}

bool Search::TakeRpaths() {
  for (const LoadedObject& object : chain_)
    if (const std::string* rpath = object.file.Rpath())
      if (Take(LoaderRule::kRpath, Split(*rpath, ":"), FolderOf(object.path), object.path))
        return true;
  return false;
}

bool Search::TakeByRules() {
  const LoadedObject* const asking = chain_.empty() ? nullptr : &chain_.front();
  const bool has_runpath = asking != nullptr && asking->file.runpath.has_value();
  if (!has_runpath && TakeRpaths()) return true;
  const std::string program = chain_.empty() ? "" : FolderOf(chain_.back().path);
  if (Take(LoaderRule::kLibraryPath, LibraryPathFolders(settings_), program, "")) return true;
  if (has_runpath && Take(LoaderRule::kRunpath, Split(*asking->file.runpath, ":"),
                          FolderOf(asking->path), asking->path))
    return true;
  const bool has_default_folders = asking == nullptr || !asking->file.has_no_default_folders;
  if (TakeCached(has_default_folders)) return true;
  return has_default_folders && Take(LoaderRule::kFolders, settings_.folders, "", "");
}

// The cache's form since glibc 2.32 (and, behind an older part, since 2.2): a header of 48 bytes,
// rows of 24, and texts, which rows name by their distance from the header.
bool Search::TakeCached(bool has_default_folders) {
  struct Row {
    int32_t flags;
    uint32_t name, path, os_version;
    uint64_t hwcap;
  };
  constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
  constexpr size_t kHeader = 48;
  std::ifstream file(settings_.cache_file, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = all.find(kMagic);
  if (begin == std::string::npos || all.size() - begin < kHeader) return false;
  const std::string_view cache = std::string_view(all).substr(begin);
  uint32_t rows = 0;
  std::memcpy(&rows, cache.data() + kMagic.size(), sizeof rows);
  const auto text = [&](uint32_t at) {
    const std::string_view rest = cache.substr(std::min<size_t>(at, cache.size()));
    return rest.substr(0, rest.find('\0'));
  };
  const auto is_default = [&](std::string_view path) {
    return std::ranges::any_of(settings_.folders, [&](const std::string& folder) {
      return path.starts_with(folder + "/");
    });
  };
  for (uint32_t i = 0; i < rows; ++i) {
    const size_t at = kHeader + size_t{i} * sizeof(Row);
    if (at + sizeof(Row) > cache.size()) return false;
    Row row;
    std::memcpy(&row, cache.data() + at, sizeof row);
    if (row.hwcap != 0 || text(row.name) != name_) continue;
    if (!has_default_folders && is_default(text(row.path))) continue;
    if (TakeFile(LoaderRule::kCache, std::string(text(row.path)))) return true;
  }
  return false;
}

}  // namespace

LoaderSettings LoaderSettings::OfEnvironment() {
  LoaderSettings settings;
  settings.preload = Variable("LD_PRELOAD");
  settings.library_path = Variable("LD_LIBRARY_PATH");
#if defined(__x86_64__)
  settings.folders = {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"};
#elif defined(__aarch64__)
  settings.folders = {"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"};
#endif
  for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"})
    settings.folders.emplace_back(folder);
  return settings;
}

std::vector<std::string> LibraryPathFolders(const LoaderSettings& settings) {
  if (settings.library_path.empty()) return {};
  return Split(settings.library_path, ":;");
}

FoundLibrary FindLibrary(const LoaderSettings& settings, std::span<const LoadedObject> chain,
                         const std::string& name) {
  return Search(settings, chain, name).Run();
}

}  // namespace kiln::cli
