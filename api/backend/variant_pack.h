// CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: the pointers of one execution. Reference 9.2.17. Clients
// make, fill and destroy one on every call, so it allocates nothing for up to 24 tensors.
#pragma once

#include "api/backend/attr.h"

namespace kiln::api {

// For CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES and _STRIDES arrayOfElements is the address of this
// C++ object, called one VOID_PTR element. The frontend's and ours are the same libstdc++ type.
using OverrideLists = std::vector<std::vector<int64_t>>;

struct VariantPackDesc : DescriptorOf<CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR> {
  InlineVector<int64_t, 24> uids;
  InlineVector<void*, 24> pointers;
  void* workspace = nullptr;
  std::vector<int64_t> override_uids;
  OverrideLists override_shapes, override_strides;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
};

}  // namespace kiln::api
