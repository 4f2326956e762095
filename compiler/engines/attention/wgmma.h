// Parts that the engines of attention on wgmma share, whatever the width of their numbers: tiles of
// groups of 64 queries by blocks of keys, how registers are divided between those who copy and
// those who multiply, and what a tile costs.
#pragma once

#include "compiler/engines/attention/problem.h"

namespace kiln::compiler {

// The most elements of rows of q and k, of v: accumulators and shared memory end there.
constexpr int kMostWgmmaDepth = 256;

// Domains of knobs, of which the first is what an engine's table says for the depth.
inline constexpr int kWgmmaGroupsDomain[] = {0, 1, 2, 3};
inline constexpr int kWgmmaTurnsDomain[] = {2, 0, 1};

constexpr int kWgmmaSlotBytes = 48;  // of shared memory, where a group learns what tile it makes

struct WgmmaTile {
  int groups = 2, keys = 128;
  bool ping_pong = false;  // whether groups take turns in multiplying
  // Takes the knobs that are not left to the table.
  void Take(int groups_knob, int keys_knob, int turns_knob);
};

// Registers of the producer's threads and of the others'; 0 is what a thread has from the start.
// `most` is what accumulators and weights may take of them.
struct RegisterSplit {
  int producer, consumer, most;
};
// An error unless `used` registers are there; `width` is the row of v that its sentence names.
Status CheckRegisters(const WgmmaTile& tile, int used, int width, const RegisterSplit& registers);

// Facts that a skeleton is told of the tile, its registers and its shared memory.
struct WgmmaLayout {
  int depth, width;  // elements of a row of q and k, of v, with what fills panels
  int stages;
  int64_t bytes;  // of shared memory
  DType packed;   // of weights, as registers have them in pairs
  // The tensor beside the scores, if there is one: in how many panels it is copied, and whether
  // each head and image has its own.
  bool has_beside = false;
  int beside_stages = 0;
  bool beside_heads = false, beside_images = false;
};
void AddWgmmaConfig(const AttentionProblem& problem, const WgmmaTile& tile,
                    const RegisterSplit& registers, const WgmmaLayout& layout, tile::Call& call);

struct WgmmaRates {
  double share;         // of wgmma's rate for 16 bits, that both products reach
  double start_cycles;  // of the kernel, before its first tile
};
// The kernel's seconds: both products of `columns` multiply-adds a query and key, or rows of k and
// v of `row_bytes` together as fast as they come from the L2 cache, in whole waves. The table's
// tiles are those that were measured: others are thought to be slower the smaller they are.
double WgmmaSeconds(const AttentionProblem& problem, const WgmmaTile& tile, double columns,
                    double row_bytes, const WgmmaRates& rates, const Target& target,
                    bool is_default);

}  // namespace kiln::compiler
