// The shipped records: each is of use to a problem of the bench list on this build, and the kernels
// that they choose are clean by ptxas' word: no spill, no stack frame, no serialised wgmma. A sixth
// of the kernels; all with KILN_TEST_ALL=1. Skipped where there is no NVRTC.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <set>

#include "api/tuning/record_store.h"
#include "bench/contract/list.h"
#include "bench/steps/step_plans.h"
#include "compiler/engines/registry.h"
#include "tests/support/case_graph.h"
#include "tests/support/compile_check.h"
#include "tests/support/ptxas_check.h"

namespace kiln::bench {
namespace {

constexpr size_t kSample = 6;

struct Shipped {
  const char* records;
  const char* device;

  friend void PrintTo(const Shipped& shipped, std::ostream* out) { *out << shipped.device; }
};
constexpr Shipped kShipped[] = {
    {"share/kiln/records/h200.txt", "NVIDIA H200"},
    {"share/kiln/records/h100.txt", "NVIDIA H100 80GB HBM3"},
};

Target DeviceOf(const Shipped& shipped) {
  Target target = H200();
  target.name = shipped.device;
  return target;
}

// They spill 8 to 20 bytes, and were the fastest of their candidates all the same, most of which do
// not spill (records of 2026-11-22).
struct Harmless {
  const char* work;  // its beginning
  const char* engine;
  const char* knobs;
};
constexpr Harmless kHarmless[] = {
    {"conv_wgrad x:f32:256x256x14x14/50176x196x14x1", "contract_mma_tf32",
     "tile_m=128,tile_n=256,depth_bytes=128,stages=3,warps=8,split_k=16"},
    {"conv_wgrad x:f16:256x512x28x28", "conv_direct",
     "rows=2,cols=2,steps=4,run=8,strip=4,lanes=2,slab=64,pieces=1"},
    {"matmul,add,mul,mul,mul,add,mul,tanh,add,mul,mul a:bf16:1x4096x4096", "wgmma_sm90",
     "tile_left=128,tile_right=192,cluster=2,ping_pong=0,split_k=1,split_cluster=1,raster=8"},
};

bool IsHarmless(const std::string& work, const std::string& engine, const std::string& knobs) {
  return std::ranges::any_of(kHarmless, [&](const Harmless& known) {
    return work.starts_with(known.work) && engine == known.engine && knobs == known.knobs;
  });
}

struct Chosen {
  std::string problem;  // hash
  compiler::Group group;
  compiler::Candidate candidate;
};

// Candidates that the records name for the groups of all problems.
std::vector<Chosen> AllChosen(const Shipped& shipped) {
  const Target device = DeviceOf(shipped);
  api::RecordStore store({.user_folder = {}, .shipped_paths = {shipped.records}});
  std::vector<Chosen> all;
  std::set<std::pair<std::string, int>> seen;
  for (const Problem& problem : LoadProblems("tests/cases/bench_contract.txt").problems) {
    const Result<graph::Graph> graph = testing::ToGraph(problem.graph);
    CHECK(graph.ok(), "{}: {}", problem.Name(), graph.status().message());
    for (const auto inputs : compiler::kAllInputs) {
      const Result<compiler::Groups> groups = compiler::GroupsOf(*graph, device, inputs);
      CHECK(groups.ok(), "{}: {}", problem.Name(), groups.status().message());
      for (const compiler::Group& group : groups->all) {
        const auto best = store.Best(group, device, inputs);
        std::string hash = compiler::ProblemOf(group, device).hash;
        if (best && seen.emplace(hash, best->engine).second)
          all.push_back({std::move(hash), group, *best});
      }
    }
  }
  return all;
}

class ShippedRecords : public ::testing::TestWithParam<Shipped> {};
INSTANTIATE_TEST_SUITE_P(Devices, ShippedRecords, ::testing::ValuesIn(kShipped));

TEST_P(ShippedRecords, AreAllOfUse) {
  std::set<std::string> used;
  for (const Chosen& chosen : AllChosen(GetParam())) used.insert(chosen.problem);
  const auto read = api::ReadRecords(GetParam().records);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->damage.empty());
  EXPECT_GT(read->records.size(), 80u);
  for (const compiler::Record& record : read->records)
    EXPECT_TRUE(used.contains(record.problem.hash))
        << record.problem.work << " by " << record.engine << " " << record.knobs;
}

TEST_P(ShippedRecords, ChooseKernelsWithoutSpills) {
  if (!testing::HasNvrtc()) GTEST_SKIP() << "no NVRTC";
  const Target device = DeviceOf(GetParam());
  const std::vector<Chosen> all = AllChosen(GetParam());
  testing::PtxasCheck ptxas;
  for (size_t i = 0; i < all.size(); i += compiler::TestAll() ? 1 : kSample) {
    const compiler::Engine& engine =
        compiler::Engines()[static_cast<size_t>(all[i].candidate.engine)];
    const std::string work = compiler::ProblemOf(all[i].group, device).work;
    const std::string knobs = compiler::KnobText(engine, all[i].candidate.knobs);
    if (IsHarmless(work, engine.name, knobs)) continue;
    const auto program = compiler::CompileGroup(all[i].group, device, all[i].candidate);
    ASSERT_TRUE(program.ok()) << program.status().message();
    ptxas.Add(*program, fmt::format("{} {} {}", work, engine.name, knobs));
  }
  EXPECT_GT(ptxas.kernels(), 10u);
  for (const std::string& complaint : ptxas.Run()) ADD_FAILURE() << complaint;
}

}  // namespace
}  // namespace kiln::bench
