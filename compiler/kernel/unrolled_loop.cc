#include "compiler/kernel/unrolled_loop.h"

namespace kiln::compiler {

void UnrolledLoop(KernelBuilder& b, tile::Block& out, const char* name, int64_t count,
                  const std::function<void(tile::Block&, tile::Expr)>& emit) {
  if (count == 1) return emit(out, b.Idx(0));
  const std::string var = b.Name(name);
  tile::Block body;
  emit(body, tile::Var(var, b.index_type()));
  out.push_back(
      {tile::For{var, b.index_type(), b.Idx(count), tile::Bind::kUnroll, std::move(body)}});
}

}  // namespace kiln::compiler
