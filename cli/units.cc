#include "cli/units.h"

#include <fmt/format.h>

namespace kiln::cli {

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string TimeText(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.2f} ms", 1e3 * seconds);
  return fmt::format("{:.2f} s", seconds);
}

std::string RateText(int64_t bytes, double seconds) {
  if (seconds <= 0) return "-";
  const double rate = static_cast<double>(bytes) / seconds / 1e9;
  return fmt::format("{:.{}f} GB/s", rate, rate < 10 ? 2 : 0);
}

std::string GridText(const std::array<uint32_t, 3>& grid) {
  return fmt::format("{}x{}x{}", grid[0], grid[1], grid[2]);
}

}  // namespace kiln::cli
