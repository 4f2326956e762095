// Device memory between red zones: bytes before and behind it that hold a pattern, so that a write
// outside of the buffer is seen. Used by tuning's measurements (api/tuning), never by the API's
// execute path.
//
//   [zone: 64 KiB of pattern][bytes][zone: 64 KiB of pattern]
//                            ^ get(), aligned as the device aligns
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ir/base/result.h"
#include "runtime/device.h"

namespace kiln::runtime {

class GuardedBuffer {
 public:
  static Result<GuardedBuffer> Make(Device& device, int64_t bytes);
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  ~GuardedBuffer();

  void* get() const;
  int64_t bytes() const { return bytes_; }
  // Fails with kUnexpectedValue and the place of the first byte that is not the pattern's; the
  // pattern is then put back. `what` names the buffer.
  Status CheckZones(std::string_view what) const;

 private:
  GuardedBuffer(Device& device, std::byte* memory, int64_t bytes)
      : device_(&device), memory_(memory), bytes_(bytes) {}
  Status WriteZones() const;
  std::byte* Behind() const;

  Device* device_;
  std::byte* memory_;
  int64_t bytes_;
};

}  // namespace kiln::runtime
