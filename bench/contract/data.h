// Inputs of a bench problem without host copies of whole tensors.
//
// A tensor of n elements holds one block of random values again and again: element i of its memory
// is block[(i + shift) mod P]. P is prime, so that no tile, row or channel meets the same values in
// step. The block is made once, uploaded once for each tensor and multiplied on the device; the
// host knows every element of every input, which is what the sampled oracle needs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bench/contract/list.h"
#include "tests/support/client.h"
#include "tests/support/device_memory.h"

namespace kiln::bench {

// P random values of one distribution in one data type, as bytes and decoded.
struct DataBlock {
  std::vector<uint8_t> bytes;
  std::vector<double> values;
};

class BlockStore {
 public:
  static constexpr int64_t kLength = 1048573;  // the largest prime below 2^20
  // Normal for the fill "uniform" (integers: rounded, of deviation 12), else as the fill says;
  // times 2^exponent.
  const DataBlock& Get(oracle::DType type, const std::string& fill, int exponent);

 private:
  std::map<std::tuple<oracle::DType, std::string, int>, std::unique_ptr<DataBlock>> blocks_;
  std::vector<double> normal_;
};

// Values of every input of a problem. The second operand of a contraction is scaled by a power of
// two so that sums of any length have about the deviation 1; 8-bit types are left alone, and a
// tensor of one element, which is a scale, is 1/8.
class ProblemData {
 public:
  ProblemData(const testing::Case& c, BlockStore& store);
  // The element of an input at an offset in memory, in elements.
  double At(int tensor, int64_t offset) const {
    const Source& source = sources_[static_cast<size_t>(tensor)];
    return source.block->values[static_cast<size_t>((offset + source.shift) % BlockStore::kLength)];
  }
  // Memory of an input, for small tensors.
  std::vector<uint8_t> Bytes(int tensor, int64_t elements) const;

 private:
  friend class ProblemMemory;
  struct Source {
    const DataBlock* block = nullptr;  // null for what is no input
    int64_t shift = 0;
  };
  const testing::Case& case_;
  std::vector<Source> sources_;
};

// The tensors of a problem on the device.
class ProblemMemory {
 public:
  ProblemMemory(testing::GpuDevice& device, const testing::Case& c, const ProblemData& data,
                int64_t workspace_bytes);
  bool ok() const { return ok_; }
  const testing::Pack& pack() const { return pack_; }
  void* TensorAt(int tensor) const { return tensors_[static_cast<size_t>(tensor)]; }
  // Outputs become NaN, or -1 in integer types.
  void Poison();

 private:
  testing::GpuDevice& device_;
  const testing::Case& case_;
  std::vector<testing::Buffer> buffers_;
  std::vector<std::vector<uint8_t>> scalars_;
  std::vector<void*> tensors_;
  testing::Pack pack_;
  bool ok_ = true;
};

int64_t BytesOf(const testing::CaseTensor& tensor);

}  // namespace kiln::bench
