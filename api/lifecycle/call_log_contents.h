// The contents of objects that a call reads, for its lines in the API log (call_log.h), so that the
// call can be made again from the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "api/lifecycle/call_log_values.h"

namespace kiln::api {

// The argument's line, and lines of what the object holds where it is one of ours that has any:
// descriptors of tensors, filters, convolutions, and other flat ones of the legacy API.
void AddObject(CallLines& lines, std::string_view name, std::string_view type, uint64_t address);

// "CUDNN_BACKEND_TENSOR_DESCRIPTOR" where a backend descriptor lives there; else
// "cudnnBackendDescriptor_t".
std::string_view BackendKind(uint64_t address);

// The data type of a tensor or filter descriptor; nothing where it is neither.
std::optional<int> DataTypeOf(uint64_t address);

}  // namespace kiln::api
