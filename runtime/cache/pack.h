// Pack: many compiled kernels in one immutable file, for machines that should not wait for a
// compiler or have none.
//
//   header    magic, format, numbers of what follows, hash of the index, hash of the header
//   index     a row of fixed size a kernel, sorted by key; then the texts that rows refer to
//   payloads  a zstd frame a kernel
//
// A key is the disk cache's (text, entry, architecture, options) without the compiler: a cubin is
// good whoever made it, and who looks must not need a compiler to say who that would be. A pack of
// another build of Kiln serves the kernels whose texts are the same.
//
// The index is read and checked once; of the payloads only the wanted one is read, in place. The
// file is neither mapped nor kept open: one that is cut off meanwhile would end the process
// (SIGBUS), and a descriptor would be another file's after a client closed all that it does not
// know. Whatever is damaged is an error in words, and a miss for who looks (pack_set.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/hash.h"
#include "ir/base/result.h"
#include "runtime/cache/disk_cache.h"

namespace kiln::runtime {

// The extension of files of packs in folders.
inline constexpr const char* kPackExtension = ".pack";

// The request's key in packs: of all that a cubin depends on but the field "compiler".
Hash128 PackKey(const CacheRequest& request);

// A kernel as a pack's index has it; texts are those of the Pack.
struct PackedKernel {
  Hash128 key;
  Hash128 cubin_hash;
  uint64_t frame_hash = 0;
  uint64_t offset = 0;       // of the frame in the file
  uint32_t frame_bytes = 0;  // compressed
  uint32_t cubin_bytes = 0;
  uint32_t text_bytes = 0;     // of the CUDA text
  uint32_t toolkit_major = 0;  // of the compiler; older drivers do not load its cubins
  std::string_view entry, arch, compiler;
};

class Pack {
 public:
  // Reads and checks the index. Error: the file is no sound pack (kInvalidValue), others may change
  // it (kNotSupported), or the system does not let us look (kInternal).
  static Result<Pack> Open(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t file_bytes() const { return file_bytes_; }
  std::span<const PackedKernel> kernels() const { return kernels_; }  // by key
  // Null where there is none.
  const PackedKernel* Find(const Hash128& key) const;

  // The kernel's cubin, checked by its hash.
  Result<std::string> Read(const PackedKernel& kernel) const;
  // Its zstd frame as it stands in the file, checked by a hash of its own.
  Result<std::string> ReadFrame(const PackedKernel& kernel) const;

 private:
  Pack() = default;

  std::string path_;
  int64_t file_bytes_ = 0;
  std::vector<PackedKernel> kernels_;
  std::shared_ptr<const std::string> texts_;
};

// A kernel to be written.
struct PackItem {
  Hash128 key;
  Hash128 cubin_hash;
  uint32_t cubin_bytes = 0;
  uint32_t text_bytes = 0;
  uint32_t toolkit_major = 0;
  std::string entry, arch, compiler;
  std::string frame;
};

// Compresses a cubin for the kernel that `request` asks for.
Result<PackItem> MakePackItem(const CacheRequest& request, std::string_view cubin,
                              uint32_t toolkit_major);
// A kernel of a pack, checked, to be written into another one.
Result<PackItem> TakePackItem(const Pack& pack, const PackedKernel& kernel);

// The bytes of a pack, which depend on the set of items alone. Of two kernels with one key the
// newer compiler's stays.
Result<std::string> MakePack(std::vector<PackItem> items);

}  // namespace kiln::runtime
