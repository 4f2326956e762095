// Printing and parsing of a cache entry's manifest. The closing hash tells damage (remove the
// entry) from a manifest that is sound but of other fields (leave it). Called by disk_cache.cc.
#include "runtime/cache/manifest.h"

#include <fmt/format.h>

#include <charconv>

#include "ir/base/check.h"

namespace kiln::runtime {
namespace {

constexpr std::string_view kEnd = "end ";

std::string HeadLine() { return fmt::format("kiln kernel {}", kCacheFormat); }

// A value on one line: "\n" for a newline, "\\" for a backslash.
std::string Escape(std::string_view value) {
  std::string out;
  for (char c : value) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out;
}

std::optional<std::string> Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size() || (text[i] != 'n' && text[i] != '\\')) return std::nullopt;
    out += text[i] == 'n' ? '\n' : '\\';
  }
  return out;
}

bool IsFieldName(std::string_view name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string_view::npos;
}

std::string FileLine(std::string_view role, std::string_view name, std::string_view content) {
  return fmt::format("{} {} {} {}\n", role, name, content.size(), HashBytes(content).Hex());
}

std::string_view TakeUntil(std::string_view& text, char separator) {
  size_t at = text.find(separator);
  std::string_view head = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return head;
}

std::optional<ManifestFile> ParseFileLine(std::string_view line, std::string_view role) {
  if (TakeUntil(line, ' ') != role) return std::nullopt;
  ManifestFile file;
  file.name = TakeUntil(line, ' ');
  std::string_view digits = TakeUntil(line, ' ');
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), file.bytes);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  // A name with a slash would lead out of the entry.
  if (file.name.empty() || file.name.find('/') != std::string::npos || line.size() != 32)
    return std::nullopt;
  file.hash = line;
  return file;
}

}  // namespace

bool ManifestFile::Matches(std::string_view content) const {
  return static_cast<int64_t>(content.size()) == bytes && HashBytes(content).Hex() == hash;
}

std::string PrintManifest(const CacheRequest& request, std::string_view payload) {
  std::string text = HeadLine() + "\n";
  for (const KeyField& field : request.fields) {
    CHECK(IsFieldName(field.name), "cache field '{}' is not [a-z_]+", field.name);
    text += fmt::format("{} = {}\n", field.name, Escape(field.value));
  }
  text += FileLine("source", request.source_file, request.source);
  text += FileLine("payload", request.payload_file, payload);
  return text + fmt::format("{}{}\n", kEnd, HashBytes(text).Hex());
}

std::optional<Manifest> ParseManifest(std::string_view text) {
  size_t end = text.rfind(fmt::format("\n{}", kEnd));
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view body = text.substr(0, end + 1);
  if (text.substr(end + 1) != fmt::format("{}{}\n", kEnd, HashBytes(body).Hex()))
    return std::nullopt;
  if (TakeUntil(body, '\n') != HeadLine()) return std::nullopt;

  Manifest manifest;
  while (!body.empty()) {
    std::string_view line = TakeUntil(body, '\n');
    size_t equals = line.find(" = ");
    if (equals == std::string_view::npos || !IsFieldName(line.substr(0, equals))) {
      auto source = ParseFileLine(line, "source");
      auto payload = ParseFileLine(TakeUntil(body, '\n'), "payload");
      if (!source || !payload || !body.empty()) return std::nullopt;
      manifest.source = *std::move(source);
      manifest.payload = *std::move(payload);
      return manifest;
    }
    auto value = Unescape(line.substr(equals + 3));
    if (!value) return std::nullopt;
    manifest.fields.push_back(
        {.name = std::string(line.substr(0, equals)), .value = *std::move(value)});
  }
  return std::nullopt;
}

}  // namespace kiln::runtime
