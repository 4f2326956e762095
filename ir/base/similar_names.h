// The known names that somebody who wrote another one may have meant, for sentences about names
// that do not exist.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

// Known names near `word`, the nearest first, at most `most`: names that have the word for a part
// ("conv" of "conv_fprop"), then those with few letters to insert, remove or change. Case does not
// count. Empty where no name is near.
std::vector<std::string_view> SimilarNames(std::string_view word,
                                           std::span<const std::string_view> known,
                                           size_t most = 4);

// "; the nearest are conv_fprop, conv_dgrad, conv_wgrad", or where no name is near "; there are …"
// with all of them, or `elsewhere` in their place where they are many: "; docs/x.md lists them".
std::string NearestText(std::string_view word, std::span<const std::string_view> known,
                        std::string_view elsewhere = "");

}  // namespace kiln
