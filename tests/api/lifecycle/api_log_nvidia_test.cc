// The API log of the libraries as programs have them: every exported function writes a line for
// each of its arguments, and where NVIDIA's 9.19 writes a line about an argument, ours is the same.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/api/lifecycle/call_log_text.h"
#include "tests/support/legacy_client.h"
#include "tests/support/nvidia_library.h"

namespace kiln::testing {
namespace {

// The log of a process that opened the library and ran `client` on it.
std::string LogOf(const std::string& library, const std::function<void(void*)>& client) {
  const std::string path = ::testing::TempDir() + "/api_log.txt";
  std::ofstream(path).close();
  const pid_t child = fork();
  if (child == 0) {
    setenv("CUDNN_LOGLEVEL_DBG", "3", 1);
    setenv("CUDNN_LOGDEST_DBG", path.c_str(), 1);
    unsetenv("TEST_PREMATURE_EXIT_FILE");
    void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) _exit(2);
    client(opened);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << library << " " << status;
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// ---- every function

struct FunctionRow {
  std::string name;
  std::vector<std::string> parameters;
};

// The functions that a generation exports.
std::vector<FunctionRow> Exported(int generation) {
  std::ifstream file("api/spec/functions.tsv");
  std::vector<FunctionRow> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::stringstream in(line);
    for (std::string cell; std::getline(in, cell, '\t');) cells.push_back(cell);
    if (cells.size() < 8 || cells[6].empty() || cells[generation == 8 ? 2 : 3].empty()) continue;
    FunctionRow row{cells[0], {}};
    const std::string& signature = cells.size() > 8 && !cells[8].empty() ? cells[8] : cells[7];
    const std::regex parameter(R"((\w+)(?=, |\)$))");
    for (std::sregex_iterator at(signature.begin(), signature.end(), parameter), end; at != end;
         ++at)
      row.parameters.push_back(at->str(1));
    rows.push_back(row);
  }
  return rows;
}

// The functions that do not log: they cannot fail.
const std::set<std::string> kSilent = {"cudnnGetMaxDeviceVersion", "cudnnGetErrorString",
                                       "cudnnGetLastErrorString"};

// More zeros than any function has parameters: enough for it in registers and on the stack, and
// each is a NULL, a 0 or a first constant, which every function takes or refuses.
constexpr uint64_t Zero(size_t) { return 0; }
template <size_t... kAt>
void CallWithZeros(void* function, std::index_sequence<kAt...>) {
  reinterpret_cast<void (*)(decltype(Zero(kAt))...)>(function)(Zero(kAt)...);
}

class EveryFunction : public ::testing::TestWithParam<int> {};

TEST_P(EveryFunction, WritesEachOfItsArguments) {
  const int generation = GetParam();
  const std::vector<FunctionRow> rows = Exported(generation);
  ASSERT_GT(rows.size(), 200u);
  const std::string library = "api/libcudnn.so." + std::to_string(generation);
  const std::string text = LogOf(library, [&](void* opened) {
    for (const FunctionRow& row : rows) {
      if (row.name == "cudnnSetCallback") continue;  // would end the log: below
      void* const function = dlsym(opened, row.name.c_str());
      if (function == nullptr) _exit(3);
      CallWithZeros(function, std::make_index_sequence<40>());
    }
    CallWithZeros(dlsym(opened, "cudnnSetCallback"), std::make_index_sequence<40>());
  });
  std::map<std::string, std::vector<std::string>> written;
  for (const LoggedCall& call : ParseLog(text, "i! ")) {
    if (call.what != "called") continue;
    std::vector<std::string>& names = written[call.function];
    EXPECT_TRUE(names.empty()) << call.function << " was called once";
    for (const LoggedArgument& argument : call.arguments)
      if (argument.depth == 0) names.push_back(argument.name);
  }
  for (const FunctionRow& row : rows) {
    ASSERT_EQ(written.count(row.name), kSilent.count(row.name) == 0) << row.name;
    EXPECT_EQ(written[row.name],
              kSilent.count(row.name) ? std::vector<std::string>{} : row.parameters)
        << row.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Generations, EveryFunction, ::testing::Values(8, 9));

// ---- NVIDIA's

void LegacyScript(LegacyClient& c) {
  const int dims[] = {2, 3, 4, 5, 6}, strides[] = {360, 120, 30, 6, 1}, ones[] = {1, 2},
            lengths[] = {4, 2, 1};
  float one = 1.5f;
  auto t = c.New<cudnnTensorDescriptor_t>("Tensor");
  auto w = c.New<cudnnFilterDescriptor_t>("Filter");
  auto conv = c.New<cudnnConvolutionDescriptor_t>("Convolution");
  auto activation = c.New<cudnnActivationDescriptor_t>("Activation");
  auto pooling = c.New<cudnnPoolingDescriptor_t>("Pooling");
  auto lrn = c.New<cudnnLRNDescriptor_t>("LRN");
  auto reduce = c.New<cudnnReduceTensorDescriptor_t>("ReduceTensor");
  auto op = c.New<cudnnOpTensorDescriptor_t>("OpTensor");
  auto rnn = c.New<cudnnRNNDataDescriptor_t>("RNNData");
  auto ctc = c.New<cudnnCTCLossDescriptor_t>("CTCLoss");
  auto dropout = c.New<cudnnDropoutDescriptor_t>("Dropout");
  KILN_CALL(c, cudnnSetTensorNdDescriptor, t, CUDNN_DATA_DOUBLE, 5, dims, strides);
  KILN_CALL(c, cudnnSetTensorNdDescriptor, t, static_cast<cudnnDataType_t>(77), 5, dims, strides);
  KILN_CALL(c, cudnnSetTensorNdDescriptorEx, t, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 5, dims);
  size_t bytes = 0;
  KILN_CALL(c, cudnnGetTensorSizeInBytes, t, &bytes);
  KILN_CALL(c, cudnnSetTensor4dDescriptor, t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 4, 5);
  KILN_CALL(c, cudnnSetFilter4dDescriptor, w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 3, 3, 3);
  KILN_CALL(c, cudnnSetConvolution2dDescriptor, conv, 1, 2, 3, 4, 5, 6, CUDNN_CROSS_CORRELATION,
            CUDNN_DATA_FLOAT);
  KILN_CALL(c, cudnnSetConvolutionNdDescriptor, conv, 2, ones, ones, ones, CUDNN_CONVOLUTION,
            CUDNN_DATA_FLOAT);
  KILN_CALL(c, cudnnSetConvolutionMathType, conv, CUDNN_TENSOR_OP_MATH);
  KILN_CALL(c, cudnnSetConvolutionGroupCount, conv, 2);
  KILN_CALL(c, cudnnSetActivationDescriptor, activation, CUDNN_ACTIVATION_ELU, CUDNN_PROPAGATE_NAN,
            0.5);
  KILN_CALL(c, cudnnSetPooling2dDescriptor, pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2,
            3, 0, 1, 2, 2);
  KILN_CALL(c, cudnnSetLRNDescriptor, lrn, 5u, 1e-4, 0.75, 2.0);
  KILN_CALL(c, cudnnSetReduceTensorDescriptor, reduce, CUDNN_REDUCE_TENSOR_AMAX, CUDNN_DATA_FLOAT,
            CUDNN_PROPAGATE_NAN, CUDNN_REDUCE_TENSOR_NO_INDICES, CUDNN_32BIT_INDICES);
  KILN_CALL(c, cudnnSetOpTensorDescriptor, op, CUDNN_OP_TENSOR_MUL, CUDNN_DATA_FLOAT,
            CUDNN_PROPAGATE_NAN);
  KILN_CALL(c, cudnnSetRNNDataDescriptor, rnn, CUDNN_DATA_FLOAT,
            CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 5, 3, 7, lengths, &one);
  KILN_CALL(c, cudnnSetCTCLossDescriptorEx, ctc, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX,
            CUDNN_PROPAGATE_NAN);
  KILN_CALL(c, cudnnSetDropoutDescriptor, dropout, nullptr, 0.25f, nullptr, 0, 7ull);
  int n = 0, k = 0, p = 0, q = 0;
  KILN_CALL(c, cudnnGetConvolution2dForwardOutputDim, conv, t, w, &n, &k, &p, &q);
  // Refused for the handle: what the other arguments are is written before.
  void* const data = nullptr;
  KILN_CALL(c, cudnnLRNCrossChannelForward, nullptr, lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one, t,
            data, &one, t, data);
  KILN_CALL(c, cudnnActivationForward, nullptr, activation, &one, t, data, &one, t, data);
  KILN_CALL(c, cudnnPoolingForward, nullptr, pooling, &one, t, data, &one, t, data);
  KILN_CALL(c, cudnnOpTensor, nullptr, op, &one, t, data, &one, t, data, &one, t, data);
  KILN_CALL(c, cudnnReduceTensor, nullptr, reduce, data, 0, data, 0, &one, t, data, &one, t, data);
}

void BackendScript(LegacyClient& c) {
  const auto make = [&](cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    KILN_CALL(c, cudnnBackendCreateDescriptor, type, &made);
    return made;
  };
  const auto set = [&](cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t count, const void* data) {
    KILN_CALL(c, cudnnBackendSetAttribute, d, name, type, count, data);
  };
  const int64_t dims[] = {2, 3, 4, 5}, strides[] = {60, 20, 5, 1}, uid = 42, align = 16;
  const cudnnDataType_t half = CUDNN_DATA_HALF;
  const bool yes = true;
  cudnnBackendDescriptor_t x = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(x, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &half);
  set(x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
  set(x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
  set(x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  set(x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
  set(x, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
  KILN_CALL(c, cudnnBackendFinalize, x);
  int64_t count = 0, read[4];
  KILN_CALL(c, cudnnBackendGetAttribute, x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
            &count, read);
  cudnnBackendDescriptor_t pointwise = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_RELU_FWD;
  const double clip = 0.25;
  set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set(pointwise, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1, &clip);
  KILN_CALL(c, cudnnBackendFinalize, pointwise);
  cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
      &pointwise);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
  cudnnBackendDescriptor_t pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const int64_t uids[] = {1, 2};
  const void* const pointers[] = {dims, strides};
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 2, uids);
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 2, pointers);
}

// Lines of NVIDIA's that ours differ from, and why.
struct Difference {
  const char* line;
  const char* reason;
};
constexpr Difference kDifferences[] = {
    {"convDesc: location=host; .*", "objects have their types in ours, as others have"},
    {"vect: .*", "a filter of ours has its vectors by its data type"},
};
// Arguments that NVIDIA's log calls otherwise than the header does; ours has the header's names.
const std::map<std::string, std::map<std::string, std::string>> kOtherNames = {
    {"cudnnSetConvolution2dDescriptor", {{"dataType", "computeType"}}},
    {"cudnnSetConvolutionNdDescriptor",
     {{"dataType", "computeType"}, {"strideA", "filterStrideA"}}},
    {"cudnnSetLRNDescriptor",
     {{"n", "lrnN"}, {"alpha", "lrnAlpha"}, {"beta", "lrnBeta"}, {"k", "lrnK"}}},
    {"cudnnActivationForward",
     {{"srcDesc", "xDesc"}, {"srcData", "x"}, {"destDesc", "yDesc"}, {"destData", "y"}}},
    {"cudnnPoolingForward",
     {{"srcDesc", "xDesc"}, {"srcData", "x"}, {"destDesc", "yDesc"}, {"destData", "y"}}},
    {"cudnnOpTensor",
     {{"opDesc", "opTensorDesc"},
      {"aData", "A"},
      {"biasDesc", "bDesc"},
      {"biasData", "B"},
      {"destDesc", "cDesc"},
      {"destData", "C"}}},
    {"cudnnReduceTensor",
     {{"reduceDesc", "reduceTensorDesc"},
      {"aData", "A"},
      {"destDesc", "cDesc"},
      {"destData", "C"}}},
};

// The line with what differs between two processes taken out: addresses, and how an object is
// marked, which NVIDIA does by what it holds and ours by its address.
std::string Plain(const LoggedArgument& argument, const std::string& name) {
  std::string text = name + argument.line.substr(argument.line.find(": "));
  text = std::regex_replace(text, std::regex("0x[0-9a-f]+"), "0x…");
  text = std::regex_replace(text, std::regex(R"(^(\w+: type=\w+)(; val=0x…;|: ?)$)"), "$1");
  return std::string(static_cast<size_t>(argument.depth), '>') + text;
}

// The calls that the log has in both libraries: NVIDIA's writes a second message behind calls of
// the backend, which has their status alone.
std::vector<LoggedCall> CallsOf(const std::string& log) {
  std::vector<LoggedCall> calls;
  for (LoggedCall& call : ParseLog(log, "i! ")) {
    const bool only_status = call.arguments.size() == 1 && call.arguments[0].name == "status";
    if (call.what == "called" && !only_status) calls.push_back(std::move(call));
  }
  return calls;
}

bool IsKnown(const LoggedArgument& argument) {
  for (const Difference& d : kDifferences)
    if (std::regex_match(argument.line, std::regex(d.line))) return true;
  return false;
}

TEST(NvidiaLog, HasNoLineThatOursLacks) {
  const std::string path = NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  if (ProbeVersion(path) / 100 != 919) GTEST_SKIP() << path << " is not 9.19";
  const auto script = [](void* library) {
    LegacyClient client(library);
    LegacyScript(client);
    BackendScript(client);
  };
  const std::vector<LoggedCall> theirs = CallsOf(LogOf(path, script));
  const std::vector<LoggedCall> ours = CallsOf(LogOf("api/libcudnn.so.9", script));
  ASSERT_GT(ours.size(), 60u);
  size_t at = 0, lines = 0;
  for (const LoggedCall& call : theirs) {
    // Functions of NVIDIA's call others of its, which are logged too.
    if (at == ours.size() || ours[at].function != call.function) continue;
    const LoggedCall& own = ours[at++];
    const auto names = kOtherNames.find(call.function);
    size_t next = 0;
    bool of_backend = false;  // what a backend descriptor holds was written when it was set
    for (const LoggedArgument& argument : call.arguments) {
      if (argument.depth == 0) of_backend = argument.type.starts_with("CUDNN_BACKEND_");
      if ((argument.depth > 0 && of_backend) || IsKnown(argument)) continue;
      std::string name = argument.name;
      if (names != kOtherNames.end() && argument.depth == 0 && names->second.count(name))
        name = names->second.at(name);
      const std::string wanted = Plain(argument, name);
      size_t found = next;
      while (found < own.arguments.size() &&
             Plain(own.arguments[found], own.arguments[found].name) != wanted)
        ++found;
      ++lines;
      EXPECT_LT(found, own.arguments.size())
          << call.function << " lacks, or has elsewhere: " << wanted;
      if (found < own.arguments.size()) next = found + 1;
    }
  }
  EXPECT_EQ(at, ours.size());
  EXPECT_GT(lines, 250u);
}

}  // namespace
}  // namespace kiln::testing
