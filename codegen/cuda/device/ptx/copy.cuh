#pragma once
// copy<bytes>(to, from): one access of that width; both addresses are aligned to it.
template <int bytes>
struct word;
template <>
struct word<2> {
  using type = unsigned short;
};
template <>
struct word<4> {
  using type = unsigned;
};
template <>
struct word<8> {
  using type = uint2;
};
template <>
struct word<16> {
  using type = uint4;
};
template <int bytes, class T>
__device__ inline void copy(T* to, const T* from) {
  using type = typename word<bytes>::type;
  *reinterpret_cast<type*>(to) = *reinterpret_cast<const type*>(from);
}
