// Checks of a program's indices, sizes and launch shapes. Called by Executable::Create.
#include "runtime/program_check.h"

#include <algorithm>

#include "ir/dtype.h"
#include "ir/peers.h"

namespace kiln::runtime {
namespace {

constexpr int kDTypeCount = static_cast<int>(DType::kBool) + 1;
constexpr uint32_t kMostGridYZ = 65535;  // of every CUDA architecture

template <class... A>
Status Bad(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kInvalidValue, format, std::forward<A>(args)...);
}

bool IsArgumentType(uint8_t number) {
  if (number >= kDTypeCount) return false;
  auto type = static_cast<DType>(number);
  return type == DType::kF32 || type == DType::kF64 || type == DType::kI32 || type == DType::kI64;
}

Status CheckPointer(const Program& program, const BufferRef& buffer) {
  if (buffer.kind == BufferRef::Kind::kWorkspace) {
    if (buffer.byte_offset >= 0 &&
        buffer.byte_offset < std::max<int64_t>(program.workspace_bytes, 1))
      return {};
    return Bad("offset {} is outside the workspace of {} bytes", buffer.byte_offset,
               program.workspace_bytes);
  }
  const int count = static_cast<int>(program.tensors.size());
  if (buffer.index < 0 || buffer.index >= count) {
    return Bad("tensor {} does not exist; the program has {}", buffer.index, count);
  }
  return {};
}

// Checks the driver's limits on a tensor map: its rank, dims, boxes and strides.
Status CheckTensorMap(const TensorMapSpec& map) {
  if (map.rank < 3 || map.rank > 5) return Bad("a tensor map of rank {}", map.rank);
  for (int d = 0; d < map.rank; ++d) {
    if (map.dims[d] < 1 || map.dims[d] > (int64_t{1} << 32))
      return Bad("dim {} of a tensor map is {}", d, map.dims[d]);
    if (map.kind == TensorMapSpec::Kind::kTiled && (map.box[d] < 1 || map.box[d] > 256))
      return Bad("dim {} of a tensor map's box is {}; 1 to 256 are possible", d, map.box[d]);
    if (d > 0 && (map.stride_bytes[d - 1] % 16 != 0 || map.stride_bytes[d - 1] < 0))
      return Bad("stride {} of a tensor map is {} bytes, no multiple of 16", d,
                 map.stride_bytes[d - 1]);
  }
  return {};
}

// The pointers in front of it are the peers' buffers, which the caller passes.
Status CheckPeerRank(const Launch& launch, const LaunchArg& arg) {
  const auto place = static_cast<uint64_t>(&arg - launch.args.data());
  if (arg.bits < 1 || arg.bits > kMostPeers || arg.bits > place)
    return Bad("the rank among {} buffers, behind {} arguments", arg.bits, place);
  for (uint64_t i = place - arg.bits; i < place; ++i) {
    const LaunchArg& buffer = launch.args[i];
    if (buffer.kind == LaunchArg::Kind::kPointer && buffer.buffer.kind == BufferRef::Kind::kTensor)
      continue;
    return Bad("argument {} is no buffer of a peer", i);
  }
  return {};
}

Status CheckArgument(const Program& program, const Launch& launch, const LaunchArg& arg) {
  if (arg.kind == LaunchArg::Kind::kTensorMap) {
    if (arg.bits >= launch.tensor_maps.size())
      return Bad("tensor map {} does not exist; the launch has {}", arg.bits,
                 launch.tensor_maps.size());
    RETURN_IF_ERROR(CheckTensorMap(launch.tensor_maps[arg.bits]));
  }
  if (arg.kind == LaunchArg::Kind::kScalar) {
    if (arg.size == 1 || arg.size == 4 || arg.size == 8) return {};
    return Bad("a scalar of {} bytes; 1, 4 and 8 are possible", arg.size);
  }
  if (arg.kind == LaunchArg::Kind::kPeerLimit || arg.kind == LaunchArg::Kind::kFault) return {};
  if (arg.kind == LaunchArg::Kind::kPeerRank) return CheckPeerRank(launch, arg);
  if (arg.kind == LaunchArg::Kind::kByValue && arg.buffer.kind != BufferRef::Kind::kTensor) {
    return Bad("a by-value scalar cannot lie in the workspace");
  }
  RETURN_IF_ERROR(CheckPointer(program, arg.buffer));
  if (arg.buffer.kind == BufferRef::Kind::kWorkspace) return {};
  const ProgramTensor& tensor = program.tensors[static_cast<size_t>(arg.buffer.index)];
  bool by_value = arg.kind == LaunchArg::Kind::kByValue;
  if (by_value != tensor.by_value) {
    return Bad("tensor {} is {}, but the kernel takes {}", tensor.uid,
               tensor.by_value ? "a host scalar" : "in device memory",
               by_value ? "a number" : "a pointer");
  }
  if (by_value && !IsArgumentType(arg.value_type)) {
    return Bad("tensor {}: a number of type {} cannot be passed; f32, f64, i32 and i64 can",
               tensor.uid, arg.value_type);
  }
  return {};
}

Status CheckShape(const Launch& launch, const Target& target) {
  const auto& block = launch.block;
  uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  if (threads == 0) return Bad("a block of {}x{}x{} threads", block[0], block[1], block[2]);
  if (!target.is_cuda()) return {};
  if (threads > static_cast<uint64_t>(target.max_threads_per_block)) {
    return Bad("a block of {}x{}x{} threads; {} allows {}", block[0], block[1], block[2],
               target.arch, target.max_threads_per_block);
  }
  if (launch.grid[0] > INT32_MAX || launch.grid[1] > kMostGridYZ || launch.grid[2] > kMostGridYZ) {
    return Bad("a grid of {}x{}x{} blocks; CUDA allows {}x{}x{}", launch.grid[0], launch.grid[1],
               launch.grid[2], INT32_MAX, kMostGridYZ, kMostGridYZ);
  }
  if (launch.dynamic_shared_bytes > target.shared_limit()) {
    return Status::Error(Code::kSharedMemoryInsufficient,
                         "{} bytes of shared memory; {} has {} for a block",
                         launch.dynamic_shared_bytes, target.arch, target.shared_limit());
  }
  return {};
}

Status CheckLaunch(const Program& program, const Launch& launch, const Target& target) {
  const int kernel_count = static_cast<int>(program.kernels.size());
  if (launch.kernel < 0 || launch.kernel >= kernel_count) {
    return Bad("kernel {} does not exist; the program has {}", launch.kernel, kernel_count);
  }
  RETURN_IF_ERROR(CheckShape(launch, target));
  for (size_t i = 0; i < launch.args.size(); ++i) {
    RETURN_IF_ERROR(
        CheckArgument(program, launch, launch.args[i]).Within(fmt::format("argument {}", i)));
  }
  return {};
}

}  // namespace

Status CheckProgram(const Program& program, const Target& target) {
  if (program.workspace_bytes < 0)
    return Bad("program: a workspace of {} bytes", program.workspace_bytes);
  for (const ProgramTensor& tensor : program.tensors) {
    if (tensor.dtype >= kDTypeCount)
      return Bad("program: tensor {} has the unknown data type {}", tensor.uid, tensor.dtype);
  }
  for (size_t i = 0; i < program.launches.size(); ++i) {
    RETURN_IF_ERROR(CheckLaunch(program, program.launches[i], target)
                        .Within(fmt::format("program: launch {}", i)));
  }
  return {};
}

}  // namespace kiln::runtime
