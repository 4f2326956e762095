// compiler/machine/machine.h: the tables are complete and plausible, a board has its own figures,
// and whatever a driver says of its rates, costs stay numbers.
#include "compiler/machine/machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/compile.h"
#include "ir/board.h"
#include "ir/graph/text.h"

namespace kiln::compiler {
namespace {

constexpr std::string_view kArchs[] = {"sm_70",   "sm_75",   "sm_80",  "sm_86",
                                       "sm_89",   "sm_90",   "sm_90a", "sm_100",
                                       "sm_100a", "sm_103a", "sm_120", "sm_120a"};
constexpr const char* kUnknownName = "NVIDIA GPU of next year";

Machine Of(int version) { return MachineOf(Target{.name = kUnknownName, .sm_version = version}); }
Machine OfArch(std::string_view arch) { return MachineOf(*TargetFromArch(arch)); }
Machine OfBoard(std::string_view name) { return MachineOf(*TargetFromBoard(name)); }

TEST(Machine, OfTheNearestArchitecture) {
  for (const auto& [version, row] :
       {std::pair(80, 80), {87, 86}, {88, 86}, {89, 89}, {103, 100}, {60, 70}})
    EXPECT_EQ(Of(version).sm_version, row) << version;
  EXPECT_EQ(Of(190).sm_version, 120);
  EXPECT_EQ(OfArch("cpu").sm_version, 0);
}

// Every figure that some model divides by.
void ExpectComplete(const Machine& m, const std::string& what) {
  for (const double figure :
       {m.clock, m.memory, m.launch_seconds, m.memory_seconds, m.issue, m.fma, m.fma_f64,
        m.shared_bytes, m.l2_bytes, double(m.gpcs), double(m.cluster), double(m.multiprocessors)}) {
    EXPECT_TRUE(std::isfinite(figure)) << what;
    EXPECT_GT(figure, 0) << what;
  }
  EXPECT_GT(m.clock, 0.5e9) << what;
  EXPECT_LT(m.clock, 4e9) << what;
}

TEST(Machine, EveryArchitectureIsComplete) {
  for (const std::string_view arch : kArchs) {
    const Machine m = OfArch(arch);
    ExpectComplete(m, std::string(arch));
    EXPECT_GT(m.mma.f16, 0) << arch;
    if (m.sm_version >= 80) {
      EXPECT_GT(m.mma.tf32, 0) << arch;
      EXPECT_GT(m.mma.bytes, 0) << arch;
    }
    EXPECT_EQ(m.wgmma.f16 > 0, m.sm_version == 90) << arch;
    EXPECT_EQ(m.tcgen05.f16 > 0, m.sm_version == 100) << arch;
  }
  ExpectComplete(OfArch("cpu"), "cpu");
}

// Narrower operands are not slower; tensor cores are faster than FMA units, and the instructions of
// a warpgroup or of a whole multiprocessor than a warp's.
TEST(Machine, RatesAreInOrder) {
  for (const std::string_view arch : kArchs) {
    const Machine m = OfArch(arch);
    for (const TensorRates& rates : {m.mma, m.wgmma, m.tcgen05}) {
      if (rates.f16 == 0) continue;
      EXPECT_GT(rates.f16, m.fma) << arch;
      EXPECT_LE(rates.tf32, rates.f16) << arch;
      if (rates.bytes > 0) {
        EXPECT_GE(rates.bytes, rates.f16) << arch;
      }
      EXPECT_LE(rates.f64, rates.f16) << arch;
      EXPECT_EQ(rates.Of(1), rates.bytes);
      EXPECT_EQ(rates.Of(2), rates.f16);
      EXPECT_EQ(rates.Of(4), rates.tf32);
      EXPECT_EQ(rates.Of(8), rates.f64);
    }
    if (m.wgmma.f16 > 0) {
      EXPECT_GT(m.wgmma.f16, m.mma.f16) << arch;
    }
    if (m.tcgen05.f16 > 0) {
      EXPECT_GT(m.tcgen05.f16, m.mma.f16) << arch;
    }
    EXPECT_LE(m.fma, m.issue) << arch;
    EXPECT_LE(m.fma_f64, m.fma) << arch;
    EXPECT_LE(m.l2_bytes, m.shared_bytes) << arch;
    // Memory is the bottleneck behind the L2 cache.
    EXPECT_LT(m.memory, m.l2_share() * m.multiprocessors) << arch;
  }
}

// TFLOP/s of data sheets, dense, with sums in f32.
TEST(Machine, TensorRatesMakeTheVendorsPeak) {
  struct Peak {
    const char* board;
    TensorRates Machine::* unit;
    double TensorRates::* rate;
    double tflops;
  };
  constexpr Peak kPeaks[] = {
      {"Tesla V100-SXM2-16GB", &Machine::mma, &TensorRates::f16, 125},
      {"Tesla T4", &Machine::mma, &TensorRates::f16, 65},
      {"NVIDIA A100-SXM4-80GB", &Machine::mma, &TensorRates::f16, 312},
      {"NVIDIA A100-SXM4-80GB", &Machine::mma, &TensorRates::tf32, 156},
      {"NVIDIA A100-SXM4-80GB", &Machine::mma, &TensorRates::bytes, 624},
      {"NVIDIA A100-SXM4-80GB", &Machine::mma, &TensorRates::f64, 19.5},
      {"NVIDIA A10", &Machine::mma, &TensorRates::f16, 125},
      {"NVIDIA GeForce RTX 3090", &Machine::mma, &TensorRates::f16, 71},
      {"NVIDIA GeForce RTX 4090", &Machine::mma, &TensorRates::f16, 165},
      {"NVIDIA L40S", &Machine::mma, &TensorRates::f16, 362},
      {"NVIDIA H100 80GB HBM3", &Machine::wgmma, &TensorRates::f16, 989},
      {"NVIDIA H100 80GB HBM3", &Machine::wgmma, &TensorRates::bytes, 1979},
      {"NVIDIA H200", &Machine::wgmma, &TensorRates::tf32, 494},
      {"NVIDIA B200", &Machine::tcgen05, &TensorRates::f16, 2250},
      {"NVIDIA GeForce RTX 5090", &Machine::mma, &TensorRates::f16, 209},
  };
  for (const Peak& peak : kPeaks) {
    const Target target = *TargetFromBoard(peak.board);
    const Board* const board = BoardNamed(target.name, target.sm_version);
    ASSERT_NE(board, nullptr) << peak.board;
    const Machine m = MachineOf(target);
    const double tflops = 2 * m.*peak.unit.*peak.rate * m.multiprocessors * board->clock / 1e12;
    EXPECT_NEAR(tflops / peak.tflops, 1, 0.1) << peak.board << " " << tflops;
  }
}

// An H100 takes the tiles of an H200, and its own seconds.
TEST(Machine, ConfigurationsAreComparedAsOnAnH200) {
  const Machine h200 = OfBoard("NVIDIA H200"), h100 = OfBoard("NVIDIA H100 80GB HBM3");
  EXPECT_NEAR(ComparedMemory(h100) / h200.memory, 1, 1e-6);
  EXPECT_NEAR(ComparedMemory(h200) / h200.memory, 1, 1e-6);
  constexpr double kBytes = 1e9;
  const double longer = kBytes / h100.memory - kBytes / h200.memory;
  EXPECT_NEAR(OwnMemorySeconds(h200, kBytes, 0), 0, 1e-9);
  EXPECT_NEAR(OwnMemorySeconds(h100, kBytes, 0), longer, 1e-9);
  EXPECT_NEAR(OwnMemorySeconds(h100, kBytes, kBytes / h200.memory + longer / 4), 0.75 * longer,
              1e-9);
  EXPECT_EQ(OwnMemorySeconds(h100, kBytes, 1), 0) << "units are busy for longer";
  EXPECT_EQ(OwnMemorySeconds(h100, 0, 0), 0);
  for (const std::string_view arch : kArchs)
    EXPECT_GE(ComparedMemory(OfArch(arch)), OfArch(arch).memory) << arch;
}

// Numbers that models took for every board of sm_90 before boards had rows.
TEST(Machine, AnH200IsAsItWasMeasured) {
  const Machine m = OfBoard("NVIDIA H200");
  EXPECT_NEAR(m.memory, 4.1e12, 1e6);
  EXPECT_NEAR(m.clock, 1.7e9, 1e3);
  EXPECT_NEAR(m.l2_share(), 0.8e11, 1e5);
  EXPECT_NEAR(m.StartSeconds(), 2e-6, 1e-12);
  EXPECT_NEAR(m.MmaCycles(), 4 * 2048 / 1250.0, 1e-9);
  EXPECT_EQ(m.FmaSlots(), 1);
  EXPECT_EQ(m.FmaSlots(true), 2);
}

// Rates of memory are those of the data sheets, less what copies do not reach.
TEST(Machine, BoardsHaveTheirOwnMemory) {
  const std::pair<const char*, double> kBoards[] = {
      {"NVIDIA A100-SXM4-80GB", 2.0},
      {"NVIDIA A100-SXM4-40GB", 1.55},
      {"NVIDIA GeForce RTX 4090", 1.0},
      {"NVIDIA L40S", 0.86},
      {"NVIDIA H100 80GB HBM3", 3.35},
      {"NVIDIA H200", 4.8},
      {"NVIDIA GeForce RTX 5090", 1.8},
      {"NVIDIA B200", 8.0},
      {"Tesla T4", 0.32},
      {"Tesla V100-SXM2-16GB", 0.9},
  };
  for (const auto& [name, terabytes] : kBoards) {
    const double rate = OfBoard(name).memory / 1e12;
    EXPECT_GT(rate, 0.8 * terabytes) << name;
    EXPECT_LT(rate, 0.9 * terabytes) << name;
  }
  EXPECT_EQ(BytesPerSecond(*TargetFromArch("sm_80")), OfBoard("NVIDIA A100-SXM4-80GB").memory);
  EXPECT_EQ(BytesPerSecond(*TargetFromArch("cpu")), 0);
}

// A renamed target is another board: devices are described by JSON in which the name stands.
TEST(Machine, TheNameDecides) {
  Target target = *TargetFromArch("sm_90a");
  const double h100 = MachineOf(target).memory;
  target.name = "NVIDIA H200";
  EXPECT_GT(MachineOf(target).memory, 1.4 * h100);
  target.sm_version = 80;  // an H200 it is not
  EXPECT_EQ(MachineOf(target).memory, OfArch("sm_80").memory);
}

TEST(Machine, ABoardWithoutARowIsWhatItsDriverSays) {
  Target target = *TargetFromArch("sm_89");
  target.name = kUnknownName;
  const Machine usual = OfArch("sm_89");
  EXPECT_EQ(MachineOf(target).clock, usual.clock);
  EXPECT_EQ(MachineOf(target).memory, usual.memory);
  target.clock_hz = 1'260'000'000;
  target.memory_bytes_per_second = 504'000'000'000;
  EXPECT_NEAR(MachineOf(target).clock, usual.clock / 2, 1);
  EXPECT_NEAR(MachineOf(target).memory, usual.memory / 2, 1);
  // The table's boards are the same with a driver and without.
  target.name = "NVIDIA L40S";
  EXPECT_EQ(MachineOf(target).memory, OfBoard("NVIDIA L40S").memory);
  EXPECT_EQ(MachineOf(target).clock, OfBoard("NVIDIA L40S").clock);
}

// GeForce boards add in f32 at half of the rate, those in no row, too.
TEST(Machine, GeForceSumsAreSlower) {
  Target target = *TargetFromArch("sm_89");
  target.name = "NVIDIA GeForce RTX 4060 Laptop GPU";
  const Machine geforce = MachineOf(target);
  target.name = "NVIDIA RTX 2000 Ada Generation";
  const Machine full = MachineOf(target);
  EXPECT_EQ(geforce.mma.f16 * 2, full.mma.f16);
  EXPECT_EQ(geforce.mma.tf32 * 2, full.mma.tf32);
  EXPECT_EQ(geforce.mma.bytes, full.mma.bytes);
}

TEST(Machine, OddFiguresOfADriverAreNotTaken) {
  Target target = *TargetFromArch("sm_86");
  target.name = kUnknownName;
  const Machine usual = MachineOf(target);
  constexpr int64_t kOdd[] = {0,
                              -1,
                              1,
                              1000,
                              999'999,
                              2'000'000'000'000'000'000,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};
  for (const int64_t odd : kOdd) {
    target.clock_hz = target.memory_bytes_per_second = odd;
    const Machine m = MachineOf(target);
    EXPECT_EQ(m.clock, usual.clock) << odd;
    EXPECT_EQ(m.memory, usual.memory) << odd;
  }
  target.multiprocessors = 0;
  ExpectComplete(MachineOf(target), "no multiprocessors");
}

// Models make numbers of it, whatever a device says.
TEST(Machine, CostsAreNumbers) {
  constexpr const char* kGraphs[] = {
      R"(graph g {
  tensor %a uid=1 f16 [1,512,512]
  tensor %b uid=2 f16 [1,512,512]
  tensor %y uid=3 f16 [1,512,512]
  %y = matmul(%a, %b) compute=f32
})",
      R"(graph g {
  tensor %x uid=1 f32 [64,1000]
  tensor %y uid=2 f32 [64,1]
  %y = reduction(%x) compute=f32 mode=add
})",
      R"(graph g {
  tensor %x uid=1 f32 [4096]
  tensor %y uid=2 f32 [4096]
  %y = pointwise(%x) compute=f32 mode=relu_fwd
})"};
  for (const char* text : kGraphs) {
    const Result<graph::Graph> g = graph::Parse(text);
    ASSERT_TRUE(g.ok()) << g.status().message();
    for (const std::string_view arch : kArchs)
      for (const int64_t told : {int64_t{0}, int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
        Target target = *TargetFromArch(arch);
        target.name = kUnknownName;
        target.clock_hz = target.memory_bytes_per_second = told;
        const auto plan = Compile(*g, target);
        ASSERT_TRUE(plan.ok()) << arch << ": " << plan.status().message();
        for (const GroupReport& group : plan->groups) {
          EXPECT_TRUE(std::isfinite(group.modelled_seconds)) << arch << " " << group.engine;
          EXPECT_GT(group.modelled_seconds, 0) << arch << " " << group.engine;
        }
      }
  }
}

}  // namespace
}  // namespace kiln::compiler
