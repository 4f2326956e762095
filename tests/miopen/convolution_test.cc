// Convolutions of kiln/miopen.h, and transposed ones, against the oracle.
#include <algorithm>

#include "tests/miopen/client.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

// f32 operands may be rounded to TF32, as cuDNN's are.
constexpr oracle::Precision kPrecision = {.compute = oracle::DType::kF32,
                                          .operand_roundoff = 0x1p-11};
constexpr int kPad = 1, kStrideH = 2, kStrideW = 1;
const oracle::ConvGeometry kGeometry = {.pre_padding = {kPad, kPad},
                                        .post_padding = {kPad, kPad},
                                        .stride = {kStrideH, kStrideW},
                                        .dilation = {1, 1}};

class MiopenConvolution : public MiopenTest {
 protected:
  void SetUp() override {
    MiopenTest::SetUp();
    ASSERT_EQ(MIOPEN(CreateConvolutionDescriptor, &conv_), miopenStatusSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(MIOPEN(DestroyConvolutionDescriptor, conv_), miopenStatusSuccess);
    MiopenTest::TearDown();
  }
  void Init(miopenConvolutionMode_t mode) {
    ASSERT_EQ(MIOPEN(InitConvolutionDescriptor, conv_, mode, kPad, kPad, kStrideH, kStrideW, 1, 1),
              miopenStatusSuccess);
  }
  Dims OutputDims(const MiopenTensor& x, const MiopenTensor& w) {
    int n = 0, c = 0, h = 0, width = 0;
    EXPECT_EQ(MIOPEN(GetConvolutionForwardOutputDim, conv_, x.desc(), w.desc(), &n, &c, &h, &width),
              miopenStatusSuccess);
    return {n, c, h, width};
  }
  // The numbers that Find gives are true of the algorithms that it names.
  void CheckPerfs(const Done&, size_t bytes) {
    ASSERT_GE(found_, 1);
    for (int i = 0; i < found_; ++i) {
      EXPECT_LE(perfs_[i].memory, bytes);
      if (i > 0) {
        EXPECT_GE(perfs_[i].time, perfs_[i - 1].time);
      }
    }
  }

  miopenConvolutionDescriptor_t conv_ = nullptr;
  miopenConvAlgoPerf_t perfs_[8];
  int found_ = 0;
};

// y = forward of a convolution, or dx of a transposed one: the same numbers.
TEST_F(MiopenConvolution, Forward) {
  Init(miopenConvolution);
  const auto x = Tensor({2, 5, 9, 7}), w = Tensor({6, 5, 3, 3});
  const Dims dims = OutputDims(*x, *w);
  EXPECT_EQ(dims, oracle::ConvOutputDims(kGeometry, x->dims(), w->dims()));
  size_t bytes = 0;
  const auto found = Tensor(dims);
  ASSERT_EQ(MIOPEN(ConvolutionForwardGetWorkSpaceSize, handle_, w->desc(), x->desc(), conv_,
                   found->desc(), &bytes),
            miopenStatusSuccess);
  const Buffer workspace(*device_, bytes);
  CheckPerfs(MIOPEN(FindConvolutionForwardAlgorithm, handle_, x->desc(), x->data(), w->desc(),
                    w->data(), conv_, found->desc(), found->data(), 8, &found_, perfs_,
                    workspace.data(), bytes, false),
             bytes);
  for (int i = 0; i < found_; ++i) {
    for (const MiopenFactors f : kMiopenFactors) {
      const auto y = Tensor(dims);
      const Dense prior = y->Before();
      const Done status =
          MIOPEN(ConvolutionForward, handle_, &f.alpha, x->desc(), x->data(), w->desc(), w->data(),
                 conv_, perfs_[i].fwd_algo, &f.beta, y->desc(), y->data(), workspace.data(), bytes);
      Expect({status,
              {y->Check(oracle::ConvFprop(kGeometry, x->Before(), w->Before(),
                                          {f.alpha, f.beta, &prior}, kPrecision)),
               x->CheckUnchanged(), w->CheckUnchanged()}});
    }
  }
}

// 3x3 filters of stride 1 in f32, with channels enough, are what Kiln's Winograd takes, on a GPU;
// elsewhere the name has the plans of ImplicitGEMM.
TEST_F(MiopenConvolution, Winograd) {
  const oracle::ConvGeometry geometry = {
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  ASSERT_EQ(MIOPEN(InitConvolutionDescriptor, conv_, miopenConvolution, 1, 1, 1, 1, 1, 1),
            miopenStatusSuccess);
  const auto x = Tensor({2, 16, 9, 7}), w = Tensor({24, 16, 3, 3}), y = Tensor({2, 24, 9, 7});
  size_t bytes = 0;
  ASSERT_EQ(MIOPEN(ConvolutionForwardGetWorkSpaceSize, handle_, w->desc(), x->desc(), conv_,
                   y->desc(), &bytes),
            miopenStatusSuccess);
  const Buffer workspace(*device_, bytes);
  CheckPerfs(
      MIOPEN(FindConvolutionForwardAlgorithm, handle_, x->desc(), x->data(), w->desc(), w->data(),
             conv_, y->desc(), y->data(), 8, &found_, perfs_, workspace.data(), bytes, false),
      bytes);
  const bool named = std::any_of(perfs_, perfs_ + found_, [](const miopenConvAlgoPerf_t& perf) {
    return perf.fwd_algo == miopenConvolutionFwdAlgoWinograd;
  });
  EXPECT_TRUE(named);
  const auto result = Tensor(y->dims());
  const miopenStatus_t status =
      MIOPEN(ConvolutionForward, handle_, &kOne, x->desc(), x->data(), w->desc(), w->data(), conv_,
             miopenConvolutionFwdAlgoWinograd, &kZero, result->desc(), result->data(),
             workspace.data(), bytes);
  Expect({status,
          {result->Check(oracle::ConvFprop(geometry, x->Before(), w->Before(), {}, kPrecision))}});
}

TEST_F(MiopenConvolution, BackwardData) {
  Init(miopenConvolution);
  const auto dx = Tensor({2, 5, 9, 7}), w = Tensor({6, 5, 3, 3});
  const auto dy = Tensor(OutputDims(*dx, *w));
  size_t bytes = 0;
  ASSERT_EQ(MIOPEN(ConvolutionBackwardDataGetWorkSpaceSize, handle_, dy->desc(), w->desc(), conv_,
                   dx->desc(), &bytes),
            miopenStatusSuccess);
  const Buffer workspace(*device_, bytes);
  CheckPerfs(MIOPEN(FindConvolutionBackwardDataAlgorithm, handle_, dy->desc(), dy->data(),
                    w->desc(), w->data(), conv_, dx->desc(), dx->data(), 8, &found_, perfs_,
                    workspace.data(), bytes, true),
             bytes);
  for (int i = 0; i < found_; ++i) {
    for (const MiopenFactors f : kMiopenFactors) {
      const auto result = Tensor(dx->dims());
      const Dense prior = result->Before();
      const Done status = MIOPEN(ConvolutionBackwardData, handle_, &f.alpha, dy->desc(), dy->data(),
                                 w->desc(), w->data(), conv_, perfs_[i].bwd_data_algo, &f.beta,
                                 result->desc(), result->data(), workspace.data(), bytes);
      Expect({status,
              {result->Check(oracle::ConvDgrad(kGeometry, dy->Before(), w->Before(), dx->dims(),
                                               {f.alpha, f.beta, &prior}, kPrecision))}});
    }
  }
}

TEST_F(MiopenConvolution, BackwardWeights) {
  Init(miopenConvolution);
  const auto x = Tensor({2, 5, 9, 7}), dw = Tensor({6, 5, 3, 3});
  const auto dy = Tensor(OutputDims(*x, *dw));
  size_t bytes = 0;
  ASSERT_EQ(MIOPEN(ConvolutionBackwardWeightsGetWorkSpaceSize, handle_, dy->desc(), x->desc(),
                   conv_, dw->desc(), &bytes),
            miopenStatusSuccess);
  const Buffer workspace(*device_, bytes);
  CheckPerfs(MIOPEN(FindConvolutionBackwardWeightsAlgorithm, handle_, dy->desc(), dy->data(),
                    x->desc(), x->data(), conv_, dw->desc(), dw->data(), 8, &found_, perfs_,
                    workspace.data(), bytes, false),
             bytes);
  for (int i = 0; i < found_; ++i) {
    for (const MiopenFactors f : kMiopenFactors) {
      const auto result = Tensor(dw->dims());
      const Dense prior = result->Before();
      const Done status =
          MIOPEN(ConvolutionBackwardWeights, handle_, &f.alpha, dy->desc(), dy->data(), x->desc(),
                 x->data(), conv_, perfs_[i].bwd_weights_algo, &f.beta, result->desc(),
                 result->data(), workspace.data(), bytes);
      Expect({status,
              {result->Check(oracle::ConvWgrad(kGeometry, x->Before(), dy->Before(), dw->dims(),
                                               {f.alpha, f.beta, &prior}, kPrecision))}});
    }
  }
}

// A transposed convolution's x is as large as the other's y, and the filter has x's channels first.
TEST_F(MiopenConvolution, Transposed) {
  Init(miopenTranspose);
  const auto x = Tensor({2, 6, 5, 7}), w = Tensor({6, 5, 3, 3});
  const Dims dims = OutputDims(*x, *w);
  EXPECT_EQ(dims, (Dims{2, 5, 9, 7}));
  const auto y = Tensor(dims), dy = Tensor(dims), dx = Tensor(x->dims()), dw = Tensor(w->dims());
  size_t bytes[3] = {};
  ASSERT_EQ(MIOPEN(ConvolutionForwardGetWorkSpaceSize, handle_, w->desc(), x->desc(), conv_,
                   y->desc(), &bytes[0]),
            miopenStatusSuccess);
  ASSERT_EQ(MIOPEN(ConvolutionBackwardDataGetWorkSpaceSize, handle_, dy->desc(), w->desc(), conv_,
                   dx->desc(), &bytes[1]),
            miopenStatusSuccess);
  ASSERT_EQ(MIOPEN(ConvolutionBackwardWeightsGetWorkSpaceSize, handle_, dy->desc(), x->desc(),
                   conv_, dw->desc(), &bytes[2]),
            miopenStatusSuccess);
  const size_t most = std::max({bytes[0], bytes[1], bytes[2]});
  const Buffer workspace(*device_, most);
  CheckPerfs(
      MIOPEN(FindConvolutionForwardAlgorithm, handle_, x->desc(), x->data(), w->desc(), w->data(),
             conv_, y->desc(), y->data(), 1, &found_, perfs_, workspace.data(), most, false),
      most);
  EXPECT_EQ(found_, 1);
  Expect(
      {MIOPEN(ConvolutionForward, handle_, &kOne, x->desc(), x->data(), w->desc(), w->data(), conv_,
              perfs_[0].fwd_algo, &kZero, y->desc(), y->data(), workspace.data(), most),
       {y->Check(oracle::ConvDgrad(kGeometry, x->Before(), w->Before(), dims, {}, kPrecision))}});
  Expect({MIOPEN(ConvolutionBackwardData, handle_, &kOne, dy->desc(), dy->data(), w->desc(),
                 w->data(), conv_, miopenConvolutionBwdDataAlgoDirect, &kZero, dx->desc(),
                 dx->data(), workspace.data(), most),
          {dx->Check(oracle::ConvFprop(kGeometry, dy->Before(), w->Before(), {}, kPrecision))}});
  Expect({MIOPEN(ConvolutionBackwardWeights, handle_, &kOne, dy->desc(), dy->data(), x->desc(),
                 x->data(), conv_, miopenConvolutionBwdWeightsAlgoImplicitGEMM, &kZero, dw->desc(),
                 dw->data(), workspace.data(), most),
          {dw->Check(oracle::ConvWgrad(kGeometry, dy->Before(), x->Before(), dw->dims(), {},
                                       kPrecision))}});
}

TEST_F(MiopenConvolution, Biases) {
  const auto y = Tensor({3, 4, 5, 7}), b = Tensor({1, 4, 1, 1}), db = Tensor({1, 4, 1, 1});
  const Dense ys = y->Before(), bs = b->Before();
  const Dense* const operands[] = {&ys, &bs};
  const Dense sum = oracle::Pointwise(*oracle::FindPointwiseMode("add"), {}, operands, y->dims(),
                                      oracle::DType::kF32);
  const auto dy = Tensor(y->dims());
  Expect({MIOPEN(ConvolutionForwardBias, handle_, &kOne, b->desc(), b->data(), &kZero, y->desc(),
                 y->data()),
          {y->Check(sum), b->CheckUnchanged()}});
  const Dense reduced =
      oracle::Reduction(oracle::Reduce::kAdd, dy->Before(), db->dims(), oracle::DType::kF32);
  Expect({MIOPEN(ConvolutionBackwardBias, handle_, &kHalf, dy->desc(), dy->data(), &kTwo,
                 db->desc(), db->data()),
          {db->Check(Blended(reduced, kHalf, kTwo, db->Before(), oracle::DType::kF32))}});
}

TEST_F(MiopenConvolution, DescriptorsSayWhatTheyWereTold) {
  miopenConvolutionMode_t mode = miopenConvolution;
  int pad_h = 0, pad_w = 0, u = 0, v = 0, dilation_h = 0, dilation_w = 0;
  ASSERT_EQ(MIOPEN(InitConvolutionDescriptor, conv_, miopenTranspose, 1, 2, 3, 4, 5, 6),
            miopenStatusSuccess);
  ASSERT_EQ(MIOPEN(GetConvolutionDescriptor, conv_, &mode, &pad_h, &pad_w, &u, &v, &dilation_h,
                   &dilation_w),
            miopenStatusSuccess);
  EXPECT_EQ(mode, miopenTranspose);
  EXPECT_EQ((std::vector<int>{pad_h, pad_w, u, v, dilation_h, dilation_w}),
            (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

TEST_F(MiopenConvolution, Misuse) {
  for (const miopenConvolutionMode_t mode : {miopenGroupConv, miopenDepthwise})
    EXPECT_EQ(MIOPEN(InitConvolutionDescriptor, conv_, mode, 0, 0, 1, 1, 1, 1),
              miopenStatusNotImplemented);
  EXPECT_EQ(MIOPEN(InitConvolutionDescriptor, conv_, static_cast<miopenConvolutionMode_t>(4), 0, 0,
                   1, 1, 1, 1),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(InitConvolutionDescriptor, conv_, miopenConvolution, 0, 0, 0, 1, 1, 1),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(InitConvolutionDescriptor, nullptr, miopenConvolution, 0, 0, 1, 1, 1, 1),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(CreateConvolutionDescriptor, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DestroyConvolutionDescriptor, nullptr), miopenStatusBadParm);
  Init(miopenConvolution);
  const auto x = Tensor({2, 5, 9, 7}), w = Tensor({6, 4, 3, 3}), y = Tensor({2, 6, 5, 7});
  int n = 0;
  EXPECT_EQ(MIOPEN(GetConvolutionForwardOutputDim, conv_, x->desc(), w->desc(), &n, &n, &n, &n),
            miopenStatusBadParm);  // of 5 channels the filter has 4
  size_t bytes = 0;
  EXPECT_NE(MIOPEN(ConvolutionForwardGetWorkSpaceSize, handle_, w->desc(), x->desc(), conv_,
                   y->desc(), &bytes),
            miopenStatusSuccess);
  EXPECT_EQ(MIOPEN(ConvolutionForwardGetWorkSpaceSize, nullptr, w->desc(), x->desc(), conv_,
                   y->desc(), &bytes),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(FindConvolutionForwardAlgorithm, handle_, x->desc(), x->data(), w->desc(),
                   w->data(), conv_, y->desc(), y->data(), 0, &found_, perfs_, nullptr, 0, false),
            miopenStatusBadParm);
  const auto fits = Tensor({6, 5, 3, 3});
  EXPECT_EQ(
      MIOPEN(ConvolutionForward, handle_, &kOne, x->desc(), x->data(), fits->desc(), fits->data(),
             conv_, miopenConvolutionFwdAlgoFFT, &kZero, y->desc(), y->data(), nullptr, 0),
      miopenStatusUnsupportedOp);
  EXPECT_EQ(
      MIOPEN(ConvolutionForward, handle_, nullptr, x->desc(), x->data(), fits->desc(), fits->data(),
             conv_, miopenConvolutionFwdAlgoDirect, &kZero, y->desc(), y->data(), nullptr, 0),
      miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(ConvolutionBackwardBias, handle_, &kOne, nullptr, y->data(), &kZero, y->desc(),
                   y->data()),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(ConvolutionForwardBias, nullptr, &kOne, y->desc(), y->data(), &kZero, y->desc(),
                   y->data()),
            miopenStatusBadParm);
}

}  // namespace
}  // namespace kiln::testing
