// A fuzzer's input as numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln::fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return at_ == size_; }
  uint8_t Byte() { return empty() ? 0 : data_[at_++]; }
  size_t Below(size_t n) { return Byte() % n; }
  // Mostly small, sometimes a power of two to 4096, as transforms take, or anything.
  int64_t Number() {
    const uint8_t shape = Byte();
    if (shape < 200) return shape % 17;
    if (shape < 220) return -static_cast<int64_t>(shape % 9);
    if (shape < 232) return int64_t{128} << (shape % 6);
    int64_t wide = 0;
    for (int i = 0; i < 8; ++i) wide = wide << 8 | Byte();
    return wide;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

}  // namespace kiln::fuzz
