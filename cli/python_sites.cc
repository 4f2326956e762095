#include "cli/python_sites.h"

#include <fmt/format.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "ir/base/env.h"

namespace kiln::cli {
namespace {

std::string Variable(const char* name) {
  const char* value = ForeignEnv(name);
  return value != nullptr ? value : "";
}

std::string Resolved(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? resolved : path;
}

bool IsProgram(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

std::string PythonOfPath() {
  const std::string path = Variable("PATH");
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string python = path.substr(begin, end - begin) + "/python3";
    if (end > begin && IsProgram(python)) return python;
    begin = end + 1;
  }
  return {};
}

bool IsScript(const std::string& path) {
  char begin[2] = {};
  std::ifstream(path, std::ios::binary).read(begin, sizeof begin);
  return begin[0] == '#' && begin[1] == '!';
}

// "lib/python3.11" of ".../bin/python3.11"; any version where the name does not say.
std::string LibraryPattern(const std::string& interpreter) {
  const std::string name = interpreter.substr(interpreter.rfind('/') + 1);
  return name.starts_with("python3.") ? name : "python3*";
}

// `python` as it was found: a virtual environment's is a link, and what it links to is another
// installation's.
void AddInterpreter(const std::string& python, PythonSites& sites) {
  const std::string resolved = Resolved(python);
  if (IsScript(resolved)) {
    sites.trouble = fmt::format("{} is a script, whose packages are not known", python);
    return;
  }
  if (sites.interpreter.empty()) sites.interpreter = resolved;
  const std::string prefix = python.substr(0, python.rfind("/bin/"));
  const bool is_virtual = ::access((prefix + "/pyvenv.cfg").c_str(), R_OK) == 0;
  std::vector<std::string> prefixes = {is_virtual ? prefix
                                                  : resolved.substr(0, resolved.rfind("/bin/"))};
  if (!is_virtual) {
    if (const std::string home = Variable("HOME"); !home.empty())
      prefixes.insert(prefixes.begin(), home + "/.local");
    if (prefixes.back() == "/usr") prefixes.insert(prefixes.end() - 1, "/usr/local");
  }
  for (const std::string& each : prefixes)
    for (const char* lib : {"lib", "lib64"})
      for (const std::string& version : {LibraryPattern(resolved), std::string("python3")})
        for (const char* kind : {"site-packages", "dist-packages"})
          for (std::string& folder : GlobPaths(each, fmt::format("{}/{}/{}", lib, version, kind)))
            if (std::ranges::find(sites.folders, Resolved(folder), Resolved) == sites.folders.end())
              sites.folders.push_back(std::move(folder));
}

std::string Normalised(std::string_view name) {
  std::string normalised(name);
  for (char& c : normalised)
    c = c == '-' || c == '.' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return normalised;
}

}  // namespace

PythonSites SitesOfEnvironment() {
  PythonSites sites;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = Variable(variable); !prefix.empty())
      if (const std::string python = prefix + "/bin/python3"; IsProgram(python))
        AddInterpreter(python, sites);
  if (const std::string python = PythonOfPath(); !python.empty()) AddInterpreter(python, sites);
  return sites;
}

std::vector<std::string> GlobPaths(const std::string& folder, const std::string& pattern) {
  std::string whole;
  for (const char c : folder) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) whole += '\\';
    whole += c;
  }
  glob_t found = {};
  std::vector<std::string> paths;
  if (::glob((whole + "/" + pattern).c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

std::string DistributionVersion(const std::string& folder, std::string_view distribution) {
  constexpr size_t kMostLines = 200;
  for (const std::string& info : GlobPaths(folder, "*-*.dist-info")) {
    const std::string_view name = std::string_view(info).substr(info.rfind('/') + 1);
    if (Normalised(name.substr(0, name.find('-'))) != distribution) continue;
    std::ifstream metadata(info + "/METADATA");
    std::string line;
    for (size_t i = 0; i < kMostLines && std::getline(metadata, line) && !line.empty(); ++i)
      if (constexpr std::string_view kField = "Version: "; line.starts_with(kField))
        return line.substr(kField.size(), line.find_last_not_of("\r ") + 1 - kField.size());
    return "?";
  }
  return {};
}

}  // namespace kiln::cli
