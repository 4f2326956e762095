#include "ir/base/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln {
namespace {

unsigned char ByteAt(std::string_view text, size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

// The number of bytes of the UTF-8 character at the front; 0 where there is none. Overlong
// spellings, surrogates and numbers above U+10FFFF are no characters.
size_t CharacterLength(std::string_view text) {
  const unsigned char first = ByteAt(text, 0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  uint32_t code = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const unsigned char next = ByteAt(text, i);
    if ((next & 0xc0) != 0x80) return 0;
    code = code << 6 | (next & 0x3f);
  }
  constexpr uint32_t kFirstOfLength[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  const bool is_one =
      first >= 0xc2 && first < 0xf5 && code >= kFirstOfLength[length] && code < 0x110000;
  return is_one && !is_surrogate ? length : 0;
}

bool IsControl(std::string_view character, Lines lines) {
  const unsigned char first = ByteAt(character, 0);
  if (lines == Lines::kKept && (first == '\n' || first == '\t')) return false;
  // U+0080 to U+009F are the same controls with the eighth bit.
  return first < 0x20 || first == 0x7f || (first == 0xc2 && ByteAt(character, 1) < 0xa0);
}

}  // namespace

std::string Printable(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    if (length == 0 || IsControl(character, lines)) {
      for (const char byte : character)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace kiln
