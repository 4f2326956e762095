#include "runtime/cuda/l2_flush.h"

namespace kiln::runtime {
namespace {

constexpr int kThreads = 512, kBlocksOfMultiprocessor = 4;
constexpr int64_t kVectorBytes = 16;

// The values that are read must have a use, or the compiler leaves the reads out.
constexpr const char* kText =
    R"(extern "C" __global__ void kiln_read(uint4* memory, long long vectors) {
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  unsigned all = 0;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += step) {
    const uint4 v = memory[i];
    all |= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (all == 0x5ca1ab1e) memory[0].x = all;
}
)";

}  // namespace

KernelSource L2Flush::Source() { return {.entry = "kiln_read", .text = kText, .arch = "native"}; }

Result<std::unique_ptr<L2Flush>> L2Flush::Make(Device& device) {
  std::unique_ptr<L2Flush> flush(new L2Flush(device));
  const Target& target = device.target();
  flush->vectors_ = 4 * target.l2_bytes / kVectorBytes;
  ASSIGN_OR_RETURN(flush->kernel_, device.Load(Source()));
  ASSIGN_OR_RETURN(flush->memory_, device.Allocate(flush->vectors_ * kVectorBytes));
  return flush;
}

L2Flush::~L2Flush() { device_.Free(memory_); }

Status L2Flush::Run(Stream stream) {
  const LaunchShape shape{
      .grid = {static_cast<unsigned>(device_.target().multiprocessors * kBlocksOfMultiprocessor), 1,
               1},
      .block = {kThreads, 1, 1},
      .dynamic_shared_bytes = 0};
  void* args[] = {&memory_, &vectors_};
  return device_.Launch(*kernel_, shape, args, stream);
}

}  // namespace kiln::runtime
