#include "runtime/cache/zstd.h"

#include <dlfcn.h>

namespace kiln::runtime {
namespace {

// The functions of libzstd that are used, with zstd.h's signatures, which 1.0 froze.
struct Zstd {
  size_t (*compress_bound)(size_t) = nullptr;
  size_t (*compress)(void*, size_t, const void*, size_t, int) = nullptr;
  size_t (*decompress)(void*, size_t, const void*, size_t) = nullptr;
  unsigned (*is_error)(size_t) = nullptr;
  std::string failure;  // empty where all are there
};

template <class Function>
bool Bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Zstd Open() {
  constexpr const char* kName = "libzstd.so.1";
  Zstd zstd;
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    zstd.failure = fmt::format("zstd cannot be loaded: {}", reason == nullptr ? kName : reason);
    return zstd;
  }
  const bool is_whole = Bind(library, "ZSTD_compressBound", zstd.compress_bound) &&
                        Bind(library, "ZSTD_compress", zstd.compress) &&
                        Bind(library, "ZSTD_decompress", zstd.decompress) &&
                        Bind(library, "ZSTD_isError", zstd.is_error);
  if (!is_whole) zstd.failure = fmt::format("{} lacks functions of zstd 1.0", kName);
  return zstd;
}

Result<const Zstd*> ProcessZstd() {
  static const auto* const zstd = new Zstd(Open());
  if (!zstd->failure.empty()) return Status::Text(Code::kInternal, zstd->failure);
  return zstd;
}

}  // namespace

Result<std::string> Compress(std::string_view bytes) {
  // 22 takes twice the time for 1 % less of a kernel's code.
  constexpr int kLevel = 19;
  ASSIGN_OR_RETURN(const Zstd* const zstd, ProcessZstd());
  std::string frame(zstd->compress_bound(bytes.size()), '\0');
  const size_t size =
      zstd->compress(frame.data(), frame.size(), bytes.data(), bytes.size(), kLevel);
  if (zstd->is_error(size) != 0)
    return Status::Error(Code::kInternal, "zstd does not compress {} bytes", bytes.size());
  frame.resize(size);
  return frame;
}

Result<std::string> Decompress(std::string_view frame, size_t size) {
  ASSIGN_OR_RETURN(const Zstd* const zstd, ProcessZstd());
  std::string bytes(size, '\0');
  const size_t got = zstd->decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (zstd->is_error(got) != 0 || got != size) {
    return Status::Error(Code::kInvalidValue, "{} compressed bytes are not a frame of {} bytes",
                         frame.size(), size);
  }
  return bytes;
}

}  // namespace kiln::runtime
