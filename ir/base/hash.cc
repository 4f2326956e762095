// XXH3 with 128 bits, inlined from the system's header so that no library is needed at run time.
// Cache keys, plan keys and kernel names come from here; the format (XXH3's canonical digits over
// fields with a 64-bit little-endian length before each) is part of the cache's version.
#include "ir/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace kiln {
namespace {

void AppendLittleEndian(std::string& bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
}

}  // namespace

std::string Hash128::Hex() const { return fmt::format("{:016x}{:016x}", high, low); }

FieldHasher& FieldHasher::Add(std::string_view field) {
  AppendLittleEndian(bytes_, field.size());
  bytes_.append(field);
  return *this;
}

FieldHasher& FieldHasher::Add(int64_t value) {
  AppendLittleEndian(bytes_, sizeof value);
  AppendLittleEndian(bytes_, static_cast<uint64_t>(value));
  return *this;
}

Hash128 FieldHasher::Finish() const { return HashBytes(bytes_); }

Hash128 HashBytes(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.low = hash.low64, .high = hash.high64};
}

}  // namespace kiln
