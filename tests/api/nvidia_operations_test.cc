// Single operations on ours and on NVIDIA's libcudnn.so.9: as nvidia_parity_test.cc, for operations
// that are lists of attributes. A row is an operation with its attributes; its status is that of
// the first call that fails, of finalize at the last.
#include <cudnn.h>
#include <dlfcn.h>
#include <glob.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

namespace {

using Ints = std::vector<int64_t>;
using Raw = cudnnBackendDescriptor_t;

struct Library {
  explicit Library(const std::string& path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) return;
    Bind("cudnnBackendCreateDescriptor", create);
    Bind("cudnnBackendDestroyDescriptor", destroy);
    Bind("cudnnBackendSetAttribute", set);
    Bind("cudnnBackendFinalize", finalize);
    Bind("cudnnGetVersion", version);
    Bind("cudnnGetErrorString", error_string);
  }
  template <class F>
  void Bind(const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    EXPECT_NE(function, nullptr) << name;
  }

  void* handle;
  decltype(&cudnnBackendCreateDescriptor) create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
};

struct Tensor {
  Ints dims;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
};
struct Numbers {
  int type;  // cudnnBackendAttributeType_t of CUDNN's numbers and enumerations
  std::vector<double> values;
};

// What to make: a kind and its attributes, tensors, numbers or other descriptors.
struct Object;
struct Attribute {
  int name;
  std::variant<Tensor, Numbers, std::vector<Object>> value;
};
struct Object {
  cudnnBackendDescriptorType_t kind;
  std::vector<Attribute> attributes;
};

class Client {
 public:
  explicit Client(const Library& library) : lib_(library) {}
  ~Client() {
    for (Raw raw : made_) lib_.destroy(raw);
  }

  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;  // the first that is no success

  Raw Make(const Object& object) {
    Raw d = nullptr;
    Check(lib_.create(object.kind, &d));
    if (d != nullptr) made_.push_back(d);
    for (const auto& [name, value] : object.attributes) {
      if (status != CUDNN_STATUS_SUCCESS) return d;
      if (const auto* tensor = std::get_if<Tensor>(&value)) {
        Raw t = MakeTensor(*tensor);
        Set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t);
      } else if (const auto* numbers = std::get_if<Numbers>(&value)) {
        SetNumbers(d, name, *numbers);
      } else {
        for (const Object& inner : std::get<std::vector<Object>>(value)) {
          Raw i = Make(inner);
          if (status == CUDNN_STATUS_SUCCESS) Set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &i);
        }
      }
    }
    if (status == CUDNN_STATUS_SUCCESS) Check(lib_.finalize(d));
    return d;
  }

 private:
  void Check(cudnnStatus_t s) {
    if (status == CUDNN_STATUS_SUCCESS) status = s;
  }
  void Set(Raw d, int name, int type, int64_t count, const void* data) {
    Check(lib_.set(d, static_cast<cudnnBackendAttributeName_t>(name),
                   static_cast<cudnnBackendAttributeType_t>(type), count, data));
  }
  template <class T>
  void SetAs(Raw d, int name, const Numbers& n) {
    const std::vector<T> values(n.values.begin(), n.values.end());
    Set(d, name, n.type, static_cast<int64_t>(values.size()), values.data());
  }
  void SetNumbers(Raw d, int name, const Numbers& n) {
    switch (n.type) {
      case CUDNN_TYPE_INT64:
        return SetAs<int64_t>(d, name, n);
      case CUDNN_TYPE_FLOAT:
        return SetAs<float>(d, name, n);
      case CUDNN_TYPE_DOUBLE:
        return SetAs<double>(d, name, n);
      case CUDNN_TYPE_BOOLEAN:
        return SetAs<char>(d, name, n);
      default:
        return SetAs<int32_t>(d, name, n);  // enumerations too
    }
  }
  Raw MakeTensor(const Tensor& tensor) {
    std::vector<double> dims(tensor.dims.begin(), tensor.dims.end()), strides(dims.size(), 1);
    for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    return Make(
        {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
         {{CUDNN_ATTR_TENSOR_UNIQUE_ID, Numbers{CUDNN_TYPE_INT64, {double(++uid_)}}},
          {CUDNN_ATTR_TENSOR_DATA_TYPE, Numbers{CUDNN_TYPE_DATA_TYPE, {double(tensor.type)}}},
          {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Numbers{CUDNN_TYPE_INT64, {16}}},
          {CUDNN_ATTR_TENSOR_DIMENSIONS, Numbers{CUDNN_TYPE_INT64, dims}},
          {CUDNN_ATTR_TENSOR_STRIDES, Numbers{CUDNN_TYPE_INT64, strides}}}});
  }

  const Library& lib_;
  std::vector<Raw> made_;
  int64_t uid_ = 0;
};

struct Row {
  std::string name;
  Object object;
  const char* why_ours_differs = nullptr;
};

Numbers Int64(double v) { return {CUDNN_TYPE_INT64, {v}}; }
Numbers Int32(double v) { return {CUDNN_TYPE_INT32, {v}}; }
Numbers Type(cudnnDataType_t type) { return {CUDNN_TYPE_DATA_TYPE, {double(type)}}; }

