// The statements that kernels are made of most: a loop with a variable of its own, arrays in
// registers and in shared memory, zeros. Used by everything that writes tile IR with a
// KernelBuilder.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "compiler/kernel/kernel_builder.h"

namespace kiln::compiler {

constexpr int kWarpLanes = 32;

// The variable `name` of the builder's index type: "tx", "bx", a loop's.
inline tile::Expr Var(const KernelBuilder& b, const std::string& name) {
  return tile::Var(name, b.index_type());
}

// Writes for name in 0..extent { fill(body, variable) }.
template <class F>
void Loop(KernelBuilder& b, tile::Block& out, const std::string& wish, tile::Expr extent,
          tile::Bind bind, F&& fill) {
  const std::string name = b.Name(wish);
  tile::Block body;
  fill(body, Var(b, name));
  out.push_back({tile::For{name, b.index_type(), std::move(extent), bind, std::move(body)}});
}

// Writes emit(out, i) for each i below count, as a loop that is unrolled; over one place there is
// none.
void UnrolledLoop(KernelBuilder& b, tile::Block& out, const char* name, int64_t count,
                  const std::function<void(tile::Block&, tile::Expr)>& emit);

// Declares an array of a thread, or of the block; returns the name that it got.
std::string Registers(KernelBuilder& b, tile::Block& out, const std::string& wish, DType type,
                      int64_t size);
std::string SharedArray(KernelBuilder& b, tile::Block& out, const std::string& wish, DType type,
                        int64_t size);

// A zero as an element of memory of that type.
tile::Expr ZeroOf(DType type);

// Writes array[0 .. size) = 0, in a loop.
void Clear(KernelBuilder& b, tile::Block& out, const std::string& array, DType type, int64_t size,
           tile::Bind bind = tile::Bind::kUnroll);

// Writes if condition { then }.
void When(tile::Block& out, tile::Expr condition, tile::Block then);

}  // namespace kiln::compiler
