// ContractionEpilogue: accumulators of a tile, addressed by (left, right), through the group's maps
// to its outputs. Left is the axis that is contiguous in the result, where it is not `along_right`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/engines/contraction/contraction.h"

namespace kiln::compiler {

// The axes left and right as the contraction's m and n.
struct EpilogueAxes {
  bool left_is_a = false;  // left is m, right is n; else the other way round
  int64_t left_size = 0;
  int64_t padded_channels = 0;  // left is [taps, padded channels]; 0: as the axis is
  int64_t right_size = 0;
  int64_t images = 1;        // each of them a batch: batch is [groups, images], m the rest
  bool along_right = false;  // the result is contiguous along right
  // A strided dgrad by phases: right is [images, places…], spatial place i of phase f is
  // i * phases + f in the result, if that is inside. Empty: right is as the axis is.
  Dims places = {}, phases = {};
};

// Operands of the epilogue that have an element for each of the one output, f16 or bf16; `dim` is
// the output's dim along left. Those along `dim` alone are none.
std::vector<graph::TensorId> FullOperands(const graph::Graph& graph, const graph::Node& contraction,
                                          int64_t dim);

inline constexpr size_t kMostFullResults = 2;

// True if ContractionEpilogue can work by rows; with full operands there may be two results.
bool AppliesByRow(const graph::Graph& graph, const graph::Node& contraction, int64_t dim,
                  bool with_full = false);

// The way in which results that are contiguous along right are stored: a convolution's pixels
// (NCHW), or a matmul's narrow dim.
struct PixelVectors {
  int64_t dim = 0;   // along which neighbours lie: the innermost that has any
  int lanes = 1;     // as ContractionEpilogue::lanes
  int64_t flat = 0;  // places of an image, where everything that is moved has them in one row
};
PixelVectors PixelVectorsOf(const graph::Graph& graph, const graph::Node& contraction);

class ContractionEpilogue {
 public:
  ContractionEpilogue(const Group& group, KernelBuilder& b, const Contraction& c,
                      EpilogueAxes axes);

  // The number of neighbours along left (or right) that can be stored at once: 1 to 8, a power of
  // two.
  int lanes() const { return lanes_; }
  bool along_right() const { return axes_.along_right; }

  // The epilogue by rows, where AppliesByRow says that every element of the one output follows from
  // its accumulator, values of its left index (a bias, a scale, a scalar) and those of full
  // operands at its own place: Rows and Apply then do what Store does.
  int row_operands() const { return static_cast<int>(row_inputs_.size()); }
  // operands[i] = the value of row operand i at `left`, 0 outside.
  void Rows(tile::Block& out, const tile::Expr& batch, const tile::Expr& left,
            const std::string& operands);
  // The registers of Apply: `operands` as Rows has filled them; `full` has a value of each full
  // operand, as f32. result[0] = what the output is rounded from; behind it the values of `also`.
  struct Registers {
    std::string operands, full, result;
    DType type = DType::kF32;  // of the results; i32: result[0] is the output
  };
  void Apply(tile::Block& out, const tile::Expr& accumulator, const Registers& registers,
             const std::vector<graph::TensorId>& also = {});

  // A function that does more with an element that is inside, at a lane of its vector.
  using Taken = std::function<void(tile::Block& out, ValueScope& values, const Index& at,
                                   const tile::Expr& lane)>;

  // Stores `lanes` neighbours from (left, right) on, as far as they are inside; value(lane) is an
  // accumulator.
  void Store(tile::Block& out, const tile::Expr& batch, const tile::Expr& left,
             const tile::Expr& right, int lanes,
             const std::function<tile::Expr(const tile::Expr& lane)>& value,
             const tile::Expr& phase = nullptr, const Taken& taken = {});

 private:
  // The index of `place` of an axis, whose first dim is `image` where there is one.
  Index InImage(tile::Block& out, const tile::Expr& place, const Axis& axis,
                const tile::Expr& image, const std::string& name);
  Index LeftIndex(tile::Block& out, const tile::Expr& left, const tile::Expr& image,
                  tile::Expr& inside);
  Index RightIndex(tile::Block& out, const tile::Expr& right, const tile::Expr& image,
                   const tile::Expr& phase, tile::Expr& inside);
  // The contraction's batch, and the image that stands behind it, if any does.
  struct BatchPlace {
    tile::Expr batch, image;
  };
  BatchPlace SplitBatch(tile::Block& out, const tile::Expr& batch);

  const Group& group_;
  KernelBuilder& b_;
  const Contraction& c_;
  EpilogueAxes axes_;
  std::vector<graph::TensorId> inputs_;                    // of the epilogue, in memory
  std::vector<graph::TensorId> full_inputs_, row_inputs_;  // these, in two parts
  int64_t dim_ = 0;                                        // of the result, along left (or right)
  int64_t flat_ = 0;                                       // places of an image that are one dim
  int lanes_ = 1;
  tile::Expr left_size_, right_size_, padded_channels_, images_, flat_size_;
  Index place_extents_, phases_;
};

}  // namespace kiln::compiler
