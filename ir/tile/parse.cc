// Reads what print.cc writes, by recursive descent. Nothing is folded, so that text comes back as
// it was; the parser resolves names to types and leaves all other rules to the verifier. Called by
// the CPU plug-in, which receives kernels as text, by the CLI and by tests.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "ir/tile/lexer.h"
#include "ir/tile/names.h"
#include "ir/tile/tools.h"

namespace kiln::tile {
namespace {

constexpr int kMaxDepth =
    1000;  // of nested expressions and blocks: a text must not overflow our stack

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}

  Result<Kernel> Run() {
    RETURN_IF_ERROR(Advance());
    Kernel kernel;
    while (token_.kind == TokenKind::kComment) {
      kernel.comment.emplace_back(token_.text);
      RETURN_IF_ERROR(Advance());
    }
    RETURN_IF_ERROR(Expect("kernel"));
    ASSIGN_OR_RETURN(kernel.name, Name("the kernel's name"));
    RETURN_IF_ERROR(Params(kernel));
    RETURN_IF_ERROR(Expect("threads"));
    ASSIGN_OR_RETURN(kernel.threads, SmallInt("a number of threads"));
    if (Is("min_blocks")) {
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(kernel.min_blocks, SmallInt("a number of blocks"));
    }
    if (Is("cluster")) {
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(kernel.cluster, SmallInt("a number of blocks"));
    }
    if (Is("cooperative")) {
      RETURN_IF_ERROR(Advance());
      kernel.cooperative = true;
    }
    ASSIGN_OR_RETURN(kernel.body, Body());
    if (token_.kind != TokenKind::kEnd) return Unexpected("the end of the text");
    return kernel;
  }

 private:
  // ---- tokens ----
  Status Advance() {
    ASSIGN_OR_RETURN(token_, lexer_.Next());
    return {};
  }

  bool Is(std::string_view text) const {
    return (token_.kind == TokenKind::kName || token_.kind == TokenKind::kPunct) &&
           token_.text == text;
  }

  template <class... A>
  Status Fail(const Token& at, fmt::format_string<A...> format, A&&... args) const {
    return Status::Error(Code::kBadParam, "{}:{}: {}", at.line, at.column,
                         fmt::format(format, std::forward<A>(args)...));
  }

  Status Unexpected(std::string_view wanted) const {
    if (token_.kind == TokenKind::kEnd)
      return Fail(token_, "expected {}, found the end of the text", wanted);
    if (token_.kind == TokenKind::kComment)
      return Fail(token_, "expected {}, found a comment", wanted);
    return Fail(token_, "expected {}, found '{}'", wanted, token_.text);
  }

  Status Expect(std::string_view text) {
    if (!Is(text)) return Unexpected(fmt::format("'{}'", text));
    return Advance();
  }

  Result<std::string> Name(std::string_view what) {
    if (token_.kind != TokenKind::kName) return Unexpected(what);
    std::string name(token_.text);
    RETURN_IF_ERROR(Advance());
    return name;
  }

  Result<DType> Type() {
    const auto type = token_.kind == TokenKind::kName ? DTypeFromText(token_.text) : std::nullopt;
    if (!type) return Unexpected("a type");
    RETURN_IF_ERROR(Advance());
    return *type;
  }

