// WinogradTransforms: the kernels around Winograd's products (winograd/plan.h). A thread takes one
// tile of one channel (one filter of one channel) to its 16 coordinates, or back, and goes through
// the group's prologue and epilogue on the way.
#pragma once

#include "compiler/engines/winograd/plan.h"

namespace kiln::compiler {

// Scratch buffers that the kernels read and write, in WinogradPlan's terms.
enum WinogradScratch : int { kWinogradA, kWinogradB, kWinogradOut, kWinogradScratches };

// Each appends a kernel and its launch.
void TransformWinogradPixels(const Group& group, const Target& target, const WinogradPlan& plan,
                             Lowered& lowered);
void TransformWinogradOther(const Group& group, const Target& target, const WinogradPlan& plan,
                            Lowered& lowered);
void TransformWinogradBack(const Group& group, const Target& target, const WinogradPlan& plan,
                           Lowered& lowered);

}  // namespace kiln::compiler
