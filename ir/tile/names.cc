// Names a kernel may not use. The emitters print names unchanged, so a word of C++, of CUDA or of
// the emitter's prelude has to be kept out of kernels; the verifier asks here.
#include "ir/tile/names.h"

#include <cctype>

namespace kiln::tile {
namespace {

constexpr std::string_view kReserved[] = {
    // Words of this text.
    "alloc",
    "barrier",
    "cast",
    "else",
    "for",
    "if",
    "in",
    "kernel",
    "lanes",
    "let",
    "load",
    "ptr",
    "shuffle_xor",
    "store",
    "true",
    "false",
    "inf",
    "nan",
    "inff",
    "nanf",
    // Words of C++ that read as identifiers.
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "char16_t",
    "char32_t",
    "char8_t",
    "class",
    "co_await",
    "co_return",
    "co_yield",
    "compl",
    "concept",
    "const",
    "const_cast",
    "consteval",
    "constexpr",
    "constinit",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "enum",
    "explicit",
    "export",
    "extern",
    "float",
    "friend",
    "goto",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "private",
    "protected",
    "public",
    "register",
    "reinterpret_cast",
    "requires",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "struct",
    "switch",
    "template",
    "this",
    "thread_local",
    "throw",
    "try",
    "typedef",
    "typeid",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "while",
    "xor",
    "xor_eq",
    // What the emitted CUDA calls or refers to.
    "abs",
    "blockDim",
    "blockIdx",
    "bf16_t",
    "atomic_add",
    "commit_async",
    "copy",
    "copy_async",
    "div_or_zero",
    "e4m3_t",
    "e5m2_t",
    "fast_div",
    "gridDim",
    "half_t",
    "largest_of",
    "load_matrix",
    "load_matrix_transposed",
    "max",
    "max_nan",
    "min",
    "min_nan",
    "philox",
    "mma_bf16",
    "mma_e4m3",
    "mma_e5m2",
    "mma_f16",
    "mma_f32",
    "mma_i8",
    "mma_u8",
    "mod_or_zero",
    "round_odd",
    "shared_memory",
    "shuffle_xor",
    "threadIdx",
    "to_i32",
    "to_i64",
    "to_i8",
    "to_u8",
    "uint2",
    "uint4",
    "wait_async",
    "warpSize",
    "word",
};

// Math functions, called under this name for double and with an f appended for float.
constexpr std::string_view kMath[] = {"atan2", "ceil", "cos",   "erf",  "exp",  "expm1", "fabs",
                                      "floor", "fma",  "fmax",  "fmin", "fmod", "llabs", "log",
                                      "log1p", "pow",  "rsqrt", "sin",  "sqrt", "tan",   "tanh"};

}  // namespace

bool IsIdentifier(std::string_view name) {
  const auto word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::ranges::all_of(name, word);
}

bool IsReservedName(std::string_view name) {
  if (name.starts_with("__")) return true;  // belongs to the compiler
  if (std::ranges::find(kReserved, name) != std::end(kReserved)) return true;
  return std::ranges::any_of(kMath, [name](std::string_view f) {
    return name.starts_with(f) && (name.size() == f.size() || name.substr(f.size()) == "f");
  });
}

}  // namespace kiln::tile
