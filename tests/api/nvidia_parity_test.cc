// The same calls on ours and on NVIDIA's libcudnn.so.9, descriptor calls alone, so that no GPU is
// needed. Each row is a sequence that ends in one status. The two must be equal, or the row says
// why ours differs; a row that gives a reason and does not differ fails too. Skipped where NVIDIA's
// library is not installed.
//
// Not here: NULL descriptors, values outside an enumeration of types, and an empty ENGINECFG, on
// which NVIDIA's 9.19 crashes.
#include <cudnn.h>
#include <dlfcn.h>
#include <glob.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

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
  Raw ByValue(int64_t uid) {
    Raw t = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool by_value = true;
    SetInt(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
    SetEnum(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
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
    int index_type = CUDNN_DATA_INT32, type = CUDNN_DATA_HALF, length_type = CUDNN_DATA_INT32;
  };
  void SdpaForward(const Attention& a) {
    Operation(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, a.q, a.type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, a.k, a.type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, a.v, a.type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, a.o, a.type},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, a.stats, CUDNN_DATA_FLOAT},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, a.scale, CUDNN_DATA_FLOAT},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_BLOCK_MASK_DESC, a.block_mask, CUDNN_DATA_UINT8},
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
  void Graph(const std::vector<Raw>& ops) {
    Raw graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    SetRaw(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           static_cast<int64_t>(ops.size()), ops.data());
    if (status == CUDNN_STATUS_SUCCESS) Finalize(graph);
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

struct Row {
  std::string name;
  std::function<void(Client&)> run;
  const char* why_ours_differs = nullptr;
};

// Reasons that several rows share.
constexpr auto kDocumented = "the reference documents the status that ours gives";
constexpr auto kEarlier =
    "ours refuses what NVIDIA's accepts here and refuses, or misreads, when it is used";

// What a row of norms changes of a whole set: attributes that are left off, and others in the place
// of theirs.
using Operands = Client::Operands;
Operands But(Operands operands, const Ints& without, const Operands& instead = {}) {
  for (const int64_t name : without) operands.erase(static_cast<int>(name));
  for (const auto& [name, dims] : instead) operands[name] = dims;
  return operands;
}

const Ints kX = {8, 32, 16, 16}, kPerChannel = {1, 32, 1, 1}, kPerSample = {8, 1, 1, 1},
           kImage = {1, 32, 16, 16}, kOther = {8, 32, 16, 8}, kScalar = {1}, kNotByValue = {0};

// Every attribute of both directions, each left off in turn, and what does not go together.
std::vector<Row> NormRows() {
  enum : int {
    X = CUDNN_ATTR_OPERATION_NORM_FWD_XDESC,
    Mean = CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
    Inv = CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
    Scale = CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC,
    Bias = CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC,
    Epsilon = CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
    Factor = CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
    RunningMean = CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
    RunningVar = CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
    NextMean = CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
    NextVar = CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
    Y = CUDNN_ATTR_OPERATION_NORM_FWD_YDESC
  };
  const Operands layer = {{X, kX},         {Mean, kPerSample}, {Inv, kPerSample},
                          {Scale, kImage}, {Bias, kImage},     {Epsilon, kScalar},
                          {Y, kX}};
  const Operands batch = {{X, kX},
                          {Mean, kPerChannel},
                          {Inv, kPerChannel},
                          {Scale, kPerChannel},
                          {Bias, kPerChannel},
                          {Epsilon, kScalar},
                          {Factor, kScalar},
                          {RunningMean, kPerChannel},
                          {RunningVar, kPerChannel},
                          {NextMean, kPerChannel},
                          {NextVar, kPerChannel},
                          {Y, kX}};
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, int mode, int phase, Operands operands,
                       int64_t peers = 0) {
    rows.push_back({name, [=](Client& c) { c.NormForward(mode, phase, operands, peers); }});
  };
  constexpr int kTraining = CUDNN_NORM_FWD_TRAINING, kInference = CUDNN_NORM_FWD_INFERENCE;
  for (const auto& [name, dims] : layer) {
    for (const int phase : {kTraining, kInference}) {
      add("norm_layer_without_one_" + std::to_string(name), CUDNN_LAYER_NORM, phase,
          But(layer, {name}));
      add("norm_layer_other_extents_" + std::to_string(name), CUDNN_LAYER_NORM, phase,
          But(layer, {}, {{name, kOther}}));
    }
    add("norm_rms_without_one_" + std::to_string(name), CUDNN_RMS_NORM, kTraining,
        But(layer, {name}));
  }
  for (const auto& [name, dims] : batch)
    add("norm_batch_without_one_" + std::to_string(name), CUDNN_BATCH_NORM, kTraining,
        But(batch, {name}));
  for (int mode = 0; mode <= CUDNN_ADA_LAYER_NORM; ++mode) {
    add("norm_mode_" + std::to_string(mode), mode, kTraining, layer);
    add("norm_mode_inference_" + std::to_string(mode), mode, kInference, But(layer, {Mean, Inv}));
    add("norm_mode_running_" + std::to_string(mode), mode, kTraining, batch);
    add("norm_mode_peers_" + std::to_string(mode), mode, kTraining, layer, 2);
  }
  const Operands given = But(batch, {Factor, RunningMean, RunningVar, NextMean, NextVar, Epsilon});
  add("norm_batch_inference", CUDNN_BATCH_NORM, kInference, given);
  add("norm_batch_inference_without_mean", CUDNN_BATCH_NORM, kInference, But(given, {Mean}));
  add("norm_batch_inference_without_inv", CUDNN_BATCH_NORM, kInference, But(given, {Inv}));
  add("norm_batch_inference_bare", CUDNN_BATCH_NORM, kInference,
      But(given, {Mean, Inv, Scale, Bias}));
  add("norm_batch_inference_peers", CUDNN_BATCH_NORM, kInference, given, 2);
  add("norm_batch_inference_running", CUDNN_BATCH_NORM, kInference, batch);
  add("norm_batch_running_unlike", CUDNN_BATCH_NORM, kTraining,
      But(batch, {}, {{RunningMean, kPerSample}}));
  add("norm_epsilon_not_by_value", CUDNN_LAYER_NORM, kTraining,
      But(layer, {}, {{Epsilon, kNotByValue}}));
  add("norm_bias_alone", CUDNN_LAYER_NORM, kTraining, But(layer, {Scale, Epsilon}));
  constexpr auto kEnum = "values outside an enumeration are refused, as in every other attribute";
  for (const auto& [mode, phase] : {std::pair{9, 1}, {-1, 1}, {0, 7}}) {
    rows.push_back({"norm_no_mode",
                    [=](Client& c) {
                      Raw d = c.Make(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
                      const bool of_mode = phase != 7;
                      c.SetEnum(d,
                                of_mode ? CUDNN_ATTR_OPERATION_NORM_FWD_MODE
                                        : CUDNN_ATTR_OPERATION_NORM_FWD_PHASE,
                                of_mode ? CUDNN_TYPE_NORM_MODE : CUDNN_TYPE_NORM_FWD_PHASE,
                                of_mode ? mode : phase);
                    },
                    kEnum});
  }
  return rows;
}

std::vector<Row> NormBackwardRows() {
  enum : int {
    X = CUDNN_ATTR_OPERATION_NORM_BWD_XDESC,
    Mean = CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,
    Inv = CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC,
    Dy = CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC,
    Scale = CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC,
    Epsilon = CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC,
    Dscale = CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
    Dbias = CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC,
    Dx = CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC
  };
  const Operands layer = {{X, kX},         {Mean, kPerSample}, {Inv, kPerSample}, {Dy, kX},
                          {Scale, kImage}, {Dscale, kImage},   {Dbias, kImage},   {Dx, kX}};
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, int mode, Operands operands, int64_t peers = 0) {
    rows.push_back({name, [=](Client& c) { c.NormBackward(mode, operands, peers); }});
  };
  for (int mode = 0; mode <= CUDNN_ADA_LAYER_NORM; ++mode) {
    add("norm_backward_mode_" + std::to_string(mode), mode, layer);
    add("norm_backward_mode_no_mean_" + std::to_string(mode), mode, But(layer, {Mean}));
    add("norm_backward_mode_peers_" + std::to_string(mode), mode,
        But(layer, {}, {{Epsilon, kScalar}}), 2);
  }
  for (const auto& [name, dims] : layer) {
    add("norm_backward_without_one_" + std::to_string(name), CUDNN_LAYER_NORM, But(layer, {name}));
    add("norm_backward_other_extents_" + std::to_string(name), CUDNN_LAYER_NORM,
        But(layer, {}, {{name, kOther}}));
  }
  add("norm_backward_rms_without_inv", CUDNN_RMS_NORM, But(layer, {Mean, Inv}));
  add("norm_backward_without_scales", CUDNN_LAYER_NORM, But(layer, {Scale, Dscale}));
  add("norm_backward_dx_alone", CUDNN_LAYER_NORM, But(layer, {Scale, Dscale, Dbias}));
  add("norm_backward_epsilon_not_by_value", CUDNN_LAYER_NORM,
      But(layer, {}, {{Epsilon, kNotByValue}}));
  // Finalising the weights' gradient checks nothing; the operation graph does.
  Operands weights;
  for (int name = CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC;
       name <= CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS; ++name)
    weights[name] = kPerChannel;
  weights[CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC] = kX;
  weights[CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC] = kX;
  const auto add_weights = [&](const std::string& name, const Operands& operands) {
    rows.push_back({name, [=](Client& c) {
                      c.Norm(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, operands,
                             {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                               CUDNN_DATA_FLOAT}});
                    }});
  };
  add_weights("bn_bwd_weights", weights);
  for (const auto& [name, dims] : weights) {
    add_weights("bn_bwd_weights_without_one_" + std::to_string(name), But(weights, {name}));
    add_weights("bn_bwd_weights_other_extents_" + std::to_string(name),
                But(weights, {}, {{name, kOther}}));
  }
  return rows;
}

