// Nothing is folded, so that text comes back as it was.
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "ir/tile/parse_parts.h"

namespace kiln::tile {
namespace {

Expr Make(ExprNode node) { return std::make_shared<const ExprNode>(std::move(node)); }

}  // namespace

Result<Expr> ExpressionParser::Expression() {
  RETURN_IF_ERROR(in_.Enter("expressions"));
  ASSIGN_OR_RETURN(Expr e, UnboundedExpression());
  in_.Leave();
  return e;
}

Result<DType> ExpressionParser::Element(std::string& buffer, Expr& index) {
  const Token at = in_.token();
  ASSIGN_OR_RETURN(buffer, in_.Name("a buffer's name"));
  const auto known = names_.buffers.find(buffer);
  if (known == names_.buffers.end()) return in_.Fail(at, "no buffer is named {}", buffer);
  const DType type = known->second;
  RETURN_IF_ERROR(in_.Expect("["));
  ASSIGN_OR_RETURN(index, Expression());
  RETURN_IF_ERROR(in_.Expect("]"));
  return type;
}

Result<Expr> ExpressionParser::UnboundedExpression() {
  const Token at = in_.token();
  if (at.kind == TokenKind::kInt) return IntConstant();
  if (at.kind == TokenKind::kFloat) return FloatConstant();
  if (at.kind != TokenKind::kName) return in_.Unexpected("an expression");
  RETURN_IF_ERROR(in_.Advance());
  if (at.text == "true" || at.text == "false") return Bool(at.text == "true");
  if (at.text == "load") {
    ExprNode node{.kind = ExprKind::kLoad, .args = {nullptr}};
    ASSIGN_OR_RETURN(node.type, Element(node.name, node.args[0]));
    return Make(std::move(node));
  }
  if (at.text == "cast" && in_.Is("<")) return CastExpression();
  if (at.text == "shuffle_xor") return ShuffleExpression();
  if (in_.Is("(")) return OpExpression(at);
  const auto known = names_.vars.find(at.text);
  if (known == names_.vars.end()) return in_.Fail(at, "no variable is named {}", at.text);
  return Var(std::string(at.text), known->second);
}

Result<Expr> ExpressionParser::IntConstant() {
  const std::string text(in_.token().text);
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text.c_str(), &end, 10);
  const DType type = *end == 'l' ? DType::kI64 : DType::kI32;
  end += *end == 'l';
  const bool narrow = type == DType::kI32 && value != static_cast<int32_t>(value);
  if (*end != 0 || end == text.c_str() || text == "-")
    return in_.Fail(in_.token(), "'{}' is not a number", text);
  if (errno != 0 || narrow)
    return in_.Fail(in_.token(), "{} does not fit in {}", text, Info(type).text);
  RETURN_IF_ERROR(in_.Advance());
  return Int(value, type);
}

Result<Expr> ExpressionParser::FloatConstant() {
  std::string text(in_.token().text);
  const bool single = text.ends_with('f') && !text.ends_with("inf");
  const bool hex = text.find('x') != text.npos;
  if (single) text.pop_back();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != 0 || (hex && text.find('p') == text.npos))
    return in_.Fail(in_.token(), "'{}' is not a number: floats are written as 0x1.8p+1f",
                    in_.token().text);
  const DType type = single ? DType::kF32 : DType::kF64;
  if (single && std::isfinite(value) && static_cast<double>(static_cast<float>(value)) != value)
    return in_.Fail(in_.token(), "{} is no f32 number", text);
  RETURN_IF_ERROR(in_.Advance());
  return Float(value, type);
}

Result<Expr> ExpressionParser::CastExpression() {
  RETURN_IF_ERROR(in_.Expect("<"));
  ASSIGN_OR_RETURN(const DType type, in_.Type());
  RETURN_IF_ERROR(in_.Expect(">"));
  RETURN_IF_ERROR(in_.Expect("("));
  ASSIGN_OR_RETURN(Expr value, Expression());
  RETURN_IF_ERROR(in_.Expect(")"));
  return Make({.kind = ExprKind::kCast, .type = type, .args = {std::move(value)}});
}

Result<Expr> ExpressionParser::ShuffleExpression() {
  RETURN_IF_ERROR(in_.Expect("("));
  ASSIGN_OR_RETURN(Expr value, Expression());
  RETURN_IF_ERROR(in_.Expect(","));
  ASSIGN_OR_RETURN(const int64_t mask, in_.Count("a lane mask", 31));
  RETURN_IF_ERROR(in_.Expect(")"));
  const DType type = value->type;
  return Make(
      {.kind = ExprKind::kShuffle, .type = type, .int_value = mask, .args = {std::move(value)}});
}

Result<Expr> ExpressionParser::OpExpression(const Token& at) {
  const auto op = ScalarOpFromText(at.text);
  if (!op) return in_.Fail(at, "no operation is named {}", at.text);
  RETURN_IF_ERROR(in_.Expect("("));
  ExprNode node{.kind = ExprKind::kOp, .op = *op};
  while (!in_.Is(")")) {
    if (!node.args.empty()) RETURN_IF_ERROR(in_.Expect(","));
    ASSIGN_OR_RETURN(Expr arg, Expression());
    node.args.push_back(std::move(arg));
  }
  RETURN_IF_ERROR(in_.Advance());
  if (static_cast<int>(node.args.size()) != Info(*op).arity)
    return in_.Fail(at, "{} takes {} operands, not {}", at.text, Info(*op).arity, node.args.size());
  const bool boolean = Info(*op).result == ScalarResult::kBool;
  node.type = boolean ? DType::kBool : node.args[*op == ScalarOp::kSelect ? 1 : 0]->type;
  return Make(std::move(node));
}

}  // namespace kiln::tile
