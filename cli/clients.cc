#include "cli/clients.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>

#include "cli/frameworks.h"
#include "cli/path_sources.h"
#include "runtime/cache/own_folder.h"

namespace kiln::cli {
namespace {

using State = runtime::DoctorLine::State;

constexpr const char* kPrefix = "libcudnn.so";

// One framework of one site, and how it would load libcudnn.
struct Client {
  const Framework* framework;
  std::string version;
  std::vector<LoadedObject> chain;  // the object that asks, what loads it, the interpreter
  std::string name;                 // what it asks for: "libcudnn.so.9"
  bool is_needed = false;           // by DT_NEEDED; else opened by dlopen
};

// The library that is taken, and how the sentence about it goes on.
struct Choice {
  std::string path, why;
  bool is_bound = false;            // LD_PRELOAD changes nothing
  bool takes_library_path = false;  // LD_LIBRARY_PATH does
};

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// In its first megabytes: Python sources and NVIDIA's small library have no more.
bool HasText(const std::string& path, const char* text) {
  constexpr size_t kMost = 4 << 20;
  std::string all(kMost, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(all.data(), static_cast<std::streamsize>(all.size()));
  all.resize(static_cast<size_t>(file.gcount()));
  return all.find(text) != std::string::npos;
}

// "2.9" before "2.18".
bool IsBefore(const std::string& version, const std::string& other) {
  const auto numbers = [](const std::string& text) {
    std::array<int, 2> found = {};
    const char* at = text.data();
    const char* const end = at + text.size();
    for (int& number : found) {
      at = std::from_chars(at, end, number).ptr;
      if (at != end) ++at;
    }
    return found;
  };
  return numbers(version) < numbers(other);
}

std::vector<std::string> Matches(const std::string& site, std::span<const char* const> patterns) {
  std::vector<std::string> paths;
  for (const char* pattern : patterns)
    if (pattern != nullptr) std::ranges::move(GlobPaths(site, pattern), std::back_inserter(paths));
  return paths;
}

std::string NameThatIsOpened(const Client& client) {
  const Framework& framework = *client.framework;
  const bool is_old =
      framework.opened_since != nullptr && IsBefore(client.version, framework.opened_since);
  return is_old ? "libcudnn.so.8" : framework.opens;
}

// The object that asks for cuDNN, and for what; false where none does.
Result<bool> FindAsking(const std::string& site, Client& client) {
  const Framework& framework = *client.framework;
  std::optional<LoadedObject> opening;
  for (const std::string& path : Matches(site, framework.objects)) {
    ASSIGN_OR_RETURN(ElfFile file, ReadElf(path));
    const auto needed = std::ranges::find_if(
        file.needed, [](const std::string& name) { return name.starts_with(kPrefix); });
    if (needed != file.needed.end()) {
      client.name = *needed;
      client.is_needed = true;
      client.chain.push_back({path, std::move(file)});
      return true;
    }
    if (framework.opens != nullptr && !opening) opening = LoadedObject{path, std::move(file)};
  }
  if (!opening) return false;
  client.name = NameThatIsOpened(client);
  client.chain.push_back(*std::move(opening));
  return true;
}

// Adds the objects that load this one, as far as they can be read: an rpath that cannot be is none.
void AddLoaders(const std::string& site, const std::string& interpreter, Client& client) {
  std::vector<std::string> loaders = Matches(site, client.framework->loaders);
  if (!interpreter.empty()) loaders.push_back(interpreter);
  for (const std::string& path : loaders) {
    if (path == client.chain.front().path) continue;
    Result<ElfFile> file = ReadElf(path);
    client.chain.push_back({path, file.ok() ? *std::move(file) : ElfFile()});
  }
}

const char* NameOf(LoaderRule rule) {
  switch (rule) {
    case LoaderRule::kPreload:
      return "LD_PRELOAD names it";
    case LoaderRule::kRpath:
      return "DT_RPATH";
    case LoaderRule::kLibraryPath:
      return "LD_LIBRARY_PATH names its folder";
    case LoaderRule::kRunpath:
      return "DT_RUNPATH";
    case LoaderRule::kCache:
      return "/etc/ld.so.cache names it";
    case LoaderRule::kFolders:
      return "its folder is one of the system's";
    case LoaderRule::kNone:
      return "ld.so finds none";
  }
  return "";
}

std::string WhyFound(const std::string& asking, const Client& client, const FoundLibrary& found) {
  const std::string asks =
      fmt::format("{} {} {}", asking, client.is_needed ? "needs" : "opens", client.name);
  if (found.rule == LoaderRule::kRpath)
    return fmt::format("{}, and DT_RPATH of {} ({}) comes before LD_LIBRARY_PATH", asks,
                       FileName(found.owner), found.folder);
  if (found.rule == LoaderRule::kRunpath)
    return fmt::format("{}, and DT_RUNPATH of {} is {}", asks, FileName(found.owner), found.folder);
  return fmt::format("{}, and {}", asks, NameOf(found.rule));
}

struct ByPath {
  const OpensByPath* fact = nullptr;
  std::string path;
};

ByPath OpenedByPath(const Client& client, const std::string& site, const PythonSites& sites,
                    const LoaderSettings& settings) {
  for (const OpensByPath& fact : client.framework->by_path) {
    if (fact.file == nullptr) continue;
    const auto files = GlobPaths(site, fact.file);
    if (std::ranges::none_of(files,
                             [&](const std::string& file) { return HasText(file, fact.text); }))
      continue;
    for (const PathSource source : fact.sources)
      if (std::string path = FileOf(source, sites.folders, settings); !path.empty())
        return {&fact, std::move(path)};
    return {&fact, {}};
  }
  return {};
}

bool Takes(const OpensByPath* fact, PathSource source) {
  return fact != nullptr && std::ranges::find(fact->sources, source) != std::end(fact->sources);
}

// The library that the client gets. A file that is opened by path serves those who ask by name if
// that is its DT_SONAME, and if no other of that name was there before.
Choice Choose(const Client& client, const ByPath& opened, const LoaderSettings& settings) {
  // A library that a script opens has an object of Python's for its caller, which has no paths.
  const bool is_script = opened.fact != nullptr && opened.fact->when == OpensWhen::kBinds;
  const FoundLibrary found =
      FindLibrary(settings, std::span(client.chain).subspan(is_script ? 1 : 0), client.name);
  Choice choice = {
      .path = found.path,
      .why = WhyFound(is_script ? opened.fact->by : FileName(client.chain.front().path), client,
                      found)};
  if (!found.damage.empty()) choice.why += ": " + found.damage;
  choice.takes_library_path = Takes(opened.fact, PathSource::kLibraryPath);
  if (opened.path.empty()) return choice;
  const OpensWhen when = opened.fact->when;
  const bool is_preloaded = found.rule == LoaderRule::kPreload;
  if (when == OpensWhen::kBinds) {
    choice.is_bound = true;
    choice.path = opened.path;
    choice.why = fmt::format("{} opens that file by its path and calls it, whatever is preloaded",
                             opened.fact->by);
  } else if (when == OpensWhen::kIfAsked) {
    if (!is_preloaded && opened.path != found.path)
      choice.why += fmt::format("; a program that calls {} has {} in its place", opened.fact->by,
                                opened.path);
  } else if (when == OpensWhen::kIfNone) {
    if (found.rule == LoaderRule::kNone) {
      choice.path = opened.path;
      choice.why = fmt::format("ld.so finds no {}, and then {} opens that file by its path",
                               client.name, opened.fact->by);
    }
  } else if (const Result<ElfFile> file = ReadElf(opened.path);
             !is_preloaded && file.ok() && file->is_ours && file->soname == client.name) {
    choice.path = opened.path;
    choice.why = fmt::format("{} opens that file by its path before {} is asked for by name",
                             opened.fact->by, client.name);
  }
  return choice;
}

// NVIDIA's is a small library that opens those with the functions.
bool IsNvidias(const std::string& path) {
  return HasText(path, "libcudnn_graph.so") || HasText(path, "libcudnn_ops_infer.so");
}

// This Kiln's library of that name, as an installation and a build have it.
std::string OurLibrary(const std::string& name) {
  const std::string folder = runtime::OwnFolder();
  for (const char* place : {"/../lib/", "/../api/", "/"})
    if (const std::string path = folder + place + name; ::access(path.c_str(), R_OK) == 0) {
      const size_t up = folder.rfind('/');
      return std::string_view(place).starts_with("/..") ? folder.substr(0, up) + (place + 3) + name
                                                        : path;
    }
  return "/path/to/kiln/lib/" + name;
}

std::string WhatToDo(const Client& client, const Choice& choice) {
  const std::string ours = OurLibrary(client.name);
  if (choice.takes_library_path)
    return fmt::format("LD_LIBRARY_PATH={} puts Kiln first", ours.substr(0, ours.rfind('/')));
  if (choice.is_bound)
    return fmt::format(
        "neither LD_PRELOAD nor LD_LIBRARY_PATH changes that: put a link to {} in "
        "its place, or uninstall what brought it",
        ours);
  return fmt::format("LD_PRELOAD={} puts Kiln first", ours);
}

runtime::DoctorLine LineOf(const Client& client, const Choice& choice, std::string subject) {
  if (choice.path.empty())
    return {State::kNote, std::move(subject),
            fmt::format("no {}: {}; {}", client.name, choice.why, WhatToDo(client, choice))};
  const Result<ElfFile> file = ReadElf(choice.path);
  if (file.ok() && file->is_kiln)
    return {State::kGood, std::move(subject),
            fmt::format("Kiln's {}: {}", choice.path, choice.why)};
  const char* whose = file.ok() && IsNvidias(choice.path) ? "NVIDIA's" : "not Kiln's but";
  std::string text = fmt::format("{} {}: {}", whose, choice.path, choice.why);
  if (!file.ok()) text += fmt::format(" ({})", file.status().message());
  return {State::kNote, std::move(subject), fmt::format("{}; {}", text, WhatToDo(client, choice))};
}

std::string VersionIn(const std::string& site, const Framework& framework) {
  for (const char* distribution : framework.distributions)
    if (distribution != nullptr)
      if (std::string version = DistributionVersion(site, distribution); !version.empty())
        return version;
  return {};
}

runtime::DoctorLine Examine(const std::string& site, Client client, const PythonSites& sites,
                            const LoaderSettings& settings) {
  std::string subject = fmt::format("{} {}", client.framework->name, client.version);
  const Result<bool> asks = FindAsking(site, client);
  if (!asks.ok())
    return {State::kNote, std::move(subject),
            fmt::format("what it would load is not known: {}", asks.status().message())};
  if (!*asks)
    return {State::kNote, std::move(subject),
            fmt::format("has nothing in {} that asks for libcudnn", site)};
  AddLoaders(site, sites.interpreter, client);
  const ByPath opened = OpenedByPath(client, site, sites, settings);
  return LineOf(client, Choose(client, opened, settings), std::move(subject));
}

}  // namespace

std::vector<runtime::DoctorLine> ExamineClients(const PythonSites& sites,
                                                const LoaderSettings& settings) {
  std::vector<runtime::DoctorLine> lines;
  for (const Framework& framework : Frameworks())
    for (const std::string& site : sites.folders)
      if (std::string version = VersionIn(site, framework); !version.empty()) {
        lines.push_back(Examine(site, {.framework = &framework, .version = std::move(version)},
                                sites, settings));
        break;  // imports find this one first
      }
  constexpr const char* kClients = "clients";
  if (!sites.trouble.empty())
    lines.push_back({State::kNote, kClients,
                     fmt::format("{}; --site DIR names a folder of packages", sites.trouble)});
  if (lines.empty())
    lines.push_back(
        {State::kNote, kClients,
         sites.folders.empty()
             ? "no python3 on PATH; --site DIR names a folder of packages"
             : fmt::format("no framework that calls cuDNN in {}", fmt::join(sites.folders, ", "))});
  return lines;
}

}  // namespace kiln::cli
