// The verifier's sentences: each illegal graph and what is said about it; and the edges that are
// legal.
#include <gtest/gtest.h>

#include "ir/graph/builder.h"
#include "ir/graph/graph.h"
#include "tests/support/random_graph.h"

namespace kiln::graph {
namespace {

struct Case {
  const char* body;
  const char* message;  // empty for a legal graph
};

// Parses, infers and verifies without sorting, so that an order can be wrong.
Status Judge(const std::string& body) {
  auto graph = Parse("graph g {" + body + "}");
  if (!graph.ok()) return std::move(graph).status();
  RETURN_IF_ERROR(InferShapes(*graph));
  return Verify(*graph);
}

class VerifyTable : public testing::TestWithParam<Case> {};

TEST_P(VerifyTable, SaysWhatIsWrong) {
  EXPECT_EQ(Judge(GetParam().body).message(), GetParam().message) << GetParam().body;
}

#define XY "tensor %x uid=1 f32 [2,3] tensor %y uid=2 f32 "
#define XY4 "tensor %x uid=1 f32 [4,5] tensor %y uid=2 "
#define ADD "tensor %b uid=1 f32 [2,9,1] tensor %x uid=2 f32 [2,3,4] tensor %i uid=3 "
#define SEGMENTS "tensor %x uid=1 f32 [5,4] tensor %o uid=2 i32 [4] tensor %r uid=3 i32 [9] "
#define SDPA                                                                              \
  "tensor %q uid=1 f16 [2,3,200,8] tensor %k uid=2 f16 [2,3,1100,8] tensor %v uid=3 f16 " \
  "[2,3,1100,8] tensor %o uid=4 f16 [2,3,200,8] tensor %m uid=5 "
#define WITH_MASK " %o = sdpa_fwd(%q, %k, %v, _, _, _, _, _, _, _, _, %m) compute=f32"
#define EPS "tensor %e f32 [1] by_value value=0.5 "
#define CONV " pre_padding=[0] post_padding=[0] stride=[1] dilation=[1]"

INSTANTIATE_TEST_SUITE_P(
    Tensors, VerifyTable,
    testing::Values(
        Case{"tensor %x uid=1 f32 [2,0] tensor %y uid=2 f32 %y = pointwise(%x) mode=exp", ""},
        Case{"tensor %x uid=1 f32 [2] strides=[0] tensor %y uid=2 f32 [2] %y = pointwise(%x) "
             "mode=exp",
             ""},
        Case{XY "[2,3] strides=[3,2] %y = pointwise(%x) mode=exp",
             ""},  // interleaved, yet each has its place
        Case{XY "[2,3] strides=[2,1] %y = pointwise(%x) mode=exp",
             "%y: is written, but strides [2,1] put several elements of 2x3 at one place"},
        Case{XY "[2,3] strides=[3] %y = pointwise(%x) mode=exp", "%y: has 2 dims and 1 strides"},
        Case{XY "[2,3] strides=[3,-1] %y = pointwise(%x) mode=exp",
             "%y: stride -1 of [3,-1] is negative"},
        Case{XY "[2,-3] strides=[3,1] %y = pointwise(%x) mode=exp",
             "%y: extent -3 of [2,-3] is negative"},
        Case{XY "[99999999,99999999] %y = pointwise(%x) mode=exp",
             "%y: [99999999,99999999] has more than 281474976710656 elements"},
        Case{XY "[1,1,1,1,1,1,1,1,1] %y = pointwise(%x) mode=exp",
             "%y: has 9 dims, must have 1 to 8"},
        Case{XY "[2,3] align=12 %y = pointwise(%x) mode=exp",
             "%y: alignment 12 is no power of two"},
        Case{XY "[2,3] by_value %y = pointwise(%x) mode=exp",
             "%y: is passed by value, so it must have one element (it is 2x3) and not be virtual"},
        Case{XY4 "e2m1 [4,5] strides=[6,1] %y = pointwise(%x) mode=exp", ""},
        Case{XY4 "e2m1 [4,5] strides=[5,1] %y = pointwise(%x) mode=exp", ""},
        Case{XY4 "i4 [4,5] strides=[7,1] %y = pointwise(%x) mode=exp",
             "%y: is i4, 2 in a byte, and strides [7,1] of 4x5 leave part of a byte between "
             "elements: the innermost dims must be dense, and the other strides multiples of 2"},
        Case{XY4 "u4 [4,5] strides=[15,3] %y = pointwise(%x) mode=exp",
             "%y: is u4, 2 in a byte, and strides [15,3] of 4x5 leave part of a byte between "
             "elements: the innermost dims must be dense, and the other strides multiples of 2"},
        Case{XY4 "b1 [4,5] strides=[8,1] %y = pointwise(%x) mode=identity", ""},
        Case{XY4 "b1 [4,5] strides=[5,1] %y = pointwise(%x) mode=identity", ""},
        Case{XY4 "b1 [4,5] strides=[6,1] %y = pointwise(%x) mode=identity",
             "%y: is b1, 8 in a byte, and strides [6,1] of 4x5 leave part of a byte between "
             "elements: the innermost dims must be dense, and the other strides multiples of 8"},
        Case{"tensor %x uid=1 u4 [4,5] strides=[15,3] tensor %y uid=2 f32 [4,5] %y = "
             "pointwise(%x) mode=exp",
             ""},
        Case{"tensor %x uid=1 i4 [3] tensor %i uid=2 i32 [3] tensor %before uid=3 i4 [8] tensor %y "
             "uid=3 i4 [8] %y = scatter(%x, %i, %before) compute=f32",
             "%y = scatter: scatter writes %y in part, which is i4: of elements that are 2 in a "
             "byte none can be written without the others"},
        Case{ADD "i32 [2,3,1] tensor %y uid=4 f32 [2,9,1] %y = scatter_add(%b, %x, %i) compute=f32 "
                 "axis=1",
             ""},
        Case{ADD "i32 [2,3,1] tensor %y uid=4 f16 [2,9,1] %y = scatter_add(%b, %x, %i) compute=f32 "
                 "axis=1",
             "%y = scatter_add: %y is f16: memory is added to in f32, f64 or i32"},
        Case{ADD "i32 [2,3,1] tensor %y uid=4 f64 [2,9,1] %y = scatter_add(%b, %x, %i) compute=f32 "
                 "axis=1",
             "%y = scatter_add: adds in f32, and %y is f64"},
        Case{ADD "f32 [2,3,1] tensor %y uid=4 f32 [2,9,1] %y = scatter_add(%b, %x, %i) compute=f32 "
                 "axis=1",
             "%y = scatter_add: the index %i is f32, not i32 or i64"},
        Case{ADD "i32 [2,2,1] tensor %y uid=4 f32 [2,9,1] %y = scatter_add(%b, %x, %i) compute=f32 "
                 "axis=1",
             "%y = scatter_add: the index %i 2x2x1 does not broadcast to %x 2x3x4"},
        Case{ADD "i32 [2,3,1] tensor %y uid=4 f32 [3,9,1] %y = scatter_add(%b, %x, %i) compute=f32 "
                 "axis=1",
             "%y = scatter_add: dim 0 of %y 3x9x1: elements of %x 2x3x4 are added to it"},
        Case{ADD "i32 [2,3,1] tensor %y uid=4 f32 [2,9,1] %y = scatter_add(%b, %x, %i) compute=f32 "
                 "axis=3",
             "%y = scatter_add: %x 2x3x4 and %y 2x9x1 must have the same dims, axis 3 among them"},
        Case{ADD "i32 [2,3,1] tensor %y uid=4 f32 [2,9,1] %y = scatter_add(%b, %x, %i, %x) "
                 "compute=f32 axis=1",
             "%y = scatter_add: 4 operands: there is no index beside the last"},
        Case{SEGMENTS
             "tensor %y uid=4 f16 [3,4] %y = segment_reduce(%x, %o, %r) compute=f32 mode=max",
             ""},
        Case{SEGMENTS "tensor %y uid=4 f32 [4,4] %y = segment_reduce(%x, %o, %r) compute=f32",
             "%y = segment_reduce: %y is 4x4, but a row for each segment makes it 3x4"},
        Case{SEGMENTS "tensor %y uid=4 f32 [3,4] %y = segment_reduce(%x, %x, %r) compute=f32",
             "%y = segment_reduce: the offsets %x are f32, not i32 or i64"},
        Case{SEGMENTS "tensor %y uid=4 f32 [3,4] %y = segment_reduce(%x, %o, %r) compute=i32",
             "%y = segment_reduce: it computes in floats, not i32"},
        Case{SEGMENTS "tensor %y uid=4 f32 [3,4] tensor %p uid=5 i32 [3,4] "
                      "%y, %p = segment_reduce(%x, %o, %r) compute=f32 mode=mean",
             "%y, %p = segment_reduce: mean has no positions: max and min have"},
        Case{SEGMENTS "tensor %y uid=4 f32 [3,4] tensor %p uid=5 f32 [3,4] "
                      "%y, %p = segment_reduce(%x, %o, %r) compute=f32 mode=min",
             "%y, %p = segment_reduce: the positions %p are f32, not i32 or i64"},
        Case{SEGMENTS "tensor %y uid=4 i32 [9] %y = segment_ids(%o, %r) compute=i32", ""},
        Case{SEGMENTS "tensor %y uid=4 i32 [8] %y = segment_ids(%o, %r) compute=i32",
             "%y = segment_ids: the rows %r 9 are not 8"},
        Case{SEGMENTS "tensor %y uid=4 i32 [9] tensor %m uid=5 i64 [9] "
                      "%y, %m = segment_ids(%o, %r, %r) compute=i32",
             "%y, %m = segment_ids: what is moved i64 %m 9 has not the type and dims of i32 %r 9"},
        Case{SEGMENTS "tensor %y uid=4 i32 [9] tensor %m uid=5 i32 [9] "
                      "%y, %m = segment_ids(%o, _, %r) compute=i32",
             "%y, %m = segment_ids: x stays where it is without rows to move it to"},
        Case{"tensor %x uid=1 i4 [1,1,1,1,1,1,2] tensor %y uid=2 f32 %y = pointwise(%x) mode=exp",
             "%x: is i4 of 7 dims, must have 6 at most"},
        Case{"tensor %x uid=1 f32 [1] tensor %y uid=2 f32 [1] by_value %y = pointwise(%x) mode=exp",
             "%y: is passed by value and cannot be written"},
        Case{"tensor %x uid=1 f32 [1] value=3 tensor %y uid=2 f32 [1] %y = pointwise(%x) mode=exp",
             "%x: has a value, but is not by_value"},
        Case{"tensor %x f32 [1] virtual tensor %y uid=2 f32 [1] %y = pointwise(%x) mode=exp",
             "%x: is virtual, but no node before its reader writes it"},
        Case{"tensor %x uid=1 f32 [1] tensor %z uid=1 f32 [1] tensor %y uid=2 f32 [1] %y = "
             "pointwise(%x, %z) mode=add",
             "%x and %z both have uid 1"},
        Case{"tensor %x uid=1 f32 [1] tensor %y uid=1 f32 [1] %y = pointwise(%x) mode=exp",
             ""}));  // in place

INSTANTIATE_TEST_SUITE_P(
    Nodes, VerifyTable,
    testing::Values(
        Case{XY "[2,3] %y = pointwise(%y) mode=exp",
             "%y = pointwise: reads %y before it is written"},
        Case{XY "[2,3] %y = pointwise(%x) mode=exp %y = pointwise(%x) mode=log",
             "%y = pointwise: %y is written a second time"},
        Case{XY "[2,3] %y = matmul(%x) ", "matmul: has 1 inputs, must have 2..5"},
        Case{XY "[2,3] %y = matmul(%x, _) ", "%y = matmul: its second operand is absent"},
        Case{XY "[2,3] _ = pointwise(%x) mode=exp", "pointwise: its result is absent"},
        Case{XY "[2,3] %y = pointwise(%x) mode=add",
             "%y = pointwise: add takes 2 operands, 1 given"},
        Case{XY "[2,3] %y = pointwise(%x, %x) mode=exp name=\"e\"",
             "\"e\" (%y = pointwise): exp takes 1 operand, 2 given"},
        Case{XY "[3,3] %y = pointwise(%x) mode=exp",
             "%y = pointwise: %y is 3x3, but exp makes it 2x3"},
        Case{XY "tensor %b uid=3 f32 [2,2] %y = pointwise(%x, %b) mode=add",
             "%y: has no extents, and no node gives it any"},
        Case{
            XY "[2,3] tensor %b uid=3 f32 [2,2] %y = pointwise(%x, %b) mode=add",
            "%y = pointwise: operands %x 2x3, %b 2x2 do not broadcast: extents must be equal or 1"},
        Case{XY "[2,3] %y = pointwise(%x) mode=gen_index axis=2",
             "%y = pointwise: axis 2 is none of the 2 dims of %x 2x3"},
        Case{XY "[2,3] %y = pointwise(%x) mode=exp compute=i32",
             "%y = pointwise: exp has no integer form; compute type is i32"},
        Case{XY "[2,3] %y = pointwise(%x) mode=exp compute=e4m3",
             "%y = pointwise: compute type e4m3 is none of f64, f32, f16, bf16, i64, i32"},
        Case{XY "[2,3] %y = pointwise(%x, %x) mode=add compute=i32 alpha1=0.5",
             "%y = pointwise: factor 0.5 is no whole number, compute type is i32"},
        Case{"tensor %x uid=1 bool [2] tensor %y uid=2 f32 [2] %y = pointwise(%x) mode=neg", ""},
        Case{"tensor %x uid=1 f32 [2] tensor %y uid=2 bool [2] %y = pointwise(%x) mode=neg",
             "%y = pointwise: %y is bool, and only comparisons, logical modes, selections, "
             "identity and views take bool"},
        Case{"tensor %x uid=1 bool [2] tensor %y uid=2 f32 [2] %y = pointwise(%x) mode=identity",
             ""},
        Case{XY "[2,3] %y = map(%x) op=fast_div",
             "%y = map: fast_div is no op of the tensor graph"},
        Case{XY "[2,3] %y = map(%x) op=tanh compute=i64",
             "%y = map: tanh has no integer form; compute type is i64"},
        Case{XY "[2] %y = reduction(%x) mode=max",
             "%y = reduction: %x 2x3 has 2 dims, its reduction %y 2 has 1: reduced dims stay, with "
             "extent 1"},
        Case{XY "[2,2] %y = reduction(%x) mode=max",
             "%y = reduction: dim 1 of %y 2x2 must be 3 (kept) or 1 (reduced), as %x 2x3 says"},
        Case{XY "%y = reduction(%x) mode=max",
             "%y = reduction: %y has no extents: a reduction's output says which dims are reduced"},
        Case{XY "[7] %y = reshape(%x)",
             "%y = reshape: %x 2x3 has 6 elements, its reshape %y 7 has 7"},
        Case{XY "[3,2] %y = transpose(%x) permutation=[1,1]",
             "%y = transpose: [1,1] is no permutation of the 2 dims of %x 2x3"},
        Case{XY "[2,2] %y = slice(%x) start=[0,2] step=[1,1]",
             "%y = slice: dim 1: 2 elements from 2 in steps of 1 do not lie within %x 2x3"},
        Case{XY "[2,6] tensor %b uid=3 f32 [3,3] %y = concat(%x, %b) axis=1",
             "%y = concat: %x 2x3 and %b 3x3 must agree in all dims but 1"},
        Case{XY "[2,6] %y = concat(%x, %x) axis=2",
             "%y = concat: axis 2 is none of the 2 dims of %x 2x3"}));

INSTANTIATE_TEST_SUITE_P(
    BlockMasks, VerifyTable,
    testing::Values(
        Case{SDPA "u8 [2,3,2,2]" WITH_MASK, ""}, Case{SDPA "u8 [2,3,5,4]" WITH_MASK, ""},
        Case{SDPA "i8 [2,3,2,2]" WITH_MASK,
             "%o = sdpa_fwd: block mask %m is i8; its bits are those of u8"},
        Case{SDPA "u8 [2,3,1,2]" WITH_MASK,
             "%o = sdpa_fwd: block mask %m 2x3x1x2 must be 2x3x2x2: a bit for each 128x128 of the "
             "scores 2x3x200x1100"},
        Case{SDPA "u8 [2,3,2,1]" WITH_MASK,
             "%o = sdpa_fwd: block mask %m 2x3x2x1 must be 2x3x2x2: a bit for each 128x128 of the "
             "scores 2x3x200x1100"},
        Case{SDPA "u8 [2,1,2,2]" WITH_MASK,
             "%o = sdpa_fwd: block mask %m 2x1x2x2 must be 2x3x2x2: a bit for each 128x128 of the "
             "scores 2x3x200x1100"},
        Case{SDPA "u8 [3,2,2]" WITH_MASK,
             "%o = sdpa_fwd: block mask %m 3x2x2 must be 2x3x2x2: a bit for each 128x128 of the "
             "scores 2x3x200x1100"}));

INSTANTIATE_TEST_SUITE_P(
    Contractions, VerifyTable,
    testing::Values(
        Case{"tensor %x uid=1 f32 [1,64,5] tensor %w uid=2 f32 [8,32,3] tensor %y uid=3 f32 "
             "[1,8,3] %y = conv_fprop(%x, %w)" CONV,
             ""},  // two groups
        Case{"tensor %x uid=1 f32 [1,64,5] tensor %w uid=2 f32 [8,33,3] tensor %y uid=3 f32 "
             "[1,8,3] %y = conv_fprop(%x, %w)" CONV,
             "%y = conv_fprop: filter %w 8x33x3 has 33 input channels, which do not divide the 64 "
             "channels of %x 1x64x5"},
        Case{"tensor %x uid=1 f32 [1,64,5] tensor %w uid=2 f32 [7,32,3] tensor %y uid=3 f32 "
             "[1,7,3] %y = conv_fprop(%x, %w)" CONV,
             "%y = conv_fprop: filter %w 7x32x3 has 7 output channels, not a multiple of the 2 "
             "groups (64 channels of "
             "%x 1x64x5 / 32 of the filter)"},
        Case{"tensor %x uid=1 f32 [1,4,5] tensor %w uid=2 f32 [8,4,3] tensor %y uid=3 f32 [1,8,4] "
             "%y = conv_fprop(%x, %w)" CONV,
             "%y = conv_fprop: %y is 1x8x4, but the convolution of %x 1x4x5 with %w 8x4x3 makes it "
             "1x8x3"},
        Case{"tensor %x uid=1 f32 [1,4,5] tensor %w uid=2 f32 [8,4,3] tensor %y uid=3 f32 [1,8,3] "
             "%y = conv_fprop(%x, %w) pre_padding=[0] post_padding=[0] stride=[0] dilation=[1]",
             "%y = conv_fprop: stride [0] has a value outside 1..4194304"},
        Case{"tensor %x uid=1 f32 [1,4,5] tensor %w uid=2 f32 [8,4,3] tensor %y uid=3 f32 [1,8,3] "
             "%y = conv_fprop(%x, %w) pre_padding=[0,0] post_padding=[0] stride=[1] dilation=[1]",
             "%y = conv_fprop: pre_padding has 2 values for 1 spatial dims"},
        Case{"tensor %x uid=1 f32 [1,4,5] tensor %w uid=2 f32 [8,4,3] tensor %y uid=3 f32 [1,8,3] "
             "%y = conv_fprop(%x, %w)" CONV " beta=2",
             "%y = conv_fprop: beta is 2: the third operand, which it scales, must be there"},
        // dy of stride 2 over 8 or 9 elements has 4: both extents of dx are legal, 10 is not.
        Case{"tensor %d uid=1 f32 [1,8,4] tensor %w uid=2 f32 [8,4,2] tensor %x uid=3 f32 [1,4,9] "
             "%x = conv_dgrad(%d, %w) pre_padding=[0] post_padding=[0] stride=[2] dilation=[1]",
             ""},
        Case{"tensor %d uid=1 f32 [1,8,4] tensor %w uid=2 f32 [8,4,2] tensor %x uid=3 f32 [1,4,10] "
             "%x = conv_dgrad(%d, %w) pre_padding=[0] post_padding=[0] stride=[2] dilation=[1]",
             "%x = conv_dgrad: %d is 1x8x4, but the convolution of %x 1x4x10 with %w 8x4x2 makes "
             "it 1x8x5"},
        Case{"tensor %a uid=1 f32 [4,2,3] tensor %b uid=2 f32 [2,3,5] tensor %c uid=3 f32 [4,2,5] "
             "%c = matmul(%a, %b)",
             ""},
        Case{"tensor %a uid=1 f32 [2,2,3] tensor %b uid=2 f32 [4,3,5] tensor %c uid=3 f32 [4,2,5] "
             "%c = matmul(%a, %b)",
             "%c = matmul: batch dim 0 of %a 2x2x3 must equal that of %b 4x3x5, be 1, or be a "
             "multiple of it"},
        Case{"tensor %a uid=1 f32 [2,3] tensor %b uid=2 f32 [4,5] tensor %c uid=3 f32 [2,5] %c = "
             "matmul(%a, %b)",
             "%c = matmul: %a 2x3 has depth 3, %b 4x5 has 4"},
        Case{"tensor %a uid=1 f32 [2,3] tensor %b uid=2 f32 [3,5] tensor %c uid=3 f32 [2,6] %c = "
             "matmul(%a, %b)",
             "%c = matmul: %c is 2x6, but the product of %a 2x3 and %b 3x5 makes it 2x5"},
        Case{"tensor %a uid=1 f32 [2,3] tensor %b uid=2 f32 [3,5] tensor %m uid=4 f32 [1,1] tensor "
             "%c uid=3 f32 [2,5] "
             "%c = matmul(%a, %b, %m)",
             "%c = matmul: M override %m is f32, not i32 or i64"},
        Case{"tensor %x uid=1 f32 [2,3] tensor %s uid=2 f32 [1,2] tensor %q uid=3 f32 [1,3] %s, %q "
             "= gen_stats(%x)",
             "%s, %q = gen_stats: %s is 1x2, but gen_stats of %x 2x3 makes it 1x3"},
        Case{"tensor %s uid=1 f32 [1,2] tensor %q uid=2 f32 [1,2] tensor %n uid=4 i64 [1] by_value "
             "tensor %i uid=3 f32 [1,2] "
             "_, _, _, %i = bn_finalize(%s, %q, _, _, _, _, _, _, %n)",
             "%i = bn_finalize: saved_inv_std needs epsilon, which is absent"},
        Case{"tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] %y = norm_forward(%x) mode=layer",
             "%y = norm_forward: a norm that computes statistics needs epsilon, which is absent"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,5] "
                 "%y = norm_forward(%x, _, _, _, _, %e) mode=layer",
             "%y = norm_forward: %y is 4x5, but %x 4x6 makes it 4x6"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] tensor %m uid=3 f32 [4,2] "
                 "%y, %m = norm_forward(%x, _, _, _, _, %e) mode=layer",
             "%y, %m = norm_forward: statistics of extents 4x2 do not belong to x, of extents 4x6"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] tensor %m uid=3 f32 [4,6] "
                 "%y, %m = norm_forward(%x, _, _, _, _, %e) mode=batch",
             "%y, %m = norm_forward: %m is 4x6, but a batch norm of 4x6 makes it 1x6"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] "
                 "%y = norm_forward(%x, _, _, _, _, %e) mode=group",
             "%y = norm_forward: a group norm has its number of groups from the extents of mean "
             "and inv_variance, and both are absent"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] tensor %m uid=3 f32 [4,5] "
                 "%y, %m = norm_forward(%x, _, _, _, _, %e) mode=group",
             "%y, %m = norm_forward: the statistics %m 4x5 do not divide the channels of %x 4x6"},
        Case{EPS "tensor %x uid=1 f32 [6] tensor %y uid=2 f32 [6] "
                 "%y = norm_forward(%x, _, _, _, _, %e) mode=instance",
             "%y = norm_forward: %x 6 has no channel dim"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] tensor %m uid=3 f32 [4,1] "
                 "%y, %m = norm_forward(%x, _, _, _, _, %e) mode=rms",
             "%y, %m = norm_forward: an RMS norm has no mean"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] tensor %r uid=3 f32 [1,6] "
                 "%y, _, _, %r = norm_forward(%x, _, _, _, _, %e) mode=batch",
             "%y, %r = norm_forward: the next running mean needs exp_avg_factor, which is absent"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] tensor %r uid=3 f32 [1,6] "
                 "%y = norm_forward(%x, _, _, _, _, %e, _, %r) mode=layer",
             "%y = norm_forward: a norm other than batch norm has no running statistics"},
        Case{"tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] tensor %m uid=3 f32 [4,1] "
             "%y = norm_forward(%x, %m) mode=layer inference",
             "%y = norm_forward: mean needs inv_variance, which is absent"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] tensor %s uid=3 f32 [2,6] "
                 "%y = norm_forward(%x, _, _, %s, _, %e) mode=layer",
             "%y = norm_forward: %s 2x6 does not broadcast to x, 4x6"},
        Case{EPS "tensor %x uid=1 f32 [4,6] tensor %y uid=2 f32 [4,6] "
                 "%y = norm_forward(%x, _, _, _, _, %e) mode=layer compute=i32",
             "%y = norm_forward: norm_forward divides: compute type i32 does not serve"},
        Case{"tensor %x uid=1 f32 [4,6] tensor %d uid=2 f32 [4,6] tensor %i uid=3 f32 [4,1] tensor "
             "%r uid=4 f32 [4,6] %r = norm_backward(%x, %d, _, %i) mode=layer",
             "%r = norm_backward: a norm's gradient needs mean, which is absent"},
        Case{"tensor %x uid=1 f32 [4,6] tensor %d uid=2 f32 [4,6] tensor %m uid=3 f32 [1,6] tensor "
             "%i uid=4 f32 [1,6] tensor %r uid=5 f32 [1,6] "
             "_, _, %r = bn_bwd_weights(%x, %d, %m, %i)",
             "%r = bn_bwd_weights: an equivalent factor needs scale, which is absent"}));

