// The statements of tensor-core pipelines: asynchronous copies, matrices from shared memory,
// products of every type, atomic sums; against plain loops, and the mistakes that are found.
#include <gtest/gtest.h>

#include <cmath>

#include "ir/tile/tools.h"

namespace kiln::tile {
namespace {

using Buffer = std::vector<double>;

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// c[16x8] += a[16xK] * b[8xK]^T for K elements of 32 bytes: TYPE has V elements in 16 bytes.
std::string ProductText(const std::string& type, const std::string& sum, int v) {
  std::string text =
      R"(kernel product(a: ptr<TYPE> const align 16, b: ptr<TYPE> const align 16, c: ptr<SUM>, n: i32) threads 32 {
  for tx in 0..32 thread_x {
    alloc a_panel : TYPE[A_SIZE] shared
    alloc b_panel : TYPE[B_SIZE] shared
    copy_async a_panel[mul(tx, V)] <- a[mul(tx, V)] lanes V if lt(div(tx, 2), n)
    if lt(tx, 16) {
      copy_async b_panel[mul(tx, V)] <- b[mul(tx, V)] lanes V if true
    }
    commit_async
    wait_async 0
    barrier
    alloc x : TYPE[V] reg
    alloc y : TYPE[HALF] reg
    alloc acc : SUM[4] reg
    let row = add(mul(mod(div(tx, 8), 2), 8), mod(tx, 8)) : i32
    load_matrix x[0] <- a_panel[mul(add(mul(row, 2), div(tx, 16)), V)] count 4
    let row_b = mod(tx, 8) : i32
    load_matrix y[0] <- b_panel[mul(add(mul(row_b, 2), mod(div(tx, 8), 2)), V)] count 2
    for z in 0..4 unroll {
      store acc[z] = ONE
    }
    mma acc[0], x[0], y[0]
    for h in 0..4 unroll {
      let m = add(div(tx, 4), mul(div(h, 2), 8)) : i32
      store c[add(add(mul(m, 8), mul(mod(tx, 4), 2)), mod(h, 2))] = load acc[h]
    }
  }
}
)";
  text = Replaced(text, "TYPE", type);
  text = Replaced(text, "SUM", sum);
  text = Replaced(text, "ONE", sum == "f32" ? "0x1p+0f" : "1");
  text = Replaced(text, "A_SIZE", std::to_string(32 * v));
  text = Replaced(text, "B_SIZE", std::to_string(16 * v));
  text = Replaced(text, "HALF", std::to_string(v / 2));
  text = Replaced(text, "lanes V", "lanes " + std::to_string(v));
  text = Replaced(text, "[V]", "[" + std::to_string(v) + "]");
  return Replaced(text, ", V)", ", " + std::to_string(v) + ")");
}

struct Type {
  const char* name;
  const char* sum;
  int per_chunk;
};
constexpr Type kTypes[] = {{"f16", "f32", 8},   {"bf16", "f32", 8},  {"f32", "f32", 4},
                           {"e4m3", "f32", 16}, {"e5m2", "f32", 16}, {"i8", "i32", 16},
                           {"u8", "i32", 16}};

TEST(TileTensor, ProductsOfEveryType) {
  for (const Type& type : kTypes) {
    const int depth = 2 * type.per_chunk;
    const std::string text = ProductText(type.name, type.sum, type.per_chunk);
    const Result<Kernel> kernel = Parse(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message() << "\n" << text;
    EXPECT_EQ(Print(*kernel), text);
    Buffer a(16 * depth), b(8 * depth), c(16 * 8, -77);
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i * 7 % 15);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i * 5 % 13);
    // The last of 16 rows is written as zeros.
    const std::vector<Argument> args = {
        {.buffer = &a}, {.buffer = &b}, {.buffer = &c}, {.scalar = {.i = 15}}};
    const Status status = Interpret(*kernel, args);
    ASSERT_TRUE(status.ok()) << type.name << ": " << status.message();
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 8; ++n) {
        double expected = 1;
        for (int k = 0; k < depth; ++k)
          expected += m < 15 ? a[m * depth + k] * b[n * depth + k] : 0;
        EXPECT_EQ(c[m * 8 + n], expected) << type.name << " " << m << "," << n;
      }
    }
  }
}

TEST(TileTensor, FloatsAreRoundedToTf32) {
  Buffer a(16 * 8), b(8 * 8), c(16 * 8);
  a[0] = 1 + 0x1p-11;    // half way: away from zero
  a[8] = 1 + 0x1.8p-12;  // below half: to 1
  b[0] = 1;
  const std::vector<Argument> args = {
      {.buffer = &a}, {.buffer = &b}, {.buffer = &c}, {.scalar = {.i = 16}}};
  ASSERT_TRUE(Interpret(*Parse(ProductText("f32", "f32", 4)), args).ok());
  EXPECT_EQ(c[0], 2 + 0x1p-10);
  EXPECT_EQ(c[8], 2);
}

