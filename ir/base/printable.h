// Text that came from outside (a file, a name, a command line), made fit for a terminal: control
// bytes do nothing to it, and what is shown cannot be taken for lines of our own. Used by the log
// and by everything that the tool prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

enum class Lines : uint8_t {
  kEscaped,  // a line break is a control byte like the others: for names and quotations
  kKept,     // line breaks and tabs stay: for whole messages, which may hold a compiler's log
};

// `text` with \x1b for each control byte, \xc2\x9b for a control character that UTF-8 spells in two
// bytes, and \xff for each byte that is no UTF-8. Everything else stays, so that text without any
// of these is returned as it is.
std::string Printable(std::string_view text, Lines lines = Lines::kEscaped);

}  // namespace kiln
