// Kernels by hand that several tests share.
#pragma once

#include <string_view>

namespace kiln::tile {

// Every construct of the text once.
inline constexpr std::string_view kEveryConstruct = R"(// graph: y = relu(x)
//
// engine pointwise, vector 8
kernel every_construct(x: ptr<f16> const align 16, y: ptr<f16> align 16, w: ptr<e4m3>, d: ptr<f64>, n: i32, mul0: i32, shift0: i32, big: i64, alpha: f32, flag: bool) threads 256 min_blocks 2 {
  let tiles = div(add(n, 2047), 2048) : i32
  for bz in 0..3 block_z {
    for by in 0..n block_y {
      for bx in 0..div(add(n, 2047), 2048) block_x {
        alloc s : f32[256] shared
        for tx in 0..256 thread_x {
          let i = add(mul(bx, 2048), mul(tx, 8)) : i32
          alloc acc : f32[1] reg
          store acc[0] = 0x0p+0f
          if lt(i, n) {
            alloc v : f16[8] reg
            copy v[0] <- x[i] lanes 8
            for j in 0..8 unroll {
              // a comment
              store v[j] = cast<f16>(max(cast<f32>(load v[j]), -0x1.8p-3f))
            }
            for j2 in 0..8 vector {
              store acc[0] = add(load acc[0], cast<f32>(load v[j2]))
            }
            copy y[i] <- v[0] lanes 8
          } else {
            if and(flag, not(lt(tiles, bz))) {
              store w[i] = cast<e4m3>(alpha)
            } else {
              store d[i] = mul(add(cast<f64>(alpha), 0x1.999999999999ap-4), -inf)
            }
          }
          store s[tx] = select(flag, load acc[0], inff)
          barrier
          barrier of 64
          let q = fast_div(n, mul0, shift0) : i32
          for k: i64 in 0..add(big, -9l) {
            store acc[0] = add(load acc[0], load s[mod(add(tx, cast<i32>(k)), 256)])
          }
          let r = shuffle_xor(load acc[0], 16) : f32
          let never = ne(nan, cast<f64>(nanf)) : bool
          //
          if or(never, true) {
            store y[sub(q, -1)] = cast<f16>(r)
          }
        }
        for t2 in 0..64 thread_x {
          store d[t2] = fma(0x1p+0, cast<f64>(by), -0x0p+0)
        }
      }
    }
  }
}
)";

// The sum of a block's 256 elements: shuffles inside the warps, shared memory between them.
inline constexpr std::string_view kBlockSum = R"(// y[b] = sum over i of x[b * 256 + i]
kernel block_sum(x: ptr<f32> const, y: ptr<f32>, blocks: i32) threads 256 {
  for b in 0..blocks block_x {
    alloc partial : f32[8] shared
    for t in 0..256 thread_x {
      alloc sum : f32[1] reg
      store sum[0] = load x[add(mul(b, 256), t)]
      store sum[0] = add(load sum[0], shuffle_xor(load sum[0], 16))
      store sum[0] = add(load sum[0], shuffle_xor(load sum[0], 8))
      store sum[0] = add(load sum[0], shuffle_xor(load sum[0], 4))
      store sum[0] = add(load sum[0], shuffle_xor(load sum[0], 2))
      store sum[0] = add(load sum[0], shuffle_xor(load sum[0], 1))
      if eq(mod(t, 32), 0) {
        store partial[div(t, 32)] = load sum[0]
      }
      barrier
      if eq(t, 0) {
        store sum[0] = 0x0p+0f
        for w in 0..8 unroll {
          store sum[0] = add(load sum[0], load partial[w])
        }
        store y[b] = load sum[0]
      }
    }
  }
}
)";

inline constexpr std::string_view kSaxpy = R"(// y = a * x + y
kernel saxpy(x: ptr<bf16> const, y: ptr<f32>, a: f32, n: i32) threads 128 {
  for b in 0..div(add(n, 127), 128) block_x {
    for t in 0..128 thread_x {
      let i = add(mul(b, 128), t) : i32
      if lt(i, n) {
        store y[i] = fma(a, cast<f32>(load x[i]), load y[i])
      }
    }
  }
}
)";

// A skeleton of the device library with all parts that a call can have.
inline constexpr std::string_view kCall = R"(// y = b^T a
kernel product(left: map, right: map, y: ptr<f16> align 16, parts: ptr<f32>, flags: ptr<i32>, n: i32, steps: i32) threads 384 min_blocks 1 cluster 2 {
  for bx in 0..n block_x {
    call contract_sm90(left, right) buffers(parts, flags) wgmma 256 f16 outer f16 k shared 214528 {
      config kTileLeft 128
      config kKind 0
      shape left_tiles = div(add(n, 127), 128)
      shape steps = steps
      function store(values: f32[8], batch: i32, at: i32) {
        if lt(at, n) {
          alloc w : f16[8] reg
          for l in 0..8 unroll {
            store w[l] = cast<f16>(load values[l])
          }
          copy y[add(mul(batch, n), at)] <- w[0] lanes 8
        }
      }
      function apply(value: f32, operands: f32[1], result: f32[1] out) {
        store result[0] = add(value, load operands[0])
      }
    }
  }
}
)";

}  // namespace kiln::tile
