#include "compiler/passes/workspace.h"

#include <algorithm>

#include "ir/shape.h"

namespace kiln::compiler {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

int64_t PlaceBuffers(std::vector<LiveBuffer>& buffers) {
  int64_t total = 0;
  std::vector<const LiveBuffer*> placed;
  for (LiveBuffer& buffer : buffers) {
    const int64_t size = AlignUp(buffer.bytes, kAlignment);
    std::vector<const LiveBuffer*> rivals;
    for (const LiveBuffer* other : placed)
      if (other->first_step <= buffer.last_step && buffer.first_step <= other->last_step)
        rivals.push_back(other);
    std::ranges::sort(rivals, {}, &LiveBuffer::offset);
    int64_t offset = 0;
    for (const LiveBuffer* other : rivals) {
      if (offset + size <= other->offset) break;
      offset = std::max(offset, other->offset + AlignUp(other->bytes, kAlignment));
    }
    buffer.offset = offset;
    total = std::max(total, offset + size);
    placed.push_back(&buffer);
  }
  return total;
}

}  // namespace kiln::compiler
