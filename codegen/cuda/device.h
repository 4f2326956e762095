// The device library (codegen/cuda/device/*.cuh) as text inside the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kiln::cuda_codegen {

struct DeviceFile {
  std::string_view name;  // "half.cuh"
  std::string_view text;
};

std::span<const DeviceFile> DeviceFiles();

// The file's text; the file exists.
std::string_view DeviceText(std::string_view name);

// The files of the emitter's prelude that `code` refers to, in a fixed order, each followed by an
// empty line.
std::string PreludeFor(std::string_view code);

}  // namespace kiln::cuda_codegen
