// The values of call_log.h as text: numbers, enumerations, addresses, and memory of the client's.
// Called by call_log.cc and call_log_contents.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/lifecycle/call_log.h"

namespace kiln::api {

// The lines about one call, each "\n" and the indentation before it.
class CallLines {
 public:
  // "name: text;"
  void Add(std::string_view name, std::string_view text);
  // "name: type=…; val=…;"
  void Value(std::string_view name, std::string_view type, std::string_view value);
  void Number(std::string_view name, std::string_view type, Scalar scalar, uint64_t value);
  // "name: location=host; addr=…;"
  void Address(std::string_view name, std::string_view location, uint64_t address);
  // "name: type=int; val=[1,2];"
  void Ints(std::string_view name, std::span<const int32_t> values);
  // "name: type=…; val=0x…;" and what belongs to the object, one step further to the right.
  void Object(std::string_view name, std::string_view type, uint64_t address);
  void Indent() { indent_ += 4; }
  void Outdent() { indent_ -= 4; }

  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  size_t indent_ = 4;
};

size_t BytesOf(Scalar scalar);
// A number by its type: "7", "0.5", "CUDNN_DATA_FLOAT (0)", "0x7f00".
std::string NumberText(std::string_view type, Scalar scalar, uint64_t bits);
// A float or a double as cuDNN prints factors: six places where they are the number, else as many
// as it takes.
template <class F>
std::string FactorText(F value);
// "0x7f00", or cuDNN's word for a null pointer.
std::string AddressText(uint64_t address);
// The name of an enumeration's constant, and its number.
std::string EnumText(std::string_view type, int value);
// The name of a constant alone; empty where no constant has the value.
std::string_view ConstantName(std::string_view type, int value);

// A copy of so many bytes of this process's memory; nothing where one of them is not mapped, or
// where they are too many for a log.
std::optional<std::vector<unsigned char>> ReadMemory(uint64_t address, uint64_t bytes);
// The `i`th number in memory that was read, in the low bytes.
uint64_t BitsAt(std::span<const unsigned char> memory, size_t i, size_t bytes);

}  // namespace kiln::api
