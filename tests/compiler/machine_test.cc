// compiler/machine/machine.h: a board that is in no row has the rates of the newest architecture in
// the table that is not newer.
#include "compiler/machine/machine.h"

#include <gtest/gtest.h>

#include <utility>

namespace kiln::compiler {
namespace {

const Machine& Of(int version) { return MachineOf(Target{.sm_version = version}); }

TEST(Machine, OfTheNearestArchitecture) {
  for (const auto& [version, row] : {std::pair(80, 80), {87, 86}, {88, 86}, {89, 89}, {103, 100}})
    EXPECT_EQ(Of(version).sm_version, row) << version;
  EXPECT_EQ(Of(190).sm_version, 120);
  EXPECT_EQ(MachineOf(*TargetFromArch("cpu")).sm_version, 0);
}

// What makes one board unlike another: an RTX 3090 has less than half of an A100's memory rate.
TEST(Machine, RatesAreTheBoardsOwn) {
  EXPECT_LT(Of(86).bytes_per_second * 2, Of(80).bytes_per_second);
  EXPECT_GT(Of(100).bytes_per_second, Of(90).bytes_per_second);
  for (const int version : {0, 70, 75, 80, 86, 89, 90, 100, 120}) {
    const Machine& m = Of(version);
    EXPECT_GT(m.bytes_per_second, 0) << version;
    EXPECT_GT(m.clock, 1e9) << version;
    EXPECT_GT(m.mma * m.fma * m.l2_share * m.gpcs, 0) << version;
  }
}

}  // namespace
}  // namespace kiln::compiler
