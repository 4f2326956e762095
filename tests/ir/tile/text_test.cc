// Text of tile kernels: print → parse → print is the identity, and malformed text gets a place and
// a sentence.
#include <gtest/gtest.h>

#include <random>

#include "ir/tile/tools.h"
#include "tests/ir/tile/kernels.h"
#include "tests/ir/tile/random_kernel.h"

namespace kiln::tile {
namespace {

void ExpectIdentity(std::string_view text) {
  const Result<Kernel> kernel = Parse(text);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message() << "\n" << text;
  EXPECT_EQ(Print(*kernel), text);
}

TEST(TileText, HandWrittenKernelsComeBackUnchanged) {
  for (const std::string_view text : {kEveryConstruct, kBlockSum, kSaxpy, kCall}) {
    ExpectIdentity(text);
    const Status status = Verify(*Parse(text));
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(TileText, RandomKernelsComeBackUnchanged) {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Kernel kernel = RandomKernel(seed);
    const std::string text = Print(kernel);
    const Status status = Verify(kernel);
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << text;
    ExpectIdentity(text);
    const Status again = Verify(*Parse(text));
    EXPECT_TRUE(again.ok()) << again.message();
  }
}

struct BadText {
  const char* text;
  const char* message;
};

constexpr BadText kBadTexts[] = {
    {"", "1:1: expected 'kernel', found the end of the text"},
    {"// only a comment", "1:18: expected 'kernel', found the end of the text"},
    {"kernel k(x: f33) threads 1 {\n}", "1:13: expected a type, found 'f33'"},
    {"kernel k(x: ptr<f32) threads 1 {\n}", "1:20: expected '>', found ')'"},
    {"kernel k() threads many {\n}", "1:20: expected a number of threads, found 'many'"},
    {"kernel k() threads 99999999999 {\n}",
     "1:20: 99999999999 is not a number of threads from 0 to 2147483647"},
    {"kernel k() threads 1 {\n  barrier\n",
     "3:1: expected a statement or '}', found the end of the text"},
    {"kernel k() threads 64 {\n  barrier of\n}", "3:1: expected a number of threads, found '}'"},
    {"kernel k() threads 1 {\n  let x = y : i32\n}", "2:11: no variable is named y"},
    {"kernel k() threads 1 {\n  let x = 1 : f32\n}", "2:15: x is f32, its value is i32"},
    {"kernel k() threads 1 {\n  let x = frob(1) : i32\n}", "2:11: no operation is named frob"},
    {"kernel k() threads 1 {\n  let x = add(1) : i32\n}", "2:11: add takes 2 operands, not 1"},
    {"kernel k() threads 1 {\n  let x = add(1 2) : i32\n}", "2:17: expected ',', found '2'"},
    {"kernel k() threads 1 {\n  let x = 3000000000 : i32\n}",
     "2:11: 3000000000 does not fit in i32"},
    {"kernel k() threads 1 {\n  let x = 9223372036854775808l : i64\n}",
     "2:11: 9223372036854775808l does not fit in i64"},
    {"kernel k() threads 1 {\n  let x = 12q : i32\n}", "2:11: '12q' is not a number"},
    {"kernel k() threads 1 {\n  let x = - : i32\n}", "2:11: '-' is not a number"},
    {"kernel k() threads 1 {\n  let x = 0x1.8 : f64\n}",
     "2:11: '0x1.8' is not a number: floats are written as 0x1.8p+1f"},
    {"kernel k() threads 1 {\n  let x = 0x1.0000001p+0f : f32\n}",
     "2:11: 0x1.0000001p+0 is no f32 number"},
    {"kernel k() threads 1 {\n  store x[0] = 1\n}", "2:9: no buffer is named x"},
    {"kernel k(x: ptr<i32>) threads 1 {\n  copy x[0] <- x[1] lanes x\n}",
     "2:27: expected a number of lanes, found 'x'"},
    {"kernel k() threads 1 {\n  alloc a : f32[4] heap\n}",
     "2:20: expected 'reg' or 'shared', found 'heap'"},
    {"kernel k() threads 1 {\n  for i in 1..4 {\n  }\n}", "2:12: expected '0', found '1'"},
    {"kernel k() threads 1 {\n  for i in 0..4 sideways {\n  }\n}",
     "2:17: expected a binding or '{', found 'sideways'"},
    {"kernel k() threads 1 {\n  let x = // here\n  1 : i32\n}",
     "2:11: expected an expression, found a comment"},
    {"kernel k() threads 1 {\n  $\n}", "2:3: unexpected character '$'"},
    {"kernel k(m: map) threads 1 {\n  call s(m) wgmma 8 f16 sideways f16 k shared 0 {\n  }\n}",
     "2:25: expected 'k' or 'outer', found 'sideways'"},
    {"kernel k(m: map) threads 1 {\n  call s(m n) wgmma\n}", "2:12: expected ',', found 'n'"},
    {"kernel k(m: map) threads 1 {\n  call s(m) wgmma 8 f16 k f16 k shared 0 {\n    config a -1\n  "
     "}"
     "\n}",
     "3:14: -1 is not a value from 0 to 2147483647"},
    {"kernel k(m: map) threads 1 {\n  call s(m) wgmma 8 f16 k f16 k shared 0 {\n    shape a = b\n  "
     "}"
     "\n}",
     "3:15: no variable is named b"},
    {"kernel k(m: map) threads 1 {\n  call s(m) wgmma 8 f16 k f16 k shared 0 {\n    barrier\n  "
     "}\n}",
     "3:5: expected 'function', found 'barrier'"},
    {"kernel k() threads 1 {\n}\nkernel", "3:1: expected the end of the text, found 'kernel'"},
};

TEST(TileText, MalformedTextIsRejectedWithItsPlace) {
  for (const BadText& bad : kBadTexts) {
    const Result<Kernel> kernel = Parse(bad.text);
    ASSERT_FALSE(kernel.ok()) << bad.text;
    EXPECT_EQ(kernel.status().message(), bad.message) << bad.text;
  }
}

TEST(TileText, DeepNestingIsAnErrorAndNoStackOverflow) {
  std::string text = "kernel k() threads 1 {\n  let x = ";
  for (int i = 0; i < 100000; ++i) text += "neg(";
  const Result<Kernel> kernel = Parse(text);
  ASSERT_FALSE(kernel.ok());
  EXPECT_NE(kernel.status().message().find("nested more than"), std::string::npos);
}

// Any cut and any changed character gives a kernel or a sentence, never a crash.
TEST(TileText, DamagedTextDoesNotCrash) {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text(i % 3 == 0 ? kCall : kEveryConstruct);
    const size_t at = random() % text.size();
    if (i % 2 == 0)
      text.resize(at);
    else
      text[at] = static_cast<char>(random() % 128);
    const Result<Kernel> kernel = Parse(text);
    if (kernel.ok()) (void)Verify(*kernel).ok();
  }
}

}  // namespace
}  // namespace kiln::tile