std::vector<Row> Rows() {
  const Ints d4 = {2, 3, 4, 5};
  return {
      {"tensor", [=](Client& c) { c.Tensor(1, d4); }},
      {"tensor_finalized_twice", [=](Client& c) { c.Finalize(c.Tensor(1, d4)); }},
      {"tensor_zero_extent", [](Client& c) { c.Tensor(1, {2, 0, 3}); }, kDocumented},
      {"tensor_negative_extent", [](Client& c) { c.Tensor(1, {2, -1, 3}); }},
      {"tensor_zero_stride",
       [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 16, {0, 1, 1, 1}); }},
      {"tensor_negative_stride",
       [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 16, {60, 20, 5, -1}); }},
      {"tensor_absurd_extents",
       [](Client& c) { c.Tensor(1, {1LL << 62, 4, 4}, CUDNN_DATA_FLOAT, 16, {1, 1, 1}); },
       kEarlier},
      {"tensor_eight_dimensions", [](Client& c) { c.Tensor(1, Ints(8, 1)); }},
      {"tensor_nine_dimensions", [](Client& c) { c.Tensor(1, Ints(9, 1)); }},
      {"tensor_fewer_strides",
       [](Client& c) { c.Tensor(1, {1, 2, 3}, CUDNN_DATA_FLOAT, 16, {1, 1}); }},
      {"tensor_alignment_3", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 3); }},
      {"tensor_alignment_0", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 0); }},
      {"tensor_alignment_12", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FLOAT, 12); }},
      {"tensor_int8x4", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_INT8x4); }},
      {"tensor_int8x32", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_INT8x32, 32); }},
      {"tensor_of_a_compute_type",
       [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FAST_FLOAT_FOR_FP8); }},
      {"tensor_boolean", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_BOOLEAN); }},
      {"tensor_fp4", [=](Client& c) { c.Tensor(1, d4, CUDNN_DATA_FP4_E2M1); }},
      {"tensor_negative_uid", [=](Client& c) { c.Tensor(-5, d4); }},
      {"set_attribute_of_other_kind",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1);
       }},
      {"set_unknown_attribute",
       [](Client& c) { c.SetInt(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), 99999, 1); }},
      {"set_wrong_type",
       [](Client& c) {
         c.SetEnum(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID,
                   CUDNN_TYPE_DATA_TYPE, 0);
       }},
      {"set_two_of_one",
       [](Client& c) {
         c.SetInts(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, {1, 2});
       }},
      {"set_none_of_one",
       [](Client& c) {
         int64_t v = 0;
         c.SetRaw(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID,
                  CUDNN_TYPE_INT64, 0, &v);
       }},
      {"set_after_finalize",
       [=](Client& c) { c.SetInt(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_UNIQUE_ID, 2); }, kDocumented},
      {"get_before_finalize",
       [](Client& c) {
         int64_t v = 0;
         c.Get(c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID,
               CUDNN_TYPE_INT64, 1, &v);
       }},
      {"get_fewer_than_there_are",
       [=](Client& c) {
         int64_t v[2] = {};
         EXPECT_EQ(c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2, v), 2);
         EXPECT_EQ(v[1], 3);
       }},
      {"get_more_than_there_are",
       [=](Client& c) {
         int64_t v[8] = {};
         EXPECT_EQ(c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, v), 4);
       }},
      {"get_the_count",
       [=](Client& c) {
         EXPECT_EQ(
             c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, nullptr), 4);
       }},
      {"get_without_a_count",
       [=](Client& c) {
         int64_t v[4] = {};
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, v, false);
         EXPECT_EQ(v[3], 5);
       }},
      {"get_negative_count",
       [=](Client& c) {
         int64_t v = 0;
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, -1, &v);
       }},
      {"get_wrong_type",
       [=](Client& c) {
         int64_t v = 0;
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_DATA_TYPE, 1, &v);
       }},
      {"get_attribute_of_other_kind",
       [=](Client& c) {
         int64_t v = 0;
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &v);
       }},
      {"get_four_of_one",
       [=](Client& c) {
         int64_t v[4] = {};
         c.Get(c.Tensor(1, d4), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 4, v);
       },
       "the reference has the least of both counts written"},
      {"create_unknown_kind", [](Client& c) { c.Make(999); }, kDocumented},
      {"convolution", [](Client& c) { c.Convolution(); }},
      {"convolution_array_lengths", [](Client& c) { c.Convolution({0, 0}, {1, 1}, {1, 1}, 3); }},
      {"convolution_zero_stride", [](Client& c) { c.Convolution({0, 0}, {0, 1}); }},
      {"convolution_zero_dilation", [](Client& c) { c.Convolution({0, 0}, {1, 1}, {1, 0}); }},
      {"convolution_negative_padding", [](Client& c) { c.Convolution({-1, 0}); }},
      {"convolution_zero_dims", [](Client& c) { c.Convolution({0, 0}, {1, 1}, {1, 1}, 0); }},
      {"conv_op",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 14, 14}); }},
      {"conv_op_groups",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 16, 3, 3}, {8, 64, 14, 14}); }},
      {"conv_op_group_dimension",
       [](Client& c) { c.ConvForward({8, 2, 16, 16, 16}, {2, 32, 16, 3, 3}, {8, 2, 32, 14, 14}); }},
      {"conv_op_extent",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 15, 14}); }},
      {"conv_op_channels",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 31, 3, 3}, {8, 64, 14, 14}); }},
      {"conv_op_rank",
       [](Client& c) { c.ConvForward({8, 32, 16}, {64, 32, 3, 3}, {8, 64, 14, 14}); }},
      {"conv_op_batch",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {7, 64, 14, 14}); }},
      {"conv_op_filters",
       [](Client& c) { c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 63, 14, 14}); }},
      {"conv_op_window",
       [](Client& c) { c.ConvForward({8, 32, 2, 2}, {64, 32, 3, 3}, {8, 64, 1, 1}); }},
      {"conv_op_empty",
       [](Client& c) {
         c.Finalize(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
       }},
      {"alpha_of_integers",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
       },
       "a wrong type is BAD_PARAM_ATTRIBUTE_TYPE for every attribute"},
      {"alpha_of_doubles",
       [](Client& c) {
         double v = 1;
         c.SetRaw(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_DOUBLE, 1, &v);
       }},
      {"set_unfinalized_tensor",
       [](Client& c) {
         c.SetDesc(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                   c.Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
       },
       kEarlier},
      {"set_null_tensor",
       [](Client& c) {
         c.SetDesc(c.Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR),
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, nullptr);
       },
       "ours names the finer status BAD_PARAM_NULL_POINTER"},
      {"pointwise", [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, d4, d4); }},
      {"pointwise_broadcast",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, {1, 3, 1, 1}, d4); }},
      {"pointwise_both_broadcast",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, {2, 1, 4, 5}, {1, 3, 1, 1}, d4); }},
      {"pointwise_rank", [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, {3, 4, 5}, d4); }},
      {"pointwise_without_b", [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, {}, d4); }},
      {"pointwise_surplus_b",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_RELU_FWD, d4, d4, d4); }},
      {"pointwise_extent",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, d4, {2, 3, 4, 6}); }, kDocumented},
      {"pointwise_smaller_output",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_ADD, d4, d4, {1, 3, 4, 5}); }, kDocumented},
      {"pointwise_backward_without_dx",
       [=](Client& c) { c.Pointwise(CUDNN_POINTWISE_RELU_BWD, d4, d4, d4); }},
      {"matmul", [](Client& c) { c.Matmul({2, 3, 4}, {2, 4, 5}, {2, 3, 5}); }},
      {"matmul_rank_2", [](Client& c) { c.Matmul({3, 4}, {4, 5}, {3, 5}); }},
      {"matmul_broadcast", [](Client& c) { c.Matmul({1, 3, 4}, {2, 4, 5}, {2, 3, 5}); }},
      {"matmul_grouped_heads",
       [](Client& c) { c.Matmul({2, 8, 3, 4}, {2, 2, 4, 5}, {2, 8, 3, 5}); }},
      {"matmul_k", [](Client& c) { c.Matmul({2, 3, 4}, {2, 5, 5}, {2, 3, 5}); }},
      {"matmul_m", [](Client& c) { c.Matmul({2, 3, 4}, {2, 4, 5}, {2, 4, 5}); }},
      {"matmul_batch", [](Client& c) { c.Matmul({3, 3, 4}, {2, 4, 5}, {2, 3, 5}); }},
      {"matmul_mixed_ranks", [](Client& c) { c.Matmul({2, 3, 4}, {4, 5}, {2, 3, 5}); },
       "mismatched ranks are BAD_PARAM in ours, as in every other operation"},
      {"reduction", [](Client& c) { c.Reduction({2, 3, 4}, {2, 1, 4}); }},
      {"reduction_of_runs", [](Client& c) { c.Reduction({2, 6, 4}, {2, 2, 4}); }},
      {"reduction_extent", [](Client& c) { c.Reduction({2, 3, 4}, {2, 2, 4}); }},
      {"reduction_rank", [](Client& c) { c.Reduction({2, 3, 4}, {2, 3}); }},
      {"reshape", [](Client& c) { c.Reshape({2, 3, 4}, {6, 4}); }},
      {"reshape_elements", [](Client& c) { c.Reshape({2, 3, 4}, {6, 5}); }},
      {"concat", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 8, 4}, 1); }},
      {"concat_in_place", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 8, 4}, 1, 0); }},
      {"concat_sum", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 9, 4}, 1); }},
      {"concat_axis", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 8, 4}, 5); }},
      {"concat_other_extent", [](Client& c) { c.Concat({2, 3, 4}, {1, 5, 4}, {2, 8, 4}, 1); }},
      {"concat_in_place_index", [](Client& c) { c.Concat({2, 3, 4}, {2, 5, 4}, {2, 8, 4}, 1, 7); }},
      {"sdpa_fwd", [](Client& c) { c.SdpaForward({}); }},
      {"sdpa_fwd_f32", [](Client& c) { c.SdpaForward({.type = CUDNN_DATA_FLOAT}); }},
      {"sdpa_fwd_without_q", [](Client& c) { c.SdpaForward({.q = {}}); }},
      {"sdpa_fwd_without_k", [](Client& c) { c.SdpaForward({.k = {}}); }},
      {"sdpa_fwd_without_v", [](Client& c) { c.SdpaForward({.v = {}}); }},
      {"sdpa_fwd_without_o", [](Client& c) { c.SdpaForward({.o = {}}); }},
      {"sdpa_fwd_grouped_heads",
       [](Client& c) { c.SdpaForward({.k = {2, 2, 24, 32}, .v = {2, 1, 24, 32}}); }},
      {"sdpa_fwd_heads",
       [](Client& c) { c.SdpaForward({.k = {2, 3, 24, 32}, .v = {2, 3, 24, 32}}); }},
      {"sdpa_fwd_batches", [](Client& c) { c.SdpaForward({.k = {3, 4, 24, 32}}); }},
      {"sdpa_fwd_depth", [](Client& c) { c.SdpaForward({.k = {2, 4, 24, 31}}); }},
      {"sdpa_fwd_keys", [](Client& c) { c.SdpaForward({.v = {2, 4, 23, 32}}); }},
      {"sdpa_fwd_rows", [](Client& c) { c.SdpaForward({.o = {2, 4, 17, 32}}); }},
      {"sdpa_fwd_width", [](Client& c) { c.SdpaForward({.o = {2, 4, 16, 31}}); }},
      {"sdpa_fwd_rank", [](Client& c) { c.SdpaForward({.q = {4, 16, 32}}); }},
      {"sdpa_fwd_stats", [](Client& c) { c.SdpaForward({.stats = {2, 4, 16, 1}}); }},
      {"sdpa_fwd_stats_rows", [](Client& c) { c.SdpaForward({.stats = {2, 4, 17, 1}}); }},
      {"sdpa_fwd_scale", [](Client& c) { c.SdpaForward({.scale = {1}}); }},
      {"sdpa_fwd_two_scales", [](Client& c) { c.SdpaForward({.scale = {1, 1, 1, 2}}); }},
      {"sdpa_fwd_lengths",
       [](Client& c) { c.SdpaForward({.seq_q = {2, 1, 1, 1}, .seq_kv = {2, 1, 1, 1}}); }},
      {"sdpa_fwd_lengths_of_keys", [](Client& c) { c.SdpaForward({.seq_kv = {2, 1, 1, 1}}); }},
      {"sdpa_fwd_lengths_i64",
       [](Client& c) { c.SdpaForward({.seq_kv = {2, 1, 1, 1}, .length_type = CUDNN_DATA_INT64}); }},
      {"sdpa_fwd_lengths_f32",
       [](Client& c) { c.SdpaForward({.seq_kv = {2, 1, 1, 1}, .length_type = CUDNN_DATA_FLOAT}); }},
      {"sdpa_fwd_three_lengths", [](Client& c) { c.SdpaForward({.seq_kv = {3, 1, 1, 1}}); }},
      {"sdpa_fwd_paged",
       [](Client& c) {
         c.SdpaForward({.k = {10, 4, 8, 32},
                        .v = {10, 4, 8, 32},
                        .table_k = {2, 1, 3, 1},
                        .table_v = {2, 1, 3, 1}});
       }},
      {"sdpa_fwd_paged_i64",
       [](Client& c) {
         c.SdpaForward({.k = {10, 4, 8, 32},
                        .v = {10, 4, 8, 32},
                        .table_k = {2, 1, 3, 1},
                        .table_v = {2, 1, 3, 1},
                        .index_type = CUDNN_DATA_INT64});
       }},
      {"sdpa_fwd_one_page_table",
       [](Client& c) {
         c.SdpaForward({.k = {10, 4, 8, 32}, .v = {10, 4, 8, 32}, .table_k = {2, 1, 3, 1}});
       }},
      {"sdpa_fwd_other_pages",
       [](Client& c) {
         c.SdpaForward({.k = {10, 4, 8, 32},
                        .v = {10, 4, 8, 32},
                        .table_k = {2, 1, 4, 1},
                        .table_v = {2, 1, 3, 1}});
       }},
      {"sdpa_fwd_block_mask", [](Client& c) { c.SdpaForward({.block_mask = {2, 4, 1, 1}}); }},
      {"sdpa_fwd_block_mask_heads", [](Client& c) { c.SdpaForward({.block_mask = {1, 1, 1, 1}}); }},
      {"sdpa_bwd", [](Client& c) { c.SdpaBackward({}); }},
      {"sdpa_bwd_without_stats", [](Client& c) { c.SdpaBackward({.stats = {}}); }},
      {"sdpa_bwd_without_do", [](Client& c) { c.SdpaBackward({.grad = {}}); }},
      {"sdpa_bwd_without_dv", [](Client& c) { c.SdpaBackward({.dv = {}}); }},
      {"sdpa_bwd_rows", [](Client& c) { c.SdpaBackward({.dq = {2, 4, 17, 32}}); }},
      {"sdpa_bwd_heads", [](Client& c) { c.SdpaBackward({.k = {2, 3, 24, 32}}); }},
      {"sdpa_bwd_lengths",
       [](Client& c) { c.SdpaBackward({.scale = {1}, .seq_kv = {2, 1, 1, 1}}); }},
      {"paged", [](Client& c) { c.PagedCacheLoad({}); }},
      {"paged_without_container", [](Client& c) { c.PagedCacheLoad({.container = {}}); }},
      {"paged_without_y", [](Client& c) { c.PagedCacheLoad({.y = {}}); }},
      {"paged_without_lengths", [](Client& c) { c.PagedCacheLoad({.lengths = {}}); }},
      {"paged_without_table", [](Client& c) { c.PagedCacheLoad({.table = {}}); }},
      {"paged_transposed", [](Client& c) { c.PagedCacheLoad({.y = {2, 4, 32, 24}}); }},
      {"paged_fewer_places", [](Client& c) { c.PagedCacheLoad({.y = {2, 4, 20, 32}}); }},
      {"paged_more_places", [](Client& c) { c.PagedCacheLoad({.y = {2, 4, 30, 32}}); }},
      {"paged_depth", [](Client& c) { c.PagedCacheLoad({.y = {2, 4, 24, 31}}); }},
      {"paged_heads", [](Client& c) { c.PagedCacheLoad({.y = {2, 3, 24, 32}}); }},
      {"paged_batches", [](Client& c) { c.PagedCacheLoad({.y = {3, 4, 24, 32}}); }},
      {"paged_casts", [](Client& c) { c.PagedCacheLoad({.y_type = CUDNN_DATA_FLOAT}); }},
      {"paged_table_i64", [](Client& c) { c.PagedCacheLoad({.table_type = CUDNN_DATA_INT64}); }},
      {"paged_lengths_i64", [](Client& c) { c.PagedCacheLoad({.length_type = CUDNN_DATA_INT64}); }},
      {"paged_lengths_f32", [](Client& c) { c.PagedCacheLoad({.length_type = CUDNN_DATA_FLOAT}); }},
      {"paged_table_rank", [](Client& c) { c.PagedCacheLoad({.table = {2, 1, 3}}); }},
      {"paged_table_last", [](Client& c) { c.PagedCacheLoad({.table = {2, 1, 1, 3}}); }},
      {"paged_rank",
       [](Client& c) {
         c.PagedCacheLoad({.container = {10, 4, 8, 32, 1}, .y = {2, 4, 24, 32, 1}});
       }},
      {"graph_without_a_handle",
       [](Client& c) {
         c.Graph({c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 14, 14})});
       }},
      {"graph_empty",
       [](Client& c) { c.Finalize(c.Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)); }},
      {"graph_with_an_operation_twice",
       [](Client& c) {
         Raw op = c.ConvForward({8, 32, 16, 16}, {64, 32, 3, 3}, {8, 64, 14, 14});
         c.Graph({op, op});
       }},
      {"graph_set_read_only",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
                  CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, 1);
       }},
      {"graph_null_handle",
       [](Client& c) {
         cudnnHandle_t null = nullptr;
         c.SetRaw(c.Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                  CUDNN_TYPE_HANDLE, 1, &null);
       }},
      {"plan_empty",
       [](Client& c) { c.Finalize(c.Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)); }},
      {"pack", [](Client& c) { c.Pack({1, 2}, {&c, &c}); }},
      {"pack_counts", [](Client& c) { c.Pack({1, 2, 3}, {&c, &c}); }},
      {"pack_uid_twice", [](Client& c) { c.Pack({1, 1}, {&c, nullptr}); },
       "one uid with two pointers is a mistake: which is meant?"},
      {"pack_intermediates",
       [](Client& c) {
         void* pointer = nullptr;
         c.SetRaw(c.Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR),
                  CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES, CUDNN_TYPE_VOID_PTR, 1, &pointer);
       }},
      {"pack_two_workspaces",
       [](Client& c) {
         void* pointers[2] = {};
         c.SetRaw(c.Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR), CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                  CUDNN_TYPE_VOID_PTR, 2, pointers);
       }},
      {"knob_info_set",
       [](Client& c) {
         c.SetEnum(c.Make(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR), CUDNN_ATTR_KNOB_INFO_TYPE,
                   CUDNN_TYPE_KNOB_TYPE, 2);
       }},
      {"knob_info_finalize",
       [](Client& c) { c.Finalize(c.Make(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR)); }, kDocumented},
      {"layout_info_set",
       [](Client& c) {
         c.SetInt(c.Make(CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR), CUDNN_ATTR_LAYOUT_INFO_TENSOR_UID,
                  2);
       }},
  };
}

