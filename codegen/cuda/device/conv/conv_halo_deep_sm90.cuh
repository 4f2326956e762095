#pragma once
// conv_halo_deep_sm90<Config>(weights, pixels, shape, store), or
// conv_halo_deep_sm90<Config>(weights, pixels, out, shape, rows, apply): conv_halo_sm90 for a
// filter with planes along depth, whose weights are more than shared memory holds. Images lie
// behind each other along depth, so that a plane of a tile's input is a box as there.
//
//   producer warp 0  planes of pixels → a ring of kBuffers / 2 for each group
//            warp 1  rows of the filter, kFilterW taps → a ring of kWeightRows for both groups
//   group g          tile 2 * pair + g: two tiles side by side, on the same weights
//
//      weights   z0r0 z0r1 z0r2 z1r0 …              each is read from the L2 once for two tiles
//      group 0   p0 ----------- p1 ------- …        plane of depth d + low_d + z * kDilationD
//      group 1   q0 ----------- q1 ------- …
//
// A plane outside of the tensor is neither loaded nor multiplied; a group that has none still
// counts the rows that the other one needs.

#include "codegen/cuda/device/conv/conv_halo_sm90.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

struct conv_halo_deep_shape : conv_halo_shape {
#define DEPTH_INT(name, value) int name = value;
#include "codegen/cuda/device/conv/conv_halo.def"
};

template <class C>
struct conv_halo_deep : conv_halo<C> {
  using base = conv_halo<C>;
  static constexpr int kRing = C::kBuffers / 2;
  static_assert(C::kBuffers % 2 == 0 && C::kWeightBarriers == 2 * C::kWeightRows);

  struct barriers {
    unsigned at;
    __device__ inline unsigned pixels_full(unsigned buffer) const { return at + 8 * buffer; }
    __device__ inline unsigned pixels_empty(unsigned buffer) const {
      return at + 8 * (C::kBuffers + buffer);
    }
    __device__ inline unsigned row_full(unsigned row) const {
      return at + 8 * (2 * C::kBuffers + row);
    }
    __device__ inline unsigned row_empty(unsigned row) const {
      return at + 8 * (2 * C::kBuffers + C::kWeightRows + row);
    }
    __device__ inline void init() const {
      for (int i = 0; i < C::kBuffers; ++i) {
        mbarrier_init(pixels_full(i), 1);
        mbarrier_init(pixels_empty(i), 1);
      }
      for (int i = 0; i < C::kWeightRows; ++i) {
        mbarrier_init(row_full(i), 1);
        mbarrier_init(row_empty(i), 2);
      }
      mbarrier_init_done();
    }
  };

  template <int kSize>
  struct ring {
    unsigned at = 0, phase = 0;
    __device__ inline void advance() {
      if (++at == kSize) {
        at = 0;
        phase ^= 1;
      }
    }
  };

