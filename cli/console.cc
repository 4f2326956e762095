#include "cli/console.h"

namespace kiln::cli {

bool WriteRaw(std::FILE* stream, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stream) == text.size();
}

}  // namespace kiln::cli
