// Host time: of a repeated cudnnBackendExecute, and of making a plan in each state of the caches.
//
//   latency --out latency.json [--commit HASH] [--nvidia libcudnn.so.9|none]
//
// Plans are timed in child processes of this program, each new, since what was loaded and compiled
// before is what is measured: a process with an empty cache directory (loads NVRTC, compiles), then
// another graph in it (compiles), then a new process with that directory (reads the disk), then a
// shape that its known structure has not seen. A plan is the operation graph, the heuristics and
// the finalised plan, as clients make them. On a machine without a GPU: `KILN_DEVICE=cuda
// KILN_LIBCUDA=.../libcuda_standin.so latency --child plans|host|dry LIBRARY`.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

#include "bench/support/case_bench.h"
#include "tests/support/nvidia_library.h"

namespace kiln::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Results = std::map<std::string, double>;  // microseconds by name

double Since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Two structures; the second is timed when the process is warm. Channels-last images of rank 4,
// which both libraries take.
constexpr const char* kFirst =
    "first: add(x:f16[64,1024,8,8]@nhwc, b:f16[1,1024,1,1]@nhwc) -> %t:f32@nhwc; "
    "gelu_fwd(%t) -> y:f16@nhwc";
constexpr const char* kSecond =
    "second: mul(x:f16[64,1024,8,8]@nhwc, s:f16[1,1024,1,1]@nhwc) -> %t:f32@nhwc; "
    "add(%t, b:f16[1,1024,1,1]@nhwc) -> %u:f32@nhwc; relu_fwd(%u) -> y:f16@nhwc";
constexpr const char* kSecondReshaped =
    "shape: mul(x:f16[20,2048,16,16]@nhwc, s:f16[1,2048,1,1]@nhwc) -> %t:f32@nhwc; "
    "add(%t, b:f16[1,2048,1,1]@nhwc) -> %u:f32@nhwc; relu_fwd(%u) -> y:f16@nhwc";
constexpr const char* kTiny = "tiny: add(x:f32[4,64,4,4]@nhwc, b:f32[4,64,4,4]@nhwc) -> y:f32@nhwc";

// ---- The child: `latency --child plans|host|dry|execute LIBRARY`; prints `name microseconds`
// lines.

struct Opened {
  std::unique_ptr<testing::GpuDevice> device;
  std::unique_ptr<Cudnn> cudnn;
};

// Without a GPU the library may still have a driver: see KILN_LIBCUDA above.
Opened Open(const char* library) {
  Opened opened;
  std::string no_gpu, error;
  opened.device = testing::OpenGpuDevice(&no_gpu);
  opened.cudnn = Cudnn::Open(library, opened.device ? opened.device->stream() : nullptr, &error);
  if (opened.cudnn) return opened;
  std::fprintf(stderr, "library '%s': %s\n", library, error.c_str());
  std::exit(2);
}

std::unique_ptr<CaseBench> TimePlan(const Cudnn& cudnn, const char* name, const char* line) {
  const Case c = ParseOrExit(line);
  std::string error;
  const auto begin = Clock::now();
  auto bench = CaseBench::Make(cudnn, c, &error);
  const double microseconds = Since(begin);
  if (!bench) {
    std::fprintf(stderr, "%s: %s\n", name, error.c_str());
    std::exit(1);
  }
  std::printf("%s %.3f\n", name, microseconds);
  return bench;
}

int ChildPlans(const char* library) {
  const Opened opened = Open(library);
  TimePlan(*opened.cudnn, "plan_first_in_process", kFirst);
  TimePlan(*opened.cudnn, "plan", kSecond);
  TimePlan(*opened.cudnn, "plan_new_shape", kSecondReshaped);
  TimePlan(*opened.cudnn, "plan_again", kSecondReshaped);
  return 0;
}

// Batches small enough that the driver's launch queue never fills.
template <typename Call>
double TimeCalls(testing::GpuDevice& device, const Call& call) {
  constexpr int kBatches = 200, kBatch = 100;
  std::vector<double> times;
  for (int i = 0; i < kBatches; ++i) {
    device.Synchronize();
    const auto begin = Clock::now();
    for (int j = 0; j < kBatch; ++j) call();
    times.push_back(Since(begin) / kBatch);
  }
  std::ranges::nth_element(times, times.begin() + kBatches / 2);
  return times[kBatches / 2];
}

// ---- Host work that needs no kernel to run. ----

