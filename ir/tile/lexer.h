// Tokens of the tile IR's text. Comments are tokens: they are statements of a kernel.
#pragma once

#include <string_view>

#include "ir/base/result.h"

namespace kiln::tile {

enum class TokenKind : uint8_t { kName, kInt, kFloat, kPunct, kComment, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // of a comment: without the slashes and one space
  int line = 1, column = 1;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // The next token; kEnd for ever after the last.
  Result<Token> Next();

 private:
  void SkipSpace();
  Token Take(TokenKind kind, size_t length);
  Result<Token> Number();

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  size_t line_start_ = 0;
};

}  // namespace kiln::tile
