#include "runtime/cache/own_folder.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

namespace kiln::runtime {
namespace {

// The kernel writes a line feed of a path as \012.
std::string WithoutEscapes(std::string_view text) {
  constexpr std::string_view kLineFeed = "\\012";
  std::string path;
  for (size_t at = 0; at < text.size();) {
    const bool is_line_feed = text.substr(at, kLineFeed.size()) == kLineFeed;
    path += is_line_feed ? '\n' : text[at];
    at += is_line_feed ? kLineFeed.size() : 1;
  }
  return path;
}

// The path of a line "55d0c0000000-55d0c0021000 r-xp 00001000 fd:01 1234    /opt/kiln/bin/kiln".
std::string PathOfLine(std::string_view line) {
  constexpr int kFieldsBefore = 5;
  constexpr std::string_view kDeleted = " (deleted)";
  size_t at = 0;
  for (int field = 0; field < kFieldsBefore && at != std::string_view::npos; ++field)
    at = line.find_first_not_of(' ', line.find(' ', at));
  if (at == std::string_view::npos || line[at] != '/') return {};
  std::string_view path = line.substr(at);
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());  // replaced by a newer one
  return WithoutEscapes(path);
}

// For systems without /proc/self/maps. dladdr knows the main program by the name it was started by.
std::string FileAsTheLoaderKnowsIt() {
  Dl_info info;
  char path[PATH_MAX];
  if (::dladdr(reinterpret_cast<void*>(&OwnFolder), &info) != 0 && info.dli_fname != nullptr &&
      ::realpath(info.dli_fname, path) != nullptr)
    return path;
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

std::string FindOwnFile() {
  std::ifstream file("/proc/self/maps");
  const std::string maps{std::istreambuf_iterator<char>(file), {}};
  const std::string path = FileMappedAt(maps, reinterpret_cast<uintptr_t>(&OwnFolder));
  return path.empty() ? FileAsTheLoaderKnowsIt() : path;
}

}  // namespace

std::string OwnFile() {
  static const auto* const file = new std::string(FindOwnFile());
  return *file;
}

std::string OwnFolder() {
  const std::string path = OwnFile();
  return path.substr(0, path.rfind('/') == 0 ? 1 : path.rfind('/'));
}

std::string FileMappedAt(std::string_view maps, uintptr_t address) {
  while (!maps.empty()) {
    const size_t end = std::min(maps.find('\n'), maps.size());
    const std::string_view line = maps.substr(0, end);
    maps.remove_prefix(std::min(end + 1, maps.size()));
    uintptr_t first = 0, last = 0;
    const char* const stop = line.data() + line.size();
    const auto dash = std::from_chars(line.data(), stop, first, 16);
    if (dash.ec != std::errc() || dash.ptr == stop || *dash.ptr != '-') continue;
    if (std::from_chars(dash.ptr + 1, stop, last, 16).ec != std::errc()) continue;
    if (first <= address && address < last) return PathOfLine(line);
  }
  return {};
}

}  // namespace kiln::runtime
