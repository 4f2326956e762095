// ELF headers of GPUs' code, as toolkits 12 and 13 write them, and of everything else.
#include "cli/cubin.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln::cli {
namespace {

std::string Header(uint8_t abi, uint16_t machine, uint32_t flags) {
  std::string bytes(
      "\x7f"
      "ELF\x02\x01\x01",
      7);
  bytes.resize(64, '\0');
  bytes[7] = static_cast<char>(abi);
  bytes[18] = static_cast<char>(machine);
  bytes[19] = static_cast<char>(machine >> 8);
  for (int i = 0; i < 4; ++i)
    bytes[static_cast<size_t>(48 + i)] = static_cast<char>(flags >> (8 * i));
  return bytes;
}

TEST(CubinTest, ChipsOfBothAbis) {
  EXPECT_TRUE(CheckCubin(Header(0x41, 190, 0x6005a04), "sm_90a").ok());
  EXPECT_TRUE(CheckCubin(Header(0x41, 190, 0x6007802), "sm_120a").ok());
  EXPECT_TRUE(CheckCubin(Header(0x33, 190, 0x5a055a), "sm_90").ok());
  EXPECT_EQ(CheckCubin(Header(0x41, 190, 0x6005004), "sm_90a").message(),
            "it is code for sm_80, not for sm_90a");
  EXPECT_FALSE(CheckCubin(Header(0x33, 190, 0x500550), "sm_90a").ok());
}

TEST(CubinTest, WhatIsNone) {
  EXPECT_EQ(CheckCubin("", "sm_80").message(), "its 0 bytes are no cubin");
  EXPECT_EQ(CheckCubin(Header(0, 62, 0), "sm_80").message(),
            "it is code of ELF machine 62, not of a GPU");
  EXPECT_FALSE(CheckCubin(std::string(64, 'x'), "sm_80").ok());
  EXPECT_FALSE(CheckCubin(Header(0x41, 190, 0x6005004).substr(0, 63), "sm_80").ok());
}

}  // namespace
}  // namespace kiln::cli
