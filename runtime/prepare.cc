#include "runtime/prepare.h"

#include "ir/base/threads.h"

namespace kiln::runtime {

void PrepareTogether(Device& device, std::span<const KernelSource> sources) {
  if (!device.target().is_cuda()) return;  // the CPU compiles as it loads
  std::vector<const KernelSource*> missing;
  for (const KernelSource& source : sources)
    if (!device.IsReady(source)) missing.push_back(&source);
  if (missing.size() < 2) return;
  ForEachTogether(missing.size(), Cores(), [&](size_t i) {
    try {
      device.Prepare(*missing[i]);
    } catch (...) {  // a failed CHECK of the compiler, which Load meets again
    }
  });
}

}  // namespace kiln::runtime