Status RunProduct(const std::string& text) {
  const Result<Kernel> kernel = Parse(text);
  if (!kernel.ok()) return kernel.status();
  Buffer a(16 * 16), b(8 * 16), c(16 * 8);
  const std::vector<Argument> args = {
      {.buffer = &a}, {.buffer = &b}, {.buffer = &c}, {.scalar = {.i = 16}}};
  return Interpret(*kernel, args);
}

TEST(TileTensor, MistakesWithAsynchronousCopies) {
  const std::string good = ProductText("f16", "f32", 8);
  const auto message = [&](const std::string& from, const std::string& to) {
    const std::string text = Replaced(good, from, to);
    EXPECT_NE(text, good) << from;
    return RunProduct(text).message();
  };
  EXPECT_NE(message("    wait_async 0\n", "").find("touched before its copy was waited for"),
            std::string::npos);
  EXPECT_NE(message("    wait_async 0\n", "    wait_async 1\n").find("touched before its copy"),
            std::string::npos);
  EXPECT_NE(message("    commit_async\n", "").find("touched before its copy"), std::string::npos);
  EXPECT_NE(message("    barrier\n", "").find("race: a_panel"), std::string::npos);
  EXPECT_NE(message("    wait_async 0\n    barrier\n", "    barrier\n    wait_async 0\n")
                .find("race: a_panel"),
            std::string::npos);
  EXPECT_NE(message("    commit_async\n", "    commit_async\n    store a_panel[0] = load a[0]\n")
                .find("touched before its copy"),
            std::string::npos);
}

constexpr const char* kTransposed =
    R"(kernel transposed(x: ptr<f16> const, y: ptr<f16>) threads 32 {
  for tx in 0..32 thread_x {
    alloc s : f16[256] shared
    for e in 0..8 unroll {
      store s[add(mul(tx, 8), e)] = load x[add(mul(tx, 8), e)]
    }
    barrier
    alloc r : f16[8] reg
    load_matrix r[0] <- s[mul(tx, 8)] count 4 transposed
    for f in 0..8 unroll {
      store y[add(mul(tx, 8), f)] = load r[f]
    }
  }
}
)";

TEST(TileTensor, TransposedMatrices) {
  const Result<Kernel> kernel = Parse(kTransposed);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  EXPECT_EQ(Print(*kernel), kTransposed);
  Buffer x(256), y(256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const Argument args[] = {{.buffer = &x}, {.buffer = &y}};
  ASSERT_TRUE(Interpret(*kernel, args).ok());
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t matrix = 0; matrix < 4; ++matrix)
      for (size_t e = 0; e < 2; ++e)
        EXPECT_EQ(y[lane * 8 + matrix * 2 + e], x[matrix * 64 + (lane % 4 * 2 + e) * 8 + lane / 4]);
}

TEST(TileTensor, WarpsAreWhole) {
  const std::string text = Replaced(
      std::string(kTransposed), "    load_matrix r[0] <- s[mul(tx, 8)] count 4 transposed\n",
      "    if lt(tx, 16) {\n      load_matrix r[0] <- s[mul(tx, 8)] count 1\n    }\n");
  Buffer x(256), y(256);
  const Argument args[] = {{.buffer = &x}, {.buffer = &y}};
  EXPECT_NE(Interpret(*Parse(text), args).message().find("a warp is not active as a whole"),
            std::string::npos);
}

TEST(TileTensor, AtomicSums) {
  const char* text = R"(kernel sums(y: ptr<f32>, z: ptr<i32>) threads 64 {
  for bx in 0..3 block_x {
    for tx in 0..64 thread_x {
      atomic_add y[mod(tx, 2)], 0x1.8p+0f
      atomic_add z[0], tx
    }
  }
}
)";
  const Result<Kernel> kernel = Parse(text);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  EXPECT_EQ(Print(*kernel), text);
  Buffer y = {1, 2}, z = {-5};
  const Argument args[] = {{.buffer = &y}, {.buffer = &z}};
  ASSERT_TRUE(Interpret(*kernel, args).ok());
  EXPECT_EQ(y, (Buffer{1 + 96 * 1.5, 2 + 96 * 1.5}));
  EXPECT_EQ(z[0], 3 * 63 * 32 - 5);
}

