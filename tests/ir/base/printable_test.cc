// Control bytes in every spelling, what is no UTF-8, and text that must stay as it is.
#include "ir/base/printable.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(Printable, LeavesTextAlone) {
  for (const char* text : {"", "conv_fprop: %x is 4x8", "Größe …", "x × y ≤ 2⁻⁸", "\U0001f525"})
    EXPECT_EQ(Printable(text), text);
}

TEST(Printable, EscapesEveryControlByte) {
  EXPECT_EQ(Printable("a\x1b[31mred\a\r\x7f"), "a\\x1b[31mred\\x07\\x0d\\x7f");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  for (int byte = 0; byte < 0x20; ++byte) {
    const std::string out = Printable(std::string(1, static_cast<char>(byte)));
    EXPECT_EQ(out.size(), 4u) << byte;
  }
}

// U+009B starts a control sequence as ESC [ does.
TEST(Printable, EscapesControlsOfTwoBytes) {
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J");
  EXPECT_EQ(Printable("\xc2\xa0"), "\xc2\xa0");
}

TEST(Printable, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(Printable("\x9b"
                      "2J"),
            "\\x9b2J");
  EXPECT_EQ(Printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Printable("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(Printable("\xe2\x80"), "\\xe2\\x80") << "cut off";
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b") << "overlong";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above the last character";
}

TEST(Printable, KeepsLinesWhereTheyAreOurs) {
  EXPECT_EQ(Printable("a\n\tb\x1b"), "a\\x0a\\x09b\\x1b");
  EXPECT_EQ(Printable("a\n\tb\x1b", Lines::kKept), "a\n\tb\\x1b");
}

}  // namespace
}  // namespace kiln
