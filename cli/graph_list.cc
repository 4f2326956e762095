#include "cli/graph_list.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "cli/graph_file.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 8;  // lists in lists

std::string Trimmed(const std::string& text) {
  constexpr const char* kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

Result<std::vector<std::string>> LinesOf(const std::string& file) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(file));
  std::istringstream in(std::move(text));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(std::move(line));
  return lines;
}

// A name FILE:LINE exists if its file does.
bool IsThere(const std::string& argument) {
  std::error_code error;
  return fs::exists(argument, error) || fs::exists(argument.substr(0, argument.rfind(':')), error);
}

Status Expand(const std::string& argument, int depth, std::vector<std::string>& out) {
  if (depth > kDeepest)
    return Status::Error(Code::kInvalidValue, "{}: lists are nested more than {} deep", argument,
                         kDeepest);
  const fs::path path(argument);
  std::error_code error;
  if (fs::is_directory(path, error)) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      const fs::path extension = entry.path().extension();
      if (extension == ".kiln" || extension == ".json") files.push_back(entry.path().string());
    }
    std::ranges::sort(files);
    out.insert(out.end(), files.begin(), files.end());
    return {};
  }
  if (path.extension() == ".jsonl") {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, LinesOf(argument));
    for (size_t i = 0; i < lines.size(); ++i)
      if (!Trimmed(lines[i]).empty()) out.push_back(fmt::format("{}:{}", argument, i + 1));
    return {};
  }
  if (path.extension() != ".txt") {
    out.push_back(argument);
    return {};
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> lines, LinesOf(argument));
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string entry = Trimmed(lines[i].substr(0, lines[i].find('#')));
    if (entry.empty()) continue;
    const std::string named = (path.parent_path() / entry).string();
    if (!IsThere(named))
      return Status::Error(Code::kInvalidValue,
                           "{}:{}: there is no file {}; each line of a list names a graph's file, "
                           "from the list's folder",
                           argument, i + 1, named);
    RETURN_IF_ERROR(Expand(named, depth + 1, out));
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> ExpandGraphList(const std::string& argument) {
  std::vector<std::string> graphs;
  RETURN_IF_ERROR(Expand(argument, 0, graphs));
  if (graphs.empty())
    return Status::Error(Code::kInvalidValue, "{}: there is no graph in it", argument);
  return graphs;
}

}  // namespace kiln::cli
