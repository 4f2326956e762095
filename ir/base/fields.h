// Field rows: a struct lists its members once, and printing, parsing, comparing and hashing follow.
//
//   struct ReduceAttrs {
//     ReduceOp op; bool keep_dims;
//     static constexpr auto Fields() {
//       return std::tuple{Field("op", &ReduceAttrs::op),
//                         Field("keep_dims", &ReduceAttrs::keep_dims)};
//     }
//   };
#pragma once

#include <tuple>

namespace kiln {

template <class C, class T>
struct FieldRow {
  const char* name;
  T C::* member;
};

template <class C, class T>
constexpr FieldRow<C, T> Field(const char* name, T C::* member) {
  return {name, member};
}

// Calls visit(name, member_value) for each field, in the order of the rows.
template <class A, class F>
constexpr void ForEachField(A& attrs, F&& visit) {
  std::apply([&](auto... row) { (visit(row.name, attrs.*row.member), ...); },
             std::remove_const_t<A>::Fields());
}

template <class A>
bool FieldsEqual(const A& a, const A& b) {
  return std::apply([&](auto... row) { return ((a.*row.member == b.*row.member) && ...); },
                    A::Fields());
}

}  // namespace kiln
