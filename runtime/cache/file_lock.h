// Locks of whole files between processes (flock), on systems that may have none: NFS and Lustre
// answer ENOLCK or EOPNOTSUPP. A lock is a courtesy to the caches: whoever cannot have one goes on
// without, and several processes may do the same work. Used by Turn and DiskCache.
#pragma once

#include <chrono>
#include <cstdint>

namespace kiln::runtime {

enum class FileLock : uint8_t { kTaken, kBusy, kUnsupported };

// Takes the lock of the open file, which ends with UnlockFile or when the file is closed; kBusy
// where somebody else has it for longer than `patience`. kUnsupported is logged once.
FileLock LockFile(int file, std::chrono::milliseconds patience);
void UnlockFile(int file);

// Replaces flock for tests; null restores it.
void SetFlockForTest(int (*flock)(int file, int operation));

}  // namespace kiln::runtime
