#include "runtime/cache/record_files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "ir/base/env.h"
#include "runtime/cache/file_io.h"
#include "runtime/cache/kernel_cache.h"
#include "runtime/cache/own_folder.h"

namespace kiln::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecords = ".txt";
constexpr const char* kNetwork = ".kiln";

// Sorted; empty where there is no such folder.
std::vector<std::string> FilesIn(const std::string& folder, const char* extension) {
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == extension) files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

Status MakeFolderOf(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (!error) return {};
  return Status::Error(Code::kInternal, "cannot create {}: {}", folder.string(), error.message());
}

}  // namespace

std::string UserRecordFolder() {
  if (const std::string& folder = GetEnv(Env::kRecordsDir); !folder.empty()) return folder;
  const std::string root = KernelCache::OptionsFromEnv().root;
  return root.empty() ? "" : root + "/records";
}

std::vector<std::string> BetweenColons(const std::string& listed) {
  std::vector<std::string> paths;
  for (size_t at = 0; at < listed.size();) {
    const size_t colon = std::min(listed.find(':', at), listed.size());
    if (colon > at) paths.push_back(listed.substr(at, colon - at));
    at = colon + 1;
  }
  return paths;
}

std::vector<std::string> ShippedRecordPaths() {
  std::vector<std::string> paths = BetweenColons(GetEnv(Env::kRecords));
  if (const std::string folder = OwnFolder(); !folder.empty())
    paths.push_back(folder + "/../share/kiln/records");
  return paths;
}

std::vector<std::string> RecordFiles(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return FilesIn(path, kRecords);
  return fs::exists(path, error) ? std::vector{path} : std::vector<std::string>{};
}

std::vector<std::string> NetworkFiles() {
  std::vector<std::string> folders = ShippedRecordPaths();
  folders.insert(folders.begin(), UserRecordFolder());
  std::vector<std::string> files;
  for (const std::string& folder : folders)
    std::ranges::move(FilesIn(folder, kNetwork), std::back_inserter(files));
  return files;
}

Result<std::vector<std::string>> ReadRecordLines(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(file));
  std::vector<std::string> lines;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    std::string line = content.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#') lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

Status AppendRecordLine(const std::string& file, std::string_view line) {
  RETURN_IF_ERROR(MakeFolderOf(file));
  return AppendLine(file, line);
}

Status ReplaceFile(const std::string& file, std::string_view content) {
  static std::atomic<int> count = 0;
  RETURN_IF_ERROR(MakeFolderOf(file));
  const std::string stage = fmt::format("{}.{}.{}.tmp", file, ::getpid(), count.fetch_add(1));
  std::error_code error;
  Status written = WriteFile(stage, content);
  if (written.ok()) {
    fs::rename(stage, file, error);
    if (!error) return {};
    written =
        Status::Error(Code::kInternal, "cannot rename {} to {}: {}", stage, file, error.message());
  }
  fs::remove(stage, error);
  return written;
}

}  // namespace kiln::runtime
