#include "runtime/cache/turn.h"

#include <utility>

#include "runtime/cache/file_lock.h"

namespace kiln::runtime {

Turn::Turn(std::optional<Folder> folder, std::string file, std::chrono::milliseconds patience)
    : folder_(std::move(folder)), file_(std::move(file)) {
  if (!folder_) return;
  Result<Descriptor> opened = folder_->OpenFile(file_);
  if (!opened.ok()) return;
  switch (LockFile(opened->get(), patience)) {
    case FileLock::kTaken:
      descriptor_ = *std::move(opened);
      break;
    case FileLock::kBusy:
      break;
    case FileLock::kUnsupported:
      folder_->RemoveFile(file_);
      break;
  }
}

// The file goes before the lock: processes that wait have it open already and get its lock; whoever
// comes later makes a new one. The lock is given back in words, since a child of fork may have the
// descriptor, too.
Turn::~Turn() {
  if (!taken()) return;
  folder_->RemoveFile(file_);
  UnlockFile(descriptor_.get());
}

}  // namespace kiln::runtime
