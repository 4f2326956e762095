#include "ir/board.h"

#include <algorithm>
#include <iterator>

namespace kiln {
namespace {

constexpr int64_t kMiB = 1024 * 1024;

// Each name stands for one configuration: a name that is sold with several numbers of
// multiprocessors or widths of memory has no row, and such a board is what its driver says. The
// clock of a B300 is a B200's.
constexpr Board kBoards[] = {
    {"Tesla V100-SXM2-16GB", 70, 80, 1.530e9, 0.898e12, 6 * kMiB},
    {"Tesla V100-SXM2-32GB", 70, 80, 1.530e9, 0.898e12, 6 * kMiB},
    {"Tesla V100-PCIE-16GB", 70, 80, 1.380e9, 0.898e12, 6 * kMiB},
    {"Tesla V100-PCIE-32GB", 70, 80, 1.380e9, 0.898e12, 6 * kMiB},

    {"Tesla T4", 75, 40, 1.590e9, 0.320e12, 4 * kMiB},
    {"NVIDIA GeForce RTX 2080 Ti", 75, 68, 1.545e9, 0.616e12, 5632 * kMiB / 1024},

    {"NVIDIA A100-SXM4-80GB", 80, 108, 1.410e9, 2.039e12, 40 * kMiB},
    {"NVIDIA A100-SXM4-40GB", 80, 108, 1.410e9, 1.555e12, 40 * kMiB},
    {"NVIDIA A100 80GB PCIe", 80, 108, 1.410e9, 1.935e12, 40 * kMiB},
    {"NVIDIA A100-PCIE-40GB", 80, 108, 1.410e9, 1.555e12, 40 * kMiB},
    {"NVIDIA A30", 80, 56, 1.440e9, 0.933e12, 24 * kMiB},

    {"NVIDIA GeForce RTX 3090", 86, 82, 1.695e9, 0.936e12, 6 * kMiB},
    {"NVIDIA GeForce RTX 3090 Ti", 86, 84, 1.860e9, 1.008e12, 6 * kMiB},
    {"NVIDIA A10", 86, 72, 1.695e9, 0.600e12, 6 * kMiB},
    {"NVIDIA A40", 86, 84, 1.740e9, 0.696e12, 6 * kMiB},
    {"NVIDIA RTX A6000", 86, 84, 1.800e9, 0.768e12, 6 * kMiB},

    {"NVIDIA GeForce RTX 4090", 89, 128, 2.520e9, 1.008e12, 72 * kMiB},
    {"NVIDIA GeForce RTX 4080", 89, 76, 2.505e9, 0.717e12, 64 * kMiB},
    {"NVIDIA L40S", 89, 142, 2.520e9, 0.864e12, 96 * kMiB},
    {"NVIDIA L40", 89, 142, 2.490e9, 0.864e12, 96 * kMiB},
    {"NVIDIA L4", 89, 58, 2.040e9, 0.300e12, 48 * kMiB},
    {"NVIDIA RTX 6000 Ada Generation", 89, 142, 2.505e9, 0.960e12, 96 * kMiB},

    {"NVIDIA H100 80GB HBM3", 90, 132, 1.980e9, 3.35e12, 50 * kMiB},
    {"NVIDIA H100 PCIe", 90, 114, 1.755e9, 2.04e12, 50 * kMiB},
    {"NVIDIA H100 NVL", 90, 132, 1.785e9, 3.94e12, 60 * kMiB},
    {"NVIDIA H200", 90, 132, 1.980e9, 4.8e12, 60 * kMiB},
    {"NVIDIA H200 NVL", 90, 132, 1.785e9, 4.8e12, 60 * kMiB},
    {"NVIDIA GH200 480GB", 90, 132, 1.980e9, 4.0e12, 60 * kMiB},

    {"NVIDIA B200", 100, 148, 1.965e9, 8.0e12, 126 * kMiB},

    {"NVIDIA B300 SXM6 AC", 103, 148, 1.965e9, 8.0e12, 126 * kMiB},

    {"NVIDIA GeForce RTX 5090", 120, 170, 2.407e9, 1.792e12, 96 * kMiB},
    {"NVIDIA GeForce RTX 5080", 120, 84, 2.617e9, 0.960e12, 64 * kMiB},
};

static_assert(std::ranges::is_sorted(kBoards, {}, &Board::sm_version));

}  // namespace

std::span<const Board> Boards() { return kBoards; }

const Board* BoardNamed(std::string_view name, int sm_version) {
  // Cost models ask for each configuration: text is compared with the boards of one architecture.
  for (const Board& board : kBoards)
    if (board.sm_version == sm_version && board.name == name) return &board;
  return nullptr;
}

const Board& UsualBoard(int sm_version) {
  const Board* usual = std::begin(kBoards);
  for (const Board& board : kBoards) {
    if (board.sm_version > sm_version) break;
    if (board.sm_version != usual->sm_version) usual = &board;
  }
  return *usual;
}

}  // namespace kiln
