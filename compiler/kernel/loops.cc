#include "compiler/kernel/loops.h"

namespace kiln::compiler {

using tile::Block;
using tile::Expr;

namespace {

std::string Array(KernelBuilder& b, Block& out, const std::string& wish, DType type,
                  tile::Space space, int64_t size) {
  const std::string name = b.Name(wish);
  out.push_back({tile::Alloc{name, type, space, size}});
  return name;
}

}  // namespace

void UnrolledLoop(KernelBuilder& b, Block& out, const char* name, int64_t count,
                  const std::function<void(Block&, Expr)>& emit) {
  if (count == 1) return emit(out, b.Idx(0));
  Loop(b, out, name, b.Idx(count), tile::Bind::kUnroll, emit);
}

std::string Registers(KernelBuilder& b, Block& out, const std::string& wish, DType type,
                      int64_t size) {
  return Array(b, out, wish, type, tile::Space::kReg, size);
}

std::string SharedArray(KernelBuilder& b, Block& out, const std::string& wish, DType type,
                        int64_t size) {
  return Array(b, out, wish, type, tile::Space::kShared, size);
}

Expr ZeroOf(DType type) {
  const DType arithmetic = ArithmeticType(type);
  return tile::Cast(type,
                    IsFloat(arithmetic) ? tile::Float(0, arithmetic) : tile::Int(0, arithmetic));
}

void Clear(KernelBuilder& b, Block& out, const std::string& array, DType type, int64_t size,
           tile::Bind bind) {
  Loop(b, out, "z", b.Idx(size), bind, [&](Block& clear, const Expr& z) {
    clear.push_back({tile::Store{array, z, ZeroOf(type)}});
  });
}

void When(Block& out, Expr condition, Block then) {
  out.push_back({tile::If{std::move(condition), std::move(then), {}}});
}

}  // namespace kiln::compiler
