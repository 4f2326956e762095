// Sequences of calls to the backend API, as a client that is out of its mind makes them: kinds,
// attributes, types and counts at random, descriptors unfinalised, destroyed, of the wrong kind or
// never made, strange pointers to memory that is there. Between them stand whole objects made
// properly, so that the sequences get to graphs, engines, plans and executions. Any status is
// right; a crash, a leak or a wrong byte is not.
//
// The session behind the interface computes nothing (null_session.cc). Memory handed over is always
// as long as the count says, since no library could tell.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "api/spec/names.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/fuzz.h"

namespace kiln::fuzz {
namespace {

// In C++ an argument of an enumeration type has a value of its range, which is all bits of its
// largest constant.
template <class E>
E Enumerator(int64_t value, int bits) {
  return static_cast<E>(value & ((1 << bits) - 1));
}

constexpr int64_t kArenaBytes = 4096;
constexpr int64_t kWidestElement = 16;
constexpr int64_t kMaxCount = kArenaBytes / kWidestElement;

class Client {
 public:
  explicit Client(Bytes bytes) : bytes_(bytes) {
    Require(cudnnCreate(&handle_) == CUDNN_STATUS_SUCCESS, "no handle");
  }
  ~Client() {
    for (cudnnBackendDescriptor_t descriptor : slots_) cudnnBackendDestroyDescriptor(descriptor);
    cudnnDestroy(handle_);
  }

  void Run() {
    using Step = void (Client::*)();
    static constexpr Step kSteps[] = {
        &Client::Create,        &Client::Set,        &Client::Set,           &Client::Set,
        &Client::Get,           &Client::Get,        &Client::Finalize,      &Client::Destroy,
        &Client::Execute,       &Client::MakeTensor, &Client::MakePointwise, &Client::MakeMatmul,
        &Client::MakeReduction, &Client::MakeGraph,  &Client::MakePlan,      &Client::MakePack,
        &Client::ReloadPlan,
    };
    for (int steps = 0; !bytes_.empty() && steps < 400; ++steps) {
      (this->*kSteps[bytes_.Below(std::size(kSteps))])();
    }
  }

 private:
  // ---- single calls ----

  cudnnBackendDescriptor_t& Slot() { return slots_[bytes_.Below(slots_.size())]; }

  // A slot's descriptor, a destroyed one, NULL, the handle, or memory of ours.
  cudnnBackendDescriptor_t Any() {
    switch (bytes_.Below(24)) {
      case 0:
        return nullptr;
      case 1:
        return destroyed_;
      case 2:
        return reinterpret_cast<cudnnBackendDescriptor_t>(handle_);
      case 3:
        return reinterpret_cast<cudnnBackendDescriptor_t>(arena_.data() + bytes_.Below(64));
      default:
        return Slot();
    }
  }
  cudnnHandle_t AnyHandle() {
    switch (bytes_.Below(16)) {
      case 0:
        return nullptr;
      case 1:
        return reinterpret_cast<cudnnHandle_t>(Slot());
      case 2:
        return reinterpret_cast<cudnnHandle_t>(arena_.data());
      default:
        return handle_;
    }
  }
  cudnnBackendAttributeName_t AnyName() {
    const auto names = api::AllAttributeNames();
    const size_t index = static_cast<size_t>(bytes_.Byte()) << 8 | bytes_.Byte();
    if (index % 61 == 0) return Enumerator<cudnnBackendAttributeName_t>(bytes_.Number(), 12);
    return static_cast<cudnnBackendAttributeName_t>(names[index % names.size()].value);
  }
  cudnnBackendAttributeType_t AnyType() {
    return Enumerator<cudnnBackendAttributeType_t>(bytes_.Byte(), 5);
  }
  int64_t AnyCount() { return std::min(bytes_.Number(), kMaxCount); }

  void Keep(cudnnBackendDescriptor_t descriptor) {
    cudnnBackendDescriptor_t& slot = Slot();
    cudnnBackendDestroyDescriptor(slot);
    slot = descriptor;
  }

