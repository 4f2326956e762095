// 128-bit content hash (XXH3) over length-prefixed fields: ("ab","c") and ("a","bc") differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
  auto operator<=>(const Hash128&) const = default;
  std::string Hex() const;  // 32 lower-case digits
};

class FieldHasher {
 public:
  FieldHasher& Add(std::string_view field);
  FieldHasher& Add(int64_t value);
  Hash128 Finish() const;

 private:
  std::string bytes_;
};

Hash128 HashBytes(std::string_view bytes);

struct Hash128Hasher {
  size_t operator()(const Hash128& h) const { return h.low; }
};

}  // namespace kiln
