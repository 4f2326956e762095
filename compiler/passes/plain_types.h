// plain-types: tensors of types that no kernel has become tensors of those that it has.
//
//   tensor %x uid=1 e2m1 [4,32] strides=[32,1]        tensor %x uid=1 u8 [4,16,1] strides=[16,1,1]
//   %y = map(%x, %s) op=mul                     →     %lane = iota() axis=2            [1,1,2]
//                                                     %code = lane == 0 ? x % 16 : x / 16
//                                                     %value = the number of %code     f16 [4,16,2]
//                                                     %v = reshape(%value)             f16 [4,32]
//                                                     %y = map(%v, %s) op=mul
//
// Elements of 4 bits lie two in a byte and those of b1 eight, along the dims that ir/shape.h's
// PackedRun names. A tensor that is read is bytes, of which each element takes its bits. One that
// is written is computed as codes, two or eight of which make a byte: each byte has one writer,
// whatever the engine. u32 is i32 in memory and i64 in the graph. Between memory and memory values
// are in a type that holds all of theirs: f16 for e2m1, i8 for i4 and u4, bool for b1, i64 for u32;
// what rounds to the narrow type is written out as maps.
//
// After decompose, because composite ops know what their types mean (the largest number that a
// block scales to), and before simplify, which drops what is not needed.
#pragma once

#include "compiler/module.h"
#include "ir/base/result.h"

namespace kiln::compiler {

Result<bool> PlainTypes(Module& module, const PassContext& context);

}  // namespace kiln::compiler
