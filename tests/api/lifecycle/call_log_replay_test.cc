// A log of calls is enough to make them again: descriptors of the legacy API and graphs of the
// backend hold the same afterwards, and plans compute the same.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/api/client.h"
#include "tests/api/fake_session.h"
#include "tests/api/lifecycle/call_log_text.h"
#include "tests/api/lifecycle/listening.h"

namespace kiln::api {
namespace {

using kiln::testing::Listening;
using kiln::testing::LoggedArgument;
using kiln::testing::LoggedCall;
using kiln::testing::ParseLog;

void Ok(cudnnStatus_t status) { ASSERT_EQ(status, CUDNN_STATUS_SUCCESS); }

// Descriptors by their addresses in the log, and what was made in their places.
class Replay {
 public:
  void Make(const LoggedCall& call) {
    const auto row = Rows().find(call.function);
    if (call.what == "made") {
      objects_[call.arguments.at(0).value] = last_made_;
    } else if (call.function != "cudnnSetCallback") {
      ASSERT_NE(row, Rows().end()) << call.function;
      call_ = &call;
      ASSERT_EQ((this->*row->second)(), CUDNN_STATUS_SUCCESS) << call.function;
    }
  }
  template <class D>
  D Of(D object) const {
    std::stringstream name;
    name << static_cast<const void*>(object);
    return static_cast<D>(objects_.at(name.str()));
  }

 private:
  using Row = cudnnStatus_t (Replay::*)();

  const LoggedArgument& Arg(const char* name) const { return *call_->Find(name); }
  template <class D>
  D Object(const char* name) const {
    return static_cast<D>(objects_.at(Arg(name).value));
  }
  int Int(const char* name) const { return static_cast<int>(Arg(name).number()); }
  template <class E>
  E Enum(const char* name) const {
    return static_cast<E>(Int(name));
  }

  template <class D, auto Create>
  cudnnStatus_t Created() {
    D made = nullptr;
    const cudnnStatus_t status = Create(&made);
    last_made_ = made;
    return status;
  }
  cudnnStatus_t SetTensor4d() {
    return cudnnSetTensor4dDescriptor(
        Object<cudnnTensorDescriptor_t>("tensorDesc"), Enum<cudnnTensorFormat_t>("format"),
        Enum<cudnnDataType_t>("dataType"), Int("n"), Int("c"), Int("h"), Int("w"));
  }
  cudnnStatus_t SetTensorNd() {
    return cudnnSetTensorNdDescriptor(Object<cudnnTensorDescriptor_t>("tensorDesc"),
                                      Enum<cudnnDataType_t>("dataType"), Int("nbDims"),
                                      Arg("dimA").ints().data(), Arg("strideA").ints().data());
  }
  cudnnStatus_t SetFilterNd() {
    return cudnnSetFilterNdDescriptor(
        Object<cudnnFilterDescriptor_t>("filterDesc"), Enum<cudnnDataType_t>("dataType"),
        Enum<cudnnTensorFormat_t>("format"), Int("nbDims"), Arg("filterDimA").ints().data());
  }
  cudnnStatus_t SetConvolutionNd() {
    return cudnnSetConvolutionNdDescriptor(
        Object<cudnnConvolutionDescriptor_t>("convDesc"), Int("arrayLength"),
        Arg("padA").ints().data(), Arg("filterStrideA").ints().data(),
        Arg("dilationA").ints().data(), Enum<cudnnConvolutionMode_t>("mode"),
        Enum<cudnnDataType_t>("computeType"));
  }
  cudnnStatus_t SetGroups() {
    return cudnnSetConvolutionGroupCount(Object<cudnnConvolutionDescriptor_t>("convDesc"),
                                         Int("groupCount"));
  }
  cudnnStatus_t SetMath() {
    return cudnnSetConvolutionMathType(Object<cudnnConvolutionDescriptor_t>("convDesc"),
                                       Enum<cudnnMathType_t>("mathType"));
  }
  cudnnStatus_t CreateBackend() {
    cudnnBackendDescriptor_t made = nullptr;
    const cudnnStatus_t status =
        cudnnBackendCreateDescriptor(Enum<cudnnBackendDescriptorType_t>("descriptorType"), &made);
    last_made_ = made;
    return status;
  }
  cudnnStatus_t Finalize() {
    return cudnnBackendFinalize(Object<cudnnBackendDescriptor_t>("descriptor"));
  }
  cudnnStatus_t Destroy() { return cudnnDestroy(Object<cudnnHandle_t>("handle")); }
  cudnnStatus_t DestroyBackend() {
    return cudnnBackendDestroyDescriptor(Object<cudnnBackendDescriptor_t>("descriptor"));
  }
  cudnnStatus_t Execute() {
    return cudnnBackendExecute(Object<cudnnHandle_t>("handle"),
                               Object<cudnnBackendDescriptor_t>("executionPlan"),
                               Object<cudnnBackendDescriptor_t>("variantPack"));
  }
  cudnnStatus_t GetAttribute() {
    std::string bytes = Elements();
    bytes.resize(bytes.size() + 4096);  // for results
    int64_t count = 0;
    return cudnnBackendGetAttribute(Object<cudnnBackendDescriptor_t>("descriptor"),
                                    Enum<cudnnBackendAttributeName_t>("attributeName"),
                                    Enum<cudnnBackendAttributeType_t>("attributeType"),
                                    Arg("requestedElementCount").number(), &count,
                                    Arg("arrayOfElements").is_null() ? nullptr : bytes.data());
  }
  cudnnStatus_t SetAttribute() {
    return cudnnBackendSetAttribute(Object<cudnnBackendDescriptor_t>("descriptor"),
                                    Enum<cudnnBackendAttributeName_t>("attributeName"),
                                    Enum<cudnnBackendAttributeType_t>("attributeType"),
                                    Arg("elementCount").number(), Elements().data());
  }
  // Their bytes by the types that their lines name.
  std::string Elements() const {
    std::string bytes;
    const auto add = [&](const auto& value) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    for (const LoggedArgument& a : call_->arguments) {
      if (!a.name.starts_with("[")) continue;
      if (a.type == "int64_t")
        add(int64_t{a.number()});
      else if (a.type == "bool")
        add(a.value == "true");
      else if (a.type == "double")
        add(a.real());
      else if (a.type == "float")
        add(static_cast<float>(a.real()));
      else if (a.type.starts_with("CUDNN_BACKEND_") || a.type == "cudnnHandle_t")
        add(objects_.at(a.value));
      else if (a.type.empty())
        add(std::bit_cast<void*>(a.number()));
      else
        add(static_cast<int>(a.number()));
    }
    return bytes;
  }