  void Create() {
    cudnnBackendDescriptor_t descriptor = nullptr;
    const auto kind = Enumerator<cudnnBackendDescriptorType_t>(bytes_.Byte(), 6);
    if (cudnnBackendCreateDescriptor(kind, &descriptor) == CUDNN_STATUS_SUCCESS) Keep(descriptor);
  }

  // Elements of the type, in the arena.
  const void* Elements(cudnnBackendAttributeType_t type, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      std::byte* at = arena_.data() + i * 8;
      if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const cudnnBackendDescriptor_t value = Any();
        std::memcpy(at, &value, 8);
      } else if (type == CUDNN_TYPE_HANDLE) {
        const cudnnHandle_t value = AnyHandle();
        std::memcpy(at, &value, 8);
      } else if (type == CUDNN_TYPE_FLOAT) {
        const float value = static_cast<float>(bytes_.Number()) * 0.25f;
        std::memcpy(arena_.data() + i * 4, &value, 4);
      } else if (type == CUDNN_TYPE_DOUBLE) {
        const double value = static_cast<double>(bytes_.Number()) * 0.25;
        std::memcpy(at, &value, 8);
      } else if (type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR) {
        const int64_t value = bytes_.Number();
        std::memcpy(at, &value, 8);
      } else if (type == CUDNN_TYPE_BOOLEAN || type == CUDNN_TYPE_CHAR) {
        arena_[static_cast<size_t>(i)] = static_cast<std::byte>(bytes_.Byte());
      } else {
        const auto value = static_cast<int32_t>(bytes_.Number());
        std::memcpy(arena_.data() + i * 4, &value, 4);
      }
    }
    return bytes_.Below(32) == 0 ? nullptr : arena_.data();
  }

  // The elements of these are a C++ object, which only exists or does not.
  static bool IsCppObject(cudnnBackendAttributeName_t name) {
    return name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES ||
           name == CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES;
  }

  void Set() {
    const cudnnBackendDescriptor_t descriptor = Any();
    const cudnnBackendAttributeName_t name = AnyName();
    const cudnnBackendAttributeType_t type = AnyType();
    const int64_t count = AnyCount();
    if (IsCppObject(name)) {
      cudnnBackendSetAttribute(descriptor, name, type, std::min<int64_t>(count, 1), &shapes_);
      return;
    }
    cudnnBackendSetAttribute(descriptor, name, type, count, Elements(type, count));
  }

  void Get() {
    const cudnnBackendDescriptor_t descriptor = Any();
    const cudnnBackendAttributeName_t name = AnyName();
    const cudnnBackendAttributeType_t type = AnyType();
    const int64_t requested = AnyCount();
    const uint8_t nulls = bytes_.Byte();
    if (IsCppObject(name)) {
      int64_t count = 0;
      cudnnBackendGetAttribute(descriptor, name, type, requested, &count,
                               nulls % 8 == 1 ? nullptr : &shapes_);
      return;
    }
    const void* elements = requested > 0 ? Elements(type, requested) : nullptr;
    int64_t count = -7;
    constexpr std::byte kGuard{0xA5};
    std::fill(arena_.begin() + std::max<int64_t>(requested, 0) * kWidestElement, arena_.end(),
              kGuard);
    const cudnnStatus_t status = cudnnBackendGetAttribute(
        descriptor, name, type, requested, nulls % 8 == 0 ? nullptr : &count,
        nulls % 8 == 1 ? nullptr : const_cast<void*>(elements));
    Require(std::all_of(arena_.begin() + std::max<int64_t>(requested, 0) * kWidestElement,
                        arena_.end(), [&](std::byte b) { return b == kGuard; }),
            "get of {} wrote behind {} elements", static_cast<int>(name), requested);
    Require(status != CUDNN_STATUS_SUCCESS || nulls % 8 == 0 || count >= 0,
            "get of {} gave no count", static_cast<int>(name));
  }

  void Finalize() { cudnnBackendFinalize(Any()); }