// Median microseconds of a call, over batches that a clock can tell apart, for half a second at the
// most.
template <typename Call>
double TimeHost(const Call& call) {
  constexpr double kBatchMicroseconds = 50, kMicroseconds = 5e5;
  constexpr size_t kMostBatches = 2000;
  call();
  const auto start = Clock::now();
  call();
  const int batch = static_cast<int>(std::clamp(kBatchMicroseconds / Since(start), 1.0, 1e5));
  std::vector<double> times;
  while (times.size() < kMostBatches && (times.size() < 3 || Since(start) < kMicroseconds)) {
    const auto begin = Clock::now();
    for (int j = 0; j < batch; ++j) call();
    times.push_back(Since(begin) / batch);
  }
  std::ranges::nth_element(times, times.begin() + static_cast<long>(times.size() / 2));
  return times[times.size() / 2];
}

// Steps of a frontend with a graph that it has built before, in the order of its calls.
void TimeSteps(const Cudnn& cudnn, const Case& c) {
  testing::ClientError error;
  std::printf("graph %.4f\n", TimeHost([&] { testing::Graph::Build(cudnn, c, &error); }));
  const auto with_heuristics = [&] {
    auto graph = testing::Graph::Build(cudnn, c, &error);
    if (graph) error = graph->AddMode(CUDNN_HEUR_MODE_A);
    return graph;
  };
  std::printf("graph_and_heuristics %.4f\n", TimeHost([&] { with_heuristics(); }));
  const auto graph = with_heuristics();
  if (graph && error.ok())
    std::printf("plan_known %.4f\n", TimeHost([&] { graph->MakePlan(0, &error); }));
  if (!error.ok()) std::fprintf(stderr, "%s\n", error.text.c_str()), std::exit(1);
}

int ChildHost(const char* library) {
  const Opened opened = Open(library);
  const auto& cudnn = opened.cudnn;
  size_t version = 0;
  std::printf("version %.5f\n", TimeHost([&] { version += cudnn->getVersion(); }));
  std::printf("descriptor %.5f\n", TimeHost([&] {
                cudnnBackendDescriptor_t descriptor = nullptr;
                cudnn->createDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &descriptor);
                cudnn->destroyDescriptor(descriptor);
              }));
  TimeSteps(*cudnn, ParseOrExit(kSecond));
  return version != 0 ? 0 : 1;
}

// Executions whose pointers lead nowhere: what a driver that launches nothing leaves of them
// (KILN_LIBCUDA=libcuda_standin.so).
int ChildDry(const char* library) {
  const Opened opened = Open(library);
  const Case tiny = ParseOrExit(kTiny);
  std::string error;
  const auto bench = CaseBench::Make(*opened.cudnn, tiny, &error);
  if (!bench) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  testing::Pack pack;
  for (const auto& tensor : tiny.tensors) {
    pack.uids.push_back(tensor.uid);
    pack.pointers.push_back(reinterpret_cast<void*>(uintptr_t{4096} * pack.uids.size()));
  }
  bench->Bind(pack);
  cudnnStatus_t status = bench->Launch();
  std::printf("execute %.4f\n", TimeHost([&] { status = bench->Launch(); }));
  std::printf("execute_with_new_pack %.4f\n",
              TimeHost([&] { status = bench->LaunchWithNewPack(); }));
  if (status == CUDNN_STATUS_SUCCESS) return 0;
  return std::fprintf(stderr, "%s\n", bench->Describe(status).c_str()), 1;
}

int ChildExecute(const char* library) {
  const Opened opened = Open(library);
  if (!opened.device) return std::fprintf(stderr, "no GPU to execute on\n"), 2;
  const Case tiny = ParseOrExit(kTiny);
  if (const std::string wrong = CheckNumbers(*opened.cudnn, *opened.device, tiny); !wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    return 1;
  }
  std::string error;
  const auto bench = CaseBench::Make(*opened.cudnn, tiny, &error);
  if (!bench) return std::fprintf(stderr, "%s\n", error.c_str()), 1;
  const testing::CaseMemory memory(*opened.device, tiny, testing::MakeData(tiny, 1),
                                   bench->workspace_bytes());
  bench->Bind(memory.pack());
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  const auto keep = [&](cudnnStatus_t s) { status = s == CUDNN_STATUS_SUCCESS ? status : s; };
  std::printf("execute %.4f\n", TimeCalls(*opened.device, [&] { keep(bench->Launch()); }));
  std::printf("execute_with_new_pack %.4f\n",
              TimeCalls(*opened.device, [&] { keep(bench->LaunchWithNewPack()); }));
  if (status != CUDNN_STATUS_SUCCESS)
    return std::fprintf(stderr, "%s\n", bench->Describe(status).c_str()), 1;
  if (error = opened.device->LoadEmptyKernel(); !error.empty())
    return std::fprintf(stderr, "%s\n", error.c_str()), 1;
  std::printf("launch %.4f\n", TimeCalls(*opened.device, [&] { opened.device->LaunchEmpty(); }));
  return 0;
}

