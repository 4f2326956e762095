// Functions of cudnn_gnn_ops.h on a random graph, beside a copy of as many bytes as rows are read,
// and beside NVIDIA's library (9.26 or later: 9.28 for attention) where there is one.
//
//   graph --cudnn LIBCUDNN [--nvidia LIBCUDNN] [--nodes 100000] [--degree 16] [--features 128]
//         [--heads 4] [--filter gat] [--rounds 15]
//
// Each destination has `degree` edges on average, from random sources. A line a call: median
// microseconds, bytes that rows of edges and results have, and that divided by the time. The second
// level cache is flushed before each; the flush is long enough to hide what the host does.
#include <cudnn.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/device_memory.h"

namespace kiln::bench {
namespace {

using testing::Buffer;
using testing::GpuDevice;

struct Options {
  std::string cudnn, nvidia, filter;
  int64_t nodes = 100000, degree = 16, features = 128, heads = 4, rounds = 15;

  bool Parse(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string name = argv[i], value = argv[i + 1];
      if (name == "--cudnn")
        cudnn = value;
      else if (name == "--nvidia")
        nvidia = value;
      else if (name == "--filter")
        filter = value;
      else if (name == "--nodes")
        nodes = std::atoll(value.c_str());
      else if (name == "--degree")
        degree = std::atoll(value.c_str());
      else if (name == "--features")
        features = std::atoll(value.c_str());
      else if (name == "--heads")
        heads = std::atoll(value.c_str());
      else if (name == "--rounds")
        rounds = std::atoll(value.c_str());
      else
        return false;
    }
    return argc % 2 == 1 && !cudnn.empty();
  }
};

// The graph, its reverse, and memory for everything, which calls share.
class Setup {
 public:
  Setup(GpuDevice& device, const Options& o) : device_(device), o_(o) {
    std::mt19937_64 random(1);
    const auto nodes = static_cast<size_t>(o.nodes);
    std::vector<int32_t> degrees(nodes);
    for (int64_t e = 0; e < o.nodes * o.degree; ++e) ++degrees[random() % nodes];
    std::vector<int32_t> offsets = {0}, indices;
    for (const int32_t degree : degrees) {
      for (int32_t k = 0; k < degree; ++k)
        indices.push_back(static_cast<int32_t>(random() % nodes));
      offsets.push_back(static_cast<int32_t>(indices.size()));
    }
    std::vector<int32_t> reverse_offsets(nodes + 1), reverse_rows(indices.size());
    for (const int32_t s : indices) ++reverse_offsets[static_cast<size_t>(s) + 1];
    for (size_t s = 0; s < nodes; ++s) reverse_offsets[s + 1] += reverse_offsets[s];
    std::vector<int32_t> next(reverse_offsets.begin(), reverse_offsets.end() - 1);
    for (size_t e = 0; e < indices.size(); ++e)
      reverse_rows[static_cast<size_t>(next[static_cast<size_t>(indices[e])]++)] =
          static_cast<int32_t>(e);
    edges_ = static_cast<int64_t>(indices.size());
    graph_.cscOffsets = Upload(offsets);
    graph_.cscIndices = Upload(indices);
    graph_.nSrcNodes = graph_.nDstNodes = o.nodes;
    graph_.nIndices = edges_;
    graph_.idxType = CUDNN_DATA_INT32;
    reversed_ = graph_;
    reversed_.cscRevOffsets = Upload(reverse_offsets);
    reversed_.mapRevToCoo = Upload(reverse_rows);
  }

  const cudnnGnnCscGraph_t* graph(bool reversed) const { return reversed ? &reversed_ : &graph_; }
  int64_t edges() const { return edges_; }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(device_.stream()); }
  // Memory by its name, of small numbers.
  void* Get(const std::string& name, int64_t bytes) {
    for (auto& [known, buffer] : named_)
      if (known == name) return buffer->data();
    named_.emplace_back(name, std::make_unique<Buffer>(device_, static_cast<size_t>(bytes)));
    void* const data = named_.back().second->data();
    device_.FillAsync(data, 0x2c, static_cast<size_t>(bytes));  // 0.0695 as f16, 2.4e-12 as f32
    return data;
  }

 private:
  const void* Upload(const std::vector<int32_t>& list) {
    lists_.push_back(std::make_unique<Buffer>(device_, list.size() * 4));
    device_.CopyIn(lists_.back()->data(), list.data(), list.size() * 4);
    return lists_.back()->data();
  }

