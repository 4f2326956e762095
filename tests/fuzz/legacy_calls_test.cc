// legacy_calls.h with random bytes from a fixed seed: over the session that computes nothing, and
// on the CPU device, where every pointer to device memory is null and plans are made for real. What
// libFuzzer finds by looking at coverage is tools/fuzz.sh's.
#include "tests/fuzz/legacy_calls.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

namespace kiln::fuzz {
namespace {

TEST(LegacyCalls, OfAnyKindAreAnswered) {
  const bool computes = std::getenv("KILN_DEVICE") != nullptr;
  // A workspace that no machine has is a status, and not the end of this one.
  constexpr rlim_t kMostBytes = rlim_t{4} << 30;
  const rlimit limit = {.rlim_cur = kMostBytes, .rlim_max = kMostBytes};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  std::mt19937 random(20261123);
  const int sequences = computes ? 60 : 4000;
  for (int i = 0; i < sequences; ++i) {
    std::vector<uint8_t> bytes(10000);  // enough for all functions once
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    LegacyCalls({bytes.data(), bytes.size()}, computes ? DeviceMemory::kNull : DeviceMemory::kAny)
        .Run();
  }
  if (computes) return;
  // Nearly all functions get beyond their checks. Those that borrow memory in the order of a stream
  // do not here, where there is none.
  constexpr std::string_view kBorrow[] = {"B2BCausal", "FFTCausal", "Gnn"};
  std::string never;
  size_t asked = 0, reached = 0;
  for (const auto& [name, count] : LegacyCalls::Successes()) {
    const std::string_view function = name;
    if (std::ranges::any_of(kBorrow, [&](auto prefix) { return function.starts_with(prefix); }))
      continue;
    ++asked;
    reached += count > 0;
    if (count == 0) never += std::string(function) + " ";
  }
  EXPECT_GE(asked, LegacyCalls::Count() * 9 / 10);
  EXPECT_GE(reached, asked * 4 / 5) << "never: " << never;
}

}  // namespace
}  // namespace kiln::fuzz
