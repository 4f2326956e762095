// Runs the text of a tile kernel twice, compiled by the CPU target and by the interpreter, on the
// same arguments.
#pragma once

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "ir/base/result.h"
#include "ir/dtype.h"
#include "runtime/cpu/cpu_device.h"

namespace kiln::test {

// One argument: a buffer's elements as values, or a scalar.
struct Buffer {
  DType type;
  std::vector<double> values;
};
struct Scalar {
  DType type;
  double value;
};
using KernelArgument = std::variant<Buffer, Scalar>;

struct Outcome {
  // The buffers after the run, in the order of the arguments.
  std::vector<std::vector<double>> compiled, interpreted;
};

// A device of two threads that caches in memory only; one for the process and each choice of
// options.
runtime::CpuDevice& TestDevice(const runtime::Jit::Options& options = {});

Result<std::vector<std::vector<double>>> RunCompiled(const std::string& text,
                                                     const std::vector<KernelArgument>& args,
                                                     std::array<uint32_t, 3> grid = {1, 1, 1},
                                                     runtime::CpuDevice& device = TestDevice());
Result<Outcome> RunBoth(const std::string& text, const std::vector<KernelArgument>& args,
                        std::array<uint32_t, 3> grid = {1, 1, 1});

// Same value, or both NaN; of zeros the sign counts too.
bool SameValue(double a, double b);

// Distance in units of the last place of `type` (f32 or f64); 0 for equal values and for two NaNs.
double UlpDistance(DType type, double a, double b);

}  // namespace kiln::test
