// Storage types and casts. f16, bf16 and fp8 values travel as the integer of their code and become
// f32 to compute; the conversions are branch-free integer code that vectorises and is exact for
// every code, every rounding case and every NaN (tests/codegen/llvm compares all of them with
// RoundTo of ir/dtype.h).
#include <llvm/IR/Intrinsics.h>

#include <cmath>
#include <limits>

#include "codegen/llvm/emitter.h"
#include "ir/base/check.h"

namespace kiln::llvm_codegen {
namespace {

// A binary float format narrower than f32.
struct SmallFloat {
  DType type;
  int bits;
  int mantissa_bits;
  int bias;
  uint32_t overflow;       // magnitude of what is too large: infinity, or the largest finite value
  uint32_t first_special;  // magnitudes from here on are infinity or NaN
  uint32_t nan;
};

constexpr SmallFloat kSmallFloats[] = {
    {DType::kF16, 16, 10, 15, 0x7c00, 0x7c00, 0x7e00},
    {DType::kBF16, 16, 7, 127, 0x7f80, 0x7f80, 0x7fc0},
    {DType::kE4M3, 8, 3, 7, 0x7e, 0x7f, 0x7f},
    {DType::kE5M2, 8, 2, 15, 0x7b, 0x7c, 0x7f},
    {DType::kE8M0, 8, 0, 127, 0xfe, 0xff, 0xff},
};

const SmallFloat* FindSmallFloat(DType type) {
  for (const SmallFloat& f : kSmallFloats) {
    if (f.type == type) return &f;
  }
  return nullptr;
}

constexpr int kF32MantissaBits = 23, kF32Bias = 127;
constexpr uint32_t kF32Infinity = 0x7f800000;

}  // namespace

llvm::Type* Emitter::ValueType(DType type) {
  switch (type) {
    case DType::kF32:
      return b_.getFloatTy();
    case DType::kF64:
      return b_.getDoubleTy();
    case DType::kI32:
      return b_.getInt32Ty();
    case DType::kI64:
      return b_.getInt64Ty();
    case DType::kBool:
      return b_.getInt1Ty();
    case DType::kF16:
    case DType::kBF16:
      return b_.getInt16Ty();
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
    case DType::kI8:
    case DType::kU8:
      return b_.getInt8Ty();
    case DType::kE2M1:
    case DType::kI4:
    case DType::kU4:
    case DType::kU32:
    case DType::kC64:
    case DType::kC128:
    case DType::kB1:
      break;  // of tensors in memory alone
  }
  CHECK(false, "dtype {}", int(type));
}

llvm::Type* Emitter::MemoryType(DType type) {
  return type == DType::kBool ? b_.getInt8Ty() : ValueType(type);
}

llvm::Value* Emitter::FromMemory(DType type, llvm::Value* stored) {
  return type == DType::kBool ? b_.CreateICmpNE(stored, b_.getInt8(0)) : stored;
}

llvm::Value* Emitter::ToMemory(DType type, llvm::Value* value) {
  return type == DType::kBool ? b_.CreateZExt(value, b_.getInt8Ty()) : value;
}

llvm::Value* Emitter::Convert(llvm::Value* value, DType from, DType to) {
  if (from == to) return value;
  if (FindSmallFloat(from)) {
    value = DecodeSmallFloat(from, value);
    from = DType::kF32;
  }
  if (to == DType::kBool) return Truth(value);
  if (from == DType::kI8 || from == DType::kU8 || from == DType::kBool) {
    value = from == DType::kI8 ? b_.CreateSExt(value, b_.getInt32Ty())
                               : b_.CreateZExt(value, b_.getInt32Ty());
    // All values of these types are exact in f32, which saves the detour through f64 below.
    if (FindSmallFloat(to)) return EncodeSmallFloat(to, b_.CreateSIToFP(value, b_.getFloatTy()));
    from = DType::kI32;
  }
  if (IsInteger(to)) return ToInteger(value, from, to);
  if (IsInteger(from)) {
    const bool to_f32 = to == DType::kF32;
    value = b_.CreateSIToFP(value, to_f32 ? b_.getFloatTy() : b_.getDoubleTy());
    if (to_f32) return value;
    from = DType::kF64;
  }
  if (to == DType::kF32) return b_.CreateFPTrunc(value, b_.getFloatTy());
  if (to == DType::kF64)
    return from == DType::kF64 ? value : b_.CreateFPExt(value, b_.getDoubleTy());
  return EncodeSmallFloat(to, from == DType::kF64 ? RoundToOdd(value) : value);
}

// `value` is f32, f64, i32 or i64; the result is the nearest integer that `to` has, and 0 for NaN.
llvm::Value* Emitter::ToInteger(llvm::Value* value, DType from, DType to) {
  llvm::Type* wide = to == DType::kI64 ? b_.getInt64Ty() : b_.getInt32Ty();
  if (IsFloat(from)) {
    llvm::Value* rounded = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, value);
    value = b_.CreateIntrinsic(llvm::Intrinsic::fptosi_sat, {wide, rounded->getType()}, {rounded});
  }
  if (to == DType::kI64) return value->getType() == wide ? value : b_.CreateSExt(value, wide);
  if (to == DType::kI32 && value->getType() == wide) return value;
  int64_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  if (to == DType::kI8) low = -128, high = 127;
  if (to == DType::kU8) low = 0, high = 255;
  llvm::Type* type = value->getType();
  value = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, value,
                                   llvm::ConstantInt::get(type, low, true));
  value = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, value,
                                   llvm::ConstantInt::get(type, high, true));
  return b_.CreateTrunc(value, ValueType(to));
}

