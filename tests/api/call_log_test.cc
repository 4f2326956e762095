// The arguments of calls in the API log: that every exported function has its own there, what each
// kind of argument looks like, that pointers which lead nowhere are safe, and that a log is enough
// to make its calls again.
#include "api/call_log.h"

#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/api/call_log_text.h"
#include "tests/api/fake_session.h"

namespace kiln::api {
namespace {

using kiln::testing::LoggedArgument;
using kiln::testing::LoggedCall;
using kiln::testing::ParseLog;

// ---- the table
// -----------------------------------------------------------------------------------

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

TEST(CallLogTable, EveryExportedFunctionHasItsArguments) {
  std::ifstream file("api/spec/functions.tsv");
  ASSERT_TRUE(file) << "api/spec/functions.tsv";
  std::string line;
  std::getline(file, line);
  size_t functions = 0, parameters = 0;
  while (std::getline(file, line)) {
    const std::vector<std::string> row = Split(line, '\t');
    if (row.size() < 8 || row[6].empty()) continue;
    const std::string& signature = row.size() > 8 && !row[8].empty() ? row[8] : row[7];
    const size_t open = signature.find('(');
    const std::string inside = signature.substr(open + 1, signature.size() - open - 2);
    const auto table = ParametersOf(row[0]);
    ASSERT_TRUE(table) << row[0];
    ++functions;
    const std::vector<std::string> declared =
        inside.empty() ? std::vector<std::string>{} : Split(inside, ',');
    ASSERT_EQ(table->size(), declared.size()) << row[0];
    for (size_t i = 0; i < declared.size(); ++i) {
      const Parameter& p = (*table)[i];
      const std::string& text = declared[i];
      EXPECT_EQ(p.name, text.substr(text.rfind(' ') + 1)) << row[0];
      const bool pointer = text.find('*') != text.npos;
      const bool number = p.form == Form::kValue;
      EXPECT_FALSE(pointer && number) << row[0] << ": " << text;
      EXPECT_FALSE(pointer && p.form == Form::kRead) << row[0] << ": " << text;
      ++parameters;
    }
  }
  EXPECT_GT(functions, 270u);
  EXPECT_GT(parameters, 2000u);
  EXPECT_FALSE(ParametersOf("cudnnNoSuchFunction"));
}

// ---- values
// --------------------------------------------------------------------------------------

template <class T>
uint64_t At(const T* memory) {
  return std::bit_cast<uint64_t>(memory);
}

TEST(CallLogValues, AreWrittenByTheirTypes) {
  const int dims[] = {2, -3, 4, 5}, strides[] = {60, 20, 5, 1};
  EXPECT_EQ(ArgumentLines("cudnnSetTensorNdDescriptor",
                          std::array{uint64_t{0}, uint64_t{0}, uint64_t{4}, At(dims), At(strides)}),
            "\n    tensorDesc: type=cudnnTensorDescriptor_t; val=NULL_PTR;"
            "\n    dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);"
            "\n    nbDims: type=int; val=4;"
            "\n    dimA: type=int; val=[2,-3,4,5];"
            "\n    strideA: type=int; val=[60,20,5,1];");
  EXPECT_EQ(
      ArgumentLines("cudnnSetLRNDescriptor",
                    std::array{uint64_t{0}, uint64_t{5}, std::bit_cast<uint64_t>(0.1),
                               std::bit_cast<uint64_t>(-2.0), std::bit_cast<uint64_t>(1e300)}),
      "\n    normDesc: type=cudnnLRNDescriptor_t; val=NULL_PTR;"
      "\n    lrnN: type=unsigned; val=5;"
      "\n    lrnAlpha: type=double; val=0.1;"
      "\n    lrnBeta: type=double; val=-2;"
      "\n    lrnK: type=double; val=1e+300;");
  EXPECT_EQ(ArgumentLines("cudnnSetConvolutionMathType",
                          std::array{uint64_t{0x123}, uint64_t{0xffffffff}}),
            "\n    convDesc: type=cudnnConvolutionDescriptor_t; val=0x123;"
            "\n    mathType: type=cudnnMathType_t; val=INVALID_CUDNNMATHTYPE_TYPE (-1);");
  EXPECT_EQ(ArgumentLines("cudnnGetErrorString", std::array{uint64_t{2000}}),
            "\n    status: type=cudnnStatus_t; val=CUDNN_STATUS_BAD_PARAM (2000);");
}

// Memory that is not there is an address; so are arrays that the call refuses before it reads them,
// and places for results, whatever they hold.
TEST(CallLogValues, PointersThatLeadNowhereAreAddresses) {
  const int dims[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto lines = [&](int count, uint64_t memory) {
    return ArgumentLines(
        "cudnnSetTensorNdDescriptor",
        std::array{uint64_t{0x10}, uint64_t{2}, static_cast<uint64_t>(count), memory, uint64_t{0}});
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << text << "\n" << part;
  };
  has(lines(4, 0x10), "\n    dimA: location=host; addr=0x10;");
  has(lines(4, ~uint64_t{0}), "\n    dimA: location=host; addr=0xffffffffffffffff;");
  has(lines(4, 0), "\n    dimA: type=int; val=NULL_PTR;");
  has(lines(8, At(dims)), "\n    dimA: type=int; val=[1,2,3,4,5,6,7,8];");
  has(lines(9, At(dims)), "\n    dimA: location=host; addr=0x");
  has(lines(-1, At(dims)), "\n    dimA: location=host; addr=0x");
  has(lines(0, At(dims)), "\n    dimA: type=int; val=[];");
  has(ArgumentLines("cudnnGetTensorSizeInBytes", std::array{uint64_t{0x20}, uint64_t{0x30}}),
      "\n    tensorDesc: type=cudnnTensorDescriptor_t; val=0x20;"
      "\n    size: location=host; addr=0x30;");
  has(ArgumentLines("cudnnBackendSetAttribute",
                    std::array{uint64_t{0x40}, uint64_t{CUDNN_ATTR_TENSOR_DIMENSIONS},
                               uint64_t{CUDNN_TYPE_INT64}, ~uint64_t{0}, uint64_t{0x50}}),
      "\n    arrayOfElements: location=host; addr=0x50;");
}

// ---- calls
// ---------------------------------------------------------------------------------------

std::string* heard = nullptr;

void Hear(cudnnSeverity_t, void*, const cudnnDebug_t*, const char* message) {
  *heard += std::string(message) + "\n";
}

// What is logged while it lives.
class Listening {
 public:
  Listening() {
    heard = &text_;
    cudnnSetCallback(CUDNN_SEV_INFO_EN | CUDNN_SEV_ERROR_EN, nullptr, Hear);
  }
  ~Listening() { Stop(); }
  const std::string& Stop() {
    if (heard == &text_) cudnnSetCallback(0, nullptr, nullptr);
    heard = nullptr;
    return text_;
  }

 private:
  std::string text_;
};

void Ok(cudnnStatus_t status) { ASSERT_EQ(status, CUDNN_STATUS_SUCCESS); }

TEST(CallLog, FactorsAreReadByTheTensorsType) {
  cudnnTensorDescriptor_t x = nullptr;
  Ok(cudnnCreateTensorDescriptor(&x));
  const float f = 0.1f, third = 1.0f / 3;
  const double d = 2.5;
  for (const auto& [type, alpha, text] :
       {std::tuple<cudnnDataType_t, const void*, const char*>{
            CUDNN_DATA_HALF, &f, "alpha: type=CUDNN_DATA_FLOAT; val=0.100000;"},
        {CUDNN_DATA_INT8, &third, "alpha: type=CUDNN_DATA_FLOAT; val=0.33333334;"},
        {CUDNN_DATA_DOUBLE, &d, "alpha: type=CUDNN_DATA_DOUBLE; val=2.500000;"},
        {CUDNN_DATA_DOUBLE, nullptr, "alpha: type=CUDNN_DATA_DOUBLE; val=NULL_PTR;"},
        {CUDNN_DATA_FLOAT, std::bit_cast<const void*>(uint64_t{64}),
         "alpha: location=host; addr=0x40;"}}) {
    Ok(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, type, 1, 1, 1, 1));
    Listening log;
    EXPECT_NE(cudnnScaleTensor(nullptr, x, nullptr, alpha), CUDNN_STATUS_SUCCESS);
    EXPECT_NE(log.Stop().find(text), std::string::npos) << text << "\n" << log.Stop();
  }
  cudnnDestroyTensorDescriptor(x);
}

TEST(CallLog, NothingIsWrittenWhereNobodyListens) {
  std::string text;
  {
    Listening log;
    cudnnTensorDescriptor_t x = nullptr;
    Ok(cudnnCreateTensorDescriptor(&x));
    Ok(cudnnDestroyTensorDescriptor(x));
    text = log.Stop();
    Ok(cudnnCreateTensorDescriptor(&x));
    Ok(cudnnDestroyTensorDescriptor(x));
    EXPECT_EQ(log.Stop(), text);
  }
  const std::vector<LoggedCall> calls = ParseLog(text, "");
  ASSERT_EQ(calls.size(), 4u) << text;
  EXPECT_EQ(calls[0].what, "called");
  EXPECT_EQ(calls[1].what, "made");
  EXPECT_EQ(calls[2].function, "cudnnDestroyTensorDescriptor");
  EXPECT_EQ(calls[3].function, "cudnnSetCallback");
  EXPECT_EQ(calls[1].Find("tensorDesc")->value, calls[2].Find("tensorDesc")->value);
}

// ---- again
// ---------------------------------------------------------------------------------------

// Descriptors by their addresses in the log, and what was made in their places.
class Replay {
 public:
  void Make(const LoggedCall& call) {
    const auto row = Rows().find(call.function);
    if (call.what == "made") {
      objects_[call.arguments.at(0).value] = last_made_;
    } else {
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
  // The elements' bytes by the types that their lines name.
  cudnnStatus_t SetAttribute() {
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
      else if (a.type.starts_with("CUDNN_BACKEND_"))
        add(objects_.at(a.value));
      else
        add(static_cast<int>(a.number()));
    }
    return cudnnBackendSetAttribute(Object<cudnnBackendDescriptor_t>("descriptor"),
                                    Enum<cudnnBackendAttributeName_t>("attributeName"),
                                    Enum<cudnnBackendAttributeType_t>("attributeType"),
                                    Arg("elementCount").number(), bytes.data());
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
    };
    return rows;
  }

  const LoggedCall* call_ = nullptr;
  void* last_made_ = nullptr;
  std::map<std::string, void*> objects_;
};

void MakeAll(Replay& replay, const std::string& log) {
  for (const LoggedCall& call : ParseLog(log, "")) {
    if (call.function != "cudnnSetCallback") replay.Make(call);
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

}  // namespace
}  // namespace kiln::api