std::string FindNvidia() {
  if (const char* path = std::getenv("NVIDIA_CUDNN_LIBRARY")) return path;
  glob_t found{};
  std::string path;
  for (const char* pattern :
       {"/usr/local/cuda*/lib*/libcudnn.so.9", "/usr/lib/*/libcudnn.so.9",
        "/usr/local/lib/python3*/*-packages/nvidia/cudnn/lib/libcudnn.so.9"}) {
    if (path.empty() && glob(pattern, 0, nullptr, &found) == 0) path = found.gl_pathv[0];
    globfree(&found);
  }
  return path;
}

TEST(NvidiaParity, StatusesAgreeOrTheReasonIsKnown) {
  std::string path = FindNvidia();
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  Library theirs(path), ours("api/libcudnn.so.9");
  ASSERT_TRUE(ours.loaded()) << dlerror();
  if (!theirs.loaded()) GTEST_SKIP() << path << " does not load: " << dlerror();
  ASSERT_EQ(ours.version(), 91900u);
  if (theirs.version() / 100 != 919) GTEST_SKIP() << path << " is version " << theirs.version();
  ASSERT_NE(theirs.create, ours.create) << "one library stands for both";
  std::vector<Row> rows = Rows();
  for (const auto& more : {NormRows(), NormBackwardRows()})
    rows.insert(rows.end(), more.begin(), more.end());
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Client on_theirs(theirs), on_ours(ours);
    row.run(on_theirs);
    row.run(on_ours);
    std::string nvidia = theirs.error_string(on_theirs.status),
                kiln = theirs.error_string(on_ours.status);
    if (row.why_ours_differs == nullptr) {
      EXPECT_EQ(kiln, nvidia);
    } else {
      EXPECT_NE(kiln, nvidia) << "a reason is given, and there is no difference: "
                              << row.why_ours_differs;
    }
  }
}

}  // namespace