// f64 → f32, truncated, with the last bit set where something was lost: rounding that to a narrower
// format gives what rounding the f64 itself would.
llvm::Value* Emitter::RoundToOdd(llvm::Value* f64) {
  llvm::Value* near = b_.CreateFPTrunc(f64, b_.getFloatTy());
  llvm::Value* back = b_.CreateFPExt(near, b_.getDoubleTy());
  llvm::Value* inexact = b_.CreateFCmpONE(back, f64);
  llvm::Value* away = b_.CreateFCmpOGT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                       b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, f64));
  llvm::Value* bits = b_.CreateBitCast(near, b_.getInt32Ty());
  bits = b_.CreateSub(bits, b_.CreateZExt(away, b_.getInt32Ty()));  // one step towards zero
  bits = b_.CreateOr(bits, b_.CreateZExt(inexact, b_.getInt32Ty()));
  return b_.CreateBitCast(bits, b_.getFloatTy());
}

llvm::Value* Emitter::DecodeSmallFloat(DType type, llvm::Value* code) {
  const SmallFloat& f = *FindSmallFloat(type);
  const int shift = kF32MantissaBits - f.mantissa_bits;
  if (type == DType::kF16 && options_.native_half) {
    return b_.CreateFPExt(b_.CreateBitCast(code, b_.getHalfTy()), b_.getFloatTy());
  }
  llvm::Value* wide = b_.CreateZExt(code, b_.getInt32Ty());
  if (type == DType::kE8M0) {
    // An f32 without mantissa, but for 2^-127, which is subnormal there.
    llvm::Value* normal = b_.CreateShl(wide, shift);
    llvm::Value* bits = b_.CreateSelect(b_.CreateICmpEQ(wide, b_.getInt32(0)),
                                        b_.getInt32(1u << (kF32MantissaBits - 1)), normal);
    bits =
        b_.CreateSelect(b_.CreateICmpEQ(wide, b_.getInt32(f.nan)), b_.getInt32(0x7fc00000), bits);
    return b_.CreateBitCast(bits, b_.getFloatTy());
  }
  if (type == DType::kBF16) return b_.CreateBitCast(b_.CreateShl(wide, shift), b_.getFloatTy());

  llvm::Value* magnitude = b_.CreateAnd(wide, (1u << (f.bits - 1)) - 1);
  llvm::Value* sign = b_.CreateShl(b_.CreateLShr(wide, f.bits - 1), 31);
  llvm::Value* shifted = b_.CreateShl(magnitude, shift);
  llvm::Value* normal = b_.CreateAdd(shifted, b_.getInt32((kF32Bias - f.bias) << kF32MantissaBits));
  llvm::Value* unit =
      llvm::ConstantFP::get(b_.getFloatTy(), std::ldexp(1.0, 1 - f.bias - f.mantissa_bits));
  llvm::Value* subnormal = b_.CreateBitCast(
      b_.CreateFMul(b_.CreateSIToFP(magnitude, b_.getFloatTy()), unit), b_.getInt32Ty());
  // The mantissa tells infinity from NaN, except for e4m3, whose only special value is NaN.
  llvm::Value* special = type == DType::kE4M3 ? static_cast<llvm::Value*>(b_.getInt32(0x7fc00000))
                                              : b_.CreateOr(shifted, b_.getInt32(kF32Infinity));
  llvm::Value* is_subnormal = b_.CreateICmpULT(magnitude, b_.getInt32(1u << f.mantissa_bits));
  llvm::Value* is_special = b_.CreateICmpUGE(magnitude, b_.getInt32(f.first_special));
  llvm::Value* bits =
      b_.CreateSelect(is_special, special, b_.CreateSelect(is_subnormal, subnormal, normal));
  return b_.CreateBitCast(b_.CreateOr(bits, sign), b_.getFloatTy());
}

