// The device library (codegen/cuda/device/*/*.cuh) as text inside the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kiln::cuda_codegen {

struct DeviceFile {
  std::string_view name;       // "numbers/half.cuh"
  std::span<const int> needs;  // places in DeviceFiles() of what it includes, also through others
                               // and last of itself
  std::string_view text;       // without its includes
};

std::span<const DeviceFile> DeviceFiles();

// The text of a file, which must exist.
std::string_view DeviceText(std::string_view name);

// The files that `code` refers to with all that they need, each behind the files that it includes
// and followed by an empty line.
std::string PreludeFor(std::string_view code);

}  // namespace kiln::cuda_codegen
