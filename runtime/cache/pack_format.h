// Numbers of a pack's layout, shared by its reader (pack.cc) and its writer (pack_writer.cc).
//
//   header   8 magic | u32 format | u32 kernels | u64 file bytes | u64 bytes of texts
//            | u128 hash of index and texts | u64 0 | u64 hash of the 56 bytes before
//   row      u128 key | u128 hash of the cubin | u64 hash of the frame | u64 offset | u32 bytes of
//   the
//            frame, of the cubin, of the CUDA text | u32 major of the toolkit
//            | u32 entry, arch, compiler | u32 0
//   texts    each ends with a zero byte; rows have their offsets
//
// Integers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/base/hash.h"

namespace kiln::runtime {

inline constexpr std::string_view kPackMagic = "KILNPACK";
inline constexpr uint32_t kPackFormat = 1;
inline constexpr size_t kPackHeaderBytes = 64, kPackRowBytes = 80;
inline constexpr size_t kPackHashedHeaderBytes = 56;
// More than any pack needs: a header that asks for more is damaged.
inline constexpr uint64_t kMostPackKernels = 1 << 20, kMostPackTextBytes = 64 << 20,
                          kMostCubinBytes = 256 << 20;

// Appends integers to bytes.
class PackOutput {
 public:
  explicit PackOutput(std::string& bytes) : bytes_(bytes) {}

  PackOutput& U32(uint64_t value) { return Integer(value, 4); }
  PackOutput& U64(uint64_t value) { return Integer(value, 8); }
  PackOutput& Hash(const Hash128& hash) { return U64(hash.low).U64(hash.high); }

 private:
  PackOutput& Integer(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }

  std::string& bytes_;
};

// Takes integers from the front of bytes, of which there must be enough.
class PackInput {
 public:
  explicit PackInput(std::string_view bytes) : bytes_(bytes) {}

  uint32_t U32() { return static_cast<uint32_t>(Integer(4)); }
  uint64_t U64() { return Integer(8); }
  Hash128 Hash() {
    const uint64_t low = U64();
    return {.low = low, .high = U64()};
  }

 private:
  uint64_t Integer(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i)
      value |= uint64_t{static_cast<uint8_t>(bytes_[static_cast<size_t>(i)])} << (8 * i);
    bytes_.remove_prefix(static_cast<size_t>(bytes));
    return value;
  }

  std::string_view bytes_;
};

}  // namespace kiln::runtime
