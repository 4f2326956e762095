// Descriptors of the legacy API as objects behind the opaque pointers of clients. A descriptor is a
// flat struct of numbers: what a compute call asks of it is copied into the call's key, byte by
// byte (call_key.h), so that none may have padding.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "api/lifecycle/object.h"
#include "ir/base/result.h"

namespace kiln::api::legacy {

// kTag is unique among all objects of the library, kName the public type's.
template <class D>
concept Descriptor = std::is_trivially_copyable_v<D> && requires {
  { D::kTag } -> std::convertible_to<uint64_t>;
  { D::kName } -> std::convertible_to<std::string_view>;
};

// A box lives in the cell: descriptors are larger than one.
template <Descriptor D>
struct Boxed {
  static constexpr uint64_t kTag = D::kTag;
  std::unique_ptr<D> value;
};

template <Descriptor D>
Status CreateDescriptor(void** out) {
  if (out == nullptr)
    return Status::Error(Code::kBadParam, "the place for the {} is NULL", D::kName);
  auto value = std::make_unique<D>();
  auto* box = Make<Boxed<D>>(out);
  if (box == nullptr)
    return Status::Error(Code::kHostAllocationFailed, "no memory for a {}", D::kName);
  box->value = std::move(value);
  return {};
}

// Destroying NULL does nothing, as the reference has it.
template <Descriptor D>
Status DestroyDescriptor(void* object) {
  if (object == nullptr || Destroy<Boxed<D>>(object)) return {};
  return Status::Error(Code::kBadParam, "{} is no {}, or was destroyed", fmt::ptr(object),
                       D::kName);
}

// The descriptor, or a sentence that says what `object` is not. Statuses of NULL are cuDNN's for
// the legacy API: BAD_PARAM.
template <Descriptor D>
Result<D*> Get(const void* object) {
  if (const Boxed<D>* box = Find<Boxed<D>>(object)) [[likely]]
    return box->value.get();
  if (object == nullptr) return Status::Error(Code::kBadParam, "the {} is NULL", D::kName);
  return Status::Error(Code::kBadParam, "{} is no {}, or was destroyed", fmt::ptr(object),
                       D::kName);
}

// The descriptor, where NULL stands for `other` if there is one.
template <Descriptor D>
Result<const D*> GetOr(const void* object, const D* other) {
  if (object == nullptr && other != nullptr) return other;
  ASSIGN_OR_RETURN(const D* desc, Get<D>(object));
  return desc;
}

// ---- arguments

// BAD_PARAM, as above. What must never be NULL is refused before, by api/spec/nulls.tsv.
inline Status NotNull(const void* pointer, std::string_view what) {
  if (pointer != nullptr) [[likely]]
    return {};
  return Status::Error(Code::kBadParam, "{} is NULL", what);
}

// Error: the number is none of the constants 0 … last.
inline Status CheckEnum(int value, int last, std::string_view type) {
  if (value >= 0 && value <= last) [[likely]]
    return {};
  return Status::Error(Code::kBadParam, "{} is no {}", value, type);
}

// Results that a client may ask for one by one: those that are NULL are not wanted.
template <class T, class V>
void Store(T* place, V value) {
  if (place != nullptr) *place = static_cast<T>(value);
}

}  // namespace kiln::api::legacy