  static const std::map<std::string, Row>& Rows() {
    static const std::map<std::string, Row> rows = {
        {"cudnnCreateTensorDescriptor",
         &Replay::Created<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor>},
        {"cudnnCreateFilterDescriptor",
         &Replay::Created<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor>},
        {"cudnnCreateConvolutionDescriptor",
         &Replay::Created<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor>},
        {"cudnnSetTensor4dDescriptor", &Replay::SetTensor4d},
        {"cudnnSetTensorNdDescriptor", &Replay::SetTensorNd},
        {"cudnnSetFilterNdDescriptor", &Replay::SetFilterNd},
        {"cudnnSetConvolutionNdDescriptor", &Replay::SetConvolutionNd},
        {"cudnnSetConvolutionGroupCount", &Replay::SetGroups},
        {"cudnnSetConvolutionMathType", &Replay::SetMath},
        {"cudnnBackendCreateDescriptor", &Replay::CreateBackend},
        {"cudnnBackendSetAttribute", &Replay::SetAttribute},
        {"cudnnBackendFinalize", &Replay::Finalize},
        {"cudnnBackendGetAttribute", &Replay::GetAttribute},
        {"cudnnBackendDestroyDescriptor", &Replay::DestroyBackend},
        {"cudnnBackendExecute", &Replay::Execute},
        {"cudnnCreate", &Replay::Created<cudnnHandle_t, cudnnCreate>},
        {"cudnnDestroy", &Replay::Destroy},
    };
    return rows;
  }

