// Status: a recoverable failure as a code plus a sentence. The code is the core's own; each
// libcudnn maps it to the numbers of its generation (api/spec). The sentence is what
// cudnnGetLastErrorString shows, so it names the tensor, the value found and the value that would
// be right.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kiln {

// One enumerator for each distinct status of cuDNN 9.19 that Kiln can return. `kBadParam` and
// `kNotSupported` are the general forms; generation 8 knows only those.
enum class Code : uint8_t {
  kOk,
  kNotInitialized,
  kVersionMismatch,
  kSerializationVersionMismatch,
  kBadParam,
  kInvalidValue,
  kNullPointer,
  kMisalignedPointer,
  kNotFinalized,
  kOutOfBound,
  kSizeInsufficient,
  kStreamMismatch,
  kShapeMismatch,
  kDuplicatedEntries,
  kAttributeType,
  kCudaGraphMismatch,
  kDescriptorType,
  kNotSupported,
  kUnsupportedGraphPattern,
  kUnsupportedShape,
  kUnsupportedDataType,
  kUnsupportedLayout,
  kIncompatibleDriver,
  kArchMismatch,
  kPrerequisiteMissing,
  kSharedMemoryInsufficient,
  kUnsupportedPadding,
  kInternal,
  kCompilationFailed,
  kUnexpectedValue,
  kHostAllocationFailed,
  kDeviceAllocationFailed,
  kExecutionFailed,
  kCudaDriver,
};

class [[nodiscard]] Status {
 public:
  Status() = default;

  template <class... A>
  static Status Error(Code code, fmt::format_string<A...> format, A&&... args) {
    return Status(code, fmt::format(format, std::forward<A>(args)...));
  }
  // An error whose sentence is already made, as one read from a log or a compiler.
  static Status Text(Code code, std::string message) { return Status(code, std::move(message)); }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The failure as it is seen from further out: "conv1: filter has 3 input channels, ...".
  Status Within(std::string_view where) && {
    if (!ok()) message_ = fmt::format("{}: {}", where, message_);
    return std::move(*this);
  }

 private:
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  Code code_ = Code::kOk;
  std::string message_;
};

}  // namespace kiln

#define RETURN_IF_ERROR(expr)                                                       \
  do {                                                                              \
    if (::kiln::Status kiln_status = (expr); !kiln_status.ok()) return kiln_status; \
  } while (0)
