// The scanner under parse.cc. Numbers are scanned whole, with sign and type suffix: `-12`, `7l`,
// `0x1.8p+1f`, `-inf`; the text has no infix minus that could be meant instead.
#include "ir/tile/lexer.h"

#include <algorithm>
#include <cctype>

namespace kiln::tile {
namespace {

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

size_t WordLength(std::string_view s) {
  size_t n = 0;
  while (n < s.size() && IsWordChar(s[n])) ++n;
  return n;
}

bool IsNonFinite(std::string_view word) {
  return word == "inf" || word == "inff" || word == "nan" || word == "nanf";
}

}  // namespace

void Lexer::SkipSpace() {
  for (; at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0; ++at_) {
    if (text_[at_] != '\n') continue;
    ++line_;
    line_start_ = at_ + 1;
  }
}

Token Lexer::Take(TokenKind kind, size_t length) {
  const Token token{kind, text_.substr(at_, length), line_,
                    static_cast<int>(at_ - line_start_) + 1};
  at_ += length;
  return token;
}

Result<Token> Lexer::Number() {
  const std::string_view rest = text_.substr(at_);
  size_t n = rest[0] == '-' ? 1 : 0;
  const size_t word = WordLength(rest.substr(n));
  if (IsNonFinite(rest.substr(n, word))) return Take(TokenKind::kFloat, n + word);
  if (rest.substr(n).starts_with("0x")) {
    n += 2;
    while (n < rest.size() && (IsWordChar(rest[n]) || rest[n] == '.' ||
                               ((rest[n] == '+' || rest[n] == '-') && rest[n - 1] == 'p')))
      ++n;
    return Take(TokenKind::kFloat, n);
  }
  while (n < rest.size() && IsDigit(rest[n])) ++n;
  n += WordLength(rest.substr(n));
  return Take(TokenKind::kInt, n);
}

Result<Token> Lexer::Next() {
  SkipSpace();
  const std::string_view rest = text_.substr(at_);
  if (rest.empty()) return Take(TokenKind::kEnd, 0);
  if (rest.starts_with("//")) {
    Token comment = Take(TokenKind::kComment, std::min(rest.find('\n'), rest.size()));
    comment.text.remove_prefix(comment.text.starts_with("// ") ? 3 : 2);
    return comment;
  }
  if (rest.starts_with("..") || rest.starts_with("<-")) return Take(TokenKind::kPunct, 2);
  if (rest[0] == '-' || IsDigit(rest[0])) return Number();
  const size_t word = WordLength(rest);
  if (word > 0) return IsNonFinite(rest.substr(0, word)) ? Number() : Take(TokenKind::kName, word);
  if (std::string_view("()[]{}<>,:=.").find(rest[0]) != rest.npos)
    return Take(TokenKind::kPunct, 1);
  const Token bad = Take(TokenKind::kPunct, 1);
  return Status::Error(Code::kBadParam, "{}:{}: unexpected character '{}'", bad.line, bad.column,
                       std::isprint(static_cast<unsigned char>(rest[0])) != 0 ? bad.text : "?");
}

}  // namespace kiln::tile
