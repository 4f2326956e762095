// Limits of a group. A client may chain, add or list as many tensors as it likes; a kernel of
// thousands of operations or pointers takes its compiler minutes, and more arguments than a launch
// has. So partition stores values that would take much to compute again, groups that are full take
// no more nodes, and patterns that would be larger are not looked for. Walks over a group need
// little stack. Graphs that clients have been seen to build are far below: the largest of their
// groups has 78 nodes, on paths of 30, and 14 operands.
#pragma once

#include <cstddef>

namespace kiln::compiler {

// The most nodes of a group, those that float into it included; nodes on a path; tensors that it
// reads from memory or writes there. A node that has more operands by itself is a group of its own.
inline constexpr size_t kMostGroupNodes = 256;
inline constexpr int kMostGroupDepth = 64;
inline constexpr size_t kMostGroupOperands = 64;
// Limits of a value that is computed again wherever it is read. Three such values are less than a
// group.
inline constexpr size_t kMostFloatingNodes = 64;
inline constexpr int kMostFloatingDepth = 48;
inline constexpr size_t kMostFloatingOperands = 20;

}  // namespace kiln::compiler
