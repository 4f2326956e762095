// Sm90Plan: a contraction as contract_sm90 (codegen/cuda/device) runs it. Which operand is left and
// which is right, the tensor maps that read them, and the numbers of each launch.
//
//              left (rows of wgmma)           right (columns)         k
//   matmul     b, or a where the result       the other one           k
//              is contiguous along m
//   fprop      w [filters]                    x, by pixels            taps, channels
//   dgrad      w [channels]                   dy, by pixels           taps of the phase, filters
//   wgrad      x, by pixels: [taps, channels] dy [filters]            pixels of dy
//
// fprop and dgrad 1x1 of f32 images in NCHW have pixels left and filters right: wgmma takes f32
// that is contiguous along its own axis only through the registers of left.
//
// A strided dgrad works by phases (the input places whose index has the same remainder by the
// stride): within one every place has the same taps, so it is a convolution of stride 1. A
// 1x1 filter of stride 1 has no pixels to pick: all images are one matrix where memory has their
// pixels in one row, else (NCHW) each is one of its own, a batch of fprop and dgrad; wgrad then
// walks images and, inside, blocks of an image's pixels along k, as others walk taps and channels.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/engines/contraction/contraction.h"
#include "compiler/kernel/contract_members.h"
#include "ir/base/result.h"
#include "ir/tensor_map.h"

namespace kiln::compiler {

struct Sm90Operand {
  graph::TensorId id = -1;
  bool is_pixels = false;
  bool is_outer = false;  // contiguous in memory along its own axis, not along k
};

struct Sm90Plan {
  Sm90Operand left = {}, right = {};
  bool left_is_a = false;  // of the contraction's two operands
  bool is_conv = false;
  int spatial = 2;              // dims of pixels
  int row_bytes = 128;          // of a stage's row along k
  int64_t left_size = 0;        // wgrad: taps * channels, each tap padded to whole panels
  int64_t padded_channels = 0;  // wgrad: of one tap; 0 elsewhere
  int64_t batches = 1;          // groups, times images
  int64_t images = 1;           // of a group, where each is a batch of its own
  bool along_right = false;     // the result is contiguous along right, not along left
  DType type = DType::kF16;     // of both operands; of two 8-bit floats that of either
  DType result = DType::kF32;   // the widest of the group's
  bool sums_images = false;     // wgrad: k are the pixels of all images
  int terms = 1;                // TF32 numbers whose sum an f32 operand is: 2 keep all of it
  TensorMapSpec left_map = {}, right_map = {};  // the tile decides their boxes, see SetBox
  std::vector<std::pair<ShapeMember, int64_t>> shape = {};  // what the launch says beside tiles
  int64_t right_size = 0;                                   // of one phase
  int64_t k_steps = 0;                                      // of one phase: the most that one has
  int64_t all_steps = 0;                                    // of all phases together
  int64_t tap_phases = 1;                                   // phases that have taps
  Dims places = {};  // a strided dgrad's: extents that the right axis is made of
  Dims phases = {};  // and how many there are along each spatial dim

  int depth() const { return row_bytes / SizeOf(type); }  // elements along k of one step
  // The elements of an outer-major operand in one row of shared memory, of 128 bytes.
  int panel() const { return 128 / SizeOf(type); }
  // wgmma takes 32-bit elements from shared memory along k only: left goes through registers, with
  // its rows in another order, and right is turned.
  bool moves_rows() const { return left.is_outer && SizeOf(type) == 4; }
  bool turns_right() const { return right.is_outer && SizeOf(type) == 4; }
  bool has_empty_phases() const { return tap_phases < NumElements(phases); }
  bool has_uneven_phases() const { return all_steps < k_steps * NumElements(phases); }
  // Operands of two terms go the same ways.
  bool left_in_registers() const { return moves_rows() || terms == 2; }
  bool prepares_right() const { return turns_right() || terms == 2; }
};

// The plan of a group, or why the tensors cannot be read by tensor maps.
Result<Sm90Plan> PlanSm90(const Group& group, int terms = 1);

// True for types that boxes of results have: f16, bf16 and f32.
bool IsBoxType(DType type);

// A tensor of the result's dims and such a type as a matrix {left, right}, for what is stored or
// read by tensor map; or why it is none.
Result<TensorMapSpec> PlanSm90Matrix(const Group& group, graph::TensorId tensor,
                                     const Sm90Plan& plan);

// The maps of a tensor of the result's dims where the plan has phases: the pixels of each, phase 0
// first.
Result<std::vector<TensorMapSpec>> PlanSm90Phases(const graph::Tensor& tensor,
                                                  const Sm90Plan& plan);

// Fills in the box that loads `rows` of the operand.
void SetBox(TensorMapSpec& map, const Sm90Plan& plan, const Sm90Operand& operand, int rows);

}  // namespace kiln::compiler
