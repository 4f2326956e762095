// Program: what the compiler returns and the runtime runs. Kernel sources as text, and launches
// whose arguments are concrete numbers: extents and strides are kernel *arguments*, so a new shape
// of a known structure makes a new Program with the same sources, and the kernel cache has nothing
// to compile.
//
//   kernels[0] = {"kiln_conv_9f3a…", CUDA text}
//   launches   = [{kernel 0, grid 512x1x1, block 256, args: buf0 buf1 buf2 ws+0 i32 64 i32 56 …},
//              …]
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/tensor_map.h"

namespace kiln {

enum class SourceKind : uint8_t {
  kCuda,    // CUDA C++, one self-contained translation unit, compiled by NVRTC
  kTileIr,  // tile IR text, compiled by the CPU plug-in (it owns LLVM; the GPU library does not)
};

struct KernelSource {
  SourceKind kind = SourceKind::kCuda;
  std::string entry;  // extern "C" name, unique for the text
  std::string text;
  std::string arch;  // "sm_90a", or "native"

  bool operator==(const KernelSource&) const = default;
};

// The source of a pointer argument.
struct BufferRef {
  enum class Kind : uint8_t {
    kTensor,     // the caller's pointer for Program::tensors[index]
    kWorkspace,  // the caller's workspace + byte_offset
  };
  Kind kind = Kind::kTensor;
  int index = 0;
  int64_t byte_offset = 0;  // added to the pointer, in both kinds

  bool operator==(const BufferRef&) const = default;
};

// One kernel argument, in the order of the kernel's parameters.
struct LaunchArg {
  enum class Kind : uint8_t {
    kPointer,    // `buffer`
    kScalar,     // `size` bytes of `bits`, little endian
    kByValue,    // the host scalar of tensors[buffer.index], converted to `value_type` at execute
                 // time
    kTensorMap,  // tensor_maps[bits] of the launch, over `buffer`
    kPeerRank,   // i32: which of the `bits` pointers in front of it lies on this device
    kPeerLimit,  // i64: nanoseconds that a kernel waits for other devices
    kFault,      // pointer to the device's fault word (ir/peers.h)
  };
  Kind kind = Kind::kScalar;
  BufferRef buffer = {};
  uint8_t size = 0;        // 1, 4 or 8
  uint8_t value_type = 0;  // kByValue: a DType number; f32, f64, i32 or i64
  uint64_t bits = 0;

  bool operator==(const LaunchArg&) const = default;
};

struct Launch {
  int kernel = 0;  // index into Program::kernels
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  // True if the kernel itself waits for the launch before, so that it may begin while that one
  // ends.
  bool may_overlap = false;
  // True if the kernel's blocks wait for one another: the device runs all of them at a time, or
  // refuses the launch.
  bool cooperative = false;
  std::vector<LaunchArg> args = {};
  std::vector<TensorMapSpec> tensor_maps = {};

  bool operator==(const Launch&) const = default;
};

// A tensor that the caller passes by uid. A by-value scalar is a *host* pointer to one element of
// `dtype` (a DType's number); the runtime reads it at execute time and passes the number itself.
struct ProgramTensor {
  int64_t uid = 0;
  uint8_t dtype = 0;
  bool by_value = false;
  bool is_output = false;
  bool is_empty = false;  // has no elements: its pointer is not used and may be null

  bool operator==(const ProgramTensor&) const = default;
};

struct Program {
  std::vector<ProgramTensor> tensors;
  std::vector<KernelSource> kernels;
  std::vector<Launch> launches;  // run in order, on one stream
  int64_t workspace_bytes = 0;   // the caller's; 256-byte aligned parts inside

  bool operator==(const Program&) const = default;
};

}  // namespace kiln
