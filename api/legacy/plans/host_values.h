// Integers of the host's (lengths, labels) for kernels that read them from memory. They travel as
// arguments of launches: the caller's array may go when the call returns, a captured call keeps the
// values that it was captured with, and no copy from the host is enqueued. Calls with host arrays
// (cudnnCTCLoss, lengths of RNN data descriptors) put them into their work space so.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "api/lifecycle/handle.h"
#include "ir/base/result.h"

namespace kiln::api::legacy {

// The bytes that WriteHostValues writes for `count` values or fewer: whole launches, and behind
// them room for values that travel packed.
int64_t HostValuesBytes(int64_t count);

// An error unless the memory can hold host values: it is there, and aligned to 16 bytes, as
// allocators give it, since they are written in wide words.
Status CheckPlace(const void* place, std::string_view name);

// Enqueues that `values` are written to `place`, memory of the device aligned to 8 bytes, as i32
// one behind the other, and zeroes up to the end of a launch.
Status WriteHostValues(Handle& handle, std::span<const int32_t> values, void* place);

}  // namespace kiln::api::legacy
