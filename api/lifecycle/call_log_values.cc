#include "api/lifecycle/call_log_values.h"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "api/spec/generation.h"

namespace kiln::api {
namespace {

// Names stand in kWords from a place on.
struct ConstantRow {
  int value;
  uint32_t name;
};
struct EnumRow {
  uint32_t name;
  uint16_t first, count;
};

#include "api/spec/enum_names.inc"

// More is no argument but data.
constexpr uint64_t kMostBytes = uint64_t{1} << 18;

std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

int32_t Int32(uint64_t bits) { return std::bit_cast<int32_t>(static_cast<uint32_t>(bits)); }

}  // namespace

void CallLines::Add(std::string_view name, std::string_view text) {
  fmt::format_to(std::back_inserter(text_), "\n{:{}}{}: {};", "", indent_, name, text);
}

void CallLines::Value(std::string_view name, std::string_view type, std::string_view value) {
  Add(name, fmt::format("type={}; val={}", type, value));
}

void CallLines::Number(std::string_view name, std::string_view type, Scalar scalar,
                       uint64_t value) {
  Value(name, type, NumberText(type, scalar, value));
}

void CallLines::Address(std::string_view name, std::string_view location, uint64_t address) {
  Add(name, fmt::format("location={}; addr={}", location, AddressText(address)));
}

void CallLines::Ints(std::string_view name, std::span<const int32_t> values) {
  Value(name, "int", fmt::format("[{}]", fmt::join(values, ",")));
}

void CallLines::Object(std::string_view name, std::string_view type, uint64_t address) {
  Value(name, type, AddressText(address));
}

size_t BytesOf(Scalar scalar) {
  switch (scalar) {
    case Scalar::kInt32:
    case Scalar::kUint32:
    case Scalar::kFloat:
    case Scalar::kEnum:
      return 4;
    case Scalar::kInt64:
    case Scalar::kUint64:
    case Scalar::kDouble:
    case Scalar::kPointer:
      return 8;
  }
  return 8;
}

std::string NumberText(std::string_view type, Scalar scalar, uint64_t bits) {
  switch (scalar) {
    case Scalar::kInt32:
      return fmt::format("{}", Int32(bits));
    case Scalar::kUint32:
      return fmt::format("{}", static_cast<uint32_t>(bits));
    case Scalar::kInt64:
      return fmt::format("{}", std::bit_cast<int64_t>(bits));
    case Scalar::kUint64:
      return fmt::format("{}", bits);
    case Scalar::kFloat:
      return fmt::format("{}", std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case Scalar::kDouble:
      return fmt::format("{}", std::bit_cast<double>(bits));
    case Scalar::kEnum:
      return EnumText(type, Int32(bits));
    case Scalar::kPointer:
      return AddressText(bits);
  }
  return {};
}

template <class F>
std::string FactorText(F value) {
  std::string text = fmt::format("{:f}", value);
  const bool same = static_cast<F>(std::strtod(text.c_str(), nullptr)) == value;
  return same ? text : fmt::format("{}", value);
}
template std::string FactorText(float);
template std::string FactorText(double);

std::string AddressText(uint64_t address) {
  return address == 0 ? "NULL_PTR" : fmt::format("{:#x}", address);
}

std::string EnumText(std::string_view type, int value) {
  if (const std::string_view name = ConstantName(type, value); !name.empty())
    return fmt::format("{} ({})", name, value);
  const std::string_view stem = type.ends_with("_t") ? type.substr(0, type.size() - 2) : type;
  return fmt::format("INVALID_{}_TYPE ({})", Upper(stem), value);
}

std::string_view ConstantName(std::string_view type, int value) {
  if (type == "cudnnStatus_t") return ThisGeneration().status_name(value);
  const auto name = [](const EnumRow& row) { return std::string_view(kWords + row.name); };
  const auto row = std::ranges::lower_bound(kEnums, type, {}, name);
  if (row == std::end(kEnums) || name(*row) != type) return {};
  const auto constants = std::span(kConstants).subspan(row->first, row->count);
  const auto found = std::ranges::lower_bound(constants, value, {}, &ConstantRow::value);
  const bool known = found != constants.end() && found->value == value;
  return known ? std::string_view(kWords + found->name) : std::string_view();
}

std::optional<std::vector<unsigned char>> ReadMemory(uint64_t address, uint64_t bytes) {
  if (address == 0 || bytes > kMostBytes) return std::nullopt;
  std::vector<unsigned char> memory(bytes);
  if (bytes == 0) return memory;
  iovec here = {.iov_base = memory.data(), .iov_len = memory.size()};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): only the kernel follows it
  iovec there = {.iov_base = reinterpret_cast<void*>(address), .iov_len = memory.size()};
  if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) != static_cast<ssize_t>(bytes))
    return std::nullopt;
  return memory;
}

uint64_t BitsAt(std::span<const unsigned char> memory, size_t i, size_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, memory.data() + i * bytes, bytes);
  return bits;
}

}  // namespace kiln::api
