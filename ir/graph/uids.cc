#include "ir/graph/uids.h"

#include <map>
#include <set>

namespace kiln::graph {

void GiveUids(Graph& graph) {
  std::set<int64_t> taken;
  for (const Tensor& tensor : graph.tensors) taken.insert(tensor.uid);
  std::map<int64_t, int64_t> replaced;
  int64_t next = 1;
  for (Tensor& tensor : graph.tensors) {
    if (tensor.uid >= 0 || tensor.is_virtual || tensor.is_constant()) continue;
    const bool has_none = tensor.uid == Tensor{}.uid;
    if (const auto same = replaced.find(tensor.uid); !has_none && same != replaced.end()) {
      tensor.uid = same->second;
      continue;
    }
    while (taken.contains(next)) ++next;
    if (!has_none) replaced[tensor.uid] = next;
    tensor.uid = next++;
  }
}

}  // namespace kiln::graph
