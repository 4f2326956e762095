// Offsets are those of an Elf64_Ehdr. Toolkits up to 12 write ABI 0x33 with the chip in the lowest
// byte of e_flags, toolkit 13 writes 0x41 with the chip in the byte above; seen in what NVRTC 13.0
// makes for sm_75 to sm_120a.
#include "cli/cubin.h"

#include <cstdint>

namespace kiln::cli {
namespace {

constexpr size_t kAbi = 7, kMachine = 18, kFlags = 48, kHeaderBytes = 64;
constexpr uint32_t kCudaMachine = 190;
constexpr uint8_t kNewAbi = 0x41;

uint32_t Number(std::string_view bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i)
    value |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return value;
}

// 90 of "sm_90a"; 0 where there is no number.
uint32_t ChipOf(std::string_view arch) {
  uint32_t chip = 0;
  for (const char c : arch)
    if (c >= '0' && c <= '9') chip = 10 * chip + static_cast<uint32_t>(c - '0');
  return chip;
}

}  // namespace

Status CheckCubin(std::string_view cubin, std::string_view arch) {
  constexpr std::string_view kElf64 =
      "\x7f"
      "ELF\x02";
  if (cubin.size() < kHeaderBytes || !cubin.starts_with(kElf64))
    return Status::Error(Code::kInvalidValue, "its {} bytes are no cubin", cubin.size());
  if (const uint32_t machine = Number(cubin, kMachine, 2); machine != kCudaMachine)
    return Status::Error(Code::kInvalidValue, "it is code of ELF machine {}, not of a GPU",
                         machine);
  const uint32_t flags = Number(cubin, kFlags, 4);
  const uint32_t chip = (static_cast<uint8_t>(cubin[kAbi]) >= kNewAbi ? flags >> 8 : flags) & 0xff;
  if (chip == ChipOf(arch)) return {};
  return Status::Error(Code::kInvalidValue, "it is code for sm_{}, not for {}", chip, arch);
}

}  // namespace kiln::cli
