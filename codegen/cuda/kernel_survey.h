// Survey: facts that the CUDA emitter finds out about a kernel before its first line, and what it
// decides by them: the places of shared memory, registers that become plain variables, and which
// erf may be a coarse one.
#pragma once

#include <map>
#include <set>
#include <string>

#include "ir/tile/tile.h"

namespace kiln::cuda_codegen {

struct Survey {
  std::map<std::string, DType> types;            // of each buffer
  std::map<std::string, int> access_bytes;       // the widest copy that touches a buffer
  std::map<std::string, int64_t> shared_offset;  // of each shared buffer, 16-byte aligned
  int64_t shared_bytes = 0;
  const tile::Call* call = nullptr;  // the skeleton that lays out the shared memory itself, if any
  // Lets of an erf that is only read to add a larger constant to it, as gelu does, in kernels that
  // store 16 bits: its relative error where it is small makes no difference to such a sum.
  std::set<std::string> coarse_erfs;
  std::set<std::string> exponents;  // variables that expf reads
};
Survey SurveyOf(const tile::Kernel& kernel);

// Registers whose places are all constants, and whose variables' names nothing else has, each with
// its number of elements.
std::map<std::string, int64_t> ScalarsOf(const tile::Kernel& kernel);

}  // namespace kiln::cuda_codegen
