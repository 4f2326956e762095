// The parser of the tile IR's text, which the CPU plug-in runs on what the compiler hands it: any
// bytes are refused with a sentence or become a kernel that prints and parses to the same text, and
// that the verifier takes or refuses.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/tile/tile.h"
#include "ir/tile/tools.h"
#include "tests/fuzz/fuzz.h"

namespace kiln::tile {
namespace {

void Examine(std::string_view text) {
  const Result<Kernel> kernel = Parse(text);
  if (!kernel.ok()) return fuzz::RequireSentence(kernel.status().message());
  const std::string printed = Print(*kernel);
  const Result<Kernel> again = Parse(printed);
  fuzz::Require(again.ok(), "printed text does not parse: {}\n{}",
                again.ok() ? "" : again.status().message(), printed);
  fuzz::Require(Print(*again) == printed, "print, parse, print differ:\n{}\n{}", printed,
                Print(*again));
  if (Status status = Verify(*kernel); !status.ok()) fuzz::RequireSentence(status.message());
}

}  // namespace
}  // namespace kiln::tile

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kiln::tile::Examine({reinterpret_cast<const char*>(data), size});
  return 0;
}