  const LoggedCall* call_ = nullptr;
  void* last_made_ = nullptr;
  std::map<std::string, void*> objects_;
};

void MakeAll(Replay& replay, const std::string& log) {
  for (const LoggedCall& call : ParseLog(log, "")) {
    replay.Make(call);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// As many words as the descriptors below hold.
std::vector<int> Held(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                      cudnnConvolutionDescriptor_t conv) {
  std::vector<int> all(64, -7);
  cudnnDataType_t x_type{}, w_type{}, compute{};
  cudnnTensorFormat_t format{};
  cudnnConvolutionMode_t mode{};
  cudnnMathType_t math{};
  int* at = all.data();
  Ok(cudnnGetTensorNdDescriptor(x, 8, &x_type, at, at + 1, at + 9));
  Ok(cudnnGetFilterNdDescriptor(w, 8, &w_type, &format, at + 17, at + 18));
  Ok(cudnnGetConvolutionNdDescriptor(conv, 3, at + 26, at + 27, at + 30, at + 33, &mode, &compute));
  Ok(cudnnGetConvolutionGroupCount(conv, at + 36));
  Ok(cudnnGetConvolutionMathType(conv, &math));
  for (const int value :
       {static_cast<int>(x_type), static_cast<int>(w_type), static_cast<int>(compute),
        static_cast<int>(format), static_cast<int>(mode), static_cast<int>(math)})
    all.push_back(value);
  return all;
}

TEST(CallLogReplay, LegacyDescriptorsAreMadeAgain) {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  const int x_dims[] = {2, 6, 5, 7, 9}, x_strides[] = {1900, 315, 63, 9, 1},
            w_dims[] = {4, 3, 1, 3, 5}, pads[] = {0, 1, 2}, steps[] = {1, 2, 3},
            dilations[] = {3, 1, 2};
  Listening log;
  Ok(cudnnCreateTensorDescriptor(&x));
  Ok(cudnnCreateTensorDescriptor(&y));
  Ok(cudnnCreateFilterDescriptor(&w));
  Ok(cudnnCreateConvolutionDescriptor(&conv));
  Ok(cudnnSetTensorNdDescriptor(x, CUDNN_DATA_HALF, 5, x_dims, x_strides));
  Ok(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NHWC, CUDNN_DATA_INT8, 1, 8, 3, 11));
  Ok(cudnnSetFilterNdDescriptor(w, CUDNN_DATA_HALF, CUDNN_TENSOR_NCHW, 5, w_dims));
  Ok(cudnnSetConvolutionNdDescriptor(conv, 3, pads, steps, dilations, CUDNN_CROSS_CORRELATION,
                                     CUDNN_DATA_FLOAT));
  Ok(cudnnSetConvolutionGroupCount(conv, 2));
  Ok(cudnnSetConvolutionMathType(conv, CUDNN_TENSOR_OP_MATH));
  Replay replay;
  MakeAll(replay, log.Stop());
  if (HasFatalFailure()) return;

  EXPECT_NE(replay.Of(x), x);
  EXPECT_EQ(Held(replay.Of(x), replay.Of(w), replay.Of(conv)), Held(x, w, conv));
  EXPECT_EQ(Held(replay.Of(y), replay.Of(w), replay.Of(conv)), Held(y, w, conv));
  EXPECT_NE(Held(y, w, conv), Held(x, w, conv)) << "so that the comparison can fail";
}

// An attribute's elements, as bytes.
std::string Read(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type) {
  std::string bytes(256, '\x7f');
  int64_t count = -1;
  Ok(cudnnBackendGetAttribute(d, name, type, 8, &count, bytes.data()));
  return std::to_string(count) + ":" + bytes;
}

struct Graph {
  std::vector<cudnnBackendDescriptor_t> made;
  cudnnBackendDescriptor_t x, w, y, conv, op;

  cudnnBackendDescriptor_t New(cudnnBackendDescriptorType_t type) {
    made.push_back(nullptr);
    Ok(cudnnBackendCreateDescriptor(type, &made.back()));
    return made.back();
  }
  static void Set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void* data) {
    Ok(cudnnBackendSetAttribute(d, name, type, count, data));
  }
  static void Ints(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                   const std::vector<int64_t>& v) {
    Set(d, name, CUDNN_TYPE_INT64, static_cast<int64_t>(v.size()), v.data());
  }
  cudnnBackendDescriptor_t Tensor(const std::vector<int64_t>& dims,
                                  const std::vector<int64_t>& strides, int64_t uid) {
    const cudnnBackendDescriptor_t t = New(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
    const bool is_virtual = uid == 3;
    Set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    Ints(t, CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    Ints(t, CUDNN_ATTR_TENSOR_STRIDES, strides);
    Ints(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, {uid});
    Ints(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {32});
    Set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    Ok(cudnnBackendFinalize(t));
    return t;
  }
  Graph() {
    x = Tensor({2, 8, 9, 11}, {792, 1, 88, 8}, int64_t{1} << 40);
    w = Tensor({4, 8, 3, 3}, {72, 1, 24, 8}, -2);
    y = Tensor({2, 4, 9, 5}, {180, 1, 20, 4}, 3);
    conv = New(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    Set(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    Set(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    Ints(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
    Ints(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1});
    Ints(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {1, 2});
    Ints(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {1, 0});
    Ints(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {1, 0});
    Ok(cudnnBackendFinalize(conv));
    op = New(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    const double alpha = 1.0 / 3;
    const float beta = 0.0f;
    const auto one = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    Set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, one, 1, &conv);
    Set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, one, 1, &x);
    Set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, one, 1, &w);
    Set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, one, 1, &y);
    Set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_DOUBLE, 1, &alpha);
    Set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &beta);
    Ok(cudnnBackendFinalize(op));
  }
};

std::string HeldBy(cudnnBackendDescriptor_t tensor) {
  return Read(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64) +
         Read(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64) +
         Read(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64) +
         Read(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64) +
         Read(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN) +
         Read(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
}

TEST(CallLogReplay, BackendGraphsAreMadeAgain) {
  Listening log;
  const Graph graph;
  Replay replay;
  MakeAll(replay, log.Stop());
  if (HasFatalFailure()) return;

  for (const cudnnBackendDescriptor_t tensor : {graph.x, graph.w, graph.y})
    EXPECT_EQ(HeldBy(replay.Of(tensor)), HeldBy(tensor));
  EXPECT_NE(HeldBy(graph.x), HeldBy(graph.w)) << "so that the comparison can fail";
  for (const auto name : {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                          CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_DILATIONS})
    EXPECT_EQ(Read(replay.Of(graph.conv), name, CUDNN_TYPE_INT64),
              Read(graph.conv, name, CUDNN_TYPE_INT64));
  const auto alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA;
  EXPECT_EQ(Read(replay.Of(graph.op), alpha, CUDNN_TYPE_DOUBLE),
            Read(graph.op, alpha, CUDNN_TYPE_DOUBLE));
  // The operation of the replay refers to tensors of the replay.
  cudnnBackendDescriptor_t x = nullptr;
  Ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &x));
  int64_t count = 0;
  Ok(cudnnBackendGetAttribute(replay.Of(graph.op), CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &x));
  EXPECT_EQ(HeldBy(x), HeldBy(graph.x));
}

// From a handle to numbers: operation graph, heuristics, plan and execution, on the same memory.
TEST(CallLogReplay, PlansAreMadeAgainAndRun) {
  std::vector<float> x(2 * 3 * 5 * 5), w(4 * 3 * 3 * 3), y(2 * 4 * 5 * 5);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11) - 5;
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 7) - 3;
  alignas(256) std::array<char, kFakeWorkspace> workspace{};
  Listening log;
  {
    cudnnHandle_t handle = nullptr;
    Ok(cudnnCreate(&handle));
    const auto graph = [&] {
      const client::Desc tx = client::Tensor(1, {2, 3, 5, 5}), tw = client::Tensor(2, {4, 3, 3, 3}),
                         ty = client::Tensor(3, {2, 4, 5, 5});
      const client::Desc conv = client::ConvForward(tx, tw, ty, client::Convolution(2, 1));
      return client::Graph(handle, {&conv});
    }();
    const std::vector<client::Desc> configs =
        client::Results(client::Heuristics(graph, CUDNN_HEUR_MODE_A));
    ASSERT_EQ(configs.size(), 2u);
    const client::Desc plan = client::Plan(handle, configs[1]);
    const client::Desc pack =
        client::Pack({3, 1, 2}, {y.data(), x.data(), w.data()}, workspace.data());
    Ok(cudnnBackendExecute(handle, plan.raw(), pack.raw()));
    Ok(cudnnDestroy(handle));
  }
  const std::string text = log.Stop();
  const std::vector<float> first = y;
  EXPECT_NE(std::ranges::count(first, 0.0f), static_cast<int64_t>(first.size()));
  std::ranges::fill(y, -77.0f);
  Replay replay;
  MakeAll(replay, text);
  EXPECT_EQ(y, first);
}

}  // namespace
}  // namespace kiln::api
