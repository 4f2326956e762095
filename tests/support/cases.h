// Case files: problems, one a line, in named lists. Numerics tests, fuzzers and benchmarks share
// them.
//
//   # a comment
//   [smoke]
//   conv3x3: conv_fprop(x:f16[2,8,7,7]@nhwc, w:f16[16,8,3,3]@nhwc) -> %t:f32@nhwc pad=1;
//            relu_fwd(%t) -> y:f16@nhwc
//
// A line is `name: statement; statement …`, a statement `op(operands) -> results attribute=value
// …`. The first mention of a tensor declares it: `name:dtype[dims]` and then, in this order, each
// optional
//   @layout   row (the default), nhwc (dim 1 innermost), col (last two dims swapped), p0231 (the
//             dims from outermost to innermost), s64.1.8 (strides in elements); after it +k leaves
//             k elements unused at the end of each innermost run, *k multiplies every stride
//   =value    a scalar by value
//   !fill     the data: see kFills in fill.cc
// A result may leave out [dims] where the op determines them. `%name` is a virtual tensor. `_` is
// an absent operand or result. Attributes not named have the API's defaults; `compute=f32` is the
// default compute type. `expect=bad_param` on a statement says that the library must refuse the
// graph with that status. Attention (sdpa_fwd, sdpa_bwd) has left=…, right=… and bottom_right=1;
// spelled.h says how a client asks for those.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/oracle/tensor.h"

namespace kiln::testing {

using oracle::Dims;
using oracle::DType;

struct CaseTensor {
  std::string name;  // with its % when virtual
  DType dtype{};
  Dims dims, strides;
  bool is_virtual = false;
  std::optional<double> by_value;
  std::string fill = "uniform";
  int64_t uid = 0;
};

struct CaseOp {
  std::string name;         // conv_fprop, matmul, reduce_max, relu_fwd …
  std::vector<int> inputs;  // indices into Case::tensors, -1 where absent
  std::vector<int> outputs;
  std::map<std::string, std::string> attributes;

  bool Has(const std::string& key) const { return attributes.contains(key); }
  double Number(const std::string& key, double fallback) const;
  Dims List(const std::string& key, const Dims& fallback) const;
  std::string Word(const std::string& key, const std::string& fallback) const;
  DType Compute() const;
};

// The number of a norm's mode=… in cudnnBackendNormMode_t; -1 where it is none.
int NormModeNumber(const CaseOp& op);

struct Case {
  std::string file, list, name, text;
  int line = 0;
  std::vector<CaseTensor> tensors;
  std::vector<CaseOp> ops;
  bool expects_bad_param = false;

  std::string Label() const;         // file:list/name
  bool Produces(int tensor) const;   // written by an op
  std::vector<int> Inputs() const;   // read from memory: not produced, not by value
  std::vector<int> Outputs() const;  // produced and not virtual
  int64_t Bytes() const;             // floor traffic: every input once, every output once
};

struct CaseFile {
  std::vector<Case> cases;
  std::vector<std::string> errors;  // file:line:column: message

  std::vector<Case> List(std::string_view list) const;
};

CaseFile ParseCases(const std::string& file_name, std::string_view text);
CaseFile LoadCases(const std::string& path);

// Parses one line that belongs to no file, for benchmarks and fuzzers.
std::optional<Case> ParseCase(std::string_view line, std::string* error);

}  // namespace kiln::testing