  Result<int64_t> Count(std::string_view what, int64_t most) {
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

  Result<int> SmallInt(std::string_view what) {
    ASSIGN_OR_RETURN(const int64_t value, Count(what, std::numeric_limits<int>::max()));
    return static_cast<int>(value);
  }

  // ---- kernel ----
  Status Params(Kernel& kernel) {
    RETURN_IF_ERROR(Expect("("));
    while (!Is(")")) {
      if (!kernel.params.empty()) RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(Param p, OneParam());
      if (!p.is_map) (p.is_pointer ? buffers_ : vars_)[p.name] = p.type;
      kernel.params.push_back(std::move(p));
    }
    return Advance();
  }

  Result<Param> OneParam() {
    Param p;
    ASSIGN_OR_RETURN(p.name, Name("a parameter's name"));
    RETURN_IF_ERROR(Expect(":"));
    p.is_map = Is("map");
    if (p.is_map) {
      RETURN_IF_ERROR(Advance());
      return p;
    }
    p.is_pointer = Is("ptr");
    if (!p.is_pointer) {
      ASSIGN_OR_RETURN(p.type, Type());
      return p;
    }
    RETURN_IF_ERROR(Advance());
    RETURN_IF_ERROR(Expect("<"));
    ASSIGN_OR_RETURN(p.type, Type());
    RETURN_IF_ERROR(Expect(">"));
    if (Is("const")) {
      p.is_const = true;
      RETURN_IF_ERROR(Advance());
    }
    if (Is("align")) {
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(p.alignment, SmallInt("an alignment"));
    }
    return p;
  }

  // ---- statements ----
  Result<Block> Body() {
    if (++depth_ > kMaxDepth) return Fail(token_, "blocks are nested more than {} deep", kMaxDepth);
    RETURN_IF_ERROR(Expect("{"));
    Block block;
    while (!Is("}")) {
      ASSIGN_OR_RETURN(Stmt s, Statement());
      block.push_back(std::move(s));
    }
    RETURN_IF_ERROR(Advance());
    --depth_;
    return block;
  }

  Result<Stmt> Statement() {
    struct Row {
      std::string_view keyword;
      Result<Stmt> (Parser::*parse)();
    };
    static constexpr Row kRows[] = {
        {"let", &Parser::LetStatement},
        {"alloc", &Parser::AllocStatement},
        {"store", &Parser::StoreStatement},
        {"copy", &Parser::CopyStatement},
        {"for", &Parser::ForStatement},
        {"if", &Parser::IfStatement},
        {"mma", &Parser::MmaStatement},
        {"barrier", &Parser::BarrierStatement},
        {"copy_async", &Parser::CopyAsyncStatement},
        {"commit_async", &Parser::CommitAsyncStatement},
        {"wait_async", &Parser::WaitAsyncStatement},
        {"load_matrix", &Parser::LoadMatrixStatement},
        {"largest", &Parser::LargestStatement},
        {"atomic_add", &Parser::AtomicAddStatement},
        {"call", &Parser::CallStatement},
    };
    if (token_.kind == TokenKind::kComment) {
      Comment comment{std::string(token_.text)};
      RETURN_IF_ERROR(Advance());
      return Stmt{std::move(comment)};
    }
    for (const Row& row : kRows) {
      if (!Is(row.keyword)) continue;
      RETURN_IF_ERROR(Advance());
      return (this->*row.parse)();
    }
    return Unexpected("a statement or '}'");
  }

  Result<Stmt> LetStatement() {
    ASSIGN_OR_RETURN(std::string name, Name("a variable's name"));
    RETURN_IF_ERROR(Expect("="));
    ASSIGN_OR_RETURN(Expr value, Expression());
    RETURN_IF_ERROR(Expect(":"));
    const Token at = token_;
    ASSIGN_OR_RETURN(const DType type, Type());
    if (type != value->type)
      return Fail(at, "{} is {}, its value is {}", name, Info(type).text, Info(value->type).text);
    vars_[name] = type;
    return Stmt{Let{std::move(name), std::move(value)}};
  }

  Result<Stmt> AllocStatement() {
    Alloc s;
    ASSIGN_OR_RETURN(s.name, Name("a buffer's name"));
    RETURN_IF_ERROR(Expect(":"));
    ASSIGN_OR_RETURN(s.type, Type());
    RETURN_IF_ERROR(Expect("["));
    ASSIGN_OR_RETURN(s.size, Count("a number of elements", std::numeric_limits<int32_t>::max()));
    RETURN_IF_ERROR(Expect("]"));
    const auto space = EnumFromText<Space>(kSpaceText, token_.text);
    if (!space) return Unexpected("'reg' or 'shared'");
    s.space = *space;
    buffers_[s.name] = s.type;
    RETURN_IF_ERROR(Advance());
    return Stmt{std::move(s)};
  }

  Result<Stmt> StoreStatement() {
    Store s;
    RETURN_IF_ERROR(Element(s.buffer, s.index));
    RETURN_IF_ERROR(Expect("="));
    ASSIGN_OR_RETURN(s.value, Expression());
    return Stmt{std::move(s)};
  }

  Result<Stmt> CopyStatement() {
    Copy s;
    RETURN_IF_ERROR(Element(s.dst, s.dst_index));
    RETURN_IF_ERROR(Expect("<-"));
    RETURN_IF_ERROR(Element(s.src, s.src_index));
    RETURN_IF_ERROR(Expect("lanes"));
    ASSIGN_OR_RETURN(s.lanes, SmallInt("a number of lanes"));
    return Stmt{std::move(s)};
  }

  Result<Stmt> CopyAsyncStatement() {
    CopyAsync s;
    RETURN_IF_ERROR(Element(s.dst, s.dst_index));
    RETURN_IF_ERROR(Expect("<-"));
    RETURN_IF_ERROR(Element(s.src, s.src_index));
    RETURN_IF_ERROR(Expect("lanes"));
    ASSIGN_OR_RETURN(s.lanes, SmallInt("a number of lanes"));
    RETURN_IF_ERROR(Expect("if"));
    ASSIGN_OR_RETURN(s.valid, Expression());
    return Stmt{std::move(s)};
  }

  Result<Stmt> CommitAsyncStatement() { return Stmt{CommitAsync{}}; }

  Result<Stmt> WaitAsyncStatement() {
    ASSIGN_OR_RETURN(const int groups, SmallInt("a number of groups"));
    return Stmt{WaitAsync{groups}};
  }

  Result<Stmt> LoadMatrixStatement() {
    LoadMatrix s;
    RETURN_IF_ERROR(Element(s.dst, s.dst_index));
    RETURN_IF_ERROR(Expect("<-"));
    RETURN_IF_ERROR(Element(s.src, s.src_index));
    RETURN_IF_ERROR(Expect("count"));
    ASSIGN_OR_RETURN(s.matrices, SmallInt("a number of matrices"));
    s.transposed = Is("transposed");
    if (s.transposed) RETURN_IF_ERROR(Advance());
    return Stmt{std::move(s)};
  }

  Result<Stmt> LargestStatement() {
    Largest s;
    ASSIGN_OR_RETURN(s.values, Name("a buffer's name"));
    if (Is(",")) {
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(s.numbers, Name("a buffer's name"));
    }
    RETURN_IF_ERROR(Expect("<-"));
    while (true) {
      ASSIGN_OR_RETURN(std::string source, Name("a buffer's name"));
      s.sources.push_back(std::move(source));
      ASSIGN_OR_RETURN(const int tap, SmallInt("a number of the source"));
      s.taps.push_back(tap);
      if (!Is(",")) break;
      RETURN_IF_ERROR(Advance());
    }
    RETURN_IF_ERROR(Expect("lanes"));
    ASSIGN_OR_RETURN(s.lanes, SmallInt("a number of lanes"));
    s.keeps_nan = Is("keeps_nan");
    if (s.keeps_nan) RETURN_IF_ERROR(Advance());
    return Stmt{std::move(s)};
  }

  Result<Stmt> AtomicAddStatement() {
    AtomicAdd s;
    RETURN_IF_ERROR(Element(s.buffer, s.index));
    RETURN_IF_ERROR(Expect(","));
    ASSIGN_OR_RETURN(s.value, Expression());
    return Stmt{std::move(s)};
  }

  Result<Stmt> MmaStatement() {
    Mma s;
    RETURN_IF_ERROR(Element(s.acc, s.acc_index));
    RETURN_IF_ERROR(Expect(","));
    RETURN_IF_ERROR(Element(s.a, s.a_index));
    RETURN_IF_ERROR(Expect(","));
    RETURN_IF_ERROR(Element(s.b, s.b_index));
    return Stmt{std::move(s)};
  }

  Result<Stmt> ForStatement() {
    For s;
    ASSIGN_OR_RETURN(s.var, Name("a loop variable's name"));
    if (Is(":")) {
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(s.type, Type());
    }
    RETURN_IF_ERROR(Expect("in"));
    if (token_.text != "0") return Unexpected("'0'");
    RETURN_IF_ERROR(Advance());
    RETURN_IF_ERROR(Expect(".."));
    ASSIGN_OR_RETURN(s.extent, Expression());
    if (!Is("{")) {
      const auto bind = EnumFromText<Bind>(kBindText, token_.text);
      if (!bind) return Unexpected("a binding or '{'");
      s.bind = *bind;
      RETURN_IF_ERROR(Advance());
    }
    vars_[s.var] = s.type;
    ASSIGN_OR_RETURN(s.body, Body());
    return Stmt{std::move(s)};
  }

  Result<Stmt> IfStatement() {
    If s;
    ASSIGN_OR_RETURN(s.condition, Expression());
    ASSIGN_OR_RETURN(s.then_body, Body());
    if (Is("else")) {
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(s.else_body, Body());
    }
    return Stmt{std::move(s)};
  }

  Result<Stmt> BarrierStatement() {
    Barrier s;
    if (Is("of")) {
      RETURN_IF_ERROR(Advance());
      ASSIGN_OR_RETURN(s.team, SmallInt("a number of threads"));
    }
    return Stmt{s};
  }

  Result<Stmt> CallStatement() {
    Call s;
    ASSIGN_OR_RETURN(s.skeleton, Name("a skeleton's name"));
    RETURN_IF_ERROR(Names("a tensor map", s.maps));
    if (Is("buffers")) {
      RETURN_IF_ERROR(Advance());
      RETURN_IF_ERROR(Names("a buffer", s.buffers));
    }
    if (Is("wgmma")) {
      ASSIGN_OR_RETURN(s.wgmma, OneWgmma());
    }
    if (Is("wgmma")) {
      ASSIGN_OR_RETURN(s.second, OneWgmma());
    }
    if (Is("wgmma")) {
      ASSIGN_OR_RETURN(s.third, OneWgmma());
    }
    if (Is("wgmma")) {
      ASSIGN_OR_RETURN(s.fourth, OneWgmma());
    }
    RETURN_IF_ERROR(Expect("shared"));
    ASSIGN_OR_RETURN(s.shared_bytes,
                     Count("a number of bytes", std::numeric_limits<int32_t>::max()));
    RETURN_IF_ERROR(Expect("{"));
    while (!Is("}")) RETURN_IF_ERROR(CallPart(s));
    RETURN_IF_ERROR(Advance());
    return Stmt{std::move(s)};
  }

  // "(a, b)"
  Status Names(const char* what, std::vector<std::string>& names) {
    RETURN_IF_ERROR(Expect("("));
    while (!Is(")")) {
      if (!names.empty()) RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(std::string name, Name(what));
      names.push_back(std::move(name));
    }
    return Advance();
  }

  Result<Call::Wgmma> OneWgmma() {
    Call::Wgmma w;
    RETURN_IF_ERROR(Expect("wgmma"));
    ASSIGN_OR_RETURN(w.columns, SmallInt("a number of columns"));
    ASSIGN_OR_RETURN(w.type, Type());
    w.left_in_registers = Is("registers");
    if (w.left_in_registers) {
      RETURN_IF_ERROR(Advance());
    } else {
      ASSIGN_OR_RETURN(w.left_is_outer, IsOuter());
    }
    ASSIGN_OR_RETURN(w.right_type, Type());
    ASSIGN_OR_RETURN(w.right_is_outer, IsOuter());
    return w;
  }

  Result<bool> IsOuter() {
    const bool outer = Is("outer");
    if (!outer && !Is("k")) return Unexpected("'k' or 'outer'");
    RETURN_IF_ERROR(Advance());
    return outer;
  }

  Status CallPart(Call& s) {
    if (Is("config")) {
      RETURN_IF_ERROR(Advance());
      Call::Constant c{};
      ASSIGN_OR_RETURN(c.name, Name("a constant's name"));
      ASSIGN_OR_RETURN(c.value, Count("a value", std::numeric_limits<int32_t>::max()));
      s.config.push_back(std::move(c));
      return {};
    }
    if (Is("shape")) {
      RETURN_IF_ERROR(Advance());
      Call::Member m{};
      ASSIGN_OR_RETURN(m.name, Name("a member's name"));
      while (Is(".")) {  // of a member
        RETURN_IF_ERROR(Advance());
        ASSIGN_OR_RETURN(const std::string inner, Name("a member's name"));
        m.name += "." + inner;
      }
      RETURN_IF_ERROR(Expect("="));
      ASSIGN_OR_RETURN(m.value, Expression());
      s.shape.push_back(std::move(m));
      return {};
    }
    RETURN_IF_ERROR(Expect("function"));
    Call::Function f;
    ASSIGN_OR_RETURN(f.name, Name("a function's name"));
    RETURN_IF_ERROR(Expect("("));
    while (!Is(")")) {
      if (!f.params.empty()) RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(Call::FunctionParam p, OneFunctionParam());
      (p.size > 0 ? buffers_ : vars_)[p.name] = p.type;
      f.params.push_back(std::move(p));
    }
    RETURN_IF_ERROR(Advance());
    ASSIGN_OR_RETURN(f.body, Body());
    s.functions.push_back(std::move(f));
    return {};
  }

  Result<Call::FunctionParam> OneFunctionParam() {
    Call::FunctionParam p{};
    ASSIGN_OR_RETURN(p.name, Name("a parameter's name"));
    RETURN_IF_ERROR(Expect(":"));
    ASSIGN_OR_RETURN(p.type, Type());
    if (!Is("[")) return p;
    RETURN_IF_ERROR(Advance());
    ASSIGN_OR_RETURN(p.size, Count("a number of elements", 4096));
    RETURN_IF_ERROR(Expect("]"));
    p.is_output = Is("out");
    if (p.is_output) RETURN_IF_ERROR(Advance());
    return p;
  }

  // buffer[index]; its type is left in element_type_.
  Status Element(std::string& buffer, Expr& index) {
    const Token at = token_;
    ASSIGN_OR_RETURN(buffer, Name("a buffer's name"));
    const auto known = buffers_.find(buffer);
    if (known == buffers_.end()) return Fail(at, "no buffer is named {}", buffer);
    const DType type = known->second;
    RETURN_IF_ERROR(Expect("["));
    ASSIGN_OR_RETURN(index, Expression());
    element_type_ = type;
    return Expect("]");
  }

  // ---- expressions ----
  static Expr Make(ExprNode node) { return std::make_shared<const ExprNode>(std::move(node)); }

  Result<Expr> Expression() {
    if (++depth_ > kMaxDepth)
      return Fail(token_, "expressions are nested more than {} deep", kMaxDepth);
    ASSIGN_OR_RETURN(Expr e, UnboundedExpression());
    --depth_;
    return e;
  }

  Result<Expr> UnboundedExpression() {
    const Token at = token_;
    if (at.kind == TokenKind::kInt) return IntConstant();
    if (at.kind == TokenKind::kFloat) return FloatConstant();
    if (at.kind != TokenKind::kName) return Unexpected("an expression");
    RETURN_IF_ERROR(Advance());
    if (at.text == "true" || at.text == "false") return Bool(at.text == "true");
    if (at.text == "load") {
      ExprNode node{.kind = ExprKind::kLoad, .args = {nullptr}};
      RETURN_IF_ERROR(Element(node.name, node.args[0]));
      node.type = element_type_;
      return Make(std::move(node));
    }
    if (at.text == "cast" && Is("<")) return CastExpression();
    if (at.text == "shuffle_xor") return ShuffleExpression();
    if (Is("(")) return OpExpression(at);
    const auto known = vars_.find(at.text);
    if (known == vars_.end()) return Fail(at, "no variable is named {}", at.text);
    return Var(std::string(at.text), known->second);
  }

  Result<Expr> IntConstant() {
    const std::string text(token_.text);
    char* end = nullptr;
    errno = 0;
    const int64_t value = std::strtoll(text.c_str(), &end, 10);
    const DType type = *end == 'l' ? DType::kI64 : DType::kI32;
    end += *end == 'l';
    const bool narrow = type == DType::kI32 && value != static_cast<int32_t>(value);
    if (*end != 0 || end == text.c_str() || text == "-")
      return Fail(token_, "'{}' is not a number", text);
    if (errno != 0 || narrow) return Fail(token_, "{} does not fit in {}", text, Info(type).text);
    RETURN_IF_ERROR(Advance());
    return Int(value, type);
  }

  Result<Expr> FloatConstant() {
    std::string text(token_.text);
    const bool single = text.ends_with('f') && !text.ends_with("inf");
    const bool hex = text.find('x') != text.npos;
    if (single) text.pop_back();
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end != 0 || (hex && text.find('p') == text.npos))
      return Fail(token_, "'{}' is not a number: floats are written as 0x1.8p+1f", token_.text);
    const DType type = single ? DType::kF32 : DType::kF64;
    if (single && std::isfinite(value) && static_cast<double>(static_cast<float>(value)) != value)
      return Fail(token_, "{} is no f32 number", text);
    RETURN_IF_ERROR(Advance());
    return Float(value, type);
  }

