// InlineVector: a vector of plain values that lives inside its owner up to N elements. Attributes
// are short (eight dims, a dozen pointers), and a variant pack is made and destroyed on every
// execute.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>

namespace kiln::api {

template <class T, size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) { Assign(values); }
  explicit InlineVector(std::span<const T> values) { Assign(values); }
  InlineVector(const InlineVector& other) { Assign(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) Assign(other);
    return *this;
  }

  void Assign(std::span<const T> values) {
    if (values.size() > N) {
      heap_ = std::make_unique_for_overwrite<T[]>(values.size());
    } else {
      heap_.reset();
    }
    size_ = values.size();
    std::copy(values.begin(), values.end(), data());
  }
  void Resize(size_t size) {
    heap_ = size > N ? std::make_unique_for_overwrite<T[]>(size) : nullptr;
    size_ = size;
  }

  T* data() { return heap_ ? heap_.get() : inline_; }
  const T* data() const { return heap_ ? heap_.get() : inline_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  size_t size_ = 0;
  std::unique_ptr<T[]> heap_;
  T inline_[N];
};

}  // namespace kiln::api
