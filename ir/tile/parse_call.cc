// Calls of skeletons: their wgmma shapes, constants, members and functions.
#include <limits>

#include "ir/tile/parse_parts.h"

namespace kiln::tile {
namespace {

Result<bool> IsOuter(TokenReader& in) {
  const bool outer = in.Is("outer");
  if (!outer && !in.Is("k")) return in.Unexpected("'k' or 'outer'");
  RETURN_IF_ERROR(in.Advance());
  return outer;
}

Result<Call::Wgmma> OneWgmma(TokenReader& in) {
  Call::Wgmma w;
  RETURN_IF_ERROR(in.Expect("wgmma"));
  ASSIGN_OR_RETURN(w.columns, in.SmallInt("a number of columns"));
  ASSIGN_OR_RETURN(w.type, in.Type());
  w.left_in_registers = in.Is("registers");
  if (w.left_in_registers) {
    RETURN_IF_ERROR(in.Advance());
  } else {
    ASSIGN_OR_RETURN(w.left_is_outer, IsOuter(in));
  }
  ASSIGN_OR_RETURN(w.right_type, in.Type());
  ASSIGN_OR_RETURN(w.right_is_outer, IsOuter(in));
  return w;
}

Result<Call::Constant> OneConstant(TokenReader& in) {
  Call::Constant c{};
  ASSIGN_OR_RETURN(c.name, in.Name("a constant's name"));
  ASSIGN_OR_RETURN(c.value, in.Count("a value", std::numeric_limits<int32_t>::max()));
  return c;
}

Result<Call::Member> OneMember(TokenReader& in, const KnownNames& names) {
  Call::Member m{};
  ASSIGN_OR_RETURN(m.name, in.Name("a member's name"));
  while (in.Is(".")) {  // of a member
    RETURN_IF_ERROR(in.Advance());
    ASSIGN_OR_RETURN(const std::string inner, in.Name("a member's name"));
    m.name += "." + inner;
  }
  RETURN_IF_ERROR(in.Expect("="));
  ASSIGN_OR_RETURN(m.value, ExpressionParser(in, names).Expression());
  return m;
}

Result<Call::FunctionParam> OneFunctionParam(TokenReader& in) {
  Call::FunctionParam p{};
  ASSIGN_OR_RETURN(p.name, in.Name("a parameter's name"));
  RETURN_IF_ERROR(in.Expect(":"));
  ASSIGN_OR_RETURN(p.type, in.Type());
  if (!in.Is("[")) return p;
  RETURN_IF_ERROR(in.Advance());
  ASSIGN_OR_RETURN(p.size, in.Count("a number of elements", 4096));
  RETURN_IF_ERROR(in.Expect("]"));
  p.is_output = in.Is("out");
  if (p.is_output) RETURN_IF_ERROR(in.Advance());
  return p;
}

Result<Call::Function> OneFunction(TokenReader& in, KnownNames& names,
                                   const std::function<Result<Block>()>& parse_body) {
  Call::Function f;
  ASSIGN_OR_RETURN(f.name, in.Name("a function's name"));
  RETURN_IF_ERROR(in.Expect("("));
  while (!in.Is(")")) {
    if (!f.params.empty()) RETURN_IF_ERROR(in.Expect(","));
    ASSIGN_OR_RETURN(Call::FunctionParam p, OneFunctionParam(in));
    (p.size > 0 ? names.buffers : names.vars)[p.name] = p.type;
    f.params.push_back(std::move(p));
  }
  RETURN_IF_ERROR(in.Advance());
  ASSIGN_OR_RETURN(f.body, parse_body());
  return f;
}

// One of what stands between the braces.
Status OnePart(TokenReader& in, KnownNames& names, const std::function<Result<Block>()>& parse_body,
               Call& call) {
  ASSIGN_OR_RETURN(const bool is_config, in.Take("config"));
  if (is_config) {
    ASSIGN_OR_RETURN(Call::Constant c, OneConstant(in));
    call.config.push_back(std::move(c));
    return {};
  }
  ASSIGN_OR_RETURN(const bool is_shape, in.Take("shape"));
  if (is_shape) {
    ASSIGN_OR_RETURN(Call::Member m, OneMember(in, names));
    call.shape.push_back(std::move(m));
    return {};
  }
  RETURN_IF_ERROR(in.Expect("function"));
  ASSIGN_OR_RETURN(Call::Function f, OneFunction(in, names, parse_body));
  call.functions.push_back(std::move(f));
  return {};
}

}  // namespace

Result<Call> ParseCall(TokenReader& in, KnownNames& names,
                       const std::function<Result<Block>()>& parse_body) {
  Call s;
  ASSIGN_OR_RETURN(s.skeleton, in.Name("a skeleton's name"));
  RETURN_IF_ERROR(in.Names("a tensor map", s.maps));
  ASSIGN_OR_RETURN(const bool has_buffers, in.Take("buffers"));
  if (has_buffers) RETURN_IF_ERROR(in.Names("a buffer", s.buffers));
  if (in.Is("wgmma")) {
    ASSIGN_OR_RETURN(s.wgmma, OneWgmma(in));
  }
  for (std::optional<Call::Wgmma>* w : {&s.second, &s.third, &s.fourth}) {
    if (!in.Is("wgmma")) break;
    ASSIGN_OR_RETURN(*w, OneWgmma(in));
  }
  RETURN_IF_ERROR(in.Expect("shared"));
  ASSIGN_OR_RETURN(s.shared_bytes,
                   in.Count("a number of bytes", std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(in.Expect("{"));
  while (!in.Is("}")) RETURN_IF_ERROR(OnePart(in, names, parse_body, s));
  RETURN_IF_ERROR(in.Advance());
  return s;
}

}  // namespace kiln::tile
