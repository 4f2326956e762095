// The parts of the tile IR's parser: tokens as the grammar asks for them (TokenReader), the names
// that are known (KnownNames), expressions, and calls of skeletons. parse.cc, which knows
// statements, is the only caller.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/tile/lexer.h"
#include "ir/tile/tile.h"

namespace kiln::tile {

// ---- tokens (parse_tokens.cc)

class TokenReader {
 public:
  explicit TokenReader(std::string_view text) : lexer_(text) {}

  const Token& token() const { return token_; }
  Status Advance();
  // True if the token is this word or sign.
  bool Is(std::string_view text) const;
  // Takes the word if it stands here.
  Result<bool> Take(std::string_view text);
  Status Expect(std::string_view text);
  Result<std::string> Name(std::string_view what);
  // "(a, b)"
  Status Names(std::string_view what, std::vector<std::string>& names);
  Result<DType> Type();
  Result<int64_t> Count(std::string_view what, int64_t most);
  Result<int> SmallInt(std::string_view what);

  template <class... A>
  Status Fail(const Token& at, fmt::format_string<A...> format, A&&... args) const {
    return Status::Error(Code::kBadParam, "{}:{}: {}", at.line, at.column,
                         fmt::format(format, std::forward<A>(args)...));
  }
  Status Unexpected(std::string_view wanted) const;

  // Enters one level of nesting, which is limited, since a text must not overflow our stack. `what`
  // is the plural of its kind.
  Status Enter(std::string_view what);
  void Leave() { --depth_; }

 private:
  static constexpr int kMaxDepth = 1000;  // of nested expressions and blocks

  Lexer lexer_;
  Token token_;
  int depth_ = 0;
};

// Types of all names that have been defined so far.
struct KnownNames {
  std::map<std::string, DType, std::less<>> vars, buffers;
};

// ---- expressions (parse_expressions.cc)

class ExpressionParser {
 public:
  ExpressionParser(TokenReader& in, const KnownNames& names) : in_(in), names_(names) {}

  Result<Expr> Expression();
  // buffer[index]; returns the type of the buffer's elements.
  Result<DType> Element(std::string& buffer, Expr& index);

 private:
  Result<Expr> UnboundedExpression();
  Result<Expr> IntConstant();
  Result<Expr> FloatConstant();
  Result<Expr> CastExpression();
  Result<Expr> ShuffleExpression();
  Result<Expr> OpExpression(const Token& at);

  TokenReader& in_;
  const KnownNames& names_;
};

// ---- calls of skeletons (parse_call.cc)

// Reads the rest of a call behind the word `call`; `parse_body` reads the body of a function, whose
// parameters are in `names` then.
Result<Call> ParseCall(TokenReader& in, KnownNames& names,
                       const std::function<Result<Block>()>& parse_body);

}  // namespace kiln::tile