  GpuDevice& device_;
  const Options& o_;
  std::vector<std::unique_ptr<Buffer>> lists_;
  std::vector<std::pair<std::string, std::unique_ptr<Buffer>>> named_;
  cudnnGnnCscGraph_t graph_ = {}, reversed_ = {};
  int64_t edges_ = 0;
};

// One call on one library: 0 where it was right.
using Launch = std::function<int()>;
struct Row {
  std::string name;
  int64_t bytes;
  std::function<Launch(void* library)> make;
};

template <class F>
F* Find(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}
#define BENCH_FIND(library, function) Find<decltype(function)>(library, #function)

struct Type {
  const char* name;
  cudnnDataType_t type;
  int64_t bytes;
};
constexpr Type kTypes[] = {{"f16", CUDNN_DATA_HALF, 2}, {"f32", CUDNN_DATA_FLOAT, 4}};

void AddAggregates(Setup& s, const Options& o, const Type& t, std::vector<Row>& rows) {
  const int64_t row = o.features * t.bytes, moved = (s.edges() + o.nodes) * row;
  const auto dim = static_cast<int>(o.features);
  for (const auto& [name, op] :
       {std::pair("sum", CUDNN_GNN_AGG_SUM), std::pair("max", CUDNN_GNN_AGG_MAX)}) {
    rows.push_back(
        {fmt::format("aggregate/{}/{}", name, t.name), moved,
         [&s, &o, t, row, dim, op = op](void* lib) -> Launch {
           const auto f = BENCH_FIND(lib, cudnnGnnAggSimpleForward);
           if (f == nullptr) return nullptr;
           void *const x = s.Get("x", o.nodes * o.features * 4), *const y = s.Get(
                                                                     "y", o.nodes * o.features * 4);
           void* const at =
               op == CUDNN_GNN_AGG_MAX ? s.Get("positions", o.nodes * o.features * 4) : nullptr;
           return [=, &s] {
             return f(s.stream(), s.graph(false), x, nullptr, nullptr, y, at, dim, 0, 0, t.type,
                      op);
           };
         }});
  }
  for (const bool reversed : {false, true}) {
    rows.push_back(
        {fmt::format("aggregate_grad/sum/{}{}", t.name, reversed ? "/reversed" : ""), moved,
         [&s, &o, t, dim, reversed](void* lib) -> Launch {
           const auto f = BENCH_FIND(lib, cudnnGnnAggSimpleBackward);
           if (f == nullptr) return nullptr;
           void *const dy = s.Get("y", o.nodes * o.features * 4), *const dx = s.Get(
                                                                      "dx",
                                                                      o.nodes * o.features * 4);
           return [=, &s] {
             return f(s.stream(), s.graph(reversed), dy, nullptr, dx, nullptr, nullptr, dim, 0, 0,
                      t.type, CUDNN_GNN_AGG_SUM);
           };
         }});
  }
}

