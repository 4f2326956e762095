// AnyOf<List>: a std::variant of many alternatives whose copies, moves and end are compiled once,
// and not in every file that sees it. std::get, std::get_if, std::holds_alternative and std::visit
// take it as it is.
//
//   struct AllAttrs { using Variant = std::variant<ConvAttrs, MatmulAttrs, …>; };  // attrs.h
//   using Attrs = AnyOf<AllAttrs>;
//   template class kiln::AnyOf<AllAttrs>;  // attrs.cc, which includes any_of_inl.h
#pragma once

#include <cstddef>
#include <type_traits>
#include <variant>

namespace kiln {

template <class A, class Variant>
inline constexpr size_t kIndexIn = 0;
template <class A, class... T>
inline constexpr size_t kIndexIn<A, std::variant<T...>> = [] {
  size_t index = 0;
  (void)((std::is_same_v<A, T> || (++index, false)) || ...);
  return index;
}();

template <class List>
class AnyOf : public List::Variant {
 public:
  using Variant = typename List::Variant;

  AnyOf();  // of the first alternative
  AnyOf(const AnyOf& other);
  AnyOf(AnyOf&& other) noexcept;
  AnyOf& operator=(const AnyOf& other);
  AnyOf& operator=(AnyOf&& other) noexcept;
  ~AnyOf();

  template <class A>
    requires(kIndexIn<A, Variant> < std::variant_size_v<Variant>)
  AnyOf(A value) : AnyOf(kIndexIn<A, Variant>, &value) {}  // implicit, as a variant's

 private:
  AnyOf(size_t index, void* value);  // moves from the value, which is of the alternative
};

}  // namespace kiln
