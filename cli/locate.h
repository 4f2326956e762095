// The place in a graph's text that a sentence of the importer or the verifier points to. They speak
// of the graph, not of its text: "nodes[3].inputs.X: ..." in JSON, "%y = conv_fprop: ..." and "%x:
// ..." of tensors and operations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kiln::cli {

struct Place {
  int64_t line = 1, column = 1;
  bool operator==(const Place&) const = default;
};

// Takes "line:column: " off the front of the sentence, if it starts so.
std::optional<Place> SplitPlace(std::string& sentence);

// The place that a sentence names; nothing where it names no part of the text.
std::optional<Place> Locate(std::string_view text, std::string_view sentence);

}  // namespace kiln::cli
