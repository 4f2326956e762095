// Algorithms of a convolution against the problems that they take: for each geometry of
// tests/data/convolution_algorithms.tsv what NVIDIA's 9.19 answered on an H100, in all three
// directions. A named method is taken where 9.19 takes it and nowhere else; the two algorithms that
// are plans of ours are taken at least there. A string of the table has a 1 or 0 for each
// algorithm.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/api/legacy/legacy_status.h"

namespace {

struct Problem {
  std::vector<int> types;
  int math, mode, groups;
  std::string layouts;
  int n, c, k;
  std::vector<int> x, filter, padding, stride, dilation;
  std::string taken[3];
  std::string text;

  int spatial() const { return static_cast<int>(x.size()); }
  bool is_float() const { return types[3] != CUDNN_DATA_INT32; }
};

std::vector<int> Ints(const std::string& text, char separator) {
  std::vector<int> values;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, separator);) values.push_back(std::stoi(one));
  return values;
}

std::vector<Problem> Problems() {
  std::ifstream file("tests/data/convolution_algorithms.tsv");
  std::vector<Problem> problems;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::vector<std::string> v;
    std::istringstream in(line);
    for (std::string one; std::getline(in, one, '\t');) v.push_back(one);
    problems.push_back({.types = Ints(v[0], ','),
                        .math = std::stoi(v[1]),
                        .mode = std::stoi(v[2]),
                        .groups = std::stoi(v[3]),
                        .layouts = v[4],
                        .n = std::stoi(v[5]),
                        .c = std::stoi(v[6]),
                        .k = std::stoi(v[7]),
                        .x = Ints(v[8], 'x'),
                        .filter = Ints(v[9], 'x'),
                        .padding = Ints(v[10], 'x'),
                        .stride = Ints(v[11], 'x'),
                        .dilation = Ints(v[12], 'x'),
                        .taken = {v[13], v[14], v[15]},
                        .text = line});
  }
  return problems;
}

// Layout 0 is NCHW, 1 NHWC, 2 NCHW_VECT_C; 3 is NCHW with a gap of 7 after each channel, 4 with one
// of 3 after each row.
cudnnStatus_t SetTensor(cudnnTensorDescriptor_t tensor, int type, char layout,
                        const std::vector<int>& dims) {
  const int rank = static_cast<int>(dims.size());
  const auto data_type = static_cast<cudnnDataType_t>(type);
  if (layout < '3')
    return cudnnSetTensorNdDescriptorEx(tensor, static_cast<cudnnTensorFormat_t>(layout - '0'),
                                        data_type, rank, dims.data());
  std::vector<int> strides(dims.size());
  int stride = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= dims[d];
    if (layout == '4' && d + 1 == dims.size()) stride += 3;
    if (layout == '3' && d == 2) stride += 7;
  }
  return cudnnSetTensorNdDescriptor(tensor, data_type, rank, dims.data(), strides.data());
}

