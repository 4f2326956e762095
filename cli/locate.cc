#include "cli/locate.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace kiln::cli {
namespace {

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

Place PlaceAt(std::string_view text, size_t at) {
  Place place;
  for (const char c : text.substr(0, at)) {
    place.column = c == '\n' ? 1 : place.column + 1;
    place.line += c == '\n' ? 1 : 0;
  }
  return place;
}

// Walks JSON that a parser has accepted, along a path as "nodes[3].inputs.X"; the deepest value
// that exists is the answer, since what is missing has no place of its own.
class JsonWalk {
 public:
  JsonWalk(std::string_view text, std::string_view path) : text_(text), path_(path) {}

  std::optional<size_t> Run() {
    SkipSpace();
    bool moved = false;
    while (!path_.empty() && Step()) moved = true;
    if (!moved) return std::nullopt;
    return at_;
  }

 private:
  bool Step() {
    if (At('{')) return EnterMember();
    if (At('[')) return EnterElement();
    return false;
  }

  static bool EndsSegment(std::string_view rest) {
    return rest.empty() || rest.starts_with('.') || rest.starts_with('[');
  }

  // Keys may hold dots, so the key decides where it ends in the path.
  bool EnterMember() {
    const size_t start = at_;
    std::string_view path = path_.starts_with('.') ? path_.substr(1) : path_;
    for (Take(); !At('}') && at_ < text_.size(); SkipComma()) {
      const std::string_view key = TakeString();
      SkipSpace();
      Take();  // the colon
      if (path.starts_with(key) && EndsSegment(path.substr(key.size()))) {
        path_ = path.substr(key.size());
        return true;
      }
      SkipValue();
    }
    at_ = start;
    return false;
  }

  bool EnterElement() {
    const size_t start = at_, close = path_.find(']');
    size_t wanted = 0;
    if (!path_.starts_with('[') || close == std::string_view::npos) return false;
    std::from_chars(path_.data() + 1, path_.data() + close, wanted);
    Take();
    for (size_t i = 0; !At(']') && at_ < text_.size(); ++i, SkipComma()) {
      if (i == wanted) {
        path_ = path_.substr(close + 1);
        return true;
      }
      SkipValue();
    }
    at_ = start;
    return false;
  }

  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void SkipSpace() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
  }
  void Take() {
    ++at_;
    SkipSpace();
  }
  void SkipComma() {
    SkipSpace();
    if (At(',')) Take();
  }
  std::string_view TakeString() {
    const size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    return text_.substr(start, at_++ - start);
  }
  void SkipValue() {
    int depth = 0;
    do {
      if (At('"')) {
        TakeString();
        continue;
      }
      depth += At('{') || At('[') ? 1 : 0;
      depth -= At('}') || At(']') ? 1 : 0;
      ++at_;
    } while (at_ < text_.size() && (depth > 0 || !(At(',') || At('}') || At(']'))));
  }

  std::string_view text_, path_;
  size_t at_ = 0;
};

// The first "%name" of the sentence, and whether an operation that writes it is meant.
struct Mention {
  std::string_view name;
  bool is_node = false;
};

std::optional<Mention> FirstMention(std::string_view sentence) {
  const size_t percent = sentence.find('%');
  if (percent == std::string_view::npos) return std::nullopt;
  size_t end = percent + 1;
  while (end < sentence.size() && IsNameChar(sentence[end])) ++end;
  if (end == percent + 1) return std::nullopt;
  const std::string_view rest = sentence.substr(end);
  return Mention{.name = sentence.substr(percent + 1, end - percent - 1),
                 .is_node = rest.starts_with(" = ") || rest.starts_with(", ")};
}

// In Kiln's text: "tensor %name", or the "%name … =" of the operation.
std::optional<size_t> FindMention(std::string_view text, const Mention& mention) {
  bool after_tensor = false;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '%') {
      size_t end = at + 1;
      while (end < text.size() && IsNameChar(text[end])) ++end;
      size_t next = end;
      while (next < text.size() && IsSpace(text[next])) ++next;
      const bool is_written =
          !after_tensor && next < text.size() && (text[next] == '=' || text[next] == ',');
      const bool wanted = mention.is_node ? is_written : after_tensor;
      if (wanted && text.substr(at + 1, end - at - 1) == mention.name) return at;
      at = end;
      after_tensor = false;
    } else if (IsNameChar(text[at])) {
      size_t end = at;
      while (end < text.size() && IsNameChar(text[end])) ++end;
      after_tensor = text.substr(at, end - at) == "tensor";
      at = end;
    } else {
      ++at;
    }
  }
  return std::nullopt;
}

// Whoever passes a sentence on puts a name before it: "relu: nodes[3].mode: is …".
std::optional<size_t> FindPath(std::string_view text, std::string_view sentence) {
  for (size_t colon = sentence.find(": "); colon != std::string_view::npos;
       colon = sentence.find(": ")) {
    if (auto at = JsonWalk(text, sentence.substr(0, colon)).Run()) return at;
    sentence.remove_prefix(colon + 2);
  }
  return std::nullopt;
}

// In cudnn-frontend's JSON: the node or tensor of that name.
std::optional<size_t> FindName(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const bool is_quoted =
        at > 0 && text[at - 1] == '"' && text.substr(at + name.size()).starts_with('"');
    if (is_quoted) return at - 1;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Place> SplitPlace(std::string& sentence) {
  Place place;
  const char* const end = sentence.data() + sentence.size();
  auto parsed = std::from_chars(sentence.data(), end, place.line);
  if (parsed.ec != std::errc() || parsed.ptr == end || *parsed.ptr != ':') return std::nullopt;
  parsed = std::from_chars(parsed.ptr + 1, end, place.column);
  if (parsed.ec != std::errc() || end - parsed.ptr < 2 || std::string_view(parsed.ptr, 2) != ": ")
    return std::nullopt;
  sentence.erase(0, static_cast<size_t>(parsed.ptr + 2 - sentence.data()));
  return place;
}

std::optional<Place> Locate(std::string_view text, std::string_view sentence) {
  size_t start = 0;
  while (start < text.size() && IsSpace(text[start])) ++start;
  const bool is_json = start < text.size() && text[start] == '{';
  std::optional<size_t> at;
  if (is_json) at = FindPath(text, sentence);
  if (const auto mention = FirstMention(sentence); !at && mention) {
    at = is_json ? FindName(text, mention->name) : FindMention(text, *mention);
  }
  if (!at) return std::nullopt;
  return PlaceAt(text, *at);
}

}  // namespace kiln::cli
