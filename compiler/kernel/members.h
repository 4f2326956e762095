// Members that kernels set in device code: constants of a skeleton's configuration and numbers of
// its launch. The families of skeletons have theirs in headers of their own (contract_members.h,
// halo_members.h, ...), where each is a name of C++, from the rows that device code has its own
// from (codegen/cuda/device/*/*.def), so that one which is not there does not compile.
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

}  // namespace kiln::compiler