  // Planes of a pair of tiles, that of group `g` first.
  struct planes {
    bool has[2];
    int first[2];  // of each tile's taps, in its image
    typename base::place place[2];
    __device__ inline planes(const conv_halo_deep_shape& s, int pair, int tiles, int group = 0) {
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const int tile = 2 * pair + (g ^ group);
        has[g] = tile < tiles;
        place[g] = base::place_of(s, tile);
        first[g] = place[g].image % s.depth + s.low_d;
      }
    }
    __device__ inline int plane(int g, int z) const { return first[g] + z * C::kDilationD; }
    __device__ inline bool has_plane(const conv_halo_deep_shape& s, int g, int z) const {
      return has[g] && plane(g, z) >= 0 && plane(g, z) < s.in_depth;
    }
    __device__ inline bool has_plane(const conv_halo_deep_shape& s, int z) const {
      return has_plane(s, 0, z) || has_plane(s, 1, z);
    }
  };

  static __device__ inline void load_pixels(const tensor_map& pixels, const conv_halo_deep_shape& s,
                                            unsigned memory, const barriers& b, int first, int step,
                                            int tiles) {
    ring<kRing> to[2];
#pragma unroll 1
    for (int pair = first; 2 * pair < tiles; pair += step) {
      const planes p(s, pair, tiles);
#pragma unroll 1
      for (int z = 0; z < C::kFilterD; ++z)
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          if (!p.has_plane(s, g, z)) continue;
          const unsigned buffer = g * kRing + to[g].at, full = b.pixels_full(buffer);
          mbarrier_wait(b.pixels_empty(buffer), to[g].phase ^ 1);
          mbarrier_expect(full, base::kBoxBytes);
          const typename base::place& at = p.place[g];
          tma_load(memory + base::kBuffersAt + buffer * C::kBufferBytes, pixels, full, 0,
                   at.w + s.low_w, at.h + s.low_h, at.image / s.depth * s.in_depth + p.plane(g, z));
          to[g].advance();
        }
    }
  }

  static __device__ inline void load_rows(const tensor_map& weights, const conv_halo_deep_shape& s,
                                          unsigned memory, const barriers& b, int first, int step,
                                          int tiles, int first_left) {
    ring<C::kWeightRows> to;
#pragma unroll 1
    for (int pair = first; 2 * pair < tiles; pair += step) {
      const planes p(s, pair, tiles);
#pragma unroll 1
      for (int z = 0; z < C::kFilterD; ++z) {
        if (!p.has_plane(s, z)) continue;
#pragma unroll 1
        for (int r = 0; r < C::kFilterH; ++r) {
          mbarrier_wait(b.row_empty(to.at), to.phase ^ 1);
          base::load_weights(weights, memory + to.at * base::kRowOfTapsBytes, b.row_full(to.at),
                             first_left, (z * C::kFilterH + r) * C::kFilterW, C::kFilterW);
          to.advance();
        }
      }
    }
  }

  struct consumer {
    const barriers& b;
    unsigned group, thread;
    unsigned long long left, right;  // descriptors of the first row, of the group's first buffer
    ring<C::kWeightRows> row;
    ring<kRing> pixels;

    __device__ inline void release_row(unsigned at) const {
      if (thread == 0) mbarrier_arrive(b.row_empty(at));
    }
    __device__ inline void release_pixels(unsigned at) const {
      if (thread == 0) mbarrier_arrive(b.pixels_empty(group * kRing + at));
    }

    // Passes the other group's rows. A row is counted once it is there, so that no count is ahead.
    __device__ inline void pass_plane() {
#pragma unroll 1
      for (int r = 0; r < C::kFilterH; ++r) {
        mbarrier_wait(b.row_full(row.at), row.phase);
        release_row(row.at);
        row.advance();
      }
    }

    // Leaves the last buffer, whose products are done, to the caller.
    __device__ inline unsigned multiply(typename base::accumulators& acc,
                                        const conv_halo_deep_shape& s, const planes& p) {
      bool has_products = false, is_row_held = false;
      unsigned row_before = 0, pixels_before = 0;
#pragma unroll 1
      for (int z = 0; z < C::kFilterD; ++z) {
        if (!p.has_plane(s, z)) continue;
        if (!p.has_plane(s, 0, z)) {
          // The rows to pass come where those of products were.
          wgmma_wait<0>();
          if (is_row_held) release_row(row_before);
          is_row_held = false;
          pass_plane();
          continue;
        }
        mbarrier_wait(b.pixels_full(group * kRing + pixels.at), pixels.phase);
        const unsigned long long plane = right + pixels.at * (C::kBufferBytes >> 4);
#pragma unroll 1
        for (int r = 0; r < C::kFilterH; ++r) {
          mbarrier_wait(b.row_full(row.at), row.phase);
          base::multiply_row(acc, left + row.at * (base::kRowOfTapsBytes >> 4),
                             plane + r * base::kNextRow, has_products);
          wgmma_wait<1>();
          if (is_row_held) release_row(row_before);
          if (has_products && r == 0) release_pixels(pixels_before);
          has_products = is_row_held = true;
          row_before = row.at;
          row.advance();
        }
        pixels_before = pixels.at;
        pixels.advance();
      }
      wgmma_wait<0>();
      if (is_row_held) release_row(row_before);
      return pixels_before;
    }
  };

  template <class Output>
  static __device__ inline void run(const tensor_map& weights, const tensor_map& pixels,
                                    const conv_halo_deep_shape& s, Output output) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const unsigned memory = shared_address(shared_memory);
    const barriers b = {memory + base::kBarriersAt};
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) b.init();
    __syncthreads();
    const int tiles = s.images * s.depth * s.strips_h * s.strips_w;
    const int first_left = static_cast<int>(blockIdx.x) % s.left_tiles * 64;
    const int first = blockIdx.x / s.left_tiles, step = gridDim.x / s.left_tiles;
    if (group == 2) {
      give_registers<C::kProducerRegisters>();
      if (thread < 32 && elect_one()) load_pixels(pixels, s, memory, b, first, step, tiles);
      if (thread / 32 == 1 && elect_one())
        load_rows(weights, s, memory, b, first, step, tiles, first_left);
      return;
    }
    take_registers<C::kConsumerRegisters>();
    consumer c = {
        b, group, thread,
        descriptor_layout(C::kLeftMajor == kMajorK ? C::kRowBytes : 128, base::kTapBytes) |
            descriptor_address(memory),
        descriptor_layout(C::kRowBytes, base::kTapBytes) |
            descriptor_address(memory + base::kBuffersAt + group * kRing * C::kBufferBytes)};
    typename base::accumulators acc;
#pragma unroll 1
    for (int pair = first; 2 * pair < tiles; pair += step) {
      const planes p(s, pair, tiles, group);
      if (!p.has[0]) {
        for (int z = 0; z < C::kFilterD; ++z)
          if (p.has_plane(s, z)) c.pass_plane();
        break;
      }
      const unsigned buffer = c.multiply(acc, s, p);
      // No warp reads the input any more: its buffer takes the output.
      named_barrier_sync(1 + group, 128);
      output(acc, s, p.place[0], first_left,
             shared_memory + base::kBuffersAt + (group * kRing + buffer) * C::kBufferBytes, group,
             thread);
      c.release_pixels(buffer);
    }
    output.finish(thread);
  }
};

template <class C, class Store>
__device__ inline void conv_halo_deep_sm90(const tensor_map& weights, const tensor_map& pixels,
                                           const conv_halo_deep_shape& shape, const Store& store) {
  conv_halo_deep<C>::run(weights, pixels, shape,
                         typename conv_halo<C>::template staged_output<Store>{store});
}

template <class C, class Rows, class Apply>
__device__ inline void conv_halo_deep_sm90(const tensor_map& weights, const tensor_map& pixels,
                                           const tensor_map& out, const conv_halo_deep_shape& shape,
                                           const Rows& rows, const Apply& apply) {
  conv_halo_deep<C>::run(
      weights, pixels, shape,
      typename conv_halo<C>::template direct_output<Rows, Apply>{out, rows, apply});
}
