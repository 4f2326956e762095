// Output of the commands. Names, paths and sentences come from files and command lines, so that
// control bytes are escaped on their way to the terminal, here and nowhere else; a style test keeps
// other ways of printing out of the folder.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "ir/base/printable.h"

namespace kiln::cli {

// Writes the text as it is: for the product of a command (source, PTX) and for cursor movements of
// our own. False where it cannot be written.
bool WriteRaw(std::FILE* stream, std::string_view text);

template <class... A>
void PrintOut(fmt::format_string<A...> format, A&&... args) {
  WriteRaw(stdout, Printable(fmt::format(format, std::forward<A>(args)...), Lines::kKept));
}

template <class... A>
void PrintError(fmt::format_string<A...> format, A&&... args) {
  WriteRaw(stderr, Printable(fmt::format(format, std::forward<A>(args)...), Lines::kKept));
}

}  // namespace kiln::cli
