#include "runtime/red_zones.h"

#include <algorithm>
#include <utility>

namespace kiln::runtime {
namespace {

constexpr int64_t kZone = 64 << 10;

// No two neighbouring bytes are alike, and none is 0 or 0xff, which kernels write by mistake.
const std::vector<std::byte>& Pattern() {
  static const auto* pattern = [] {
    auto* bytes = new std::vector<std::byte>(kZone);
    for (size_t i = 0; i < bytes->size(); ++i)
      (*bytes)[i] = static_cast<std::byte>(1 + i * 37 % 251);
    return bytes;
  }();
  return *pattern;
}

}  // namespace

Result<GuardedBuffer> GuardedBuffer::Make(Device& device, int64_t bytes) {
  ASSIGN_OR_RETURN(void* const memory, device.Allocate(bytes + 2 * kZone));
  GuardedBuffer buffer(device, static_cast<std::byte*>(memory), bytes);
  RETURN_IF_ERROR(buffer.WriteZones());
  return buffer;
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : device_(other.device_),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

GuardedBuffer::~GuardedBuffer() {
  if (memory_ != nullptr) device_->Free(memory_);
}

void* GuardedBuffer::get() const { return memory_ + kZone; }

std::byte* GuardedBuffer::Behind() const { return memory_ + kZone + bytes_; }

Status GuardedBuffer::WriteZones() const {
  RETURN_IF_ERROR(device_->CopyIn(memory_, Pattern().data(), kZone));
  return device_->CopyIn(Behind(), Pattern().data(), kZone);
}

Status GuardedBuffer::CheckZones(std::string_view what) const {
  std::vector<std::byte> zone(kZone);
  for (const bool before : {true, false}) {
    RETURN_IF_ERROR(device_->CopyOut(zone.data(), before ? memory_ : Behind(), kZone));
    const auto wrong = std::ranges::mismatch(zone, Pattern()).in1;
    if (wrong == zone.end()) continue;
    RETURN_IF_ERROR(WriteZones());
    const int64_t at = wrong - zone.begin();
    return Status::Error(Code::kUnexpectedValue, "a write {} bytes {} the {} bytes of {}",
                         before ? kZone - at : at, before ? "before" : "behind", bytes_, what);
  }
  return {};
}

}  // namespace kiln::runtime
