// zstd by dlopen: what kernels in packs are compressed with. The system's libzstd.so.1 is part of
// every distribution (its package manager needs it), while its headers and a static library that
// can be linked into ours are not; who has no pack needs neither. Called by Pack and PackWriter.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ir/base/result.h"

namespace kiln::runtime {

// A frame of the bytes, as small as zstd makes it; the same for the same bytes and library.
// Error: there is no libzstd.so.1.
Result<std::string> Compress(std::string_view bytes);

// The `size` bytes that were compressed. Error: the frame is damaged or holds another number of
// bytes (kInvalidValue), or there is no libzstd.so.1 (kInternal).
Result<std::string> Decompress(std::string_view frame, size_t size);

}  // namespace kiln::runtime