  void Destroy() {
    cudnnBackendDescriptor_t& slot = Slot();
    destroyed_ = slot;
    cudnnBackendDestroyDescriptor(slot);
    slot = nullptr;
    if (bytes_.Below(4) == 0) cudnnBackendDestroyDescriptor(destroyed_);
    char sentence[64];
    cudnnGetLastErrorString(sentence, sizeof(sentence));
  }

  void Execute() {
    const cudnnHandle_t handle = AnyHandle();
    const cudnnBackendDescriptor_t plan = Any();
    cudnnBackendExecute(handle, plan, Any());
  }

  // ---- whole objects, most of them legal ----

  static cudnnBackendDescriptor_t New(cudnnBackendDescriptorType_t kind) {
    cudnnBackendDescriptor_t descriptor = nullptr;
    Require(cudnnBackendCreateDescriptor(kind, &descriptor) == CUDNN_STATUS_SUCCESS,
            "kind {} is not made", static_cast<int>(kind));
    return descriptor;
  }
  template <class T>
  static void Put(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, const T& value) {
    cudnnBackendSetAttribute(to, name, type, 1, &value);
  }
  void KeepFinalized(cudnnBackendDescriptor_t descriptor) {
    cudnnBackendFinalize(descriptor);
    Keep(descriptor);
  }

  void MakeTensor() {
    const cudnnBackendDescriptor_t tensor = New(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    static constexpr cudnnDataType_t kTypes[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF,
                                                 CUDNN_DATA_BFLOAT16, CUDNN_DATA_INT32,
                                                 CUDNN_DATA_BOOLEAN};
    std::vector<int64_t> dims, strides;
    const size_t rank = 3 + bytes_.Below(2);
    for (size_t i = 0; i < rank; ++i) dims.push_back(bytes_.Byte() < 250 ? 4 : bytes_.Number());
    strides.assign(rank, 1);
    for (size_t i = rank - 1; i-- > 0;)
      strides[i] = static_cast<int64_t>(static_cast<uint64_t>(strides[i + 1]) *
                                        static_cast<uint64_t>(dims[i + 1]));
    Put(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64,
        static_cast<int64_t>(bytes_.Below(12)));
    Put(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
        kTypes[bytes_.Below(std::size(kTypes))]);
    Put(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
    Put(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, bytes_.Below(3) == 0);
    cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
                             static_cast<int64_t>(rank), dims.data());
    cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
                             static_cast<int64_t>(rank), strides.data());
    KeepFinalized(tensor);
  }