TEST(InferShapes, FindsTheSmallestGradients) {
  struct Row {
    const char* body;
    Dims dims;
  };
  for (const Row& row : {
           Row{"tensor %d uid=1 f32 [1,8,4] tensor %w uid=2 f32 [8,4,2] tensor %r uid=3 f32 "
               "%r = conv_dgrad(%d, %w) pre_padding=[0] post_padding=[1] stride=[2] dilation=[1]",
               {1, 4, 7}},
           {"tensor %x uid=1 f32 [2,4,9] tensor %d uid=2 f32 [2,8,4] tensor %r uid=3 f32 "
            "%r = conv_wgrad(%x, %d) pre_padding=[0] post_padding=[0] stride=[2] dilation=[1]",
            {8, 4, 2}},
           {"tensor %x uid=1 f32 [2,3,4] tensor %r uid=3 f32 %r = slice(%x) start=[1,0,0] "
            "step=[1,2,3]",
            {1, 2, 2}},
       }) {
    auto graph = Parse(std::string("graph g {") + row.body + "}");
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    const Status legal = Legalize(*graph);
    EXPECT_TRUE(legal.ok()) << legal.message();
    EXPECT_EQ(graph->tensors.back().dims, row.dims) << row.body;
  }
}

// Whatever the attributes and extents of a legal graph are changed to, the verifier answers.
TEST(Verify, AnswersForAnyChangeOfAnyNumber) {
  const int64_t kAbsurd[] = {-1,        0,        1, 2, 7, int64_t{1} << 31, int64_t{1} << 38,
                             INT64_MAX, INT64_MIN};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Graph legal = RandomGraph(seed, {.nodes = 3});
    for (size_t t = 0; t < legal.tensors.size(); ++t) {
      for (const int64_t number : kAbsurd) {
        Graph graph = legal;
        const size_t d = seed % graph.tensors[t].dims.size();
        graph.tensors[t].dims[d] = number;
        (void)Verify(graph);
        for (Tensor& tensor : graph.tensors) {
          if (tensor.is_virtual) tensor.dims.clear(), tensor.strides.clear();
        }
        (void)Legalize(graph);
        graph = legal;
        graph.tensors[t].strides[d] = number;
        (void)Verify(graph);
      }
    }
  }
}

}  // namespace
}  // namespace kiln::graph
