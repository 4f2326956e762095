// The members that kernels of contract_sm90 and its kin set in device code: constants of their
// configuration and numbers of their launch. Each is a name of C++, from the rows that device code
// has its own from (codegen/cuda/device/contract/contract_sm90.def), so that one which is not there
// does not compile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::compiler {

struct ConfigMember {
  std::string_view name;

  operator std::string() const { return std::string(name); }  // NOLINT: of Call::Constant
};

struct ShapeMember {
  std::string_view name;
  bool is_divisor = false;  // device code divides by it, with a multiplier and a shift
};

namespace contract {

#define CONFIG(name) inline constexpr ConfigMember name = {#name};
#define CONSTANT(name, value) inline constexpr int64_t name = value;
#define INT(name, value) inline constexpr ShapeMember name = {#name};
#define DIVISOR(name, value) inline constexpr ShapeMember name = {#name, true};
// Rows by spatial dimension have the innermost first.
#define INTS(name, w, h, d) \
  inline constexpr ShapeMember name##_whd[] = {{#name "_w"}, {#name "_h"}, {#name "_d"}};
#define DIVISORS(name, w, h, d)                 \
  inline constexpr ShapeMember name##_whd[] = { \
      {#name "_w", true}, {#name "_h", true}, {#name "_d", true}};
#include "codegen/cuda/device/contract/contract_sm90.def"

}  // namespace contract
}  // namespace kiln::compiler
