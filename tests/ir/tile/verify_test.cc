// The verifier's rules: one bad kernel each, and the sentence it gets.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/tile/tools.h"

namespace kiln::tile {
namespace {

// Put between `kernel k(…) threads 64 {` and `}`.
struct BadBody {
  const char* body;
  const char* message;
};

constexpr const char* kHead =
    "kernel k(x: ptr<f32> const align 16, y: ptr<f32> align 8, h: ptr<f16> align 16, n: i32, a: "
    "f32, c: bool)"
    " threads 64 {\n";

constexpr BadBody kBadBodies[] = {
    // Names.
    {"let n = 1 : i32", "let n = 1 : i32: n is defined twice"},
    {"let float = 1 : i32", "let float = 1 : i32: float is a reserved word"},
    {"let expf = 1 : i32", "let expf = 1 : i32: expf is a reserved word"},
    {"let __x = 1 : i32", "let __x = 1 : i32: __x is a reserved word"},
    {"if c { let u = 1 : i32 } store y[u] = a", "store y[u] = a: u is not defined here"},
    {"if c { alloc u : f32[4] reg } store u[0] = a",
     "store u[0] = a: buffer u is not defined here"},
    {"if c { let u = 1 : i32 } let u = 1 : i32", "let u = 1 : i32: u is defined twice"},
    {"for i in 0..4 { } store y[i] = a", "store y[i] = a: i is not defined here"},
    // Types.
    {"store y[0] = n", "store y[0] = n: y holds f32, the value is i32"},
    {"store y[a] = a", "store y[a] = a: index a of y is f32, not i32 or i64"},
    {"let u = add(a, n) : f32", "let u = add(a, n) : f32: add of f32 and i32: add(a, n)"},
    {"let u = exp(n) : i32", "let u = exp(n) : i32: exp does not take i32: exp(n)"},
    {"let u = add(load h[0], load h[1]) : f16",
     "let u = add(load h[0], load h[1]) : f16: add does not take f16: add(load h[0], load h[1])"},
    {"let u = and(n, n) : bool", "let u = and(n, n) : bool: and does not take i32: and(n, n)"},
    {"let u = select(n, a, a) : f32",
     "let u = select(n, a, a) : f32: select's condition is i32, not bool: select(n, a, a)"},
    {"let u = select(c, a, n) : f32",
     "let u = select(c, a, n) : f32: select of f32 and i32: select(c, a, n)"},
    {"let u = fast_div(1l, 1l, 1l) : i64",
     "let u = fast_div(1l, 1l, 1l) : i64: fast_div does not take i64: fast_div(1l, 1l, 1l)"},
    {"let u = shuffle_xor(c, 1) : bool",
     "let u = shuffle_xor(c, 1) : bool: shuffle_xor does not take bool"},
    {"let u = shuffle_xor(a, 0) : f32",
     "let u = shuffle_xor(a, 0) : f32: shuffle_xor with lane mask 0: 1 to 31 are possible"},
    {"if n { }", "if n: condition is i32, not bool"},
    {"for i: i64 in 0..n { }", "for i: i64 in 0..n: extent is i32, the variable i64"},
    {"for i: f32 in 0..a { }", "for i: f32 in 0..a: loop variable is f32, not i32 or i64"},
    // Tensor cores.
    {"alloc u : f32[4] reg alloc v : i8[16] reg mma u[0], v[0], v[0]",
     "mma u[0], v[0], v[0]: f32 += i8 * i8: f32 += the product of two f16, bf16, f32, e4m3 or "
     "e5m2, and i32 += of two i8 or u8 are possible"},
    {"alloc u : f32[4] reg alloc v : f16[4] reg mma u[0], h[0], v[0]",
     "mma u[0], h[0], v[0]: h is not in registers"},
    {"alloc u : f32[4] reg alloc v : f16[4] reg mma u[0], v[0], v[0]",
     "mma u[0], v[0], v[0]: element 7 of v, which has 4"},
    // Memory.
    {"store x[0] = a", "store x[0] = a: x is const"},
    {"alloc u : f32[0] reg", "alloc u : f32[0] reg: a buffer needs at least one element"},
    {"alloc u : f32[4] reg store u[4] = a", "store u[4] = a: element 4 of u, which has 4"},
    {"let u = load x[-1] : f32", "let u = load x[-1] : f32: element -1 of x"},
    {"alloc u : f32[60000] shared",
     "alloc u : f32[60000] shared: 240000 bytes of shared memory: a block has at most 232448"},
    {"alloc u : f32[4] reg copy u[0] <- x[2] lanes 4",
     "copy u[0] <- x[2] lanes 4: element 2 of x is not aligned for 4 lanes"},
    {"alloc u : f32[4] reg copy u[0] <- x[0] lanes 3",
     "copy u[0] <- x[0] lanes 3: one access of 12 bytes: 2, 4, 8 and 16 are possible"},
    {"alloc u : f32[4] reg copy u[0] <- x[0] lanes 0", "copy u[0] <- x[0] lanes 0: 0 lanes"},
    {"alloc u : f32[4] reg copy y[n] <- u[0] lanes 4",
     "copy y[n] <- u[0] lanes 4: y is aligned to 8 bytes, the access has 16"},
    {"alloc u : f32[4] reg copy x[0] <- u[0] lanes 4", "copy x[0] <- u[0] lanes 4: x is const"},
    {"copy h[0] <- x[0] lanes 2", "copy h[0] <- x[0] lanes 2: copy from f32 to f16"},
    // Loops.
    {"for i in 0..n unroll { }", "for i in 0..n unroll: an unrolled loop needs a constant extent"},
    {"for i in 0..4 { for b in 0..n block_x { } }",
     "for b in 0..n block_x: a block loop must be outermost"},
    {"if c { for b in 0..n block_x { } }", "for b in 0..n block_x: a block loop must be outermost"},
    {"for b in 0..n block_x { } barrier",
     "for b in 0..n block_x: a block loop shares its level with other statements"},
    {"for b in 0..n block_x { for d in 0..n block_x { } }",
     "for d in 0..n block_x: a second loop is bound to block_x"},
    {"let m = add(n, 1) : i32 for b in 0..m block_x { }",
     "for b in 0..m block_x: the extent of a block loop may name parameters only"},
    {"for t in 0..65 thread_x { }",
     "for t in 0..65 thread_x: the extent of a thread loop is a constant from 1 to 64"},
    {"for t in 0..n thread_x { }",
     "for t in 0..n thread_x: the extent of a thread loop is a constant from 1 to 64"},
    {"for t in 0..64 thread_x { for u in 0..64 thread_x { } }",
     "for u in 0..64 thread_x: thread loops cannot be nested"},
    // Barriers.
    {"for t in 0..32 thread_x { barrier }", "barrier: not every thread of the block reaches it"},
    {"for t in 0..64 thread_x { if lt(t, n) { barrier } }",
     "barrier: not every thread of the block reaches it"},
    {"for t in 0..64 thread_x { let u = add(t, 1) : i32 for k in 0..u { barrier } }",
     "barrier: not every thread of the block reaches it"},
    {"alloc r : i32[1] reg store r[0] = n if lt(load r[0], n) { barrier }",
     "barrier: not every thread of the block reaches it"},
    {"if eq(shuffle_xor(n, 1), n) { barrier }",
     "barrier: not every thread of the block reaches it"},
    {"for t in 0..64 thread_x { if lt(t, 32) { barrier of 32 } }",
     "barrier of 32: not every thread of the block reaches it"},
    {"for t in 0..64 thread_x { barrier of 16 }",
     "barrier of 16: 16 threads are no whole warps, or do not divide a block of 64"},
    {"for t in 0..64 thread_x { barrier of 96 }",
     "barrier of 96: 96 threads are no whole warps, or do not divide a block of 64"},
    {"for t in 0..64 thread_x { barrier of 32 barrier of 64 }",
     "barrier of 64: the kernel has teams of 32 threads"},
};

TEST(TileVerify, BadBodiesGetTheirSentence) {
  for (const BadBody& bad : kBadBodies) {
    const Result<Kernel> kernel = Parse(std::string(kHead) + bad.body + "\n}\n");
    ASSERT_TRUE(kernel.ok()) << kernel.status().message() << "\n" << bad.body;
    const Status status = Verify(*kernel);
    EXPECT_FALSE(status.ok()) << bad.body;
    EXPECT_EQ(status.message(), bad.message) << bad.body;
  }
}

// Each row is a call: the text in the place of HEAD, that of PARTS, and what stands around it.
TEST(TileVerify, BadCallsGetTheirSentence) {
  struct Row {
    const char *before, *head, *parts, *after;
    const char* message;  // how it ends
  };
  constexpr const char* kHeadOfAll = "s(m) wgmma 64 f16 k f16 k shared 0";
  const Row rows[] = {
      {"", "s(y) wgmma 64 f16 k f16 k shared 0", "", "", "y is no tensor map"},
      {"", "s(m) buffers(z) wgmma 64 f16 k f16 k shared 0", "", "", "buffer z is not defined here"},
      {"", "s(m) buffers(x) wgmma 64 f16 k f16 k shared 0", "", "", "x is const"},
      {"", "s(m) wgmma 12 f16 k f16 k shared 0", "", "",
       "wgmma of 12 columns: 8, 16 … 256 are possible"},
      {"", "s(m) wgmma 264 f16 k f16 k shared 0", "", "",
       "wgmma of 264 columns: 8, 16 … 256 are possible"},
      {"", "s(m) wgmma 64 e4m3 outer e4m3 k shared 0", "", "",
       "wgmma takes e4m3 only with k as the contiguous axis"},
      {"",
       "s(m) wgmma 64 f16 k f16 k wgmma 64 f16 registers f16 k wgmma 64 f16 registers f16 k shared "
       "0",
       "", "", "only the second wgmma has registers"},
      {"",
       "s(m) wgmma 64 f16 k f16 k wgmma 8 f16 k f16 k wgmma 8 f16 k f16 k wgmma 8 f16 registers "
       "f16 k shared 0",
       "", "", "only the second wgmma has registers"},
      {"", "s(m) wgmma 64 f16 k f16 k shared 232449", "", "",
       "232449 bytes of shared memory: a block has at most 232448"},
      {"for t in 0..64 thread_x { if lt(t, n) {", kHeadOfAll, "", "} }",
       "not every thread of the block reaches the skeleton"},
      {"", kHeadOfAll, "function f(v: f32[4]) { store v[0] = 0x0p+0f }", "", "v is const"},
      {"", kHeadOfAll, "function f(v: f32[4] out) { store v[4] = 0x0p+0f }", "",
       "element 4 of v, which has 4"},
      {"", kHeadOfAll, "function f(v: f32[4]) { barrier }", "",
       "not every thread of the block reaches it"},
      {"", kHeadOfAll, "function f(n: i32) { }", "", "n is defined twice"},
      {"", kHeadOfAll, "function f(v: f32[4]) { } function g() { store y[0] = load v[0] }", "",
       "buffer v is not defined here"},
  };
  for (const Row& row : rows) {
    const std::string text = fmt::format(
        "kernel k(m: map, y: ptr<f32>, x: ptr<f32> const, n: i32) threads 128 {{\n{} call {} {{ {} "
        "}} {}\n}}\n",
        row.before, row.head, row.parts, row.after);
    const Result<Kernel> kernel = Parse(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message() << "\n" << text;
    const Status status = Verify(*kernel);
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_TRUE(status.message().ends_with(row.message)) << status.message() << "\n" << text;
  }
}

constexpr const char* kGoodBodies[] = {
    "barrier",
    "if c { barrier }",
    "for k in 0..n { barrier }",
    "for t in 0..64 thread_x { if lt(n, 3) { barrier } }",
    "for t in 0..64 thread_x { barrier } for u in 0..32 thread_x { store y[u] = a }",
    "alloc s : f32[4] shared for t in 0..4 thread_x { store s[t] = a } barrier if gt(load s[0], a) "
    "{ barrier }",
    "let m = add(n, 1) : i32 // beside\n for b in 0..n block_x { for b2 in 0..add(n, 1) block_y { "
    "barrier } }",
    "let u = load h[0] : f16 store h[1] = u",
};

TEST(TileVerify, GoodBodiesPass) {
  for (const char* body : kGoodBodies) {
    const Result<Kernel> kernel = Parse(std::string(kHead) + body + "\n}\n");
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    const Status status = Verify(*kernel);
    EXPECT_TRUE(status.ok()) << status.message() << "\n" << body;
  }
}

struct BadKernel {
  Kernel kernel;
  const char* message;
};

TEST(TileVerify, BadKernelsMadeByCode) {
  const auto with = [](Stmt s) { return Kernel{.name = "k", .body = {std::move(s)}}; };
  const BadKernel rows[] = {
      {{.name = "a b"}, "'a b' cannot be a kernel's name"},
      {{.name = "k", .threads = 0}, "0 threads in a block: 1 to 1024 are possible"},
      {{.name = "k", .threads = 2048}, "2048 threads in a block: 1 to 1024 are possible"},
      {{.name = "k", .comment = {"a\nb"}},
       "the kernel's comment: a comment is one line and does not end in a backslash"},
      {{.name = "k", .params = {{.name = "x", .type = DType::kF16}}},
       "parameter x: a scalar cannot be f16: it is a storage type"},
      {{.name = "k",
        .params = {{.name = "x", .type = DType::kF16, .is_pointer = true, .alignment = 12}}},
       "parameter x: alignment 12 is not a power of two up to 256"},
      {{.name = "k",
        .params = {{.name = "x", .type = DType::kF32}, {.name = "x", .type = DType::kF32}}},
       "parameter x: x is defined twice"},
      {with({Comment{"ends in \\"}}),
       "// ends in \\: a comment is one line and does not end in a backslash"},
      {with({Let{"v", ShuffleXor(Float(1), 1)}}),
       "let v = shuffle_xor(0x1p+0f, 1) : f32: shuffle_xor in a block of 1 threads, which are no "
       "whole warps"},
      {with({Let{"v", Var("x", DType::kF32)}}), "let v = x : f32: x is not defined here"},
  };
  for (const BadKernel& bad : rows) EXPECT_EQ(Verify(bad.kernel).message(), bad.message);

  Kernel mistyped = with({Let{"v", Var("x", DType::kF64)}});
  mistyped.params = {{.name = "x", .type = DType::kF32},
                     {.name = "p", .type = DType::kF32, .is_pointer = true}};
  EXPECT_EQ(Verify(mistyped).message(), "let v = x : f64: x is f32, used as f64");
  mistyped.body = {{Let{"v", Load("p", DType::kF64, Int(0))}}};
  EXPECT_EQ(Verify(mistyped).message(), "let v = load p[0] : f64: p holds f32, loaded as f64");
}

}  // namespace
}  // namespace kiln::tile
