// Text that ptxas is known to compile wrongly is refused, and what looks like it is not.
#include <fmt/format.h>

#include "tests/support/emulated_gpu/kernel_test.h"

namespace kiln::emulated {
namespace {

constexpr CuResult kIllegalInstruction = 715;

class PtxasFaultsTest : public KernelTest {
 protected:
  // The message about a loop over %n whose rounds with %n == 0 run `first`, others `later`; "" if
  // it runs.
  std::string Of(const std::string& first, const std::string& later) {
    const std::string ptx = fmt::format(R"(
.version 8.0
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 out) {{
  .reg .pred %p<3>; .reg .b32 %n, %t, %c, %last; .reg .b64 %out;
  ld.param.u64 %out, [out];
  mov.u32 %n, 0;
  mov.u32 %c, 0;
again:
  setp.ne.s32 %p1, %n, 0;
  @%p1 bra others;
  {}
  bra.uni done;
others:
  {}
done:
  st.global.u32 [%out], %c;
  add.s32 %n, %n, 1;
  setp.lt.s32 %p2, %n, 3;
  @%p2 bra again;
  ret;
}})",
                                        first, later);
    const CuFunction function = Load(ptx);
    const DeviceArray<int> out(1);
    ::testing::internal::CaptureStderr();
    const CuResult result = Launch(function, {}, out.data());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(result, said.empty() ? 0 : kIllegalInstruction) << said;
    return said;
  }
};

TEST_F(PtxasFaultsTest, ComplementsOfWhatABranchHasShown) {
  for (const char* text :
       {"not.b32 %t, %n; and.b32 %c, %t, 1;", "not.b32 %t, %n; and.b32 %c, 7, %t;",
        "not.b32 %t, %n; or.b32 %c, %t, 6;", "not.b32 %t, %n; xor.b32 %c, %t, 6;",
        "xor.b32 %t, %n, -1; and.b32 %c, %t, 1;"}) {
    const std::string said = Of(text, "mov.u32 %c, %n;");
    EXPECT_TRUE(Contains(said, "takes the complement of %n, which is 0 there")) << text << said;
  }
}

TEST_F(PtxasFaultsTest, OtherWaysToTheSame) {
  for (const char* text :
       {"and.b32 %t, %n, 1; xor.b32 %c, %t, 1;", "xor.b32 %t, %n, 1; and.b32 %c, %t, 1;",
        "add.s32 %t, %n, 1; and.b32 %c, %t, 1;", "and.b32 %t, %n, 1; sub.s32 %c, 1, %t;",
        "not.b32 %c, %n;"})
    EXPECT_EQ(Of(text, "mov.u32 %c, %n;"), "") << text;
}

// Nothing is known of %n in other rounds, nor of what has been written since the branch.
TEST_F(PtxasFaultsTest, ComplementsOfWhatIsNotKnown) {
  const char* const text = "not.b32 %t, %n; and.b32 %c, %t, 1;";
  EXPECT_EQ(Of("mov.u32 %c, 1;", text), "");
  EXPECT_EQ(Of("mov.u32 %n, %laneid; not.b32 %t, %n; and.b32 %c, %t, 1;", "mov.u32 %c, 1;"), "");
}

}  // namespace
}  // namespace kiln::emulated
