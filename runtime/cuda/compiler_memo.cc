// The record of compilers in a cache directory; see compiler_memo.h. Called by cuda_compiler.cc.
#include "runtime/cuda/compiler_memo.h"

#include <sys/stat.h>

#include <algorithm>

#include "ir/base/log.h"
#include "runtime/cache/folder.h"

namespace kiln::runtime {
namespace {

struct FileStamp {
  int64_t bytes = -1, mtime_ns = -1;
};

FileStamp Stamp(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_size, info.st_mtim.tv_sec * int64_t{1000000000} + info.st_mtim.tv_nsec};
}

constexpr const char* kMemo = "compilers.txt";

std::string Line(const CompilerChoice& choice, std::string_view identity, const std::string& path) {
  FileStamp stamp = Stamp(path);
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}", identity, choice.requested, choice.driver_major,
                     path, stamp.bytes, stamp.mtime_ns);
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Newest first.
std::vector<std::string> ReadLines(const std::string& directory) {
  const Result<Folder> folder = Folder::Open(directory, Missing::kFails);
  if (!folder.ok()) return {};
  const Result<std::string> text = folder->Read(kMemo);
  if (!text.ok()) return {};
  std::vector<std::string> lines = Split(*text, '\n');
  std::ranges::reverse(lines);
  return lines;
}

}  // namespace

std::string CompilerIdentity(int major, int minor, const std::string& path) {
  return fmt::format("nvrtc {}.{} ({} bytes)", major, minor, Stamp(path).bytes);
}

void RememberCompiler(const std::string& directory, const CompilerChoice& choice,
                      const std::string& identity, const std::string& path) {
  if (BelievedCompiler(directory, choice) == identity) return;
  const Result<Folder> folder = Folder::Open(directory, Missing::kFails);
  const Status status =
      folder.ok() ? folder->AppendLine(kMemo, Line(choice, identity, path)) : folder.status();
  if (!status.ok()) LOG(kInfo, "kernel cache: {}", status.message());
}

std::string BelievedCompiler(const std::string& directory, const CompilerChoice& choice) {
  for (const std::string& line : ReadLines(directory)) {
    std::vector<std::string> parts = Split(line, '\t');
    if (parts.size() != 6) continue;
    if (parts[1] != choice.requested || parts[2] != fmt::format("{}", choice.driver_major))
      continue;
    // A newer record of the same choice whose file has changed says that older ones are no longer
    // it.
    return line == Line(choice, parts[0], parts[3]) ? parts[0] : "";
  }
  return {};
}

std::vector<std::string> KnownCompilers(const std::string& directory) {
  std::vector<std::string> identities;
  for (const std::string& line : ReadLines(directory)) {
    std::vector<std::string> parts = Split(line, '\t');
    if (parts.size() != 6 || std::ranges::find(identities, parts[0]) != identities.end()) continue;
    identities.push_back(parts[0]);
  }
  return identities;
}

}  // namespace kiln::runtime
