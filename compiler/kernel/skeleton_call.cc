#include "compiler/kernel/skeleton_call.h"

#include <utility>

namespace kiln::compiler {

using tile::Call;
using tile::Expr;

Expr AddScalar(KernelBuilder& b, Call::Function& f, const char* name, DType type) {
  f.params.push_back({b.Name(name), type, 0});
  return tile::Var(f.params.back().name, type);
}

std::string AddArray(KernelBuilder& b, Call::Function& f, const char* name, DType type,
                     int64_t size, bool is_output) {
  f.params.push_back({b.Name(name), type, size, is_output});
  return f.params.back().name;
}

void AddShapeMember(KernelBuilder& b, Call& call, const ShapeMember& member, int64_t value) {
  AddShapeMember(call, member, b.Arg(std::string(member.name), value));
}

void AddShapeMember(Call& call, const ShapeMember& member, Expr value) {
  call.shape.push_back({std::string(member.name), std::move(value)});
}

tile::Block CallOfBlocks(KernelBuilder& b, int64_t blocks, tile::Call call, tile::Block before) {
  tile::Block body;
  before.push_back({std::move(call)});
  body.push_back({tile::For{"bx", b.index_type(), b.Arg("blocks", blocks), tile::Bind::kBlockX,
                            std::move(before)}});
  return body;
}

}  // namespace kiln::compiler
