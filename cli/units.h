// Numbers for people: bytes, times and grids as the tool's tables print them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace kiln::cli {

std::string BytesText(int64_t bytes);                       // "512 B", "3.1 MiB"
std::string TimeText(double seconds);                       // "12.3 us", "4.56 ms"
std::string RateText(int64_t bytes, double seconds);        // "3120 GB/s"
std::string GridText(const std::array<uint32_t, 3>& grid);  // "128x2x1"

}  // namespace kiln::cli
