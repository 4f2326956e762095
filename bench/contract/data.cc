// Blocks of random values, and device memory that repeats them.
#include "bench/contract/data.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/support/evaluate.h"

namespace kiln::bench {
namespace {

using oracle::DType;
using testing::Case;
using testing::CaseOp;
using testing::CaseTensor;

// Box and Muller, from uniform values that FillValues draws.
std::vector<double> NormalValues(int64_t count) {
  const auto radius = testing::FillValues("unit", DType::kF64, count, 11);
  const auto angle = testing::FillValues("unit", DType::kF64, count, 12);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sqrt(-2 * std::log(1 - radius[i])) * std::cos(2 * std::numbers::pi * angle[i]);
  }
  return values;
}

// Two or three such factors bring the sums of 8-bit problems into the range of fp8, whose overflow
// libraries treat differently.
constexpr int kScaleExponent = -3;

// Sums of K products of unit deviation have the deviation sqrt(K).
int ExponentOf(const Case& c, int tensor) {
  if (oracle::Row(c.tensors[static_cast<size_t>(tensor)].dtype).bytes < 2) return 0;
  for (const CaseOp& op : c.ops) {
    if (!IsContraction(op) || op.inputs[1] != tensor) continue;
    // NOTE: not below 2^-8, where f16 would lose bits of small values.
    return std::max(-8, -static_cast<int>(std::lround(std::log2(TermsOf(c, op)) / 2)));
  }
  return 0;
}

}  // namespace

int64_t BytesOf(const CaseTensor& tensor) {
  return oracle::Count(tensor.dims) * oracle::Row(tensor.dtype).bytes;
}

const DataBlock& BlockStore::Get(DType type, const std::string& fill, int exponent) {
  auto& slot = blocks_[{type, fill, exponent}];
  if (slot) return *slot;
  const bool normal = fill == "uniform";
  if (normal && normal_.empty()) normal_ = NormalValues(kLength);
  auto values = normal ? normal_ : testing::FillValues(fill, type, kLength, 13);
  const double deviation = normal && !oracle::IsFloating(type) ? 12 : 1;
  const auto size = static_cast<size_t>(oracle::Row(type).bytes);
  slot = std::make_unique<DataBlock>();
  slot->bytes.resize(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i)
    oracle::Encode(type, std::ldexp(values[i] * deviation, exponent), &slot->bytes[i * size]);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = oracle::Decode(type, &slot->bytes[i * size]);
  slot->values = std::move(values);
  return *slot;
}

ProblemData::ProblemData(const Case& c, BlockStore& store) : case_(c), sources_(c.tensors.size()) {
  for (const int input : c.Inputs()) {
    const CaseTensor& tensor = c.tensors[static_cast<size_t>(input)];
    const bool is_scale = oracle::Count(tensor.dims) == 1;
    sources_[static_cast<size_t>(input)] = {
        .block = is_scale ? &store.Get(tensor.dtype, "ones", kScaleExponent)
                          : &store.Get(tensor.dtype, tensor.fill, ExponentOf(c, input)),
        .shift = (input + 1) * int64_t{104729} % BlockStore::kLength};
  }
}

std::vector<uint8_t> ProblemData::Bytes(int tensor, int64_t elements) const {
  const Source& source = sources_[static_cast<size_t>(tensor)];
  const auto size =
      static_cast<size_t>(oracle::Row(case_.tensors[static_cast<size_t>(tensor)].dtype).bytes);
  std::vector<uint8_t> bytes(static_cast<size_t>(elements) * size);
  for (int64_t i = 0; i < elements; ++i) {
    const auto from = static_cast<size_t>((i + source.shift) % BlockStore::kLength) * size;
    std::copy_n(&source.block->bytes[from], size, &bytes[static_cast<size_t>(i) * size]);
  }
  return bytes;
}

ProblemMemory::ProblemMemory(testing::GpuDevice& device, const Case& c, const ProblemData& data,
                             int64_t workspace_bytes)
    : device_(device), case_(c), tensors_(c.tensors.size()) {
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    const CaseTensor& tensor = c.tensors[i];
    if (tensor.is_virtual) continue;
    if (tensor.by_value) {
      auto& scalar = scalars_.emplace_back(8);
      oracle::Encode(tensor.dtype, *tensor.by_value, scalar.data());
      tensors_[i] = scalar.data();
    } else {
      const int64_t bytes = BytesOf(tensor);
      tensors_[i] = buffers_.emplace_back(device, static_cast<size_t>(bytes)).data();
      ok_ = tensors_[i] != nullptr;
      if (!ok_) return;
      if (!c.Produces(static_cast<int>(i))) {
        const int64_t elements = std::min(oracle::Count(tensor.dims), BlockStore::kLength);
        const auto block = data.Bytes(static_cast<int>(i), elements);
        auto* memory = static_cast<uint8_t*>(tensors_[i]);
        device.CopyIn(memory, block.data(), block.size());
        // The part that is filled is a whole number of blocks until the last copy.
        for (auto done = static_cast<int64_t>(block.size()); done < bytes; done *= 2)
          device.CopyAsync(memory + done, memory,
                           static_cast<size_t>(std::min(done, bytes - done)));
      }
    }
    pack_.uids.push_back(tensor.uid);
    pack_.pointers.push_back(tensors_[i]);
  }
  pack_.workspace = buffers_.emplace_back(device, static_cast<size_t>(workspace_bytes)).data();
  ok_ = pack_.workspace != nullptr;
}

void ProblemMemory::Poison() {
  for (const int output : case_.Outputs()) {
    const auto bytes = static_cast<size_t>(BytesOf(case_.tensors[static_cast<size_t>(output)]));
    device_.FillAsync(TensorAt(output), 0xff, bytes);
  }
}

}  // namespace kiln::bench
