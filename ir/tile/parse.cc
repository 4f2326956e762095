// Reads what print.cc writes, by recursive descent. Nothing is folded, so that text comes back as
// it was; the parser resolves names to types and leaves all other rules to the verifier. Called by
// the CPU plug-in, which receives kernels as text, by the CLI and by tests.
#include <limits>

#include "ir/tile/names.h"
#include "ir/tile/parse_parts.h"
#include "ir/tile/tools.h"

namespace kiln::tile {
namespace {

class StatementParser {
 public:
  StatementParser(TokenReader& in, KnownNames& names)
      : in_(in), names_(names), expressions_(in, names) {}

  Result<Block> Body() {
    RETURN_IF_ERROR(in_.Enter("blocks"));
    RETURN_IF_ERROR(in_.Expect("{"));
    Block block;
    while (!in_.Is("}")) {
      ASSIGN_OR_RETURN(Stmt s, Statement());
      block.push_back(std::move(s));
    }
    RETURN_IF_ERROR(in_.Advance());
    in_.Leave();
    return block;
  }

 private:
  Status Element(std::string& buffer, Expr& index) {
    return expressions_.Element(buffer, index).status();
  }

  Result<Stmt> Statement() {
    struct Row {
      std::string_view keyword;
      Result<Stmt> (StatementParser::*parse)();
    };
    static constexpr Row kRows[] = {
        {"let", &StatementParser::LetStatement},
        {"alloc", &StatementParser::AllocStatement},
        {"store", &StatementParser::StoreStatement},
        {"copy", &StatementParser::CopyStatement},
        {"for", &StatementParser::ForStatement},
        {"if", &StatementParser::IfStatement},
        {"mma", &StatementParser::MmaStatement},
        {"barrier", &StatementParser::BarrierStatement},
        {"copy_async", &StatementParser::CopyAsyncStatement},
        {"commit_async", &StatementParser::CommitAsyncStatement},
        {"wait_async", &StatementParser::WaitAsyncStatement},
        {"load_matrix", &StatementParser::LoadMatrixStatement},
        {"largest", &StatementParser::LargestStatement},
        {"atomic_add", &StatementParser::AtomicAddStatement},
        {"call", &StatementParser::CallStatement},
    };
    if (in_.token().kind == TokenKind::kComment) {
      Comment comment{std::string(in_.token().text)};
      RETURN_IF_ERROR(in_.Advance());
      return Stmt{std::move(comment)};
    }
    for (const Row& row : kRows) {
      if (!in_.Is(row.keyword)) continue;
      RETURN_IF_ERROR(in_.Advance());
      return (this->*row.parse)();
    }
    return in_.Unexpected("a statement or '}'");
  }

  Result<Stmt> LetStatement() {
    ASSIGN_OR_RETURN(std::string name, in_.Name("a variable's name"));
    RETURN_IF_ERROR(in_.Expect("="));
    ASSIGN_OR_RETURN(Expr value, expressions_.Expression());
    RETURN_IF_ERROR(in_.Expect(":"));
    const Token at = in_.token();
    ASSIGN_OR_RETURN(const DType type, in_.Type());
    if (type != value->type)
      return in_.Fail(at, "{} is {}, its value is {}", name, Info(type).text,
                      Info(value->type).text);
    names_.vars[name] = type;
    return Stmt{Let{std::move(name), std::move(value)}};
  }

  Result<Stmt> AllocStatement() {
    Alloc s;
    ASSIGN_OR_RETURN(s.name, in_.Name("a buffer's name"));
    RETURN_IF_ERROR(in_.Expect(":"));
    ASSIGN_OR_RETURN(s.type, in_.Type());
    RETURN_IF_ERROR(in_.Expect("["));
    ASSIGN_OR_RETURN(s.size,
                     in_.Count("a number of elements", std::numeric_limits<int32_t>::max()));
    RETURN_IF_ERROR(in_.Expect("]"));
    const auto space = EnumFromText<Space>(kSpaceText, in_.token().text);
    if (!space) return in_.Unexpected("'reg' or 'shared'");
    s.space = *space;
    names_.buffers[s.name] = s.type;
    RETURN_IF_ERROR(in_.Advance());
    return Stmt{std::move(s)};
  }

  Result<Stmt> StoreStatement() {
    Store s;
    RETURN_IF_ERROR(Element(s.buffer, s.index));
    RETURN_IF_ERROR(in_.Expect("="));
    ASSIGN_OR_RETURN(s.value, expressions_.Expression());
    return Stmt{std::move(s)};
  }

