// The arguments of calls in the API log: that every exported function has its own there, what each
// kind of argument looks like, that pointers which lead nowhere are safe, and that a log is enough
// to make its calls again.
#include "api/lifecycle/call_log.h"

#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/api/fake_session.h"
#include "tests/api/lifecycle/call_log_text.h"
#include "tests/api/lifecycle/listening.h"

namespace kiln::api {
namespace {

using kiln::testing::Listening;
using kiln::testing::LoggedCall;
using kiln::testing::ParseLog;

// ---- the table

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

TEST(CallLogValues, EachObjectThatWasMadeHasALine) {
  void* const made[] = {std::bit_cast<void*>(uint64_t{0x70}), std::bit_cast<void*>(uint64_t{0x80})};
  EXPECT_EQ(MadeLines("cudnnCreateAlgorithmPerformance", std::array{At(made), uint64_t{2}}),
            "\n    algoPerf: type=cudnnAlgorithmPerformance_t; val=0x70;"
            "\n    algoPerf: type=cudnnAlgorithmPerformance_t; val=0x80;");
  EXPECT_EQ(MadeLines("cudnnSetStream", std::array{At(made), uint64_t{2}}), "");
}

// Whatever the arguments are, each has its line, and none is followed to where nothing is.
TEST(CallLogValues, AnyArgumentsAreSafe) {
  std::ifstream file("api/spec/functions.tsv");
  cudnnTensorDescriptor_t x = nullptr;
  cudnnBackendDescriptor_t tensor = nullptr;
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&x), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  const std::vector<int> memory(64, 3);
  const uint64_t page = At(memory.data());
  std::mt19937_64 random(20261127);
  const std::array<uint64_t, 16> some = {0,
                                         1,
                                         2,
                                         3,
                                         8,
                                         902,
                                         4096,
                                         ~uint64_t{0},
                                         uint64_t{1} << 63,
                                         0xffffffff,
                                         At(x),
                                         At(tensor),
                                         At(handle),
                                         page,
                                         page + 1,
                                         At(x) + 1};
  size_t calls = 0;
  for (std::string line; std::getline(file, line);) {
    const auto parameters = ParametersOf(line.substr(0, line.find('\t')));
    if (!parameters) continue;
    const std::string name = line.substr(0, line.find('\t'));
    for (int round = 0; round < 40; ++round) {
      std::vector<uint64_t> values(parameters->size());
      for (uint64_t& value : values) {
        const uint64_t draw = random();
        value = draw % 5 == 0 ? random() : some[draw / 5 % some.size()];
      }
      const std::string text = ArgumentLines(name, values);
      for (const Parameter& p : *parameters) {
        const std::string key = "\n    " + std::string(p.name) + ": ";
        const bool elements = p.form == Form::kElements && text.find("\n    [0]: ") != text.npos;
        const bool none = p.form == Form::kElements && values[3] == 0;
        EXPECT_TRUE(elements || none || text.find(key) != text.npos) << name << text;
      }
      MadeLines(name, values);
      ++calls;
    }
  }
  EXPECT_GT(calls, 10000u);
  cudnnDestroyTensorDescriptor(x);
  cudnnBackendDestroyDescriptor(tensor);
  cudnnDestroy(handle);
}

// ---- calls

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

}  // namespace
}  // namespace kiln::api
