// A thread that has never called the library may begin with any call, one that fails too: the first
// calls of new threads in every order, on the shared libraries themselves, since where their
// thread-local objects lie is the linker's work.
#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/support/legacy_client.h"

namespace {

using Client = kiln::testing::LegacyClient;

struct Place {
  Client& client;
  cudnnHandle_t handle;  // made by another thread
  bool is_nine;          // 8 tells no sentence of a failure
};

std::string Sentence(Place& p) {
  char sentence[512] = "";
  p.client.LastError(sentence, sizeof sentence);
  return sentence;
}

void Fails(Place& p) {
  EXPECT_NE(KILN_CALL(p.client, cudnnSetStream, nullptr, nullptr), CUDNN_STATUS_SUCCESS);
  if (!p.is_nine) return;
  EXPECT_NE(Sentence(p).find("cudnnSetStream"), std::string::npos);
}

void FailsUnheard(Place& p) {
  EXPECT_NE(KILN_CALL(p.client, cudnnSetStream, nullptr, nullptr), CUDNN_STATUS_SUCCESS);
}

void AsksForSentence(Place& p) {
  if (p.is_nine) Sentence(p);
}

void MakesObject(Place& p) {
  std::vector<cudnnBackendDescriptor_t> made(200, nullptr);  // more than a thread keeps
  for (auto& descriptor : made) {
    EXPECT_EQ(KILN_CALL(p.client, cudnnBackendCreateDescriptor, CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                        &descriptor),
              CUDNN_STATUS_SUCCESS);
  }
  for (const auto descriptor : made)
    EXPECT_EQ(KILN_CALL(p.client, cudnnBackendDestroyDescriptor, descriptor), CUDNN_STATUS_SUCCESS);
}

void MakesHandle(Place& p) {
  cudnnHandle_t handle = nullptr;
  EXPECT_EQ(KILN_CALL(p.client, cudnnCreate, &handle), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(KILN_CALL(p.client, cudnnDestroy, handle), CUDNN_STATUS_SUCCESS);
}

void Computes(Place& p) {
  auto tensor = p.client.New<cudnnTensorDescriptor_t>("Tensor");
  auto relu = p.client.New<cudnnActivationDescriptor_t>("Activation");
  KILN_CALL(p.client, cudnnSetTensor4dDescriptor, tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1,
            1, 5);
  KILN_CALL(p.client, cudnnSetActivationDescriptor, relu, CUDNN_ACTIVATION_RELU,
            CUDNN_PROPAGATE_NAN, 0.0);
  const std::vector<float> x = {-2, 3, -1, 0, 4};
  std::vector<float> y(x.size(), NAN);
  const float one = 1, zero = 0;
  EXPECT_EQ(KILN_CALL(p.client, cudnnActivationForward, p.handle, relu,
                      static_cast<const void*>(&one), tensor, static_cast<const void*>(x.data()),
                      static_cast<const void*>(&zero), tensor, static_cast<void*>(y.data())),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(y, (std::vector<float>{0, 3, 0, 0, 4}));
}

struct Call {
  const char* name;
  void (*run)(Place&);
};
constexpr Call kCalls[] = {{"fails", Fails},
                           {"fails, and nobody asks why", FailsUnheard},
                           {"asks for a sentence", AsksForSentence},
                           {"makes descriptors", MakesObject},
                           {"makes a handle", MakesHandle},
                           {"computes", Computes}};

class Threads : public ::testing::TestWithParam<const char*> {};

TEST_P(Threads, MayBeginWithAnyCall) {
  const std::string path = std::string("api/libcudnn.so.") + GetParam();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  Client client(library);
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(KILN_CALL(client, cudnnCreate, &handle), CUDNN_STATUS_SUCCESS);
  for (const Call& first : kCalls) {
    for (const Call& second : kCalls) {
      for (const Call& third : kCalls) {
        std::thread([&] {
          SCOPED_TRACE(std::string("a thread that ") + first.name + ", then " + second.name +
                       ", then " + third.name);
          Client own(library);
          Place place{own, handle, *GetParam() == '9'};
          for (const Call* call : {&first, &second, &third}) call->run(place);
        }).join();
      }
    }
  }
  EXPECT_EQ(KILN_CALL(client, cudnnDestroy, handle), CUDNN_STATUS_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(OfEitherGeneration, Threads, ::testing::Values("8", "9"),
                         [](const auto& info) { return std::string("v") + info.param; });

}  // namespace
