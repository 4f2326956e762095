#include "cli/graph_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "cli/console.h"
#include "cli/exit_status.h"
#include "cli/locate.h"
#include "ir/graph/import.h"

namespace kiln::cli {
namespace {

struct Source {
  std::string name;        // for messages, without the line
  std::string text;        // of the graph alone
  bool is_line = false;    // one of a file of many
  int64_t first_line = 1;  // where it starts in the file
};

// "graphs.jsonl:7" → {"graphs.jsonl", 7}; line 0 where none is named.
std::pair<std::string, int64_t> SplitLine(const std::string& argument) {
  const size_t colon = argument.rfind(':');
  int64_t line = 0;
  std::error_code ignored;
  if (colon == std::string::npos || std::filesystem::exists(argument, ignored))
    return {argument, 0};
  const char* end = argument.data() + argument.size();
  const auto parsed = std::from_chars(argument.data() + colon + 1, end, line);
  if (parsed.ec != std::errc() || parsed.ptr != end || line <= 0) return {argument, 0};
  return {argument.substr(0, colon), line};
}

bool IsBlank(std::string_view line) {
  return std::ranges::all_of(line, [](unsigned char c) { return std::isspace(c) != 0; });
}

// Line `wanted` of the text. In a file of one graph a line, none named is a mistake with a remedy.
Status TakeLine(Source& source, int64_t wanted) {
  std::istringstream lines(source.text);
  std::string line;
  int64_t count = 0, graphs = 0;
  for (; std::getline(lines, line); ++count) {
    if (count + 1 == wanted && !IsBlank(line)) {
      source.text = line;
      source.is_line = true;
      source.first_line = wanted;
      return {};
    }
    graphs += IsBlank(line) ? 0 : 1;
  }
  if (wanted == 0) {
    return Status::Error(Code::kInvalidValue, "{} holds {} graphs, one a line; name one as {}:LINE",
                         source.name, graphs, source.name);
  }
  return Status::Error(Code::kInvalidValue, "{}:{}: no graph stands there; the file has {} lines",
                       source.name, wanted, count);
}

// A device or a sparse file may have no end.
Result<std::string> ReadAll(std::istream& stream, const std::string& name) {
  constexpr size_t kMostBytes = size_t{256} << 20;
  constexpr size_t kChunk = size_t{1} << 16;
  std::string text;
  for (std::streamsize read = 1; read > 0;) {
    const size_t before = text.size();
    if (before > kMostBytes)
      return Status::Error(Code::kInvalidValue, "{}: has more than {} bytes, which no graph has",
                           name, kMostBytes);
    text.resize(before + kChunk);
    stream.read(text.data() + before, kChunk);
    read = stream.gcount();
    text.resize(before + static_cast<size_t>(read));
  }
  return text;
}

Result<Source> ReadSource(const std::string& argument) {
  if (argument == "-") {
    ASSIGN_OR_RETURN(std::string text, ReadAll(std::cin, "<stdin>"));
    return Source{.name = "<stdin>", .text = std::move(text)};
  }
  const auto [path, line] = SplitLine(argument);
  ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  Source source{.name = path, .text = std::move(text)};
  if (line != 0 || path.ends_with(".jsonl")) RETURN_IF_ERROR(TakeLine(source, line));
  return source;
}

// The code of an importer's error. A feature that is not there yet is no mistake in the file;
// everything else that an importer says is.
Code CodeFor(const Status& status) {
  constexpr Code kNotYet[] = {Code::kNotSupported,      Code::kUnsupportedGraphPattern,
                              Code::kUnsupportedShape,  Code::kUnsupportedDataType,
                              Code::kUnsupportedLayout, Code::kUnsupportedPadding};
  const bool not_yet = std::ranges::find(kNotYet, status.code()) != std::end(kNotYet);
  return not_yet ? status.code() : Code::kBadParam;
}

// The importer's "line:column: sentence" or "path: sentence", seen from the file.
Status InFile(const Source& source, const Status& status) {
  const Code code = CodeFor(status);
  std::string sentence = status.message();
  std::optional<Place> place = SplitPlace(sentence);
  if (!place) place = Locate(source.text, sentence);
  // Sentences about the whole graph: of a file of many, at least the line.
  if (!place && source.is_line) place = Place{};
  if (!place) return Status::Error(code, "{}: {}", source.name, sentence);
  return Status::Error(code, "{}:{}:{}: {}", source.name, place->line + source.first_line - 1,
                       place->column, sentence);
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (std::filesystem::is_directory(path, ignored) || !file)
    return Status::Error(Code::kInvalidValue, "{}: cannot be read as a file", path);
  return ReadAll(file, path);
}

Result<graph::Graph> ReadGraph(const std::string& argument) {
  ASSIGN_OR_RETURN(const Source source, ReadSource(argument));
  Result<graph::Graph> graph = graph::ImportAny(source.text);
  if (!graph.ok()) return InFile(source, graph.status());
  return graph;
}

int Fail(const Status& status) {
  const bool is_usage = status.code() == Code::kBadParam || status.code() == Code::kInvalidValue;
  // A sentence on a bad input quotes it, in one line; other sentences may hold a compiler's log.
  PrintError("kiln: {}\n", Printable(status.message(), is_usage ? Lines::kEscaped : Lines::kKept));
  return is_usage ? kExitUsage : kExitFailed;
}

}  // namespace kiln::cli