void AddAttention(Setup& s, const Options& o, const Type& t, std::vector<Row>& rows) {
  static cudnnGnnMhaParams_t params = {CUDNN_GNN_ACT_LEAKY_RELU, 0.2f, 1, 1};
  params.numHeads = static_cast<int>(o.heads);
  const int64_t moved = (s.edges() + 2 * o.nodes) * o.features * t.bytes + s.edges() * o.heads * 8;
  const auto dim = static_cast<int>(o.features);
  const auto nodes = [&](const char* name) { return s.Get(name, o.nodes * o.features * 4); };
  const auto scores = [&](const char* name) { return s.Get(name, 2 * s.edges() * o.heads * 4); };
  const auto edges = [&](const char* name) { return s.Get(name, s.edges() * o.features * 4); };
  void *const x = nodes("x"), *const y = nodes("y"), *const dx = nodes("dx"),
              *const dn = nodes("dn");
  void *const w = s.Get("w", 3 * o.features * 4), *const dw = s.Get("dw", 3 * o.features * 4);
  void *const sm = scores("scores"), *const dsm = scores("dscores");
  rows.push_back({fmt::format("gat/{}", t.name), moved, [=, &s](void* lib) -> Launch {
                    const auto f = BENCH_FIND(lib, cudnnGnnMhaGatForward);
                    if (f == nullptr) return nullptr;
                    return [=, &s] {
                      return f(s.stream(), s.graph(false), x, x, nullptr, w, nullptr, y, sm, dim, 0,
                               &params, t.type);
                    };
                  }});
  void* const act = edges("activated");
  const int64_t moved_v2 = moved + s.edges() * o.features * t.bytes;
  rows.push_back({fmt::format("gatv2/{}", t.name), moved_v2, [=, &s](void* lib) -> Launch {
                    const auto f = BENCH_FIND(lib, cudnnGnnMhaGatV2Forward);
                    if (f == nullptr) return nullptr;
                    return [=, &s] {
                      return f(s.stream(), s.graph(false), x, x, nullptr, w, nullptr, y, sm, act,
                               dim, &params, t.type);
                    };
                  }});
  for (const bool reversed : {false, true}) {
    void* const space = reversed ? edges("space") : nullptr;
    void* const weight_space =
        reversed ? s.Get("weight_space", o.nodes * 3 * o.features * 4) : nullptr;
    const char* const suffix = reversed ? "/reversed" : "";
    rows.push_back(
        {fmt::format("gat_grad/{}{}", t.name, suffix), 2 * moved, [=, &s](void* lib) -> Launch {
           const auto f = BENCH_FIND(lib, cudnnGnnMhaGatBackward);
           if (f == nullptr) return nullptr;
           return [=, &s] {
             return f(s.stream(), s.graph(reversed), y, x, x, nullptr, w, sm, nullptr, nullptr, dx,
                      dn, nullptr, dw, dsm, space, weight_space, dim, 0, &params, t.type, t.type,
                      t.type);
           };
         }});
    rows.push_back({fmt::format("gatv2_grad/{}{}", t.name, suffix), moved + moved_v2,
                    [=, &s](void* lib) -> Launch {
                      const auto f = BENCH_FIND(lib, cudnnGnnMhaGatV2Backward);
                      if (f == nullptr) return nullptr;
                      return [=, &s] {
                        return f(s.stream(), s.graph(reversed), y, x, x, nullptr, w, sm, act,
                                 nullptr, nullptr, dx, dn, nullptr, dw, dsm, space, weight_space,
                                 dim, &params, t.type, t.type);
                      };
                    }});
  }
}

class Clock {
 public:
  explicit Clock(GpuDevice& device) : device_(device), flush_(device, kFlushBytes) {}

  double Median(const std::function<void()>& run, int64_t rounds) {
    std::vector<double> times;
    for (int64_t i = 0; i < rounds; ++i) {
      device_.FillAsync(flush_.data(), static_cast<uint8_t>(i), kFlushBytes);
      device_.RecordBegin();
      run();
      device_.RecordEnd();
      times.push_back(device_.ElapsedMicroseconds());
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

 private:
  static constexpr size_t kFlushBytes = size_t{2} << 30;
  GpuDevice& device_;
  Buffer flush_;
};

int Main(int argc, char** argv) {
  Options o;
  if (!o.Parse(argc, argv)) {
    std::fprintf(stderr,
                 "graph --cudnn LIBCUDNN [--nvidia LIBCUDNN] [--nodes N] [--degree N] "
                 "[--features N] [--heads N] [--filter TEXT] [--rounds N]\n");
    return 2;
  }
  std::string error;
  const std::unique_ptr<GpuDevice> device = testing::OpenGpuDevice(&error);
  if (device == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  std::vector<std::pair<const char*, void*>> libraries;
  for (const auto& [name, path] : {std::pair("kiln", o.cudnn), std::pair("nvidia", o.nvidia)}) {
    if (path.empty()) continue;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    libraries.emplace_back(name, library);
  }
  Setup setup(*device, o);
  Clock clock(*device);
  std::vector<Row> rows;
  for (const Type& t : kTypes) {
    AddAggregates(setup, o, t, rows);
    AddAttention(setup, o, t, rows);
  }
  std::printf("%s, %ld nodes, %ld edges, %ld features, %ld heads\n", device->name().c_str(),
              static_cast<long>(o.nodes), static_cast<long>(setup.edges()),
              static_cast<long>(o.features), static_cast<long>(o.heads));
  int failures = 0;
  for (const Row& row : rows) {
    if (row.name.find(o.filter) == std::string::npos) continue;
    std::printf("%-30s %7.1f MB", row.name.c_str(), static_cast<double>(row.bytes) / 1e6);
    for (const auto& [name, library] : libraries) {
      const Launch launch = row.make(library);
      const int status = launch == nullptr ? -1 : launch();  // compiles
      const std::string waited = device->Synchronize();
      if (status != 0 || !waited.empty()) {
        std::printf("  %s: status %d %s", name, status, waited.c_str());
        ++failures;
        continue;
      }
      const double us = clock.Median([&] { launch(); }, o.rounds);
      std::printf("  %s %8.1f us %5.0f GB/s", name, us, static_cast<double>(row.bytes) / us / 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::Main(argc, argv); }