llvm::Value* Emitter::EncodeSmallFloat(DType type, llvm::Value* f32) {
  const SmallFloat& f = *FindSmallFloat(type);
  const int shift = kF32MantissaBits - f.mantissa_bits;
  if (type == DType::kF16 && options_.native_half) {
    return b_.CreateBitCast(b_.CreateFPTrunc(f32, b_.getHalfTy()), b_.getInt16Ty());
  }
  // The addition below counts on its own rounding: it must not become part of an fma.
  const llvm::IRBuilder<>::FastMathFlagGuard guard(b_);
  b_.clearFastMathFlags();
  llvm::Value* bits = b_.CreateBitCast(f32, b_.getInt32Ty());
  llvm::Value* magnitude = b_.CreateAnd(bits, 0x7fffffff);
  if (type == DType::kE8M0) return EncodePowerOfTwo(magnitude);
  llvm::Value* sign = b_.CreateShl(b_.CreateLShr(bits, 31), f.bits - 1);

  // Normal results: add half of the last place kept, or a little less where that place is even, and
  // cut.
  llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(magnitude, shift), 1);
  llvm::Value* rounded =
      b_.CreateAdd(magnitude, b_.CreateAdd(odd, b_.getInt32((1u << (shift - 1)) - 1)));
  llvm::Value* code = b_.CreateSub(b_.CreateLShr(rounded, shift),
                                   b_.getInt32((kF32Bias - f.bias) << f.mantissa_bits));
  if (f.bias != kF32Bias) {
    // Subnormal results: adding a power of two whose last place is the format's unit leaves the
    // code.
    const double anchor = std::ldexp(1.0, 1 - f.bias - f.mantissa_bits + kF32MantissaBits);
    llvm::Value* anchored = b_.CreateFAdd(b_.CreateBitCast(magnitude, b_.getFloatTy()),
                                          llvm::ConstantFP::get(b_.getFloatTy(), anchor));
    const uint32_t anchor_bits = static_cast<uint32_t>(std::ilogb(anchor) + kF32Bias)
                                 << kF32MantissaBits;
    llvm::Value* subnormal =
        b_.CreateSub(b_.CreateBitCast(anchored, b_.getInt32Ty()), b_.getInt32(anchor_bits));
    const uint32_t first_normal = static_cast<uint32_t>(1 - f.bias + kF32Bias) << kF32MantissaBits;
    code = b_.CreateSelect(b_.CreateICmpULT(magnitude, b_.getInt32(first_normal)), subnormal, code);
  }
  code = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, code, b_.getInt32(f.overflow));
  llvm::Value* is_nan = b_.CreateICmpUGT(magnitude, b_.getInt32(kF32Infinity));
  code = b_.CreateOr(b_.CreateSelect(is_nan, b_.getInt32(f.nan), code), sign);
  return b_.CreateTrunc(code, b_.getIntNTy(f.bits));
}

// The bits of |f32| to e8m0, rounded up.
llvm::Value* Emitter::EncodePowerOfTwo(llvm::Value* magnitude) {
  const uint32_t fraction = (1u << kF32MantissaBits) - 1;
  llvm::Value* code =
      b_.CreateLShr(b_.CreateAdd(magnitude, b_.getInt32(fraction)), kF32MantissaBits);
  code = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, code, b_.getInt32(0xfe));
  llvm::Value* is_least = b_.CreateICmpULE(magnitude, b_.getInt32(1u << (kF32MantissaBits - 1)));
  llvm::Value* is_nan = b_.CreateICmpUGT(magnitude, b_.getInt32(kF32Infinity));
  code = b_.CreateSelect(is_least, b_.getInt32(0), code);
  return b_.CreateTrunc(b_.CreateSelect(is_nan, b_.getInt32(0xff), code), b_.getInt8Ty());
}

}  // namespace kiln::llvm_codegen
