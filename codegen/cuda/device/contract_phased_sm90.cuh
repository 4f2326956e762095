#pragma once
// contract_phased_sm90<Config>(left, right, out…, shape, rows, apply): contract_sm90 by tensor map
// for a dgrad by phases. The places of a phase are pixels of a map of its own, which a store walks
// as loads of pixels do: a box of consecutive places goes where they belong, over the ends of rows.
// One that starts behind the last image is left out.
using contract_phased_shape = contract_shape;

template <class C, int phases>
struct send_phase {
  const tensor_map* maps[phases];
  __device__ inline void operator()(const contract_shape& s, const typename contract<C>::place& p,
                                    unsigned from, int left, int right) const {
    const tensor_map* map = maps[0];
#pragma unroll
    for (int f = 1; f < phases; ++f)
      if (p.split == f) map = maps[f];
    pixel_place at = {};
    const int row = right / s.places_w, plane = row / s.places_h;
    at.w = right - row * s.places_w.value;
    at.h = row - plane * s.places_h.value;
    at.n = plane;
    if constexpr (C::kSpatial == 3) {
      at.n = plane / s.places_d;
      at.d = plane - at.n * s.places_d.value;
    }
    if (at.n < s.images) tma_store_pixels<C::kSpatial>(*map, from, left, at);
  }
};

template <class C, int phases, class Rows, class Apply>
__device__ inline void contract_phases(const tensor_map& left, const tensor_map& right,
                                       const send_phase<C, phases>& send,
                                       const contract_shape& shape, const Rows& rows,
                                       const Apply& apply) {
  using output = typename contract<C>::template direct_output<send_phase<C, phases>, Rows, Apply>;
  contract<C>::run(left, right, shape, output{send, rows, apply});
}

template <class C, class Rows, class Apply>
__device__ inline void contract_phased_sm90(const tensor_map& left, const tensor_map& right,
                                            const tensor_map& a, const tensor_map& b,
                                            const contract_shape& shape, const Rows& rows,
                                            const Apply& apply) {
  contract_phases<C, 2>(left, right, {{&a, &b}}, shape, rows, apply);
}

template <class C, class Rows, class Apply>
__device__ inline void contract_phased_sm90(const tensor_map& left, const tensor_map& right,
                                            const tensor_map& a, const tensor_map& b,
                                            const tensor_map& c, const tensor_map& d,
                                            const contract_shape& shape, const Rows& rows,
                                            const Apply& apply) {
  contract_phases<C, 4>(left, right, {{&a, &b, &c, &d}}, shape, rows, apply);
}

template <class C, class Rows, class Apply>
__device__ inline void contract_phased_sm90(const tensor_map& left, const tensor_map& right,
                                            const tensor_map& a, const tensor_map& b,
                                            const tensor_map& c, const tensor_map& d,
                                            const tensor_map& e, const tensor_map& f,
                                            const tensor_map& g, const tensor_map& h,
                                            const contract_shape& shape, const Rows& rows,
                                            const Apply& apply) {
  contract_phases<C, 8>(left, right, {{&a, &b, &c, &d, &e, &f, &g, &h}}, shape, rows, apply);
}
