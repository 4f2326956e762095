// Two libraries side by side for nvidia_parity_test: one opened by path, and the calls of a client
// on it.
#pragma once

#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kiln::testing {

using Ints = std::vector<int64_t>;
using Raw = cudnnBackendDescriptor_t;

class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) return;
    Bind("cudnnBackendCreateDescriptor", create);
    Bind("cudnnBackendDestroyDescriptor", destroy);
    Bind("cudnnBackendSetAttribute", set);
    Bind("cudnnBackendGetAttribute", get);
    Bind("cudnnBackendFinalize", finalize);
    Bind("cudnnGetVersion", version);
    Bind("cudnnGetErrorString", error_string);
  }
  bool loaded() const { return handle_ != nullptr; }

  decltype(&cudnnBackendCreateDescriptor) create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;

 private:
  template <class F>
  void Bind(const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    EXPECT_NE(function, nullptr) << name;
  }
  void* handle_;
};

// One sequence on one library. The status is the last call's.
class Client {
 public:
  explicit Client(const Library& lib) : lib_(lib) {}
  ~Client() {
    for (Raw raw : made_) lib_.destroy(raw);
  }

  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

  Raw Make(int kind) {
    Raw raw = nullptr;
    status = lib_.create(static_cast<cudnnBackendDescriptorType_t>(kind), &raw);
    if (status == CUDNN_STATUS_SUCCESS) made_.push_back(raw);
    return raw;
  }
  void SetRaw(Raw d, int name, int type, int64_t count, const void* data) {
    status = lib_.set(d, static_cast<cudnnBackendAttributeName_t>(name),
                      static_cast<cudnnBackendAttributeType_t>(type), count, data);
  }
  void SetInts(Raw d, int name, const Ints& v) {
    SetRaw(d, name, CUDNN_TYPE_INT64, static_cast<int64_t>(v.size()), v.data());
  }
  void SetInt(Raw d, int name, int64_t v) { SetInts(d, name, {v}); }
  void SetEnum(Raw d, int name, int type, int value) { SetRaw(d, name, type, 1, &value); }
  void SetDesc(Raw d, int name, Raw value) {
    SetRaw(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
  }
  void Finalize(Raw d) { status = lib_.finalize(d); }
  int64_t Get(Raw d, int name, int type, int64_t capacity, void* data, bool with_count = true) {
    int64_t count = -7;
    status = lib_.get(d, static_cast<cudnnBackendAttributeName_t>(name),
                      static_cast<cudnnBackendAttributeType_t>(type), capacity,
                      with_count ? &count : nullptr, data);
    return count;
  }

  Raw Tensor(int64_t uid, const Ints& dims, int type = CUDNN_DATA_FLOAT, int64_t alignment = 16,
             Ints strides = {}) {
    Raw t = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (strides.empty()) {
      strides.assign(dims.size(), 1);
      for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    }
    SetInt(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
    SetEnum(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    SetInt(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    SetInts(t, CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    SetInts(t, CUDNN_ATTR_TENSOR_STRIDES, strides);
    Finalize(t);
    return t;
  }
  Raw Convolution(const Ints& pre = {0, 0}, const Ints& stride = {1, 1},
                  const Ints& dilation = {1, 1}, int64_t n = 2) {
    Raw c = Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    SetEnum(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    SetEnum(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
            CUDNN_CROSS_CORRELATION);
    SetInt(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, n);
    SetInts(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pre);
    SetInts(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {0, 0});
    SetInts(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
    SetInts(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation);
    Finalize(c);
    return c;
  }
  Raw ConvForward(const Ints& x, const Ints& w, const Ints& y) {
    Raw op = Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    SetDesc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, Tensor(1, x));
    SetDesc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, Tensor(2, w));
    SetDesc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, Tensor(3, y));
    SetDesc(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, Convolution());
    Finalize(op);
    return op;
  }
  void Pointwise(int mode, const Ints& x, const Ints& b, const Ints& y) {
    Raw p = Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
        op = Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    SetEnum(p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    SetEnum(p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    Finalize(p);
    SetDesc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    SetDesc(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, Tensor(1, x));
    if (!b.empty()) SetDesc(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, Tensor(2, b));
    SetDesc(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, Tensor(3, y));
    Finalize(op);
  }
  void Matmul(const Ints& a, const Ints& b, const Ints& c) {
    Raw m = Make(CUDNN_BACKEND_MATMUL_DESCRIPTOR),
        op = Make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    SetEnum(m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    Finalize(m);
    SetDesc(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, Tensor(1, a));
    SetDesc(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, Tensor(2, b));
    SetDesc(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, Tensor(3, c));
    SetDesc(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    Finalize(op);
  }
  void Reduction(const Ints& x, const Ints& y) {
    Raw r = Make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
        op = Make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    SetEnum(r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    SetEnum(r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
            CUDNN_REDUCE_TENSOR_ADD);
    Finalize(r);
    SetDesc(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, Tensor(1, x));
    SetDesc(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, Tensor(2, y));
    SetDesc(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    Finalize(op);
  }
  void Concat(const Ints& a, const Ints& b, const Ints& y, int64_t axis, int64_t inplace = -1) {
    Raw op = Make(CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR);
    SetInt(op, CUDNN_ATTR_OPERATION_CONCAT_AXIS, axis);
    Raw inputs[2] = {Tensor(1, a), Tensor(2, b)};
    SetRaw(op, CUDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, inputs);
    SetInt(op, CUDNN_ATTR_OPERATION_CONCAT_INPLACE_INDEX, inplace);
    SetDesc(op, CUDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC, Tensor(3, y));
    Finalize(op);
  }
  void Reshape(const Ints& x, const Ints& y) {
    Raw op = Make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    SetDesc(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, Tensor(1, x));
    SetDesc(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, Tensor(2, y));
    Finalize(op);
  }
  // Norms: tensors by the attribute that takes them; an extent list of one 0 stands for a scalar
  // that is no by-value tensor.
  using Operands = std::map<int, Ints>;
  Raw Norm(int kind, const Operands& operands, const std::vector<std::array<int, 3>>& enums,
           int peers_name = 0, int64_t peers = 0) {
    Raw op = Make(kind);
    for (const auto& [name, type, value] : enums) SetEnum(op, name, type, value);
    int64_t uid = 1;
    for (const auto& [name, dims] : operands) {
      const bool scalar = name == CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC ||
                          name == CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC ||
                          name == CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC;
      SetDesc(op, name, scalar && dims != Ints{0} ? ByValue(uid++) : Tensor(uid++, Fixed(dims)));
    }
    if (peers > 0) {
      std::vector<Raw> list;
      for (int64_t i = 0; i < peers; ++i) list.push_back(Tensor(uid++, {2, 128, 1, 1}));
      SetRaw(op, peers_name, CUDNN_TYPE_BACKEND_DESCRIPTOR, peers, list.data());
    }
    Finalize(op);
    return op;
  }
  static Ints Fixed(const Ints& dims) { return dims == Ints{0} ? Ints{1, 1, 1, 1} : dims; }
  Raw ByValue(int64_t uid, int type = CUDNN_DATA_FLOAT) {
    Raw t = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool by_value = true;
    SetInt(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
    SetEnum(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    SetInt(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
    SetInts(t, CUDNN_ATTR_TENSOR_DIMENSIONS, {1, 1, 1, 1});
    SetInts(t, CUDNN_ATTR_TENSOR_STRIDES, {1, 1, 1, 1});
    SetRaw(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    Finalize(t);
    return t;
  }
  Raw NormForward(int mode, int phase, const Operands& operands, int64_t peers = 0) {
    return Norm(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, operands,
                {{CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, mode},
                 {CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, phase}},
                CUDNN_ATTR_OPERATION_NORM_FWD_PEER_STAT_DESCS, peers);
  }
  Raw NormBackward(int mode, const Operands& operands, int64_t peers = 0) {
    return Norm(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, operands,
                {{CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, mode}},
                CUDNN_ATTR_OPERATION_NORM_BWD_PEER_STAT_DESCS, peers);
  }
  // An operation whose attributes are all tensors.
  struct Operand {
    int name;
    Ints dims;
    int type = CUDNN_DATA_HALF;
  };
  void Operation(int kind, const std::vector<Operand>& operands) {
    Raw op = Make(kind);
    int64_t uid = 0;
    for (const Operand& o : operands)
      if (!o.dims.empty()) SetDesc(op, o.name, Tensor(++uid, o.dims, o.type));
    if (status == CUDNN_STATUS_SUCCESS) Finalize(op);
  }
  // Extents of the operands of attention; empty ones are not set.
  struct Attention {
    Ints q = {2, 4, 16, 32}, k = {2, 4, 24, 32}, v = {2, 4, 24, 32}, o = {2, 4, 16, 32};
    Ints stats = {}, scale = {}, block_mask = {}, table_k = {}, table_v = {}, seq_q = {},
         seq_kv = {};
    int index_type = CUDNN_DATA_INT32, type = CUDNN_DATA_HALF, length_type = CUDNN_DATA_INT32,
        mask_type = CUDNN_DATA_UINT8;
  };
  void SdpaForward(const Attention& a) {
    Operation(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, a.q, a.type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, a.k, a.type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, a.v, a.type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, a.o, a.type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, a.stats, CUDNN_DATA_FLOAT},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, a.scale, CUDNN_DATA_FLOAT},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_BLOCK_MASK_DESC, a.block_mask, a.mask_type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC, a.table_k, a.index_type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC, a.table_v, a.index_type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, a.seq_q, a.length_type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, a.seq_kv, a.length_type}});
  }
  struct AttentionBackward {
    Ints q = {2, 4, 16, 32}, k = {2, 4, 24, 32}, v = {2, 4, 24, 32}, o = {2, 4, 16, 32},
         stats = {2, 4, 16, 1}, grad = o, dq = q, dk = k, dv = v, scale = {}, seq_q = {},
         seq_kv = {};
  };
  void SdpaBackward(const AttentionBackward& a) {
    Operation(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, a.q},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, a.k},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, a.v},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, a.o},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, a.stats, CUDNN_DATA_FLOAT},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, a.scale, CUDNN_DATA_FLOAT},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_QDESC, a.seq_q, CUDNN_DATA_INT32},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_KVDESC, a.seq_kv, CUDNN_DATA_INT32},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, a.dq},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, a.dk},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, a.dv},
               {CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, a.grad}});
  }
  struct Pages {
    Ints container = {10, 4, 8, 32}, y = {2, 4, 24, 32}, lengths = {2, 1, 1, 1},
         table = {2, 1, 3, 1};
    int y_type = CUDNN_DATA_HALF, table_type = CUDNN_DATA_INT32, length_type = CUDNN_DATA_INT32;
  };
  void PagedCacheLoad(const Pages& p) {
    Operation(CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC, p.container},
               {CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC, p.y, p.y_type},
               {CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC, p.lengths, p.length_type},
               {CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC, p.table, p.table_type}});
  }
  Raw Graph(const std::vector<Raw>& ops) {
    Raw graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    SetRaw(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           static_cast<int64_t>(ops.size()), ops.data());
    if (status == CUDNN_STATUS_SUCCESS) Finalize(graph);
    return graph;
  }
  void Pack(const Ints& uids, const std::vector<void*>& pointers) {
    Raw pack = Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    SetInts(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids);
    SetRaw(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<int64_t>(pointers.size()), pointers.data());
    Finalize(pack);
  }

 private:
  const Library& lib_;
  std::vector<Raw> made_;
};

}  // namespace kiln::testing
