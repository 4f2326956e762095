// The choices of wgmma_sm90: its knobs, the tiles among them that are worth looking at for a
// contraction, and what the model says of each.
#pragma once

#include <vector>

#include "compiler/engines/contract_wgmma/plan.h"
#include "compiler/engines/contract_wgmma/tile.h"
#include "compiler/engines/contraction/epilogue.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/knob_types.h"

namespace kiln::compiler {

inline constexpr int kSm90LeftDomain[] = {128, 64, 256};
inline constexpr int kSm90RightDomain[] = {256, 192, 160, 128, 96, 64, 32, 16, 8};
inline constexpr int kSm90ClusterDomain[] = {1, 2};
inline constexpr int kSm90ScheduleDomain[] = {0, 1};
inline constexpr int kSm90SplitDomain[] = {1,  2,  3,  4,  5,  6,  7,   8,  11, 12,
                                           14, 16, 20, 22, 24, 28, 29,  32, 33, 40,
                                           44, 48, 56, 64, 66, 96, 128, 132};
inline constexpr int kSm90SplitClusterDomain[] = {1, 2, 4, 8};
inline constexpr int kSm90RasterDomain[] = {8, 1, 4, 16};
inline constexpr int kSm90StreamDomain[] = {0, 1};
inline constexpr int kSm90FillDomain[] = {0, 1};
inline constexpr KnobRow kSm90Knobs[] = {
    {.name = "tile_left", .cudnn_type = kKnobTileM, .domain = kSm90LeftDomain},
    {.name = "tile_right", .cudnn_type = kKnobTileN, .domain = kSm90RightDomain},
    {.name = "cluster", .cudnn_type = kKnobClusterM, .domain = kSm90ClusterDomain},
    {.name = "ping_pong", .cudnn_type = kKnobWarpSpecialisation, .domain = kSm90ScheduleDomain},
    {.name = "split_k",
     .cudnn_type = kKnobSplitKSlices,
     .domain = kSm90SplitDomain,
     .in_text = InText::kWhetherOne},
    {.name = "split_cluster", .cudnn_type = kKnobCtaSplitKMode, .domain = kSm90SplitClusterDomain},
    {.name = "raster",
     .cudnn_type = kKnobSwizzle,
     .domain = kSm90RasterDomain,
     .in_text = InText::kNothing},
    {.name = "stream_k", .cudnn_type = kKnobStreamK, .domain = kSm90StreamDomain},
    {.name = "fill", .cudnn_type = kKnobKernelConfig, .domain = kSm90FillDomain},
};
// The knobs with two terms, where tiles are of half the size: the default is another one.
inline constexpr int kSm90RightDomain3xTf32[] = {128, 256, 192, 160, 96, 64, 32};
inline constexpr KnobRow kSm90Knobs3xTf32[] = {
    kSm90Knobs[0],
    {.name = "tile_right", .cudnn_type = kKnobTileN, .domain = kSm90RightDomain3xTf32},
    kSm90Knobs[2],
    kSm90Knobs[3],
    kSm90Knobs[4],
    kSm90Knobs[5],
    kSm90Knobs[6],
    kSm90Knobs[7],
    kSm90Knobs[8]};

// True if what a thread stores at once are neighbours along right. Slices lie along left whatever
// the result does, and so does what is added up by a cluster or reduced on the way.
bool StoresAlongRight(const Sm90Plan& plan, const Sm90Tile& tile);

// The result's dim along left.
int64_t LeftDim(const Group& group, const Sm90Plan& plan);

// A model that is asked for one tile after the other of a group, which is planned once.
class Sm90TileModel {
 public:
  Sm90TileModel(const Group& group, const Target& target, Sm90Plan plan);

  const Sm90Plan& plan() const { return plan_; }
  // The tile of the knobs, with what follows from the group.
  Sm90Tile Tile(Sm90Tile knobs) const;
  // The seconds of a tile; kNoSeconds where it is not legal.
  double Seconds(const Sm90Tile& tile) const;

 private:
  // Facts besides its knobs that a tile follows from.
  struct Context {
    int reductions = 0;
    bool stores_by_map = false;  // where the tile lets it
    int full = 0;                // operands that come by map then
    int results = 1;             // that go out so
    int result_bytes = 2;
    int right_lanes = 0;  // of results that are stored along right
  };
  static Context ContextOf(const Group& group, const Sm90Plan& plan);
  static void AddMaps(const Group& group, const Sm90Plan& plan, Context& context);
  double StoreSeconds(const Sm90Tile& tile) const;

  const Target& target_;
  Sm90Plan plan_;
  Context context_;
  double floor_bytes_, scattered_, scattered_operands_;
};

// Legal tiles that do not waste most of themselves; the default one where there is none.
std::vector<Sm90Tile> UsefulSm90Tiles(const Target& target, const Sm90TileModel& model);

// The preference of a tile, as in Proposal::preference.
int Sm90Preference(const Sm90Plan& plan, const Sm90Tile& tile);

}  // namespace kiln::compiler
