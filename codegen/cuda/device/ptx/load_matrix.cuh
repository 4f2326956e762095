#pragma once
// load_matrix<n>(to, from): n 8x8 matrices of 16-byte rows from shared memory, lane 8i + r naming
// row r of matrix i, into n 32-bit words a lane: of lane 4g + t, word t of row g. The transposed
// form takes elements of 16 bits: column g, rows 2t and 2t + 1. PTX ISA "ldmatrix", sm_75 on. NOTE:
// no memory clobber: barriers and volatile order keep it in place, and stores to registers' arrays
// may move around it.
template <int n>
struct matrices;
template <>
struct matrices<1> {
  static __device__ inline void load(unsigned* w, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(w[0]) : "r"(at));
  }
  static __device__ inline void load_transposed(unsigned* w, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(w[0])
                 : "r"(at));
  }
};
template <>
struct matrices<2> {
  static __device__ inline void load(unsigned* w, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(w[0]), "=r"(w[1])
                 : "r"(at));
  }
  static __device__ inline void load_transposed(unsigned* w, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(w[0]), "=r"(w[1])
                 : "r"(at));
  }
};
template <>
struct matrices<4> {
  static __device__ inline void load(unsigned* w, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at));
  }
  static __device__ inline void load_transposed(unsigned* w, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at));
  }
};
template <int n, class T>
__device__ inline void load_matrix(T* to, const T* from) {
  matrices<n>::load(reinterpret_cast<unsigned*>(to), unsigned(__cvta_generic_to_shared(from)));
}
template <int n, class T>
__device__ inline void load_matrix_transposed(T* to, const T* from) {
  matrices<n>::load_transposed(reinterpret_cast<unsigned*>(to),
                               unsigned(__cvta_generic_to_shared(from)));
}