// The first of equal sources, none of NaN, and 0 where there is nothing.
TEST(TileTensor, TheLargestAndItsNumber) {
  const char* text = R"(kernel largest(x: ptr<f16> const, y: ptr<f16>, i: ptr<i8>) threads 2 {
  for tx in 0..2 thread_x {
    alloc a : f16[2] reg
    alloc b : f16[2] reg
    alloc c : f16[2] reg
    alloc v : f16[2] reg
    alloc n : i8[2] reg
    for l in 0..2 unroll {
      store a[l] = load x[add(mul(tx, 6), l)]
      store b[l] = load x[add(add(mul(tx, 6), l), 2)]
      store c[l] = load x[add(add(mul(tx, 6), l), 4)]
    }
    largest v, n <- a 3, b 5, c 7 lanes 2
    for k in 0..2 unroll {
      store y[add(mul(tx, 2), k)] = load v[k]
      store i[add(mul(tx, 2), k)] = load n[k]
    }
    largest v, n <- a 3, b 5, c 7 lanes 2 keeps_nan
    for m in 0..2 unroll {
      store i[add(add(mul(tx, 2), m), 4)] = load n[m]
      store y[add(add(mul(tx, 2), m), 4)] = load v[m]
    }
    largest v <- b 0 lanes 2
  }
}
)";
  const Result<Kernel> kernel = Parse(text);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  EXPECT_EQ(Print(*kernel), text);
  const double nan = std::nan(""), inf = HUGE_VAL;
  Buffer x = {1, 4, 2, 4, 2, -1, nan, nan, -inf, nan, -inf, nan}, y(8), i(8, -1);
  const Argument args[] = {{.buffer = &x}, {.buffer = &y}, {.buffer = &i}};
  const Status status = Interpret(*kernel, args);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Buffer(y.begin(), y.begin() + 6), (Buffer{2, 4, -inf, -inf, 2, 4}));
  EXPECT_TRUE(std::isnan(y[6]) && std::isnan(y[7]));
  EXPECT_EQ(i, (Buffer{5, 3, 5, 0, 5, 3, 3, 3}));
}

struct Bad {
  const char* body;
  const char* message;
};
constexpr Bad kBad[] = {
    {"load_matrix r[0] <- s[0] count 3", "3 matrices: 1, 2 and 4 are possible"},
    {"alloc q : f16[8] reg load_matrix q[0] <- q[0] count 1", "q is not in shared memory"},
    {"load_matrix s[0] <- s[0] count 1", "s is not in registers"},
    {"load_matrix r[0] <- s[4] count 1", "element 4 of s is not aligned for 8 lanes"},
    {"load_matrix r[0] <- s[0] count 4", "element 7 of r, which has 4"},
    {"load_matrix b[0] <- t[0] count 1 transposed", "transposed matrices of i8"},
    {"load_matrix b[0] <- s[0] count 1", "matrices of f16 into i8"},
    {"copy_async r[0] <- x[0] lanes 4 if true", "r is not in shared memory"},
    {"copy_async s[0] <- s[8] lanes 8 if true", "s is not in global memory"},
    {"copy_async s[0] <- x[0] lanes 1 if true", "one access of 2 bytes: 4, 8 and 16 are possible"},
    {"copy_async s[0] <- x[0] lanes 8 if 1", "condition is i32, not bool"},
    {"wait_async 8", "8 groups: 0 to 7 are possible"},
    {"largest r <- r 0 lanes 3", "3 lanes: an even number is possible"},
    {"largest r <- r 128 lanes 2", "number 128: 0 to 127 are possible"},
    {"largest s <- s 0 lanes 2", "s is not in registers"},
    {"largest b <- b 0 lanes 2", "the largest of i8: f16 and bf16 are possible"},
    {"largest r <- b 0 lanes 2", "b holds i8, not f16"},
    {"largest r, r <- r 0 lanes 2", "r holds f16, not i8"},
    {"largest r <- r 0 lanes 6", "element 5 of r, which has 4"},
    {"atomic_add s[0], n", "s holds f16, the value is i32"},
    {"atomic_add x[0], n", "x is const"},
    {"atomic_add h[0], load x[0]", "h holds f16: f32, f64 and i32 are possible"},
    {"alloc i : i32[4] shared atomic_add i[0], n", "i is not in global memory"},
};

TEST(TileTensor, BadStatementsGetTheirSentence) {
  for (const Bad& bad : kBad) {
    const Result<Kernel> kernel =
        Parse(fmt::format("kernel k(x: ptr<f16> const align 16, h: ptr<f16>, n: i32) threads 32 {{ "
                          "alloc s : f16[64] shared alloc t : i8[64] shared alloc r : f16[4] reg "
                          "alloc b : i8[4] reg {} }}",
                          bad.body));
    ASSERT_TRUE(kernel.ok()) << kernel.status().message() << "\n" << bad.body;
    const Status status = Verify(*kernel);
    EXPECT_FALSE(status.ok()) << bad.body;
    EXPECT_NE(status.message().find(bad.message), std::string::npos)
        << bad.body << ": " << status.message();
  }
}

}  // namespace
}  // namespace kiln::tile
