// Writing a pack: rows sorted by key, payloads in the same order, so that the bytes depend on the
// set of kernels alone, neither on the order nor on the machine that compiled them.
#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/cache/pack.h"
#include "runtime/cache/pack_format.h"
#include "runtime/cache/zstd.h"

namespace kiln::runtime {
namespace {

// Texts behind one another, each once.
class Texts {
 public:
  uint32_t Offset(const std::string& text) {
    const auto [place, is_new] = offsets_.try_emplace(text, static_cast<uint32_t>(bytes_.size()));
    if (is_new) bytes_ += text + '\0';
    return place->second;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::map<std::string, uint32_t> offsets_;
  std::string bytes_;
};

std::string FieldOf(const CacheRequest& request, std::string_view name) {
  const auto field = std::ranges::find(request.fields, name, &KeyField::name);
  return field == request.fields.end() ? "" : field->value;
}

// Sorted; of equal keys the newest compiler's alone, and of those the same one in any order.
void SortAndUnite(std::vector<PackItem>& items) {
  std::ranges::sort(items, [](const PackItem& a, const PackItem& b) {
    return std::tie(a.key, b.toolkit_major, a.compiler, a.cubin_hash, a.entry) <
           std::tie(b.key, a.toolkit_major, b.compiler, b.cubin_hash, b.entry);
  });
  const auto rest = std::ranges::unique(items, {}, &PackItem::key);
  items.erase(rest.begin(), rest.end());
}

std::string Rows(const std::vector<PackItem>& items, uint64_t first_payload, Texts& texts) {
  std::string rows;
  PackOutput out(rows);
  uint64_t offset = first_payload;
  for (const PackItem& item : items) {
    out.Hash(item.key).Hash(item.cubin_hash).U64(HashBytes(item.frame).low).U64(offset);
    out.U32(item.frame.size()).U32(item.cubin_bytes).U32(item.text_bytes).U32(item.toolkit_major);
    out.U32(texts.Offset(item.entry)).U32(texts.Offset(item.arch));
    out.U32(texts.Offset(item.compiler)).U32(0);
    offset += item.frame.size();
  }
  return rows;
}

}  // namespace

Result<PackItem> MakePackItem(const CacheRequest& request, std::string_view cubin,
                              uint32_t toolkit_major) {
  if (cubin.size() > kMostCubinBytes || request.source.size() > kMostCubinBytes) {
    return Status::Error(Code::kInvalidValue, "kernel {} has {} bytes, and a pack takes {}",
                         FieldOf(request, "entry"), cubin.size(), kMostCubinBytes);
  }
  ASSIGN_OR_RETURN(std::string frame, Compress(cubin));
  return PackItem{.key = PackKey(request),
                  .cubin_hash = HashBytes(cubin),
                  .cubin_bytes = static_cast<uint32_t>(cubin.size()),
                  .text_bytes = static_cast<uint32_t>(request.source.size()),
                  .toolkit_major = toolkit_major,
                  .entry = FieldOf(request, "entry"),
                  .arch = FieldOf(request, "arch"),
                  .compiler = FieldOf(request, kCompilerField),
                  .frame = std::move(frame)};
}

Result<PackItem> TakePackItem(const Pack& pack, const PackedKernel& kernel) {
  RETURN_IF_ERROR(pack.Read(kernel).status());
  ASSIGN_OR_RETURN(std::string frame, pack.ReadFrame(kernel));
  return PackItem{.key = kernel.key,
                  .cubin_hash = kernel.cubin_hash,
                  .cubin_bytes = kernel.cubin_bytes,
                  .text_bytes = kernel.text_bytes,
                  .toolkit_major = kernel.toolkit_major,
                  .entry = std::string(kernel.entry),
                  .arch = std::string(kernel.arch),
                  .compiler = std::string(kernel.compiler),
                  .frame = std::move(frame)};
}

Result<std::string> MakePack(std::vector<PackItem> items) {
  SortAndUnite(items);
  Texts texts;
  Rows(items, 0, texts);  // for the number of bytes of their texts
  const uint64_t index_bytes = items.size() * kPackRowBytes + texts.bytes().size();
  const std::string index = Rows(items, kPackHeaderBytes + index_bytes, texts) + texts.bytes();
  if (items.size() > kMostPackKernels || texts.bytes().size() > kMostPackTextBytes)
    return Status::Error(Code::kInvalidValue, "{} kernels are more than a pack takes",
                         items.size());
  uint64_t file_bytes = kPackHeaderBytes + index.size();
  for (const PackItem& item : items) file_bytes += item.frame.size();
  std::string bytes(kPackMagic);
  PackOutput out(bytes);
  out.U32(kPackFormat).U32(items.size()).U64(file_bytes).U64(texts.bytes().size());
  out.Hash(HashBytes(index)).U64(0);
  out.U64(HashBytes(bytes).low);
  bytes += index;
  for (const PackItem& item : items) bytes += item.frame;
  return bytes;
}

}  // namespace kiln::runtime