  Result<Stmt> CopyStatement() {
    Copy s;
    RETURN_IF_ERROR(Element(s.dst, s.dst_index));
    RETURN_IF_ERROR(in_.Expect("<-"));
    RETURN_IF_ERROR(Element(s.src, s.src_index));
    RETURN_IF_ERROR(in_.Expect("lanes"));
    ASSIGN_OR_RETURN(s.lanes, in_.SmallInt("a number of lanes"));
    return Stmt{std::move(s)};
  }

  Result<Stmt> CopyAsyncStatement() {
    CopyAsync s;
    RETURN_IF_ERROR(Element(s.dst, s.dst_index));
    RETURN_IF_ERROR(in_.Expect("<-"));
    RETURN_IF_ERROR(Element(s.src, s.src_index));
    RETURN_IF_ERROR(in_.Expect("lanes"));
    ASSIGN_OR_RETURN(s.lanes, in_.SmallInt("a number of lanes"));
    RETURN_IF_ERROR(in_.Expect("if"));
    ASSIGN_OR_RETURN(s.valid, expressions_.Expression());
    return Stmt{std::move(s)};
  }

  Result<Stmt> CommitAsyncStatement() { return Stmt{CommitAsync{}}; }

  Result<Stmt> WaitAsyncStatement() {
    ASSIGN_OR_RETURN(const int groups, in_.SmallInt("a number of groups"));
    return Stmt{WaitAsync{groups}};
  }

  Result<Stmt> LoadMatrixStatement() {
    LoadMatrix s;
    RETURN_IF_ERROR(Element(s.dst, s.dst_index));
    RETURN_IF_ERROR(in_.Expect("<-"));
    RETURN_IF_ERROR(Element(s.src, s.src_index));
    RETURN_IF_ERROR(in_.Expect("count"));
    ASSIGN_OR_RETURN(s.matrices, in_.SmallInt("a number of matrices"));
    s.transposed = in_.Is("transposed");
    if (s.transposed) RETURN_IF_ERROR(in_.Advance());
    return Stmt{std::move(s)};
  }

  Result<Stmt> LargestStatement() {
    Largest s;
    ASSIGN_OR_RETURN(s.values, in_.Name("a buffer's name"));
    if (in_.Is(",")) {
      RETURN_IF_ERROR(in_.Advance());
      ASSIGN_OR_RETURN(s.numbers, in_.Name("a buffer's name"));
    }
    RETURN_IF_ERROR(in_.Expect("<-"));
    while (true) {
      ASSIGN_OR_RETURN(std::string source, in_.Name("a buffer's name"));
      s.sources.push_back(std::move(source));
      ASSIGN_OR_RETURN(const int tap, in_.SmallInt("a number of the source"));
      s.taps.push_back(tap);
      if (!in_.Is(",")) break;
      RETURN_IF_ERROR(in_.Advance());
    }
    RETURN_IF_ERROR(in_.Expect("lanes"));
    ASSIGN_OR_RETURN(s.lanes, in_.SmallInt("a number of lanes"));
    s.keeps_nan = in_.Is("keeps_nan");
    if (s.keeps_nan) RETURN_IF_ERROR(in_.Advance());
    return Stmt{std::move(s)};
  }

  Result<Stmt> AtomicAddStatement() {
    AtomicAdd s;
    RETURN_IF_ERROR(Element(s.buffer, s.index));
    RETURN_IF_ERROR(in_.Expect(","));
    ASSIGN_OR_RETURN(s.value, expressions_.Expression());
    return Stmt{std::move(s)};
  }

  Result<Stmt> MmaStatement() {
    Mma s;
    RETURN_IF_ERROR(Element(s.acc, s.acc_index));
    RETURN_IF_ERROR(in_.Expect(","));
    RETURN_IF_ERROR(Element(s.a, s.a_index));
    RETURN_IF_ERROR(in_.Expect(","));
    RETURN_IF_ERROR(Element(s.b, s.b_index));
    return Stmt{std::move(s)};
  }

  Result<Stmt> ForStatement() {
    For s;
    ASSIGN_OR_RETURN(s.var, in_.Name("a loop variable's name"));
    if (in_.Is(":")) {
      RETURN_IF_ERROR(in_.Advance());
      ASSIGN_OR_RETURN(s.type, in_.Type());
    }
    RETURN_IF_ERROR(in_.Expect("in"));
    if (in_.token().text != "0") return in_.Unexpected("'0'");
    RETURN_IF_ERROR(in_.Advance());
    RETURN_IF_ERROR(in_.Expect(".."));
    ASSIGN_OR_RETURN(s.extent, expressions_.Expression());
    if (!in_.Is("{")) {
      const auto bind = EnumFromText<Bind>(kBindText, in_.token().text);
      if (!bind) return in_.Unexpected("a binding or '{'");
      s.bind = *bind;
      RETURN_IF_ERROR(in_.Advance());
    }
    names_.vars[s.var] = s.type;
    ASSIGN_OR_RETURN(s.body, Body());
    return Stmt{std::move(s)};
  }