class ConvolutionAlgorithms : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&x_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&y_), kOk);
    ASSERT_EQ(cudnnCreateFilterDescriptor(&w_), kOk);
    ASSERT_EQ(cudnnCreateConvolutionDescriptor(&conv_), kOk);
  }
  void TearDown() override {
    EXPECT_EQ(cudnnDestroyTensorDescriptor(x_), kOk);
    EXPECT_EQ(cudnnDestroyTensorDescriptor(y_), kOk);
    EXPECT_EQ(cudnnDestroyFilterDescriptor(w_), kOk);
    EXPECT_EQ(cudnnDestroyConvolutionDescriptor(conv_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  void Describe(const Problem& p) {
    std::vector<int> x = {p.n, p.c}, w = {p.k, p.c / p.groups}, y = {p.n, p.k};
    for (size_t i = 0; i < p.x.size(); ++i) {
      x.push_back(p.x[i]);
      w.push_back(p.filter[i]);
      const int window = p.dilation[i] * (p.filter[i] - 1) + 1;
      y.push_back((p.x[i] + 2 * p.padding[i] - window) / p.stride[i] + 1);
    }
    ASSERT_EQ(SetTensor(x_, p.types[0], p.layouts[0], x), kOk);
    ASSERT_EQ(SetTensor(y_, p.types[2], p.layouts[2], y), kOk);
    ASSERT_EQ(cudnnSetFilterNdDescriptor(w_, static_cast<cudnnDataType_t>(p.types[1]),
                                         static_cast<cudnnTensorFormat_t>(p.layouts[1] - '0'),
                                         static_cast<int>(w.size()), w.data()),
              kOk);
    ASSERT_EQ(cudnnSetConvolutionNdDescriptor(conv_, p.spatial(), p.padding.data(), p.stride.data(),
                                              p.dilation.data(),
                                              static_cast<cudnnConvolutionMode_t>(p.mode),
                                              static_cast<cudnnDataType_t>(p.types[3])),
              kOk);
    ASSERT_EQ(cudnnSetConvolutionGroupCount(conv_, p.groups), kOk);
    // 9.19 goes by it nowhere, and the session of this test has no engine for CUDNN_FMA_MATH.
    const auto math =
        p.math == CUDNN_FMA_MATH ? CUDNN_DEFAULT_MATH : static_cast<cudnnMathType_t>(p.math);
    ASSERT_EQ(cudnnSetConvolutionMathType(conv_, math), kOk);
  }
  cudnnStatus_t WorkspaceSize(int direction, int algorithm, size_t* bytes) {
    switch (direction) {
      case 0:
        return cudnnGetConvolutionForwardWorkspaceSize(
            handle_, x_, w_, conv_, y_, static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), bytes);
      case 1:
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            handle_, w_, y_, conv_, x_, static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm),
            bytes);
      default:
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            handle_, x_, y_, conv_, w_, static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm),
            bytes);
    }
  }
  // The forward direction's list: structs of the others differ in the type of `algo` alone.
  std::vector<cudnnConvolutionFwdAlgoPerf_t> Ranked() {
    std::vector<cudnnConvolutionFwdAlgoPerf_t> perfs(16);
    int count = 0;
    EXPECT_EQ(cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, conv_, y_, 16, &count,
                                                     perfs.data()),
              kOk);
    perfs.resize(static_cast<size_t>(count));
    return perfs;
  }

  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
};

TEST_F(ConvolutionAlgorithms, AreTakenWhereNvidiaTakesThem) {
  const std::vector<Problem> problems = Problems();
  EXPECT_GE(problems.size(), 1000u);
  int taken = 0, refused = 0;
  for (const Problem& p : problems) {
    Describe(p);
    for (int direction = 0; direction < 3; ++direction) {
      for (int algorithm = 0; algorithm < static_cast<int>(p.taken[direction].size());
           ++algorithm) {
        size_t bytes = 0;
        const cudnnStatus_t status = WorkspaceSize(direction, algorithm, &bytes);
        const bool theirs = p.taken[direction][static_cast<size_t>(algorithm)] == '1',
                   is_named = algorithm > 1;
        ++(status == kOk ? taken : refused);
        if (theirs || (!is_named && p.is_float())) {
          EXPECT_EQ(status, kOk) << direction << " " << algorithm << ": " << p.text;
        } else if (is_named) {
          EXPECT_TRUE(IsNotSupported(status)) << direction << " " << algorithm << ": " << p.text;
        }
      }
    }
  }
  EXPECT_GT(taken, 7000);
  EXPECT_GT(refused, 7000);
}

// Each algorithm once, with its own answer, and the shared plans' owner first.
TEST_F(ConvolutionAlgorithms, AreListedAsTheyAre) {
  const std::vector<Problem> problems = Problems();
  for (size_t i = 0; i < problems.size(); i += 5) {
    const Problem& p = problems[i];
    Describe(p);
    const std::vector<cudnnConvolutionFwdAlgoPerf_t> perfs = Ranked();
    ASSERT_EQ(perfs.size(), size_t{CUDNN_CONVOLUTION_FWD_ALGO_COUNT}) << p.text;
    EXPECT_EQ(perfs[0].algo, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) << p.text;
    std::set<int> seen;
    for (const cudnnConvolutionFwdAlgoPerf_t& perf : perfs) {
      EXPECT_TRUE(seen.insert(perf.algo).second) << perf.algo << ": " << p.text;
      size_t bytes = 0;
      EXPECT_EQ(WorkspaceSize(0, perf.algo, &bytes), perf.status) << perf.algo << ": " << p.text;
      if (perf.status == kOk) {
        EXPECT_EQ(bytes, perf.memory) << perf.algo << ": " << p.text;
        EXPECT_EQ(perf.determinism, CUDNN_DETERMINISTIC);
      }
    }
  }
}

}  // namespace
