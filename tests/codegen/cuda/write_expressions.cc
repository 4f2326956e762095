// Writes the C++ that expression_test.cc includes: one prelude, every expression kernel, and a
// table of them.
#include <cstdio>
#include <string>

#include "codegen/cuda/device.h"
#include "codegen/cuda/emit.h"
#include "tests/codegen/cuda/expression_kernels.h"

int main() {
  std::string kernels, table;
  for (uint32_t seed = 0; seed < kiln::tile::kExpressionKernels; ++seed) {
    const kiln::tile::Kernel kernel = kiln::tile::ExpressionKernel(seed);
    const std::string text = kiln::cuda_codegen::EmitCuda(kernel);
    kernels += text.substr(text.find("extern \"C\"")) + "\n";
    table += "    " + kernel.name + ",\n";
  }
  const std::string prelude = kiln::cuda_codegen::PreludeFor(kernels);
  std::printf(
      "#include \"tests/codegen/cuda/host_device.h\"\n\n%s%sconstexpr decltype(&expressions_0) "
      "kCompiled[] = {\n%s};\n",
      prelude.c_str(), kernels.c_str(), table.c_str());
}
