#include "api/backend/variant_pack.h"

namespace kiln::api {
namespace {

// NOTE: `data` is the object itself, not an array that holds its address.
template <OverrideLists VariantPackDesc::* M>
constexpr AttrRow OverrideAttr(cudnnBackendAttributeName_t name) {
  AttrRow row{.name = name, .use = Use::kOptional, .types = uint64_t{1} << CUDNN_TYPE_VOID_PTR};
  row.set = [](Descriptor& d, const AttrIn& in, int64_t) -> Status {
    RETURN_IF_ERROR(WantOne(in.count));
    static_cast<VariantPackDesc&>(d).*M = *static_cast<const OverrideLists*>(in.data);
    return {};
  };
  row.get = [](const Descriptor& d, const AttrOut& out) -> Status {
    if (out.data != nullptr && out.capacity > 0) {
      *static_cast<OverrideLists*>(out.data) = static_cast<const VariantPackDesc&>(d).*M;
    }
    out.SetCount(1);
    return {};
  };
  return row;
}

using Pack = VariantPackDesc;
constexpr AttrRow kRows[] = {
    Attr<&Pack::uids>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Use::kOptional),
    Attr<&Pack::pointers>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Use::kOptional),
    Refused(CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES,
            "no engine has intermediates that outlive an execution"),
    Attr<&Pack::workspace>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Use::kOptional),
    Attr<&Pack::override_uids>(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS, Use::kOptional),
    OverrideAttr<&Pack::override_shapes>(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES),
    OverrideAttr<&Pack::override_strides>(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES),
};

}  // namespace

std::span<const AttrRow> VariantPackDesc::Rows() { return kRows; }

Status VariantPackDesc::Finalize() {
  if (uids.size() != pointers.size()) {
    return Status::Error(Code::kBadParam, "{} uids and {} data pointers", uids.size(),
                         pointers.size());
  }
  for (size_t i = 0; i < uids.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (uids[i] != uids[j] || pointers[i] == pointers[j]) continue;
      return Status::Error(Code::kDuplicatedEntries, "uid {} has two data pointers", uids[i]);
    }
  }
  size_t n = override_uids.size();
  if (override_shapes.size() != n || override_strides.size() != n) {
    return Status::Error(Code::kBadParam, "{} uids are overridden with {} shapes and {} strides", n,
                         override_shapes.size(), override_strides.size());
  }
  return {};
}

}  // namespace kiln::api