int RunAsChild(const std::string& what, const char* library) {
  if (what == "plans") return ChildPlans(library);
  if (what == "host") return ChildHost(library);
  return what == "dry" ? ChildDry(library) : ChildExecute(library);
}

// ---- The parent. ----

// Runs this program as a child; nothing in the results where it failed, which it then said on
// stderr.
Results RunChild(const char* what, const std::string& library, const std::string& cache_dir) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("KILN_CACHE_DIR", cache_dir.c_str(), 1);
    execl("/proc/self/exe", "latency", "--child", what, library.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  Results results;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return results;
  std::istringstream lines(text);
  std::string name;
  for (double value; lines >> name >> value;) results[name] = value;
  return results;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// Medians over several processes, by name; "cold_" with an empty cache directory, "disk_" with a
// filled one.
Results Measure(const std::string& library, int processes) {
  std::map<std::string, std::vector<double>> all;
  for (int i = 0; i < processes; ++i) {
    std::string directory = (fs::temp_directory_path() / "kiln-latency-XXXXXX").string();
    if (mkdtemp(directory.data()) == nullptr) return {};
    for (const char* state : {"cold_", "disk_"}) {
      for (const auto& [name, value] : RunChild("plans", library, directory))
        all[state + name].push_back(value);
    }
    for (const char* what : {"host", "execute"}) {
      for (const auto& [name, value] : RunChild(what, library, directory))
        all[name].push_back(value);
    }
    std::error_code ignored;
    fs::remove_all(directory, ignored);
  }
  Results medians;
  for (const auto& [name, values] : all) medians[name] = Median(values);
  return medians;
}

struct Line {
  const char* name;
  const char* meaning;
};
constexpr Line kLines[] = {
    {"version", "cudnnGetVersion"},
    {"descriptor", "creating and destroying a descriptor"},
    {"graph", "operation graph of three, all descriptors made anew"},
    {"graph_and_heuristics", "the same, and the heuristics' list of mode A"},
    {"plan_known", "a plan of it that was made before"},
    {"launch", "a bare cuLaunchKernel, ten arguments: the floor"},
    {"execute", "repeated execute, same variant pack"},
    {"execute_with_new_pack", "repeated execute, a new variant pack each"},
    {"cold_plan_first_in_process", "first plan of a process, empty cache"},
    {"cold_plan", "plan that compiles, warm process"},
    {"disk_plan_first_in_process", "first plan of a process, kernel on disk"},
    {"disk_plan", "plan with its kernel on disk"},
    {"cold_plan_new_shape", "new shape of a known structure"},
    {"cold_plan_again", "the same plan again"},
};

int Main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--child") == 0) return RunAsChild(argv[2], argv[3]);
  Options options = Options::Parse(argc, argv);
  const int processes = std::clamp(options.repeats / 4, 3, 9);
  std::string error;
  const auto device = testing::OpenGpuDevice(&error);
  if (!device) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  const Results ours = Measure(options.cudnn, processes);
  const Results nvidia = options.nvidia.empty() ? Results{} : Measure(options.nvidia, processes);
  std::string rows;
  bool complete = true;
  for (const Line& line : kLines) {
    const auto text = [&](const Results& r) {
      return r.contains(line.name) ? fmt::format("{:.3f}", r.at(line.name)) : "null";
    };
    complete &= ours.contains(line.name);
    std::printf("%-44s kiln %12s us   NVIDIA %12s us\n", line.meaning, text(ours).c_str(),
                text(nvidia).c_str());
    rows +=
        fmt::format("{}    {{\"name\": {}, \"meaning\": {}, \"kiln_us\": {}, \"nvidia_us\": {}}}",
                    rows.empty() ? "" : ",\n", JsonText(line.name), JsonText(line.meaning),
                    text(ours), text(nvidia));
  }
  const size_t version = options.nvidia.empty() ? 0 : testing::ProbeVersion(options.nvidia);
  if (!WriteResults(options, "latency", device->name(), version, rows)) return 2;
  return complete ? 0 : 1;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
