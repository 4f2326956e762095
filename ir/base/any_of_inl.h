// The bodies of AnyOf's members, for the one file that compiles them for its alternatives.
#pragma once

#include <utility>

#include "ir/base/any_of.h"

namespace kiln {

template <class List>
AnyOf<List>::AnyOf() = default;
template <class List>
AnyOf<List>::AnyOf(const AnyOf& other) = default;
template <class List>
AnyOf<List>::AnyOf(AnyOf&& other) noexcept = default;
template <class List>
AnyOf<List>& AnyOf<List>::operator=(const AnyOf& other) = default;
template <class List>
AnyOf<List>& AnyOf<List>::operator=(AnyOf&& other) noexcept = default;
template <class List>
AnyOf<List>::~AnyOf() = default;

template <class List>
AnyOf<List>::AnyOf(size_t index, void* value) {
  const auto take = [&]<class... T>(std::variant<T...>& variant) {
    size_t i = 0;
    const auto take_one = [&]<class A>(A* from) {
      if (i++ == index) variant.template emplace<A>(std::move(*from));
    };
    (take_one(static_cast<T*>(value)), ...);
  };
  take(static_cast<Variant&>(*this));
}

}  // namespace kiln
