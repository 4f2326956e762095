#include "compiler/passes/floating_windows.h"

#include <algorithm>
#include <set>

#include "compiler/group_limits.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;
using graph::kAbsent;
using graph::Node;
using graph::NodeId;
using graph::Tensor;
using graph::TensorId;

// Windows of more taps than LRN over 16 channels or pooling of 7x7 has are not computed again.
constexpr int64_t kMostFloatingTaps = 64;

int64_t Taps(const Node& window) {
  const auto& attrs = window.As<graph::ResampleAttrs>();
  int64_t taps = 1;
  for (size_t s = 0; s < attrs.window.size(); ++s)
    taps *= std::max<int64_t>(attrs.window[s] / attrs.unit[s], 1);
  return taps;
}

std::vector<NodeId> LastWindows(const LinkedGraph& linked) {
  const std::vector<Node>& nodes = linked.g.nodes;
  std::vector<NodeId> last(nodes.size(), -1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (Has(nodes[n], graph::kWindow)) last[n] = static_cast<NodeId>(n);
    for (const TensorId x : nodes[n].inputs)
      if (x != kAbsent && linked.producers[x] >= 0)
        last[n] = std::max(last[n], last[linked.producers[x]]);
  }
  return last;
}

}  // namespace

FloatingWindows::FloatingWindows(const LinkedGraph& linked, const std::vector<int>& home)
    : linked_(linked),
      home_(home),
      floats_window_(linked.g.tensors.size(), 0),
      last_window_(LastWindows(linked)) {}

bool FloatingWindows::MayFloat(NodeId n) const {
  const Node& node = linked_.g.nodes[n];
  const auto is_inner = [&](TensorId id) { return id == kAbsent || linked_.g[id].is_virtual; };
  return node.op == GraphOp::kResampleFwd && Taps(node) <= kMostFloatingTaps &&
         std::ranges::all_of(node.outputs, is_inner) && !ReadsFloatingWindow(n) &&
         IsReadByWindow(n);
}

// True if all that reads it are windows, and maps of its results that end in the group of a later
// one.
bool FloatingWindows::IsReadByWindow(NodeId n) const {
  const graph::Graph& g = linked_.g;
  const Dims& dims = g[g.nodes[n].outputs[0]].dims;
  bool is_read = false;
  std::set<NodeId> seen;
  std::vector<NodeId> pending = {n};
  while (!pending.empty()) {
    const NodeId from = pending.back();
    pending.pop_back();
    for (const TensorId id : g.nodes[from].outputs) {
      if (id == kAbsent) continue;
      for (const NodeId m : linked_.readers[id]) {
        if (!seen.insert(m).second) continue;
        if (seen.size() > kMostGroupNodes) return false;
        if (Has(g.nodes[m], graph::kWindow)) {
          is_read = true;
          continue;
        }
        const Tensor& y = g[g.nodes[m].outputs[0]];
        const bool is_after_window = last_window_[m] > n;
        const bool is_map = g.nodes[m].op == GraphOp::kMap && y.dims == dims;
        if (!is_map || (!y.is_virtual && !is_after_window)) return false;
        is_read = is_read || is_after_window;
        pending.push_back(m);
      }
    }
  }
  return is_read;
}

void FloatingWindows::NoteFloat(NodeId n) {
  const Node& node = linked_.g.nodes[n];
  const bool has_window = Has(node, graph::kWindow) || ReadsFloatingWindow(n);
  for (const TensorId id : node.outputs)
    if (id != kAbsent) floats_window_[id] = has_window;
}

bool FloatingWindows::FloatsWindow(TensorId x) const {
  return x != kAbsent && home_[x] == kNoGroup && floats_window_[x] != 0;
}

bool FloatingWindows::ReadsFloatingWindow(NodeId n) const {
  return std::ranges::any_of(linked_.g.nodes[n].inputs,
                             [&](TensorId x) { return FloatsWindow(x); });
}

}  // namespace kiln::compiler
