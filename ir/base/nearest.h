// Nearest: the known name that somebody who wrote another one may have meant, for the sentences
// about unknown names.
#pragma once

#include <span>
#include <string_view>

namespace kiln {

// The known name that is part of the given one or has it as a part, else one of which less than a
// third of the letters differ; of several the one with the fewest changed letters. Case does not
// count. Empty where none is so near.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> known);

}  // namespace kiln
