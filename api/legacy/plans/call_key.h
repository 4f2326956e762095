// CallKey: what the plan of a compute call depends on, as flat bytes on the stack: the function,
// its descriptors and modes, the alignment of its pointers, the kind of its scaling factors. Two
// calls of one key run the same plan; what was checked when it was made holds for both.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "ir/base/check.h"

namespace kiln::api::legacy {

class CallKey {
 public:
  // A number or a struct of numbers without padding.
  template <class T>
  void Add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    CHECK(size_ + sizeof(T) <= bytes_.size(), "a call's key has more than {} bytes", bytes_.size());
    std::memcpy(bytes_.data() + size_, &value, sizeof(T));
    size_ += sizeof(T);
  }
  std::string_view text() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, 1536> bytes_;
  size_t size_ = 0;
};

}  // namespace kiln::api::legacy