  void MakePointwise() {
    static constexpr cudnnPointwiseMode_t kModes[] = {
        CUDNN_POINTWISE_ADD,          CUDNN_POINTWISE_MUL,         CUDNN_POINTWISE_RELU_FWD,
        CUDNN_POINTWISE_GELU_FWD,     CUDNN_POINTWISE_SIGMOID_BWD, CUDNN_POINTWISE_CMP_GT,
        CUDNN_POINTWISE_IDENTITY,     CUDNN_POINTWISE_LOGICAL_NOT, CUDNN_POINTWISE_GEN_INDEX,
        CUDNN_POINTWISE_BINARY_SELECT};
    const cudnnBackendDescriptor_t settings = New(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    Put(settings, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
        kModes[bytes_.Below(std::size(kModes))]);
    Put(settings, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    cudnnBackendFinalize(settings);
    const cudnnBackendDescriptor_t operation = New(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    Put(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        settings);
    for (const auto name :
         {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
          CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC}) {
      if (bytes_.Below(8) != 0) Put(operation, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, Slot());
    }
    cudnnBackendDestroyDescriptor(settings);
    KeepFinalized(operation);
  }

  void MakeMatmul() {
    const cudnnBackendDescriptor_t settings = New(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    Put(settings, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    cudnnBackendFinalize(settings);
    const cudnnBackendDescriptor_t operation = New(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    Put(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, settings);
    for (const auto name : {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                            CUDNN_ATTR_OPERATION_MATMUL_CDESC}) {
      Put(operation, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, Slot());
    }
    cudnnBackendDestroyDescriptor(settings);
    KeepFinalized(operation);
  }

  void MakeReduction() {
    const cudnnBackendDescriptor_t settings = New(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    Put(settings, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
        static_cast<cudnnReduceTensorOp_t>(bytes_.Byte() % 10));
    Put(settings, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    cudnnBackendFinalize(settings);
    const cudnnBackendDescriptor_t operation = New(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    Put(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, settings);
    Put(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, Slot());
    Put(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, Slot());
    cudnnBackendDestroyDescriptor(settings);
    KeepFinalized(operation);
  }

  void MakeGraph() {
    const cudnnBackendDescriptor_t graph = New(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    std::array<cudnnBackendDescriptor_t, 3> operations;
    for (auto& operation : operations) operation = Slot();
    if (bytes_.Below(4) != 0)
      Put(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                             static_cast<int64_t>(1 + bytes_.Below(3)), operations.data());
    KeepFinalized(graph);
  }

  // Through the heuristics, as frontends do.
  void MakePlan() {
    const cudnnBackendDescriptor_t heuristics = New(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendDescriptor_t config = New(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    Put(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, Slot());
    Put(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
        static_cast<cudnnBackendHeurMode_t>(bytes_.Below(4)));
    cudnnBackendFinalize(heuristics);
    int64_t count = 0;
    cudnnBackendDescriptor_t filled = config;
    cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &filled);
    cudnnBackendDestroyDescriptor(heuristics);
    const cudnnBackendDescriptor_t plan = New(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (bytes_.Below(4) != 0)
      Put(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    Put(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, config);
    Keep(config);
    KeepFinalized(plan);
  }

  void MakePack() {
    const cudnnBackendDescriptor_t pack = New(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    std::array<int64_t, 12> uids;
    std::array<void*, 12> pointers;
    for (size_t i = 0; i < uids.size(); ++i) {
      uids[i] = static_cast<int64_t>(i);
      pointers[i] = bytes_.Below(16) == 0 ? nullptr : arena_.data() + bytes_.Below(3) * 16;
    }
    const auto count = static_cast<int64_t>(12 - bytes_.Below(3));
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count,
                             uids.data());
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                             count, pointers.data());
    if (bytes_.Below(8) != 0)
      Put(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
          static_cast<void*>(arena_.data()));
    KeepFinalized(pack);
  }

  // A plan's own text, with a few bytes changed, as a new plan.
  void ReloadPlan() {
    int64_t size = 0;
    const cudnnBackendDescriptor_t from = Slot();
    if (cudnnBackendGetAttribute(from, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, 0, &size, nullptr) != CUDNN_STATUS_SUCCESS)
      return;
    std::string text(static_cast<size_t>(size), '\0');
    Require(
        cudnnBackendGetAttribute(from, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, size, &size, text.data()) == CUDNN_STATUS_SUCCESS,
        "the plan's text cannot be read");
    for (size_t changes = bytes_.Below(4); changes > 0 && !text.empty(); --changes) {
      const size_t at = (static_cast<size_t>(bytes_.Byte()) << 8 | bytes_.Byte()) % text.size();
      text[at] = static_cast<char>(bytes_.Byte());
    }
    const cudnnBackendDescriptor_t plan = New(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    Put(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                             static_cast<int64_t>(text.size()), text.data());
    KeepFinalized(plan);
  }

  Bytes bytes_;
  cudnnHandle_t handle_ = nullptr;
  cudnnBackendDescriptor_t destroyed_ = nullptr;
  std::array<cudnnBackendDescriptor_t, 12> slots_ = {};
  alignas(64) std::array<std::byte, kArenaBytes> arena_ = {};
  std::vector<std::vector<int64_t>> shapes_ = {{4, 4, 4}, {2, 4, 4}};
};

}  // namespace
}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kiln::fuzz::Client(kiln::fuzz::Bytes(data, size)).Run();
  return 0;
}
