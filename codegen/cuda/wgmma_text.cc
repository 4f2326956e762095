// See the header. The registers of the accumulator are listed one by one, as inline PTX wants them,
// so the text is printed for the one shape that a kernel uses.
#include "codegen/cuda/wgmma_text.h"

#include <algorithm>
#include <iterator>

#include "ir/base/check.h"

namespace kiln::cuda_codegen {
namespace {

struct TypeRow {
  DType type;
  const char* operand;      // in the instruction's name
  const char* accumulator;  // there
  int k;                    // of one instruction: 32 bytes
};

constexpr TypeRow kTypes[] = {
    {DType::kF16, "f16", "f32", 16},   {DType::kBF16, "bf16", "f32", 16},
    {DType::kF32, "tf32", "f32", 8},   {DType::kE4M3, "e4m3", "f32", 32},
    {DType::kE5M2, "e5m2", "f32", 32}, {DType::kI8, "s8", "s32", 32},
    {DType::kU8, "u8", "s32", 32},
};

constexpr int kPerLine = 16;

}  // namespace

std::vector<std::string> WgmmaFunction(const tile::Call::Wgmma& w, const std::string& name,
                                       bool in_registers) {
  const auto* row = std::ranges::find(kTypes, w.type, &TypeRow::type);
  CHECK(row != std::end(kTypes), "wgmma of {}", Info(w.type).text);
  const auto* right = std::ranges::find(kTypes, w.right_type, &TypeRow::type);
  CHECK(right != std::end(kTypes) && right->k == row->k, "wgmma of {} and {}", Info(w.type).text,
        Info(w.right_type).text);
  const bool is_float = row->accumulator[0] == 'f';
  const int count = w.columns / 2;
  const int of_left = in_registers ? 4 : 1, right_at = count + of_left;
  const char* scalar = is_float ? "float" : "int";
  const char* left_type = w.left_in_registers ? "const unsigned* left"
                          : in_registers      ? "const unsigned (&left)[4]"
                                              : "unsigned long long left";
  std::vector<std::string> lines = {
      fmt::format("static __device__ inline void {}({} (&d)[{}], {},", name, scalar, count,
                  left_type),
      std::string(31 + name.size(), ' ') + "unsigned long long right, int accumulate) {",
      "  asm volatile(",
      // Operands 0 .. count-1 are the accumulators, then left, right and the flag.
      fmt::format("      \"{{ .reg .pred p; setp.ne.b32 p, %{}, 0;\\n\"", right_at + 1),
      fmt::format("      \"wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{} {{\"", w.columns, row->k,
                  row->accumulator, row->operand, right->operand)};
  for (int first = 0; first < count; first += kPerLine) {
    std::string line = "      \"";
    for (int i = first; i < std::min(first + kPerLine, count); ++i)
      line += fmt::format("%{}{}", i, i + 1 < count ? "," : "");
    lines.push_back(line + "\"");
  }
  // Float types may negate operands (never here); 16-bit ones may be transposed.
  std::string flags = is_float ? ", 1, 1" : "";
  if (SizeOf(w.type) == 2 && in_registers)
    flags += fmt::format(", {}", w.right_is_outer ? 1 : 0);
  else if (SizeOf(w.type) == 2)
    flags += fmt::format(", {}, {}", w.left_is_outer ? 1 : 0, w.right_is_outer ? 1 : 0);
  const std::string left =
      in_registers ? fmt::format("{{%{},%{},%{},%{}}}", count, count + 1, count + 2, count + 3)
                   : fmt::format("%{}", count);
  lines.push_back(fmt::format("      \"}}, {}, %{}, p{}; }}\"", left, right_at, flags));
  for (int first = 0; first < count; first += kPerLine / 2) {
    std::string line = first == 0 ? "      : " : "        ";
    for (int i = first; i < std::min(first + kPerLine / 2, count); ++i)
      line += fmt::format("\"+{}\"(d[{}]){}", is_float ? "f" : "r", i, i + 1 < count ? ", " : "");
    lines.push_back(line);
  }
  lines.push_back(fmt::format("      : {}, \"l\"(right), \"r\"(accumulate));",
                              in_registers
                                  ? "\"r\"(left[0]), \"r\"(left[1]), \"r\"(left[2]), \"r\"(left[3])"
                                  : "\"l\"(left)"));
  lines.push_back("}");
  return lines;
}

std::vector<std::string> WgmmaLines(const tile::Call::Wgmma& w, bool in_registers) {
  std::vector<std::string> lines = {
      fmt::format("using accumulator = {};", IsFloat(w.type) ? "float" : "int"),
      fmt::format("static constexpr int kElementBytes = {};", SizeOf(w.type)),
      fmt::format("static constexpr int kLeftMajor = {};",
                  w.left_is_outer ? "kMajorOuter" : "kMajorK"),
      fmt::format("static constexpr int kRightMajor = {};",
                  w.right_is_outer ? "kMajorOuter" : "kMajorK")};
  std::vector<std::string> function = WgmmaFunction(w, "multiply", in_registers);
  std::ranges::move(function, std::back_inserter(lines));
  return lines;
}

}  // namespace kiln::cuda_codegen
