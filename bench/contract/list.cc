// Rules of the list on top of the case parser's, and the counts of work.
#include "bench/contract/list.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/support/oracle/tensor.h"

namespace kiln::bench {
namespace {

using oracle::Count;
using oracle::DType;
using testing::Case;
using testing::CaseOp;
using testing::CaseTensor;
using testing::Dims;

const CaseTensor& TensorOf(const Case& c, int index) {
  return c.tensors[static_cast<size_t>(index)];
}

double Product(const Dims& dims, size_t from) {
  double product = 1;
  for (size_t i = from; i < dims.size(); ++i) product *= static_cast<double>(dims[i]);
  return product;
}

double RoofOf(DType type, bool keeps_f32) {
  constexpr double kHalf = 790e12, kSimt = 60e12;
  switch (type) {
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kI8:
    case DType::kU8:
      return 2 * kHalf;
    case DType::kF32:
      return keeps_f32 ? kSimt : kHalf / 2;
    case DType::kF16:
    case DType::kBF16:
      return kHalf;
    default:
      return kSimt;
  }
}

// Empty, or why the line is no problem.
std::string CheckProblem(const Case& c) {
  if (c.list.empty()) return "a problem stands in a [section]";
  if (c.expects_bad_param) return "a problem is a legal graph: expect= has no place here";
  if (std::ranges::none_of(c.ops, IsContraction))
    return "a problem has a convolution or a matmul; this one has neither";
  for (const CaseTensor& tensor : c.tensors) {
    int64_t last = 0;
    for (size_t i = 0; i < tensor.dims.size(); ++i)
      last += (tensor.dims[i] - 1) * tensor.strides[i];
    if (Count(tensor.dims) > 0 && last + 1 == Count(tensor.dims)) continue;
    return fmt::format("tensor {} is not dense: {} elements over {} places", tensor.name,
                       Count(tensor.dims), last + 1);
  }
  return "";
}

}  // namespace

bool IsContraction(const CaseOp& op) { return op.name == "matmul" || op.name.starts_with("conv_"); }

double TermsOf(const Case& c, const CaseOp& op) {
  const Dims& first = TensorOf(c, op.inputs[0]).dims;
  const Dims& second = TensorOf(c, op.inputs[1]).dims;
  if (op.name == "matmul") return static_cast<double>(first.back());
  if (op.name == "conv_fprop") return Product(second, 1);
  // dgrad: filters of one group times taps. wgrad: every pixel of dy.
  if (op.name == "conv_wgrad") return static_cast<double>(second[0]) * Product(second, 2);
  const auto groups = static_cast<double>(TensorOf(c, op.outputs[0]).dims[1] / second[1]);
  return static_cast<double>(second[0]) / groups * Product(second, 2);
}

double Problem::FloorMicroseconds() const {
  return 1e6 * std::max(flops / flops_per_second, static_cast<double>(bytes) / kBytesPerSecond);
}

namespace {

// A convolution has as many products in all three directions: those of its forward form.
double FlopsOf(const Case& c, const CaseOp& op) {
  if (!op.name.starts_with("conv_"))
    return 2 * TermsOf(c, op) * Product(TensorOf(c, op.outputs[0]).dims, 0);
  const int y =
      op.name == "conv_fprop" ? op.outputs[0] : op.inputs[op.name == "conv_dgrad" ? 0 : 1];
  const int w = op.name == "conv_wgrad" ? op.outputs[0] : op.inputs[1];
  return 2 * Product(TensorOf(c, y).dims, 0) * Product(TensorOf(c, w).dims, 1);
}

Problem MakeProblem(Case c) {
  Problem problem{.keeps_f32 = c.list.ends_with("fp32")};
  for (const CaseOp& op : c.ops) {
    if (!IsContraction(op)) continue;
    problem.flops += FlopsOf(c, op);
    const double roof = RoofOf(TensorOf(c, op.inputs[0]).dtype, problem.keeps_f32);
    problem.flops_per_second =
        problem.flops_per_second > 0 ? std::min(problem.flops_per_second, roof) : roof;
  }
  problem.bytes = c.Bytes();
  problem.graph = std::move(c);
  return problem;
}

}  // namespace

ProblemList ParseProblems(const std::string& file_name, std::string_view text) {
  testing::CaseFile file = testing::ParseCases(file_name, text);
  ProblemList list{.errors = std::move(file.errors)};
  for (Case& c : file.cases) {
    const std::string wrong = CheckProblem(c);
    if (wrong.empty()) {
      list.problems.push_back(MakeProblem(std::move(c)));
    } else {
      list.errors.push_back(fmt::format("{}:{}:1: {}", file_name, c.line, wrong));
    }
  }
  if (list.problems.empty() && list.errors.empty())
    list.errors.push_back(fmt::format("{}:1:1: the list has no problem", file_name));
  return list;
}

ProblemList LoadProblems(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {.errors = {fmt::format("{}:0:0: cannot be read", path)}};
  std::stringstream text;
  text << in.rdbuf();
  return ParseProblems(path.substr(path.rfind('/') + 1), text.str());
}

}  // namespace kiln::bench
