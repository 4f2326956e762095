// Usage: how many bytes the entries of a cache directory have, in a file that every process adds to
// as it stores, so that a limit holds whoever writes. It is a sum of what was told and may drift (a
// process that is killed between storing and telling, files that are removed by hand): pruning
// counts anew. Called by DiskCache.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/cache/folder.h"

namespace kiln::runtime {

// The number of bytes that the file states; nothing where the file is missing or damaged.
std::optional<int64_t> ReadUsage(const Folder& folder);
// Adds `bytes` and returns the sum; nothing where there is no sum to add to.
std::optional<int64_t> AddUsage(const Folder& folder, int64_t bytes);
// Corrects the file after a count: there were `counted` bytes when the file said `seen`, and what
// was added since stays.
void CorrectUsage(const Folder& folder, std::optional<int64_t> seen, int64_t counted);

}  // namespace kiln::runtime
