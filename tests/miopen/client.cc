#include "tests/miopen/client.h"

#include <dlfcn.h>

namespace kiln::testing {
namespace {

Layout LayoutOf(miopenDataType_t type) {
  return {type == miopenHalf       ? CUDNN_DATA_HALF
          : type == miopenBFloat16 ? CUDNN_DATA_BFLOAT16
                                   : CUDNN_DATA_FLOAT};
}

// The device of the test that runs.
Device* current_device = nullptr;

}  // namespace

Done::Done(miopenStatus_t status) {
  char sentence[512] = "";
  if (status != miopenStatusSuccess) cudnnGetLastErrorString(sentence, sizeof(sentence));
  EXPECT_EQ(status, miopenStatusSuccess) << sentence;
  EXPECT_EQ(current_device->Synchronize(), "");
}

std::set<std::string>& CalledFunctions() {
  static std::set<std::string> called;
  return called;
}

MiopenTensor::MiopenTensor(LegacyClient& client, Device& device, oracle::Dims dims, uint64_t seed,
                           const std::string& fill, miopenDataType_t type)
    : memory_(client, device, LayoutOf(type), dims, fill, seed) {
  EXPECT_EQ(MIOPEN(CreateTensorDescriptor, &desc_), miopenStatusSuccess);
  EXPECT_EQ(MIOPEN(Set4dTensorDescriptor, desc_, type, static_cast<int>(dims[0]),
                   static_cast<int>(dims[1]), static_cast<int>(dims[2]), static_cast<int>(dims[3])),
            miopenStatusSuccess);
}
MiopenTensor::~MiopenTensor() {
  EXPECT_EQ(MIOPEN(DestroyTensorDescriptor, desc_), miopenStatusSuccess);
}

void MiopenTest::SetUp() {
  std::string error;
  device_ = OpenTestDevice(&error);
  ASSERT_NE(device_, nullptr) << error;
  current_device = device_.get();
  // The library that the program is linked with, for what places tensors in memory.
  client_ = std::make_unique<LegacyClient>(dlopen(nullptr, RTLD_NOW));
  ASSERT_EQ(MIOPEN(Create, &handle_), miopenStatusSuccess);
  ASSERT_EQ(MIOPEN(SetStream, handle_, static_cast<cudaStream_t>(device_->stream())),
            miopenStatusSuccess);
}
void MiopenTest::TearDown() { EXPECT_EQ(MIOPEN(Destroy, handle_), miopenStatusSuccess); }

std::unique_ptr<MiopenTensor> MiopenTest::Tensor(oracle::Dims dims, const std::string& fill,
                                                 miopenDataType_t type) {
  return std::make_unique<MiopenTensor>(*client_, *device_, std::move(dims), ++seed_, fill, type);
}

void MiopenTest::Expect(const Outcome& outcome) {
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
}

}  // namespace kiln::testing
