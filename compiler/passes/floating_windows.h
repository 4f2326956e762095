// FloatingWindows: the windows that partition computes again where they are read, rather than
// storing them. Only plans that want little workspace do that. A floating window is read by a later
// window, or by maps that join the group of one; no window floats before another floating one.
#pragma once

#include <vector>

#include "compiler/passes/group_draft.h"

namespace kiln::compiler {

class FloatingWindows {
 public:
  // `home` is the placement's, while it grows.
  FloatingWindows(const LinkedGraph& linked, const std::vector<int>& home);

  // True if the node may be such a window. Its size is not looked at.
  bool MayFloat(graph::NodeId n) const;
  // Notes that a node floats.
  void NoteFloat(graph::NodeId n);

 private:
  bool IsReadByWindow(graph::NodeId n) const;
  bool FloatsWindow(graph::TensorId x) const;
  bool ReadsFloatingWindow(graph::NodeId n) const;

  const LinkedGraph& linked_;
  const std::vector<int>& home_;
  std::vector<char> floats_window_;  // of a tensor that floats: a window floats before it, or is it
  std::vector<graph::NodeId> last_window_;  // of a node: the last window that it is or follows from
};

}  // namespace kiln::compiler
