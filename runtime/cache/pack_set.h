// PackSet: the packs that a process looks kernels up in, opened at the first look. A pack that
// cannot be used is a line in the log, and a kernel of it that is damaged another one; both are
// misses, and the kernel is compiled. Called by KernelCache, behind memory and disk.
//
// Safe from many threads.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cache/pack.h"

namespace kiln::runtime {

// The files and folders of KILN_PACKS (between colons), then share/kiln/packs of the installation
// that this library belongs to, where there is such a folder.
std::vector<std::string> PackPaths();
// `path` itself, or the files *.pack of the folder, sorted.
std::vector<std::string> PackFiles(const std::string& path);

class PackSet {
 public:
  explicit PackSet(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  // The cubin that the first pack with such a kernel has. A driver of `driver_major` loads what
  // compilers of that major and older made; 0 is an unknown one.
  std::optional<std::string> Find(const CacheRequest& request, int driver_major);

 private:
  void OpenOnce();
  void Open(const std::string& file);

  const std::vector<std::string> paths_;
  std::once_flag once_;
  std::vector<Pack> packs_;
};

}  // namespace kiln::runtime
