// Words of the tile IR's text for bindings and memory spaces, and names that a kernel may not use
// because its text or its CUDA would mean something else by them.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "ir/tile/tile.h"

namespace kiln::tile {

inline constexpr std::string_view kBindText[] = {"serial",  "unroll",  "vector",  "block_x",
                                                 "block_y", "block_z", "thread_x"};
inline constexpr std::string_view kSpaceText[] = {"reg", "shared"};
static_assert(std::size(kBindText) == static_cast<size_t>(Bind::kThreadX) + 1);
static_assert(std::size(kSpaceText) == static_cast<size_t>(Space::kShared) + 1);

constexpr std::string_view BindText(Bind bind) { return kBindText[static_cast<size_t>(bind)]; }
constexpr std::string_view SpaceText(Space space) { return kSpaceText[static_cast<size_t>(space)]; }

template <class E, size_t N>
std::optional<E> EnumFromText(const std::string_view (&texts)[N], std::string_view text) {
  const auto* at = std::ranges::find(texts, text);
  if (at == std::end(texts)) return std::nullopt;
  return static_cast<E>(at - std::begin(texts));
}

constexpr bool IsBlockBind(Bind bind) {
  return bind == Bind::kBlockX || bind == Bind::kBlockY || bind == Bind::kBlockZ;
}

// Types in which expressions compute; all others are storage.
constexpr bool IsComputeType(DType t) {
  return t == DType::kF32 || t == DType::kF64 || t == DType::kI32 || t == DType::kI64 ||
         t == DType::kBool;
}

// True for letters, digits and underscores that do not start with a digit and are not a word of the
// IR, of CUDA C++ or of the emitter's prelude.
bool IsIdentifier(std::string_view name);
bool IsReservedName(std::string_view name);

// The first line of the statement's text without its brace, for messages: "for k in 0..n unroll".
std::string HeadLine(const Stmt& s);

}  // namespace kiln::tile