// The object without an attribute, or with another value of it.
Object Without(Object object, int name) {
  std::erase_if(object.attributes, [&](const Attribute& a) { return a.name == name; });
  return object;
}
Object With(Object object, Attribute attribute) {
  object = Without(std::move(object), attribute.name);
  object.attributes.push_back(std::move(attribute));
  return object;
}

constexpr auto kMissing = "ours says BAD_PARAM of every attribute that is missing";
constexpr auto kWrongType = "ours says ATTRIBUTE_TYPE of every value of a wrong type";

std::vector<Row> BlockScaleRows() {
  enum : int {
    DX = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC,
    DScale = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC,
    DY = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC,
    DPrec = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC,
    DBlock = CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE,
    QX = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_XDESC,
    QScale = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC,
    QY = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_YDESC,
    QPrec = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC,
    QBlock = CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE
  };
  const Ints x = {1, 2, 9, 64}, scale = {1, 2, 9, 2};
  const Object dequantize = {CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR,
                             {{DX, Tensor{x, CUDNN_DATA_FP8_E4M3}},
                              {DScale, Tensor{scale, CUDNN_DATA_FP8_E8M0}},
                              {DY, Tensor{x}},
                              {DPrec, Type(CUDNN_DATA_FLOAT)},
                              {DBlock, Int32(32)}}};
  const Object quantize = {CUDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR,
                           {{QX, Tensor{x}},
                            {QScale, Tensor{scale, CUDNN_DATA_FP8_E8M0}},
                            {QY, Tensor{x, CUDNN_DATA_FP8_E4M3}},
                            {QPrec, Type(CUDNN_DATA_FLOAT)},
                            {QBlock, Int32(32)}}};
  std::vector<Row> rows = {
      {"dequantize", dequantize},
      {"dequantize_two_sizes", With(dequantize, {DBlock, Numbers{CUDNN_TYPE_INT32, {1, 32}}})},
      {"dequantize_three_sizes", With(dequantize, {DBlock, Numbers{CUDNN_TYPE_INT32, {1, 1, 32}}})},
      {"dequantize_i64_size", With(dequantize, {DBlock, Int64(32)}), kWrongType},
      {"dequantize_without_size", Without(dequantize, DBlock)},
      {"dequantize_without_type", Without(dequantize, DPrec)},
      {"dequantize_without_x", Without(dequantize, DX), kMissing},
      {"dequantize_without_scale", Without(dequantize, DScale), kMissing},
      {"dequantize_without_y", Without(dequantize, DY), kMissing},
      {"dequantize_f32_scale", With(dequantize, {DScale, Tensor{scale}})},
      {"quantize", quantize},
      {"quantize_matrix",
       With(With(With(quantize, {QX, Tensor{{9, 64}}}), {QY, Tensor{{9, 64}, CUDNN_DATA_FP8_E5M2}}),
            {QScale, Tensor{{9, 2}, CUDNN_DATA_FP8_E4M3}})},
      {"quantize_i64_size", With(quantize, {QBlock, Int64(32)}), kWrongType},
      {"quantize_without_type", Without(quantize, QPrec)},
      {"quantize_without_x", Without(quantize, QX), kMissing},
      {"quantize_without_y", Without(quantize, QY), kMissing},
      {"quantize_without_scale", Without(quantize, QScale), kMissing},
      {"quantize_to_f32", With(quantize, {QY, Tensor{x}})},
      {"quantize_to_fp4", With(quantize, {QY, Tensor{x, CUDNN_DATA_FP4_E2M1}})},
      {"quantize_f32_scales", With(quantize, {QScale, Tensor{scale}})},
      {"quantize_few_scales", With(quantize, {QScale, Tensor{{1, 2, 9, 1}, CUDNN_DATA_FP8_E8M0}})},
      {"quantize_other_y", With(quantize, {QY, Tensor{{1, 2, 9, 32}, CUDNN_DATA_FP8_E4M3}})},
  };
  return rows;
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

TEST(NvidiaOperations, StatusesAgreeOrTheReasonIsKnown) {
  const std::string path = FindNvidia();
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  const Library theirs(path), ours("api/libcudnn.so.9");
  ASSERT_NE(ours.handle, nullptr) << dlerror();
  if (theirs.handle == nullptr) GTEST_SKIP() << path << " does not load: " << dlerror();
  if (theirs.version() / 100 != 919) GTEST_SKIP() << path << " is version " << theirs.version();
  ASSERT_NE(theirs.create, ours.create) << "one library stands for both";
  for (const auto& rows : {BlockScaleRows()}) {
    for (const Row& row : rows) {
      SCOPED_TRACE(row.name);
      Client on_theirs(theirs), on_ours(ours);
      on_theirs.Make(row.object);
      on_ours.Make(row.object);
      const std::string nvidia = theirs.error_string(on_theirs.status),
                        kiln = theirs.error_string(on_ours.status);
      if (row.why_ours_differs == nullptr) {
        EXPECT_EQ(kiln, nvidia);
      } else {
        EXPECT_NE(kiln, nvidia) << "a reason is given, and there is no difference: "
                                << row.why_ours_differs;
      }
    }
  }
}

}  // namespace
