// Sm90Tile: the knobs of wgmma_sm90 as a tile configuration, what fits, and what it costs.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "compiler/engines/contract_wgmma/plan.h"
#include "ir/target.h"

namespace kiln::compiler {

struct Sm90Tile {
  int left = 128, right = 256;  // rows and columns of the tile
  int cluster = 1;              // blocks along left that share the tile of the right operand
  bool ping_pong = false;       // each of the two groups makes tiles of its own, in turns
  int split_k = 1;
  int split_cluster = 1;  // parts that blocks of a cluster add up; divides split_k
  int raster = 8;
  // The steps of all tiles are dealt evenly to split_k workers a tile, or to all multiprocessors
  // where these are fewer.
  bool stream = false;
  // Tiles of phases without taps are made beside the others, by warps of the producer.
  bool fill = false;
  // These follow from the group, and are no knobs:
  bool direct = false;   // the result goes out by tensor map
  int full = 0;          // operands of the epilogue that come in so, box by box
  int results = 1;       // that go out so
  int result_bytes = 2;  // of an element that goes out so: 2 or 4
  int reductions = 0;    // of the result over right
  // Neighbours along right that a thread stores at once; 0 where they are along left.
  int right_lanes = 0;

  bool splits() const { return split_k > 1 && !stream; }  // into equal parts
  // The boxes of full operands, of which some become results'; 0 where results have buffers alone.
  int slot() const { return full > 0 || results > 1 ? std::max(full, results) : 0; }
  int slices() const { return stream ? 1 : split_k / split_cluster; }  // that go through memory
  // Two consumer groups stand side by side along left, or along right where left has only 64 rows.
  int groups_left() const { return ping_pong || left == 64 ? 1 : 2; }
  int groups_right() const { return ping_pong || left > 64 ? 1 : 2; }
  int columns() const { return right / groups_right(); }  // of one wgmma
};

inline constexpr int kSm90Groups = 2;

Sm90Tile TileOf(std::span<const int> knobs);
std::vector<int> KnobsOf(const Sm90Tile& tile);

int64_t StageBytes(const Sm90Plan& plan, const Sm90Tile& tile);
// The columns of one box of a direct store.
int BoxColumns(const Sm90Tile& tile);
// The boxes in shared memory for each group: of results, or of full operands that results replace.
int BuffersOf(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target);
// The number of stages: as many as fit, at most 8.
int StagesOf(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target);
int64_t SharedBytes(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target);

// The number of tiles of the result, in clusters.
int64_t TilesOf(const Sm90Plan& plan, const Sm90Tile& tile);
// The number of clusters that the steps of a stream are dealt to.
int64_t StreamWorkers(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target);

// The steps after which a sum is added to a second set of accumulators; 0 where sums are short, or
// not so long that a tile without room for the set is not right, or integers, or of two terms,
// which are short always. Filter gradients have the set wherever there is room, so that the kernel
// does not follow from the batch size.
int FoldsOf(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target);

// The tile with as few columns as leave room for that set; others are as they are.
Sm90Tile WithRoomForTotals(const Sm90Plan& plan, Sm90Tile tile, const Target& target);

// True if the skeleton has this form for the plan: registers, wgmma's shapes, whole panels.
bool IsLegal(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target);

// Modelled seconds of all launches, the sum of splits included; `floor_bytes` is what memory must
// move at least.
double Sm90Seconds(const Sm90Plan& plan, const Sm90Tile& tile, const Target& target,
                   double floor_bytes);

}  // namespace kiln::compiler