  Result<Stmt> IfStatement() {
    If s;
    ASSIGN_OR_RETURN(s.condition, expressions_.Expression());
    ASSIGN_OR_RETURN(s.then_body, Body());
    if (in_.Is("else")) {
      RETURN_IF_ERROR(in_.Advance());
      ASSIGN_OR_RETURN(s.else_body, Body());
    }
    return Stmt{std::move(s)};
  }

  Result<Stmt> BarrierStatement() {
    Barrier s;
    if (in_.Is("of")) {
      RETURN_IF_ERROR(in_.Advance());
      ASSIGN_OR_RETURN(s.team, in_.SmallInt("a number of threads"));
    }
    return Stmt{s};
  }

  Result<Stmt> CallStatement() {
    ASSIGN_OR_RETURN(Call s, ParseCall(in_, names_, [this] { return Body(); }));
    return Stmt{std::move(s)};
  }

  TokenReader& in_;
  KnownNames& names_;
  ExpressionParser expressions_;
};

// ---- what stands before a kernel's body

Result<Param> OneParam(TokenReader& in) {
  Param p;
  ASSIGN_OR_RETURN(p.name, in.Name("a parameter's name"));
  RETURN_IF_ERROR(in.Expect(":"));
  p.is_map = in.Is("map");
  if (p.is_map) {
    RETURN_IF_ERROR(in.Advance());
    return p;
  }
  p.is_pointer = in.Is("ptr");
  if (!p.is_pointer) {
    ASSIGN_OR_RETURN(p.type, in.Type());
    return p;
  }
  RETURN_IF_ERROR(in.Advance());
  RETURN_IF_ERROR(in.Expect("<"));
  ASSIGN_OR_RETURN(p.type, in.Type());
  RETURN_IF_ERROR(in.Expect(">"));
  if (in.Is("const")) {
    p.is_const = true;
    RETURN_IF_ERROR(in.Advance());
  }
  if (in.Is("align")) {
    RETURN_IF_ERROR(in.Advance());
    ASSIGN_OR_RETURN(p.alignment, in.SmallInt("an alignment"));
  }
  return p;
}

Status Params(TokenReader& in, KnownNames& names, Kernel& kernel) {
  RETURN_IF_ERROR(in.Expect("("));
  while (!in.Is(")")) {
    if (!kernel.params.empty()) RETURN_IF_ERROR(in.Expect(","));
    ASSIGN_OR_RETURN(Param p, OneParam(in));
    if (!p.is_map) (p.is_pointer ? names.buffers : names.vars)[p.name] = p.type;
    kernel.params.push_back(std::move(p));
  }
  return in.Advance();
}

// A number that stands behind its word, if it does.
Status OptionalCount(TokenReader& in, std::string_view word, std::string_view what, int& value) {
  ASSIGN_OR_RETURN(const bool is_there, in.Take(word));
  if (!is_there) return {};
  ASSIGN_OR_RETURN(value, in.SmallInt(what));
  return {};
}

}  // namespace

Result<Kernel> Parse(std::string_view text) {
  TokenReader in(text);
  KnownNames names;
  RETURN_IF_ERROR(in.Advance());
  Kernel kernel;
  while (in.token().kind == TokenKind::kComment) {
    kernel.comment.emplace_back(in.token().text);
    RETURN_IF_ERROR(in.Advance());
  }
  RETURN_IF_ERROR(in.Expect("kernel"));
  ASSIGN_OR_RETURN(kernel.name, in.Name("the kernel's name"));
  RETURN_IF_ERROR(Params(in, names, kernel));
  RETURN_IF_ERROR(in.Expect("threads"));
  ASSIGN_OR_RETURN(kernel.threads, in.SmallInt("a number of threads"));
  RETURN_IF_ERROR(OptionalCount(in, "min_blocks", "a number of blocks", kernel.min_blocks));
  RETURN_IF_ERROR(OptionalCount(in, "cluster", "a number of blocks", kernel.cluster));
  ASSIGN_OR_RETURN(kernel.cooperative, in.Take("cooperative"));
  ASSIGN_OR_RETURN(kernel.body, StatementParser(in, names).Body());
  if (in.token().kind != TokenKind::kEnd) return in.Unexpected("the end of the text");
  return kernel;
}

}  // namespace kiln::tile
