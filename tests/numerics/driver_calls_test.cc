// Tests of what calls ask of the driver: every case of legacy_test and of tests/cases, with either
// generation's library, on two drivers that run nothing.
//
//   KILN_LAUNCH=minimal   tests/support/minimal_cuda refuses all but cuModuleLoadData,
//                         cuModuleGetFunction, cuLaunchKernel and questions
//   the whole driver      tests/support/cuda_standin notes what allocates, frees, copies or waits,
//                         which no call but Find may
//
// Recurrent networks and the CTC loss have no cases there: their calls are those of valid_calls.h,
// and the forms of recurrent networks that 8 alone has are called by rnn_v6_test.
//
// Every call that computes comes from a thread of its own, which has never had a context, as those
// of PyTorch's autograd have not.
//
// No kernel runs, so that results are not looked at; statuses, launches and driver calls are.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/numerics/legacy_cases.h"
#include "tests/support/minimal_cuda/driver.h"
#include "tests/support/runner.h"
#include "tests/support/valid_arguments.h"
#include "tests/support/valid_calls.h"

namespace kiln::testing {
namespace {

template <class F>
F* Symbol(void* library, const char* name) {
  F* const function = reinterpret_cast<F*>(dlsym(library, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

bool IsMinimal() { return std::string(std::getenv("KILN_LAUNCH")) == "minimal"; }
bool IsNine() { return TestOptions::Get().cudnn.ends_with(".9"); }

struct Row {
  std::string effect, parameters;
};
// The rows of api/spec/legacy.tsv whose functions this generation has.
std::map<std::string, Row> Functions() {
  std::map<std::string, Row> rows;
  std::ifstream functions("api/spec/functions.tsv"), table("api/spec/legacy.tsv");
  EXPECT_TRUE(functions && table);
  std::set<std::string> exported;
  for (std::string line; std::getline(functions, line);) {
    std::istringstream cells(line);
    std::string function, section, in_8, in_9;
    for (std::string* cell : {&function, &section, &in_8, &in_9}) std::getline(cells, *cell, '\t');
    if ((IsNine() ? in_9 : in_8) == "y") exported.insert(function);
  }
  for (std::string line; std::getline(table, line);) {
    std::istringstream cells(line);
    std::string function;
    Row row;
    for (std::string* cell : {&function, &row.effect, &row.parameters})
      std::getline(cells, *cell, '\t');
    if (exported.contains(function)) rows.emplace(function, row);
  }
  return rows;
}

class DriverCalls : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    driver_ = dlopen(std::getenv("KILN_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(driver_, nullptr) << dlerror();
    // Kernels and times of this compiler are for no cache that others read.
    const char* const temporary = std::getenv("TEST_TMPDIR");
    const std::string folder = std::string(temporary ? temporary : "/tmp") + "/driver_calls";
    setenv("KILN_CACHE_DIR", folder.c_str(), 1);
    setenv("KILN_RECORDS_DIR", (folder + "/records").c_str(), 1);
    TestOptions::Get();  // takes its variables away
    ours_ = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(ours_, nullptr) << dlerror();
  }
  void SetUp() override { Violations(), Launches(); }

  static std::string Violations() {
    return Symbol<decltype(MinimalCudaViolations)>(
        driver_, IsMinimal() ? "MinimalCudaViolations" : "standinViolations")();
  }
  static long Launches() {
    return Symbol<decltype(MinimalCudaLaunches)>(
        driver_, IsMinimal() ? "MinimalCudaLaunches" : "standinNewLaunches")();
  }
  // To be asked after each call. Find has a clock of its own and, without Ex, memory.
  static void Check(const char* function) {
    const std::string violations = Violations();
    const bool may = !IsMinimal() && std::string(function).starts_with("cudnnFindConvolution");
    EXPECT_TRUE(may || violations.empty()) << function << " calls " << violations;
  }

  // On a thread that the driver knows no context of; the minimal driver has one everywhere.
  template <class F>
  static void OnNewThread(const F& calls) {
    std::thread([&] {
      void* context = nullptr;
      Symbol<int(void**)>(driver_, "cuCtxGetCurrent")(&context);
      EXPECT_TRUE(IsMinimal() || context == nullptr);
      calls();
    }).join();
  }

  inline static void *driver_ = nullptr, *ours_ = nullptr;
};

// Functions with a handle that no case calls, since they compute nothing.
void CallTheRest(const LegacyContext& c) {
  int count = 0;
  KILN_CALL(c.client, cudnnGetConvolutionForwardAlgorithmMaxCount, c.handle, &count);
  KILN_CALL(c.client, cudnnGetConvolutionBackwardDataAlgorithmMaxCount, c.handle, &count);
  KILN_CALL(c.client, cudnnGetConvolutionBackwardFilterAlgorithmMaxCount, c.handle, &count);
  auto dropout = c.client.New<cudnnDropoutDescriptor_t>("Dropout");
  size_t bytes = 0;
  KILN_CALL(c.client, cudnnDropoutGetStatesSize, c.handle, &bytes);
  const Buffer states(c.device, bytes);
  void* memory = states.data();
  float probability = 0.5f;
  unsigned long long seed = 3;
  KILN_CALL(c.client, cudnnSetDropoutDescriptor, dropout, c.handle, probability, memory, bytes,
            seed);
  KILN_CALL(c.client, cudnnRestoreDropoutDescriptor, dropout, c.handle, probability, memory, bytes,
            seed);
  KILN_CALL(c.client, cudnnGetDropoutDescriptor, dropout, c.handle, &probability, &memory, &seed);
  const LegacyTensor x = c.Tensor({}, {2, 3, 4, 5}, 1), scale = c.Tensor({}, {1, 3, 1, 1}, 2);
  auto none = c.client.New<cudnnActivationDescriptor_t>("Activation");
  constexpr auto kMode = CUDNN_NORM_PER_CHANNEL;
  constexpr auto kOps = CUDNN_NORM_OPS_NORM;
  constexpr auto kAlgo = CUDNN_NORM_ALGO_STANDARD;
  KILN_CALL(c.client, cudnnGetNormalizationForwardTrainingWorkspaceSize, c.handle, kMode, kOps,
            kAlgo, x.desc(), x.desc(), x.desc(), scale.desc(), none, scale.desc(), &bytes, 1);
  KILN_CALL(c.client, cudnnGetNormalizationBackwardWorkspaceSize, c.handle, kMode, kOps, kAlgo,
            x.desc(), x.desc(), x.desc(), x.desc(), x.desc(), scale.desc(), none, scale.desc(),
            &bytes, 1);
  KILN_CALL(c.client, cudnnGetNormalizationTrainingReserveSpaceSize, c.handle, kMode, kOps, kAlgo,
            none, x.desc(), &bytes, 1);
  if (IsNine()) return;
  void* algorithm = nullptr;
  using Make = cudnnStatus_t(void**);
  using Size = cudnnStatus_t(cudnnHandle_t, void*, size_t*);
  using Save = cudnnStatus_t(cudnnHandle_t, void*, void*, size_t);
  using Restore = cudnnStatus_t(cudnnHandle_t, void*, size_t, void*);
  c.client.Call<Make>("cudnnCreateAlgorithmDescriptor", &algorithm);
  c.client.Call<Size>("cudnnGetAlgorithmSpaceSize", c.handle, algorithm, &bytes);
  std::vector<char> space(bytes);
  c.client.Call<Save>("cudnnSaveAlgorithm", c.handle, algorithm, space.data(), bytes);
  c.client.Call<Restore>("cudnnRestoreAlgorithm", c.handle, space.data(), bytes, algorithm);
  c.client.Call<cudnnStatus_t(void*)>("cudnnDestroyAlgorithmDescriptor", algorithm);
}

bool IsOfNetworks(std::string_view function) { return function.find("RNN") != function.npos; }
bool IsOfCtc(std::string_view function) { return function.find("CTC") != function.npos; }

bool IsOfSequences(std::string_view function) {
  return function.find("CausalConv1d") != function.npos;
}
bool IsOfGraphs(std::string_view function) { return function.find("Gnn") != function.npos; }
// True if it needs memory in the order of a stream, which a launch by itself does not give. Long
// filters have a workspace.
bool TakesMemory(std::string_view function) {
  if (IsOfGraphs(function)) return !function.ends_with("AggSimpleForward");
  const bool is_two = function.starts_with("cudnnB2B") || function.starts_with("cudnnFFT");
  return IsOfSequences(function) && !function.starts_with("cudnnLongFFT") &&
         (is_two || function.ends_with("Backward"));
}

// Makes the calls of valid_calls.h that this library has, of networks, CTC, sequences and graphs.
class CallThem {
 public:
  CallThem(LegacyClient& client, void* library) : client_(client), library_(library) {}

  bool Wants(const char* function, const char*) {
    name_ = function;
    return (IsOfNetworks(function) || IsOfCtc(function) || IsOfSequences(function) ||
            IsOfGraphs(function)) &&
           !TakesMemory(function) && dlsym(library_, function) != nullptr;
  }
  template <class F, class... Args>
  void Visit(Args... args) {
    client_.Call<F>(name_, args...);
  }

 private:
  LegacyClient& client_;
  void* const library_;
  const char* name_ = nullptr;
};

TEST_F(DriverCalls, OfTheLegacyInterface) {
  const TestOptions& options = TestOptions::Get();
  const std::unique_ptr<Device> memory = OpenHostDevice();
  LegacyClient root(ours_, Check);
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(KILN_CALL(root, cudnnCreate, &handle), CUDNN_STATUS_SUCCESS);
  std::set<std::string> called;
  std::vector<LegacyCase> cases = AllLegacyCases(options.filter);
  cases.push_back({"rest", [](const LegacyContext& c) { return CallTheRest(c), std::string(); }});
  cases.push_back({"recurrent networks and CTC", [](const LegacyContext& c) {
                     ValidArguments arguments(c.client);
                     CallThem calls(c.client, ours_);
                     VisitLegacyCalls(arguments, calls);
                     return std::string();
                   }});
  for (const LegacyCase& c : cases) {
    if (c.name.starts_with("misuse/")) continue;
    SCOPED_TRACE(c.name);
    LegacyClient client(ours_, Check);
    char sentence[512] = "";
    OnNewThread([&] {
      c.run({client, *memory, handle});
      if (IsNine()) client.LastError(sentence, sizeof sentence);
    });
    EXPECT_EQ(client.failures(), 0) << sentence;
    EXPECT_GT(Launches(), 0) << "nothing was computed";
    called.insert(client.called().begin(), client.called().end());
  }
  EXPECT_EQ(KILN_CALL(root, cudnnDestroy, handle), CUDNN_STATUS_SUCCESS);
  if (!options.filter.empty()) return;
  for (const auto& [function, row] : Functions()) {
    const bool is_of_old_networks =
        !IsNine() && IsOfNetworks(function) && !called.contains(function);
    if (is_of_old_networks) continue;
    const bool may_launch = (row.effect == "compute" && !TakesMemory(function)) ||
                            row.parameters.find("handle=") != std::string::npos;
    EXPECT_TRUE(!may_launch || called.contains(function)) << function << " is called by no case";
  }
}

// The heuristics' first configuration of each graph that the oracle knows.
TEST_F(DriverCalls, OfExecutions) {
  const CaseFile file = LoadAllCases(TestOptions::Get());
  ASSERT_FALSE(file.cases.empty());
  const std::unique_ptr<Device> memory = OpenHostDevice();
  std::string error;
  const std::unique_ptr<Cudnn> cudnn = Cudnn::Open(TestOptions::Get().cudnn, nullptr, &error);
  ASSERT_NE(cudnn, nullptr) << error;
  long launched = 0;
  for (const Case& c : file.cases) {
    if (c.expects_bad_param) continue;
    SCOPED_TRACE(c.text);
    CaseRunner runner(*cudnn, *memory, c);
    const ClientError prepared = runner.Prepare();
    ASSERT_TRUE(prepared.ok()) << prepared.text;
    const CaseData before = MakeData(c, 1);
    CaseData after;
    ClientError failed;
    OnNewThread([&] { failed = runner.Run(0, before, &after); });
    EXPECT_TRUE(failed.ok()) << failed.text;
    Check("cudnnBackendExecute, or what it needs");
    launched += Launches();
    if (HasFailure()) return;
  }
  EXPECT_GT(launched, static_cast<long>(file.cases.size()) / 2);
}

// The driver's stand-in hears of all that the library may call, and what is not permitted is
// noticed.
TEST_F(DriverCalls, AreHeard) {
  static constexpr const char* kSymbols[] = {
#define DRIVER_FUNCTION(Name, symbol, need, parameters) symbol,
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION
  };
  for (const char* symbol : kSymbols) EXPECT_NE(dlsym(driver_, symbol), nullptr) << symbol;
  unsigned long long address = 0;
  Symbol<int(unsigned long long*, size_t)>(driver_, "cuMemAlloc_v2")(&address, 1);
  Symbol<int(void*)>(driver_, "cuStreamSynchronize")(nullptr);
  EXPECT_EQ(Violations(), "cuMemAlloc_v2 cuStreamSynchronize ");
}

}  // namespace
}  // namespace kiln::testing
