// Handles and tensors of kiln/miopen.h, and that every function of the header was called here or
// beside.
#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/miopen/client.h"

namespace kiln::testing {
namespace {

class MiopenTensors : public MiopenTest {};

TEST_F(MiopenTensors, HandlesHaveAStream) {
  miopenAcceleratorQueue_t stream = nullptr;
  ASSERT_EQ(MIOPEN(GetStream, handle_, &stream), miopenStatusSuccess);
  EXPECT_EQ(stream, device_->stream());
  EXPECT_EQ(MIOPEN(Create, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(Destroy, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(SetStream, nullptr, stream), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(GetStream, handle_, nullptr), miopenStatusBadParm);
}

TEST_F(MiopenTensors, DescriptorsSayWhatTheyWereTold) {
  const auto x = Tensor({2, 3, 5, 7}, "uniform", miopenBFloat16);
  miopenDataType_t type = miopenFloat;
  int v[8] = {};
  ASSERT_EQ(MIOPEN(Get4dTensorDescriptor, x->desc(), &type, &v[0], &v[1], &v[2], &v[3], &v[4],
                   &v[5], &v[6], &v[7]),
            miopenStatusSuccess);
  EXPECT_EQ(type, miopenBFloat16);
  EXPECT_EQ((std::vector<int>(v, v + 8)), (std::vector<int>{2, 3, 5, 7, 105, 35, 7, 1}));
  EXPECT_EQ(MIOPEN(Get4dTensorDescriptor, x->desc(), nullptr, &v[0], &v[1], &v[2], &v[3], &v[4],
                   &v[5], &v[6], &v[7]),
            miopenStatusBadParm);
}

TEST_F(MiopenTensors, DescriptorsRefuse) {
  miopenTensorDescriptor_t desc = nullptr;
  ASSERT_EQ(MIOPEN(CreateTensorDescriptor, &desc), miopenStatusSuccess);
  EXPECT_EQ(MIOPEN(CreateTensorDescriptor, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DestroyTensorDescriptor, nullptr), miopenStatusBadParm);
  // It was not set yet.
  const auto x = Tensor({2, 3, 5, 7});
  EXPECT_EQ(MIOPEN(SetTensor, handle_, desc, x->data(), &kOne), miopenStatusBadParm);
  for (const miopenDataType_t type : {miopenInt32, miopenInt8, miopenInt8x4, miopenDouble})
    EXPECT_EQ(MIOPEN(Set4dTensorDescriptor, desc, type, 1, 2, 3, 4), miopenStatusNotImplemented);
  EXPECT_EQ(MIOPEN(Set4dTensorDescriptor, desc, static_cast<miopenDataType_t>(7), 1, 2, 3, 4),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(Set4dTensorDescriptor, desc, miopenFloat, 1, 0, 3, 4), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(Set4dTensorDescriptor, desc, miopenFloat, -1, 2, 3, 4), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(Set4dTensorDescriptor, nullptr, miopenFloat, 1, 2, 3, 4), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DestroyTensorDescriptor, desc), miopenStatusSuccess);
}

TEST_F(MiopenTensors, OpTensor) {
  constexpr const char* kNames[] = {"add", "mul", "min", "max"};
  for (int op = miopenTensorOpAdd; op <= miopenTensorOpMax; ++op) {
    for (const miopenDataType_t type : {miopenFloat, miopenHalf}) {
      for (const oracle::Dims& b_dims : {oracle::Dims{2, 3, 5, 7}, oracle::Dims{1, 3, 1, 1}}) {
        SCOPED_TRACE(std::string(kNames[op]) + " type " + std::to_string(type));
        const auto a = Tensor({2, 3, 5, 7}, "uniform", type), b = Tensor(b_dims, "uniform", type),
                   c = Tensor(a->dims(), "uniform", type);
        const Dense as = a->Before(), bs = b->Before();
        const Dense* const operands[] = {&as, &bs};
        const Dense result = oracle::Pointwise(*oracle::FindPointwiseMode(kNames[op]),
                                               {.alpha1 = kHalf, .alpha2 = kTwo}, operands,
                                               a->dims(), oracle::DType::kF32);
        Expect({MIOPEN(OpTensor, handle_, static_cast<miopenTensorOp_t>(op), &kHalf, a->desc(),
                       a->data(), &kTwo, b->desc(), b->data(), &kTwo, c->desc(), c->data()),
                {c->Check(Blended(result, 1, kTwo, c->Before(), oracle::DType::kF32)),
                 a->CheckUnchanged(), b->CheckUnchanged()}});
      }
    }
  }
  const auto a = Tensor({2, 3, 5, 7}), b = Tensor({2, 4, 5, 7});
  EXPECT_EQ(MIOPEN(OpTensor, handle_, static_cast<miopenTensorOp_t>(4), &kOne, a->desc(), a->data(),
                   &kOne, a->desc(), a->data(), &kZero, a->desc(), a->data()),
            miopenStatusBadParm);
  EXPECT_NE(MIOPEN(OpTensor, handle_, miopenTensorOpAdd, &kOne, a->desc(), a->data(), &kOne,
                   b->desc(), b->data(), &kZero, a->desc(), a->data()),
            miopenStatusSuccess);
  EXPECT_EQ(MIOPEN(OpTensor, nullptr, miopenTensorOpAdd, &kOne, a->desc(), a->data(), &kOne,
                   a->desc(), a->data(), &kZero, a->desc(), a->data()),
            miopenStatusBadParm);
}

TEST_F(MiopenTensors, SetAndScale) {
  const auto y = Tensor({2, 3, 5, 7}), z = Tensor({2, 3, 5, 7});
  Dense constant = y->Before();
  for (oracle::Value& value : constant.values) value = {kTwo, 0};
  Expect({MIOPEN(SetTensor, handle_, y->desc(), y->data(), &kTwo), {y->Check(constant)}});
  Expect({MIOPEN(ScaleTensor, handle_, z->desc(), z->data(), &kHalf),
          {z->Check(Blended(z->Before(), kHalf, 0, z->Before(), oracle::DType::kF32))}});
  EXPECT_EQ(MIOPEN(SetTensor, handle_, y->desc(), nullptr, &kTwo), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(SetTensor, handle_, nullptr, y->data(), &kTwo), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(ScaleTensor, handle_, z->desc(), z->data(), nullptr), miopenStatusBadParm);
}

// An environment is torn down after all tests.
class AllWereCalled : public ::testing::Environment {
 public:
  void TearDown() override {
    if (::testing::GTEST_FLAG(filter) != "*") return;
    const std::string header = Read("include/kiln/miopen.h"), page = Read("docs/porting.md");
    const std::regex declaration("miopenStatus_t\\s+(miopen\\w+)\\(");
    int declared = 0;
    for (std::sregex_iterator at(header.begin(), header.end(), declaration), end; at != end; ++at) {
      ++declared;
      EXPECT_TRUE(CalledFunctions().contains((*at)[1])) << (*at)[1] << " was called by no test";
      EXPECT_NE(page.find("`" + (*at)[1].str() + "`"), std::string::npos)
          << (*at)[1] << " is not on docs/porting.md";
    }
    EXPECT_EQ(declared, 54);
  }

 private:
  static std::string Read(const char* path) {
    std::ifstream file(path);
    EXPECT_TRUE(file) << path << " is not among the program's files";
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
};
[[maybe_unused]] auto* const all_were_called =
    ::testing::AddGlobalTestEnvironment(new AllWereCalled);

}  // namespace
}  // namespace kiln::testing
