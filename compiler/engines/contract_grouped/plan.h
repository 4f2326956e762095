// GroupedPlan: a group of products as contract_grouped_sm90 runs it: tensor maps, the numbers of
// the launch, and what a tile costs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler/module.h"
#include "compiler/patterns/grouped_products.h"
#include "ir/base/result.h"
#include "ir/target.h"
#include "ir/tensor_map.h"

namespace kiln::compiler {

inline constexpr int kGroupedLeft[] = {128, 256}, kGroupedRight[] = {256, 192, 128, 64},
                     kGroupedClusters[] = {1, 2}, kGroupedSplits[] = {1, 2, 4, 8},
                     kGroupedTails[] = {0, 1};

struct GroupedTile {
  int left = 128, right = 256;
  int cluster = 1;  // blocks along left that share the tile of the right operand
  int split = 1;    // blocks of a cluster that make parts of a tile's sum over k
  int tail = 0;     // whether blocks share the tiles of a last turn that has few

  int blocks() const { return cluster * split; }
};

// A tensor as a matrix of rows, of which boxes are loaded or stored.
struct GroupedMatrix {
  graph::TensorId id = graph::kAbsent;
  TensorMapSpec map = {};
};

struct GroupedPlan {
  static constexpr int kGroups = 2;            // of consumers
  static constexpr size_t kMostProducts = 16;  // of contract_grouped_shape
  static constexpr int kDepth = 64;            // along k, of a step

  struct Part {
    GroupedMatrix left, right;
    int64_t rows = 0;      // along k
    int64_t left_row = 0;  // where it begins in its left operand
  };
  struct Product {
    std::vector<Part> parts = {};
    GroupedMatrix result, before;
    int64_t rows = 0, columns = 0;
    std::vector<GroupedResult> sums = {};

    int64_t steps() const;
  };
  std::vector<Product> products = {};
  DType type = DType::kF16;
  bool adds = false;  // what was there before, each of them

  bool has_sums() const;
  int64_t tiles(const Product& product, const GroupedTile& tile) const;  // in clusters
  int64_t tiles(const GroupedTile& tile) const;
  // The steps after which sums are added to totals; 0: sums are short (accumulation.h).
  int folds(const GroupedTile& tile) const;
  int stages(const GroupedTile& tile, const Target& target) const;
  int64_t shared_bytes(const GroupedTile& tile, const Target& target) const;
  // The number of clusters that are launched.
  int64_t clusters(const GroupedTile& tile, const Target& target) const;
  // The tiles of the last turn, where there are turns before it and blocks for two shares of each;
  // else 0. shares() says how many share one.
  int64_t shared_tiles(const GroupedTile& tile, const Target& target) const;
  int64_t shares(const GroupedTile& tile, const Target& target) const;
};

// The plan of a group, or why tensor maps cannot reach its tensors.
Result<GroupedPlan> GroupedPlanOf(const Group& group);

// An error unless the skeleton has this form, by registers and shared memory.
Status CheckGroupedTile(const GroupedPlan& plan, const GroupedTile& tile, const Target& target);

double GroupedSeconds(const GroupedPlan& plan, const GroupedTile& tile, const Target& target);

// All legal tiles, the fastest first.
std::vector<GroupedTile> GroupedTiles(const GroupedPlan& plan, const Target& target);

}  // namespace kiln::compiler
