// Puts the questions of side_operands.h to NVIDIA's library, without a GPU: its engines want a
// libcuda.so.1 to be there, for which the stub of the CUDA toolkit serves.
//   LD_LIBRARY_PATH=stub:cudnn ask_side_operands libcudnn.so.9 device.json > side_operands.tsv
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/api/backend/side_operands.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: ask_side_operands <libcudnn.so.9> <device.json>\n");
    return 2;
  }
  std::ifstream file(argv[2]);
  const std::string device{std::istreambuf_iterator<char>(file), {}};
  const kiln::testing::Library library(argv[1]);
  if (!library.loaded() || device.empty()) {
    std::fprintf(stderr, "%s or %s cannot be read\n", argv[1], argv[2]);
    return 1;
  }
  std::printf(
      "# operation\toperand\tvariant\textents\tits finalize\tthe graph's\tplans (version %zu)\n",
      library.version());
  for (const auto& question : kiln::testing::SideQuestions()) {
    const auto answer = kiln::testing::Ask(library, question, device);
    std::string dims;
    for (const int64_t extent : question.dims)
      dims += (dims.empty() ? "" : "x") + std::to_string(extent);
    std::printf("%s\t%s\t%s\t%s\t%d\n", question.Key().c_str(), dims.c_str(),
                answer.operation.c_str(), answer.graph.c_str(), answer.plans);
    std::fflush(stdout);
  }
}
