// Expressions of the tile IR as C++ text, with no more parentheses than precedence demands.
#pragma once

#include <map>
#include <string>

#include "codegen/cuda/scalar_text.h"
#include "ir/tile/tile.h"

namespace kiln::cuda_codegen {

class ExprPrinter {
 public:
  // `scalars`: register buffers, and of how many elements, that the text declares as variables.
  explicit ExprPrinter(std::map<std::string, int64_t> scalars) : scalars_(std::move(scalars)) {}

  // `least`: how tightly the expression has to bind in its place.
  std::string Text(const tile::Expr& e, int least = kAny) const;

  // buffer[index] as an operand, and buffer + index as a pointer.
  std::string Element(const std::string& buffer, const tile::Expr& index) const;
  std::string Address(const std::string& buffer, const tile::Expr& index) const;

  // A difference of f32 that stays apart from the product that it may be of. A multiply-add would
  // not round the product as the maximum was rounded that is subtracted, and the rest that rounding
  // left of a large one (128 at 2^32) is no exponent. Empty where `e` is anything else.
  std::string Exponent(const tile::Expr& e) const;

  // The operator "+=" and its operand, where `value` is the element itself combined with something;
  // else empty.
  std::string Compound(const tile::Store& s) const;

  // The variable of element `i` of a register buffer of several.
  static std::string ElementName(const std::string& buffer, int64_t i);

  bool IsScalar(const std::string& buffer) const { return scalars_.contains(buffer); }

 private:
  std::string Operation(const tile::ExprNode& e, int& precedence) const;
  std::string CastText(const tile::ExprNode& e, int& precedence) const;
  std::string Fill(std::string_view text, const tile::ExprNode& e, int precedence) const;

  std::map<std::string, int64_t> scalars_;
};

// C++ literals: `2048`, `5ll`, `0.5f`.
std::string IntLiteral(int64_t value, DType type);
std::string FloatLiteral(double value, DType type);

}  // namespace kiln::cuda_codegen
