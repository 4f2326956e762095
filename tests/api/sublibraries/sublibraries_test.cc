// The libraries that stand beside libcudnn.so: each is opened by itself, has the functions of its
// version script as symbols of its own, which do what libcudnn.so's do.
// The environment has SUBLIBRARIES, their paths; LIBRARY and SCRIPT, libcudnn.so's path and version
// script.
#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> Paths() {
  std::istringstream list(std::getenv("SUBLIBRARIES"));
  std::vector<std::string> paths;
  for (std::string path; list >> path;) paths.push_back(path);
  return paths;
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The functions of a version script.
std::set<std::string> FunctionsOf(const std::string& script) {
  std::ifstream file(script);
  EXPECT_TRUE(file) << script;
  std::set<std::string> functions;
  for (std::string word; file >> word;) {
    if (word.starts_with("cudnn") && word.ends_with(";"))
      functions.insert(word.substr(0, word.size() - 1));
  }
  return functions;
}

// The one that the others need: a library of the name that is loaded comes before those of
// LD_LIBRARY_PATH, among which may be NVIDIA's.
bool LoadWhole() {
  void* const library = dlopen(std::getenv("LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library != nullptr;
}

TEST(Sublibraries, HaveTheirFunctions) {
  ASSERT_TRUE(LoadWhole());
  std::set<std::string> all;
  for (const std::string& path : Paths()) {
    SCOPED_TRACE(path);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    for (const std::string& function : FunctionsOf(path + ".map")) {
      void* const symbol = dlsym(library, function.c_str());
      ASSERT_NE(symbol, nullptr) << function;
      Dl_info where = {};
      ASSERT_NE(dladdr(symbol, &where), 0) << function;
      EXPECT_EQ(NameOf(where.dli_fname), NameOf(path)) << function;
      EXPECT_TRUE(all.insert(function).second) << function << " is in two libraries";
    }
  }
  // No function of libcudnn.so is in none of them, but for those that say what it is.
  const std::string whole = std::getenv("SCRIPT");
  for (const std::string& function : FunctionsOf(whole))
    EXPECT_TRUE(all.contains(function)) << function;
  EXPECT_GT(all.size(), 100u);
}

template <class F>
F* Find(const char* function) {
  for (const std::string& path : Paths()) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (void* const symbol = dlvsym(library, function, NameOf(path).c_str()))
      return reinterpret_cast<F*>(symbol);
  }
  ADD_FAILURE() << function;
  return nullptr;
}

// Objects go between them; arguments on the stack arrive.
TEST(Sublibraries, AreOneLibrary) {
  ASSERT_TRUE(LoadWhole());
  cudnnTensorDescriptor_t tensor = nullptr;
  ASSERT_EQ(Find<decltype(cudnnCreateTensorDescriptor)>("cudnnCreateTensorDescriptor")(&tensor),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(Find<decltype(cudnnSetTensor4dDescriptorEx)>("cudnnSetTensor4dDescriptorEx")(
                tensor, CUDNN_DATA_HALF, 2, 3, 4, 5, 60, 20, 5, 1),
            CUDNN_STATUS_SUCCESS);
  cudnnConvolutionDescriptor_t conv = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  ASSERT_EQ(
      Find<decltype(cudnnCreateConvolutionDescriptor)>("cudnnCreateConvolutionDescriptor")(&conv),
      CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(Find<decltype(cudnnCreateFilterDescriptor)>("cudnnCreateFilterDescriptor")(&filter),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(Find<decltype(cudnnSetFilter4dDescriptor)>("cudnnSetFilter4dDescriptor")(
                filter, CUDNN_DATA_HALF, CUDNN_TENSOR_NCHW, 7, 3, 3, 3),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(Find<decltype(cudnnSetConvolution2dDescriptor)>("cudnnSetConvolution2dDescriptor")(
                conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
            CUDNN_STATUS_SUCCESS);
  int n = 0, c = 0, h = 0, w = 0;
  ASSERT_EQ(Find<decltype(cudnnGetConvolution2dForwardOutputDim)>(
                "cudnnGetConvolution2dForwardOutputDim")(conv, tensor, filter, &n, &c, &h, &w),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ((std::vector{n, c, h, w}), (std::vector{2, 7, 4, 5}));
  EXPECT_EQ(Find<decltype(cudnnDestroyTensorDescriptor)>("cudnnDestroyTensorDescriptor")(tensor),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(Find<decltype(cudnnDestroyFilterDescriptor)>("cudnnDestroyFilterDescriptor")(filter),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(
      Find<decltype(cudnnDestroyConvolutionDescriptor)>("cudnnDestroyConvolutionDescriptor")(conv),
      CUDNN_STATUS_SUCCESS);
}

}  // namespace
