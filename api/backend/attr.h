// Attribute rows: how the generic SetAttribute and GetAttribute (backend.cc) reach the members of a
// descriptor. A row is written as
//
//   Attr<&ConvolutionDesc::dilations>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
//
// and the wire types it accepts, how many elements it takes and the code that copies in and out
// follow from the C++ type of the member:
//
//   int64_t, int32_t, bool, double, void*, an enumeration   one element of the type's CUDNN_TYPE_*
//   FloatOrDouble                                           one element, CUDNN_TYPE_FLOAT or
//                                                           _DOUBLE
//   InlineVector<T, N>, std::vector<T>                      any number (at most Limit elements)
//   std::string                                             CUDNN_TYPE_CHAR, any number
//   Ref<D>, std::vector<Ref<D>>                             finalised descriptors; what they hold
//                                                           is shared, so that the client may
//                                                           destroy them at once
//   HandleRef                                               CUDNN_TYPE_HANDLE
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/backend/descriptor.h"
#include "api/backend/inline_vector.h"
#include "api/lifecycle/handle.h"
#include "api/spec/names.h"

namespace kiln::api {

using Type = cudnnBackendAttributeType_t;

template <class T>
struct WireOf;
template <auto Tag>
struct Wire {
  static constexpr Type kTag = Tag;
};
template <>
struct WireOf<int64_t> : Wire<CUDNN_TYPE_INT64> {};
template <>
struct WireOf<int32_t> : Wire<CUDNN_TYPE_INT32> {};
template <>
struct WireOf<bool> : Wire<CUDNN_TYPE_BOOLEAN> {};
template <>
struct WireOf<double> : Wire<CUDNN_TYPE_DOUBLE> {};
template <>
struct WireOf<float> : Wire<CUDNN_TYPE_FLOAT> {};
template <>
struct WireOf<void*> : Wire<CUDNN_TYPE_VOID_PTR> {};
template <>
struct WireOf<char> : Wire<CUDNN_TYPE_CHAR> {};
template <>
struct WireOf<cudnnDataType_t> : Wire<CUDNN_TYPE_DATA_TYPE> {};
template <>
struct WireOf<cudnnConvolutionMode_t> : Wire<CUDNN_TYPE_CONVOLUTION_MODE> {};
template <>
struct WireOf<cudnnPointwiseMode_t> : Wire<CUDNN_TYPE_POINTWISE_MODE> {};
template <>
struct WireOf<cudnnNanPropagation_t> : Wire<CUDNN_TYPE_NAN_PROPOGATION> {};
template <>
struct WireOf<cudnnBackendHeurMode_t> : Wire<CUDNN_TYPE_HEUR_MODE> {};
template <>
struct WireOf<cudnnBackendKnobType_t> : Wire<CUDNN_TYPE_KNOB_TYPE> {};
template <>
struct WireOf<cudnnBackendNumericalNote_t> : Wire<CUDNN_TYPE_NUMERICAL_NOTE> {};
template <>
struct WireOf<cudnnBackendBehaviorNote_t> : Wire<CUDNN_TYPE_BEHAVIOR_NOTE> {};
template <>
struct WireOf<cudnnBackendLayoutType_t> : Wire<CUDNN_TYPE_LAYOUT_TYPE> {};
template <>
struct WireOf<cudnnBackendAttributeName_t> : Wire<CUDNN_TYPE_ATTRIB_NAME> {};
template <>
struct WireOf<cudnnReduceTensorOp_t> : Wire<CUDNN_TYPE_REDUCTION_OPERATOR_TYPE> {};
template <>
struct WireOf<cudnnGenStatsMode_t> : Wire<CUDNN_TYPE_GENSTATS_MODE> {};
template <>
struct WireOf<cudnnBnFinalizeStatsMode_t> : Wire<CUDNN_TYPE_BN_FINALIZE_STATS_MODE> {};
template <>
struct WireOf<cudnnSignalMode_t> : Wire<CUDNN_TYPE_SIGNAL_MODE> {};
template <>
struct WireOf<cudnnMoeGroupedMatmulMode_t> : Wire<CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE> {};
template <>
struct WireOf<cudnnRngDistribution_t> : Wire<CUDNN_TYPE_RNG_DISTRIBUTION> {};
template <>
struct WireOf<cudnnResampleMode_t> : Wire<CUDNN_TYPE_RESAMPLE_MODE> {};
template <>
struct WireOf<cudnnPaddingMode_t> : Wire<CUDNN_TYPE_PADDING_MODE> {};
template <>
struct WireOf<cudnnBackendNormMode_t> : Wire<CUDNN_TYPE_NORM_MODE> {};
template <>
struct WireOf<cudnnBackendNormFwdPhase_t> : Wire<CUDNN_TYPE_NORM_FWD_PHASE> {};
template <>
struct WireOf<cudnnBackendTensorReordering_t> : Wire<CUDNN_TYPE_TENSOR_REORDERING_MODE> {};
template <>
struct WireOf<cudnnBackendReshapeMode_t> : Wire<CUDNN_TYPE_RESHAPE_MODE> {};
template <>
struct WireOf<cudnnBackendOperationGraphMode_t> : Wire<CUDNN_TYPE_OPERATIONGRAPH_MODE> {};
template <>
struct WireOf<cudnnCudaGraphRetention_t> : Wire<CUDNN_TYPE_CUDA_GRAPH_RETENTION> {};

// ---- single elements, by wire type
//
// Clients' arrays need not be aligned, and a bool or an enumeration read from them may hold any
// bytes.

template <class T>
Status LoadElement(const void* array, int64_t i, T* out) {
  if constexpr (std::is_same_v<T, bool>) {
    *out = static_cast<const unsigned char*>(array)[i] != 0;
  } else if constexpr (std::is_enum_v<T>) {
    int value;
    std::memcpy(&value, static_cast<const char*>(array) + i * sizeof(int), sizeof(int));
    if (!IsLegal<T>(value))
      return Status::Error(Code::kBadParam, "{} is no value of that enumeration", value);
    *out = static_cast<T>(value);
  } else {
    std::memcpy(out, static_cast<const char*>(array) + i * sizeof(T), sizeof(T));
  }
  return {};
}

template <class T>
void StoreElement(const T& value, void* array, int64_t i) {
  std::memcpy(static_cast<char*>(array) + i * sizeof(T), &value, sizeof(T));
}

// Writes as many of `values` as fit; tells how many there are, or were written when there is an
// array.
template <class Range>
Status StoreElements(const Range& values, const AttrOut& out) {
  auto total = static_cast<int64_t>(values.size());
  int64_t written = std::min(total, out.capacity);
  if (out.data != nullptr) {
    for (int64_t i = 0; i < written; ++i) StoreElement(values[static_cast<size_t>(i)], out.data, i);
  }
  out.SetCount(out.data != nullptr && out.capacity > 0 ? written : total);
  return {};
}

inline Status WantOne(int64_t count) {
  if (count == 1) return {};
  return Status::Error(Code::kBadParam, "takes one element, not {}", count);
}

// ---- member types

template <class T>
struct Member {  // scalars and enumerations
  static constexpr uint64_t kTypes = uint64_t{1} << WireOf<T>::kTag;
  static Status Set(T& member, const AttrIn& in, int64_t) {
    RETURN_IF_ERROR(WantOne(in.count));
    return LoadElement(in.data, 0, &member);
  }
  static Status Get(const T& member, const AttrOut& out) {
    return StoreElements(std::span(&member, 1), out);
  }
};

// The scaling factors of operations: the client chooses the type, and reads back either.
struct FloatOrDouble {
  double value = 0;
};
template <>
struct Member<FloatOrDouble> {
  static constexpr uint64_t kTypes = uint64_t{1} << CUDNN_TYPE_FLOAT | uint64_t{1}
                                                                           << CUDNN_TYPE_DOUBLE;
  static Status Set(FloatOrDouble& member, const AttrIn& in, int64_t) {
    RETURN_IF_ERROR(WantOne(in.count));
    if (in.type == CUDNN_TYPE_DOUBLE) return LoadElement(in.data, 0, &member.value);
    float value = 0;
    RETURN_IF_ERROR(LoadElement(in.data, 0, &value));
    member.value = value;
    return {};
  }
  static Status Get(const FloatOrDouble& member, const AttrOut& out) {
    if (out.type == CUDNN_TYPE_DOUBLE) return StoreElements(std::span(&member.value, 1), out);
    auto value = static_cast<float>(member.value);
    return StoreElements(std::span(&value, 1), out);
  }
};

template <class V, class T>
struct VectorMember {
  static constexpr uint64_t kTypes = uint64_t{1} << WireOf<T>::kTag;
  static Status Set(V& member, const AttrIn& in, int64_t limit) {
    if (in.count < 0 || in.count > limit) {
      return Status::Error(Code::kBadParam, "takes at most {} elements, not {}", limit, in.count);
    }
    V loaded;
    if constexpr (requires { loaded.resize(0); })
      loaded.resize(static_cast<size_t>(in.count));
    else
      loaded.Resize(static_cast<size_t>(in.count));
    for (int64_t i = 0; i < in.count; ++i) {
      RETURN_IF_ERROR(LoadElement(in.data, i, &loaded[static_cast<size_t>(i)]));
    }
    member = std::move(loaded);
    return {};
  }
  static Status Get(const V& member, const AttrOut& out) { return StoreElements(member, out); }
};
template <class T, size_t N>
struct Member<InlineVector<T, N>> : VectorMember<InlineVector<T, N>, T> {};
template <class T>
struct Member<std::vector<T>> : VectorMember<std::vector<T>, T> {};
template <>
struct Member<std::string> : VectorMember<std::string, char> {};

// A descriptor among the attributes of another.
template <class D>
struct Member<Ref<D>> {
  static constexpr uint64_t kTypes = uint64_t{1} << CUDNN_TYPE_BACKEND_DESCRIPTOR;
  static Status Set(Ref<D>& member, const AttrIn& in, int64_t) {
    RETURN_IF_ERROR(WantOne(in.count));
    ASSIGN_OR_RETURN(Ref<Descriptor> body, SharedBody(in.data, 0, D::kKindSet));
    member = std::static_pointer_cast<const D>(std::move(body));
    return {};
  }
  static Status Get(const Ref<D>& member, const AttrOut& out) {
    if (member == nullptr) {
      out.SetCount(0);
      return {};
    }
    return FillDescriptors(std::span<const Ref<D>>(&member, 1), out);
  }
};
template <class D>
struct Member<std::vector<Ref<D>>> {
  static constexpr uint64_t kTypes = uint64_t{1} << CUDNN_TYPE_BACKEND_DESCRIPTOR;
  static Status Set(std::vector<Ref<D>>& member, const AttrIn& in, int64_t limit) {
    if (in.count < 0 || in.count > limit) {
      return Status::Error(Code::kBadParam, "takes at most {} descriptors, not {}", limit,
                           in.count);
    }
    std::vector<Ref<D>> loaded(static_cast<size_t>(in.count));
    for (int64_t i = 0; i < in.count; ++i) {
      ASSIGN_OR_RETURN(Ref<Descriptor> body, SharedBody(in.data, i, D::kKindSet));
      loaded[static_cast<size_t>(i)] = std::static_pointer_cast<const D>(std::move(body));
    }
    member = std::move(loaded);
    return {};
  }
  static Status Get(const std::vector<Ref<D>>& member, const AttrOut& out) {
    return FillDescriptors(std::span<const Ref<D>>(member), out);
  }
};

// The session of a handle. The handle itself may be destroyed later; its address is kept for
// reading back.
struct HandleRef {
  void* address = nullptr;
  std::shared_ptr<Session> session;
};
template <>
struct Member<HandleRef> {
  static constexpr uint64_t kTypes = uint64_t{1} << CUDNN_TYPE_HANDLE;
  static Status Set(HandleRef& member, const AttrIn& in, int64_t) {
    RETURN_IF_ERROR(WantOne(in.count));
    void* address = nullptr;
    RETURN_IF_ERROR(LoadElement(in.data, 0, &address));
    ASSIGN_OR_RETURN(Handle * handle, HandleFrom(address));
    member = {.address = address, .session = handle->session};
    return {};
  }
  static Status Get(const HandleRef& member, const AttrOut& out) {
    return StoreElements(std::span(&member.address, 1), out);
  }
};

// ---- rows

template <class D, class T>
D OwnerOf(T D::*);
template <class D, class T>
T TypeOf(T D::*);

inline constexpr int64_t kAnyCount = 1 << 20;  // more is a mistake of the caller, not a graph

// One attribute. `limit`: the most elements that a vector takes.
template <auto M>
constexpr AttrRow Attr(cudnnBackendAttributeName_t name, Use use = Use::kRequired,
                       int64_t limit = kAnyCount) {
  using D = decltype(OwnerOf(M));
  using T = decltype(TypeOf(M));
  AttrRow row{.name = name, .use = use, .types = Member<T>::kTypes, .limit = limit};
  row.set = [](Descriptor& d, const AttrIn& in, int64_t most) -> Status {
    return Member<T>::Set(static_cast<D&>(d).*M, in, most);
  };
  row.get = [](const Descriptor& d, const AttrOut& out) -> Status {
    return Member<T>::Get(static_cast<const D&>(d).*M, out);
  };
  return row;
}

// A read-only attribute whose value a function of the descriptor computes: T (const D&) or
// Result<T> (const D&).
template <class D, class T, Result<T> (*Compute)(const D&)>
constexpr AttrRow Computed(cudnnBackendAttributeName_t name) {
  AttrRow row{.name = name, .use = Use::kReadOnly, .types = Member<T>::kTypes};
  row.get = [](const Descriptor& d, const AttrOut& out) -> Status {
    ASSIGN_OR_RETURN(T value, Compute(static_cast<const D&>(d)));
    return Member<T>::Get(value, out);
  };
  return row;
}

// An attribute that exists in the interface and that Kiln refuses, with the reason.
constexpr AttrRow Refused(cudnnBackendAttributeName_t name, const char* reason) {
  return {.name = name, .use = Use::kRefused, .reason = reason};
}

}  // namespace kiln::api
