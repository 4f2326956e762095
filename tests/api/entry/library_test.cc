// Versions, properties, error strings, handles, callbacks: compiled and linked once for each
// generation.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ir/base/env.h"
#include "tests/api/fake_session.h"

namespace {

TEST(Library, SaysWhichVersionItIs) {
#if CUDNN_MAJOR == 8
  EXPECT_EQ(cudnnGetVersion(), 8901u);
  EXPECT_EQ(cudnnGetMaxDeviceVersion(), 900u);
#else
  EXPECT_EQ(cudnnGetVersion(), 92801u);
  EXPECT_EQ(cudnnGetMaxDeviceVersion(), 1210u);
#endif
  EXPECT_EQ(cudnnGetVersion(), size_t{CUDNN_VERSION});
  EXPECT_EQ(cudnnGetCudartVersion(), 13000u);
  int value = -1;
  EXPECT_EQ(cudnnGetProperty(MAJOR_VERSION, &value), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(value, CUDNN_MAJOR);
  EXPECT_EQ(cudnnGetProperty(MINOR_VERSION, &value), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(value, CUDNN_MINOR);
  EXPECT_EQ(cudnnGetProperty(PATCH_LEVEL, &value), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(value, CUDNN_PATCHLEVEL);
  EXPECT_EQ(cudnnGetProperty(static_cast<libraryPropertyType>(3), &value), CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(cudnnGetProperty(MAJOR_VERSION, nullptr), CUDNN_STATUS_SUCCESS);
}

// The version in cudnnGetVersion, cudnnGetProperty and the log, with the variable set.
struct Said {
  size_t version;
  int major, minor, patch;
  unsigned logged;
};

Said SaidWith(const char* value) {
  setenv("KILN_CUDNN_VERSION", value, 1);
  kiln::ResetEnvForTest();
  Said said{.version = cudnnGetVersion()};
  cudnnGetProperty(MAJOR_VERSION, &said.major);
  cudnnGetProperty(MINOR_VERSION, &said.minor);
  cudnnGetProperty(PATCH_LEVEL, &said.patch);
  const auto listen = [](cudnnSeverity_t, void* out, const cudnnDebug_t* debug, const char*) {
    *static_cast<unsigned*>(out) = debug->cudnn_version;
  };
  cudnnSetCallback(CUDNN_SEV_ERROR_EN, &said.logged, listen);
  cudnnSetStream(nullptr, nullptr);
  cudnnSetCallback(0, nullptr, nullptr);
  unsetenv("KILN_CUDNN_VERSION");
  kiln::ResetEnvForTest();
  return said;
}

TEST(Library, SaysTheVersionThatIsAskedFor) {
  const Said plain = SaidWith("9.nothing");
  EXPECT_EQ(plain.version, size_t{CUDNN_VERSION}) << "no version: the default counts";
  for (const int minor : {0, 1, 18, 19, 27, 28}) {
    const Said said = SaidWith(("9." + std::to_string(minor)).c_str());
    EXPECT_EQ(said.logged, said.version);
#if CUDNN_MAJOR == 8
    EXPECT_EQ(said.version, size_t{CUDNN_VERSION}) << "the variable is about libcudnn.so.9";
#else
    EXPECT_EQ(said.version / 100, 900u + static_cast<unsigned>(minor));
    EXPECT_EQ(said.version,
              static_cast<size_t>(said.major * 10000 + said.minor * 100 + said.patch));
#endif
  }
}

TEST(Library, SubLibrariesAreOfOneVersion) {
#if CUDNN_MAJOR == 8
  for (auto check :
       {cudnnOpsInferVersionCheck, cudnnOpsTrainVersionCheck, cudnnCnnInferVersionCheck,
        cudnnCnnTrainVersionCheck, cudnnAdvInferVersionCheck, cudnnAdvTrainVersionCheck}) {
#else
  for (auto check : {cudnnGraphVersionCheck, cudnnOpsVersionCheck, cudnnCnnVersionCheck,
                     cudnnAdvVersionCheck, cudnnSubquadraticOpsVersionCheck}) {
#endif
    EXPECT_EQ(check(), CUDNN_STATUS_SUCCESS);
  }
}

// Read from the specification itself: each value has one of its names, and other values have none.
TEST(Library, ErrorStringsAreTheConstantsOfTheGeneration) {
  std::ifstream spec("api/spec/enums.tsv");
  ASSERT_TRUE(spec.is_open());
  std::map<int, std::set<std::string>> names;
  for (std::string line; std::getline(spec, line);) {
    std::vector<std::string> columns(1);
    for (char c : line) {
      if (c == '\t')
        columns.emplace_back();
      else
        columns.back() += c;
    }
    const std::string& value = columns[CUDNN_MAJOR == 8 ? 2 : 3];
    if (columns[0] == "cudnnStatus_t" && !value.empty()) names[std::stoi(value)].insert(columns[1]);
  }
  ASSERT_GE(names.size(), 15u);
  for (int value = -2; value < 6000; ++value) {
    std::string text = cudnnGetErrorString(static_cast<cudnnStatus_t>(value));
    bool named = names.contains(value);
    EXPECT_TRUE(named ? names[value].contains(text) : text == "CUDNN_UNKNOWN_STATUS")
        << value << " is called " << text;
  }
#if CUDNN_MAJOR == 9
  // Values with an older name too have the newer one, as in NVIDIA's library.
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_VERSION_MISMATCH),
               "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH");
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_ARCH_MISMATCH),
               "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH");
#endif
}

TEST(Handle, KeepsTheStream) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  auto stream = reinterpret_cast<cudaStream_t>(0x1230);
  cudaStream_t read = stream;
  EXPECT_EQ(cudnnGetStream(handle, &read), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(read, nullptr);
  EXPECT_EQ(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnGetStream(handle, &read), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(read, stream);
  cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM;
  EXPECT_EQ(cudnnQueryRuntimeError(handle, &status, CUDNN_ERRQUERY_RAWCODE, nullptr),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status, CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
}

TEST(Handle, MisuseIsAStatus) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(cudnnGetStream(handle, nullptr), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(cudnnQueryRuntimeError(handle, nullptr, CUDNN_ERRQUERY_RAWCODE, nullptr),
            CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnDestroy(handle), CUDNN_STATUS_BAD_PARAM) << "destroyed twice";
  EXPECT_EQ(cudnnSetStream(handle, nullptr), CUDNN_STATUS_BAD_PARAM) << "used after destroy";
  alignas(64) char foreign[64] = {};
  EXPECT_EQ(cudnnDestroy(reinterpret_cast<cudnnHandle_t>(foreign)), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnDestroy(nullptr), CUDNN_STATUS_SUCCESS) << "as 9.19";
  EXPECT_NE(cudnnCreate(nullptr), CUDNN_STATUS_SUCCESS);
}

struct Heard {
  int calls = 0;
  cudnnSeverity_t severity{};
  cudnnDebug_t debug{};
  std::string message;
};

void Listen(cudnnSeverity_t severity, void* udata, const cudnnDebug_t* debug, const char* message) {
  auto* heard = static_cast<Heard*>(udata);
  ++heard->calls;
  heard->severity = severity;
  heard->debug = *debug;
  heard->message = message;
}

TEST(Callback, HearsWhatTheMaskNames) {
  Heard heard;
  ASSERT_EQ(cudnnSetCallback(CUDNN_SEV_ERROR_EN, &heard, Listen), CUDNN_STATUS_SUCCESS);
  unsigned mask = 0;
  void* udata = nullptr;
  cudnnCallback_t function = nullptr;
  ASSERT_EQ(cudnnGetCallback(&mask, &udata, &function), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(mask, CUDNN_SEV_ERROR_EN);
  EXPECT_EQ(udata, &heard);
  EXPECT_EQ(function, &Listen);
  EXPECT_EQ(heard.calls, 0) << "successful calls are not errors";
  EXPECT_NE(cudnnSetStream(nullptr, nullptr), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(heard.calls, 1);
  EXPECT_EQ(heard.severity, CUDNN_SEV_ERROR);
  EXPECT_EQ(heard.debug.cudnn_version, CUDNN_VERSION);
  EXPECT_EQ(static_cast<int>(heard.debug.cudnnStatus),
            static_cast<int>(cudnnSetStream(nullptr, nullptr)));
  EXPECT_NE(heard.message.find("cudnnSetStream() returned CUDNN_STATUS_BAD_PARAM"),
            std::string::npos)
      << heard.message;
  EXPECT_NE(heard.message.find("the handle is NULL"), std::string::npos) << heard.message;

  int before = heard.calls;
  ASSERT_EQ(cudnnSetCallback(CUDNN_SEV_INFO_EN, &heard, Listen), CUDNN_STATUS_SUCCESS);
  int value = 0;
  cudnnGetProperty(MAJOR_VERSION, &value);
  EXPECT_EQ(heard.calls, before + 1);
  EXPECT_EQ(heard.severity, CUDNN_SEV_INFO);
  ASSERT_EQ(cudnnSetCallback(0, nullptr, nullptr), CUDNN_STATUS_SUCCESS);
  cudnnSetStream(nullptr, nullptr);
  EXPECT_EQ(heard.calls, before + 2) << "only the SetCallback call itself was heard";
}

#if CUDNN_MAJOR == 9
TEST(LastError, IsTheThreadsOwnAndIsReadOnce) {
  char text[200];
  cudnnSetStream(nullptr, nullptr);
  std::thread([&] {
    cudnnGetLastErrorString(text, sizeof(text));
    EXPECT_STREQ(text, "") << "another thread's failure";
  }).join();
  cudnnGetLastErrorString(text, sizeof(text));
  EXPECT_STREQ(text, "cudnnSetStream: the handle is NULL");
  cudnnGetLastErrorString(text, sizeof(text));
  EXPECT_STREQ(text, "");
  cudnnSetStream(nullptr, nullptr);
  cudnnGetLastErrorString(text, 8);
  EXPECT_STREQ(text, "cudnnSe") << "cut to the size of the place";
  cudnnGetLastErrorString(nullptr, 8);
  cudnnGetLastErrorString(text, 0);
}
#endif

}  // namespace
