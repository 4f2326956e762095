// TokenReader: the small words of the grammar, each with its sentence for what does not fit.
#include <cerrno>
#include <cstdlib>
#include <limits>

#include "ir/tile/parse_parts.h"

namespace kiln::tile {

Status TokenReader::Advance() {
  ASSIGN_OR_RETURN(token_, lexer_.Next());
  return {};
}

bool TokenReader::Is(std::string_view text) const {
  return (token_.kind == TokenKind::kName || token_.kind == TokenKind::kPunct) &&
         token_.text == text;
}

Result<bool> TokenReader::Take(std::string_view text) {
  if (!Is(text)) return false;
  RETURN_IF_ERROR(Advance());
  return true;
}

Status TokenReader::Unexpected(std::string_view wanted) const {
  if (token_.kind == TokenKind::kEnd)
    return Fail(token_, "expected {}, found the end of the text", wanted);
  if (token_.kind == TokenKind::kComment)
    return Fail(token_, "expected {}, found a comment", wanted);
  return Fail(token_, "expected {}, found '{}'", wanted, token_.text);
}

Status TokenReader::Expect(std::string_view text) {
  if (!Is(text)) return Unexpected(fmt::format("'{}'", text));
  return Advance();
}

Result<std::string> TokenReader::Name(std::string_view what) {
  if (token_.kind != TokenKind::kName) return Unexpected(what);
  std::string name(token_.text);
  RETURN_IF_ERROR(Advance());
  return name;
}

Status TokenReader::Names(std::string_view what, std::vector<std::string>& names) {
  RETURN_IF_ERROR(Expect("("));
  while (!Is(")")) {
    if (!names.empty()) RETURN_IF_ERROR(Expect(","));
    ASSIGN_OR_RETURN(std::string name, Name(what));
    names.push_back(std::move(name));
  }
  return Advance();
}

Result<DType> TokenReader::Type() {
  const auto type = token_.kind == TokenKind::kName ? DTypeFromText(token_.text) : std::nullopt;
  if (!type) return Unexpected("a type");
  RETURN_IF_ERROR(Advance());
  return *type;
}

Result<int64_t> TokenReader::Count(std::string_view what, int64_t most) {
  if (token_.kind != TokenKind::kInt) return Unexpected(what);
  const std::string text(token_.text);
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (*end != 0 || errno != 0 || value < 0 || value > most)
    return Fail(token_, "{} is not {} from 0 to {}", text, what, most);
  RETURN_IF_ERROR(Advance());
  return value;
}

Result<int> TokenReader::SmallInt(std::string_view what) {
  ASSIGN_OR_RETURN(const int64_t value, Count(what, std::numeric_limits<int>::max()));
  return static_cast<int>(value);
}

Status TokenReader::Enter(std::string_view what) {
  if (++depth_ > kMaxDepth) return Fail(token_, "{} are nested more than {} deep", what, kMaxDepth);
  return {};
}

}  // namespace kiln::tile