  Result<Expr> CastExpression() {
    RETURN_IF_ERROR(Expect("<"));
    ASSIGN_OR_RETURN(const DType type, Type());
    RETURN_IF_ERROR(Expect(">"));
    RETURN_IF_ERROR(Expect("("));
    ASSIGN_OR_RETURN(Expr value, Expression());
    RETURN_IF_ERROR(Expect(")"));
    return Make({.kind = ExprKind::kCast, .type = type, .args = {std::move(value)}});
  }

  Result<Expr> ShuffleExpression() {
    RETURN_IF_ERROR(Expect("("));
    ASSIGN_OR_RETURN(Expr value, Expression());
    RETURN_IF_ERROR(Expect(","));
    ASSIGN_OR_RETURN(const int64_t mask, Count("a lane mask", 31));
    RETURN_IF_ERROR(Expect(")"));
    const DType type = value->type;
    return Make(
        {.kind = ExprKind::kShuffle, .type = type, .int_value = mask, .args = {std::move(value)}});
  }

  Result<Expr> OpExpression(const Token& at) {
    const auto op = ScalarOpFromText(at.text);
    if (!op) return Fail(at, "no operation is named {}", at.text);
    RETURN_IF_ERROR(Expect("("));
    ExprNode node{.kind = ExprKind::kOp, .op = *op};
    while (!Is(")")) {
      if (!node.args.empty()) RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(Expr arg, Expression());
      node.args.push_back(std::move(arg));
    }
    RETURN_IF_ERROR(Advance());
    if (static_cast<int>(node.args.size()) != Info(*op).arity)
      return Fail(at, "{} takes {} operands, not {}", at.text, Info(*op).arity, node.args.size());
    const bool boolean = Info(*op).result == ScalarResult::kBool;
    node.type = boolean ? DType::kBool : node.args[*op == ScalarOp::kSelect ? 1 : 0]->type;
    return Make(std::move(node));
  }

  Lexer lexer_;
  Token token_;
  int depth_ = 0;
  DType element_type_ = DType::kF32;
  std::map<std::string, DType, std::less<>> vars_, buffers_;
};

}  // namespace

Result<Kernel> Parse(std::string_view text) { return Parser(text).Run(); }

}  // namespace kiln::tile
