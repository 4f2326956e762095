#pragma once
// e8m0_t: the exponent of a power of two, biased by 127; 255 is NaN. Conversion rounds the
// magnitude up and saturates, as PTX ISA "cvt", .rp.satfinite.ue8m0x2 does from sm_100 on.
struct e8m0_t {
  unsigned char bits;
  e8m0_t() = default;
  __device__ explicit e8m0_t(float v) {
    const unsigned a = __float_as_uint(v) & 0x7fffffff, up = (a + 0x7fffff) >> 23;
    const unsigned code = a <= 0x400000 ? 0 : up > 0xfe ? 0xfe : up;
    bits = a > 0x7f800000 ? 0xff : code;
  }
  __device__ explicit operator float() const {
    const unsigned power = bits == 0 ? 0x400000 : unsigned(bits) << 23;
    return __uint_as_float(bits == 0xff ? 0x7fffffff : power);
  }
};
