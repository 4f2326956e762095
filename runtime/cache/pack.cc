// Reading a pack. Nothing that the file says is believed before the hash over it was compared, and
// every offset is checked all the same.
#include "runtime/cache/pack.h"

#include <algorithm>

#include "runtime/cache/pack_format.h"
#include "runtime/cache/partial_file.h"
#include "runtime/cache/zstd.h"

namespace kiln::runtime {
namespace {

constexpr int64_t kKeyVersion = 1;

struct Header {
  uint64_t kernels = 0, file_bytes = 0, text_bytes = 0;
  Hash128 index_hash;

  uint64_t row_bytes() const { return kernels * kPackRowBytes; }
  uint64_t index_bytes() const { return row_bytes() + text_bytes; }
  uint64_t first_payload() const { return kPackHeaderBytes + index_bytes(); }
};

Status Damaged(const std::string& path, std::string_view what) {
  return Status::Error(Code::kInvalidValue, "{} is no sound pack: {}", path, what);
}

Result<Header> ParseHeader(std::string_view bytes, const std::string& path, int64_t file_bytes) {
  if (bytes.size() < kPackHeaderBytes || !bytes.starts_with(kPackMagic))
    return Damaged(path, "it does not begin as a pack does");
  PackInput in(bytes.substr(kPackMagic.size()));
  const uint32_t format = in.U32();
  Header header;
  header.kernels = in.U32();
  header.file_bytes = in.U64();
  header.text_bytes = in.U64();
  header.index_hash = in.Hash();
  in.U64();
  if (in.U64() != HashBytes(bytes.substr(0, kPackHashedHeaderBytes)).low)
    return Damaged(path, "its header is damaged");
  if (format != kPackFormat) {
    return Damaged(
        path, fmt::format("it has format {}, and this build reads format {}", format, kPackFormat));
  }
  if (header.file_bytes != static_cast<uint64_t>(file_bytes)) {
    return Damaged(
        path, fmt::format("it has {} bytes, and {} by its header", file_bytes, header.file_bytes));
  }
  if (header.kernels > kMostPackKernels || header.text_bytes > kMostPackTextBytes ||
      header.first_payload() > header.file_bytes)
    return Damaged(path, "its index is larger than the file");
  return header;
}

// The text at an offset of a row; nothing where there is none.
std::optional<std::string_view> TextAt(std::string_view texts, uint32_t offset) {
  if (offset >= texts.size()) return std::nullopt;
  const size_t end = texts.find('\0', offset);
  if (end == std::string_view::npos) return std::nullopt;
  return texts.substr(offset, end - offset);
}

// Nothing where a number of the row leads out of the file.
std::optional<PackedKernel> ParseRow(std::string_view row, std::string_view texts,
                                     const Header& header) {
  PackInput in(row);
  PackedKernel kernel;
  kernel.key = in.Hash();
  kernel.cubin_hash = in.Hash();
  kernel.frame_hash = in.U64();
  kernel.offset = in.U64();
  kernel.frame_bytes = in.U32();
  kernel.cubin_bytes = in.U32();
  kernel.text_bytes = in.U32();
  kernel.toolkit_major = in.U32();
  const auto entry = TextAt(texts, in.U32()), arch = TextAt(texts, in.U32()),
             compiler = TextAt(texts, in.U32());
  if (!entry || !arch || !compiler || kernel.cubin_bytes > kMostCubinBytes) return std::nullopt;
  if (kernel.offset < header.first_payload() || kernel.offset > header.file_bytes ||
      kernel.frame_bytes > header.file_bytes - kernel.offset)
    return std::nullopt;
  kernel.entry = *entry;
  kernel.arch = *arch;
  kernel.compiler = *compiler;
  return kernel;
}

}  // namespace

Hash128 PackKey(const CacheRequest& request) {
  FieldHasher hasher;
  hasher.Add(kKeyVersion);
  for (const KeyField& field : request.fields)
    if (field.name != kCompilerField) hasher.Add(field.name).Add(field.value);
  return hasher.Add(request.payload_file).Add(request.source).Finish();
}

Result<Pack> Pack::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const PartialFile file, PartialFile::Open(path));
  Pack pack;
  pack.path_ = path;
  pack.file_bytes_ = file.bytes();
  ASSIGN_OR_RETURN(const std::string head, file.Read(0, kPackHeaderBytes));
  ASSIGN_OR_RETURN(const Header header, ParseHeader(head, path, pack.file_bytes_));
  ASSIGN_OR_RETURN(const std::string index, file.Read(kPackHeaderBytes, header.index_bytes()));
  if (index.size() != header.index_bytes() || HashBytes(index) != header.index_hash)
    return Damaged(path, "its index is damaged");
  pack.texts_ = std::make_shared<const std::string>(index.substr(header.row_bytes()));
  for (uint64_t i = 0; i < header.kernels; ++i) {
    const std::string_view row = std::string_view(index).substr(i * kPackRowBytes, kPackRowBytes);
    const auto kernel = ParseRow(row, *pack.texts_, header);
    if (!kernel) return Damaged(path, fmt::format("row {} of its index leads out of it", i));
    pack.kernels_.push_back(*kernel);
  }
  const bool is_sorted = std::ranges::is_sorted(pack.kernels_, {}, &PackedKernel::key);
  return is_sorted ? Result<Pack>(std::move(pack)) : Damaged(path, "its index has no order");
}

const PackedKernel* Pack::Find(const Hash128& key) const {
  const auto found = std::ranges::lower_bound(kernels_, key, {}, &PackedKernel::key);
  return found != kernels_.end() && found->key == key ? &*found : nullptr;
}

Result<std::string> Pack::ReadFrame(const PackedKernel& kernel) const {
  ASSIGN_OR_RETURN(const PartialFile file, PartialFile::Open(path_));
  if (file.bytes() != file_bytes_)
    return Damaged(path_, fmt::format("it had {} bytes and has {} now", file_bytes_, file.bytes()));
  ASSIGN_OR_RETURN(std::string frame, file.Read(kernel.offset, kernel.frame_bytes));
  if (frame.size() == kernel.frame_bytes && HashBytes(frame).low == kernel.frame_hash) return frame;
  return Damaged(path_, fmt::format("kernel {} is damaged", kernel.entry));
}

Result<std::string> Pack::Read(const PackedKernel& kernel) const {
  ASSIGN_OR_RETURN(const std::string frame, ReadFrame(kernel));
  Result<std::string> cubin = Decompress(frame, kernel.cubin_bytes);
  if (!cubin.ok() && cubin.status().code() != Code::kInvalidValue) return cubin;
  if (cubin.ok() && HashBytes(*cubin) == kernel.cubin_hash) return cubin;
  return Damaged(path_, fmt::format("kernel {} is damaged", kernel.entry));
}

}  // namespace kiln::runtime
