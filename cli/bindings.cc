#include "cli/bindings.h"

#include <algorithm>

namespace kiln::cli {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::TensorId;
using runtime::Device;

size_t ImageBytes(const Tensor& tensor) { return static_cast<size_t>(graph::MemoryBytes(tensor)); }

Result<std::vector<std::byte>> Download(Device& device, const void* memory, size_t bytes) {
  std::vector<std::byte> image(bytes);
  RETURN_IF_ERROR(device.CopyOut(image.data(), memory, static_cast<int64_t>(bytes)));
  return image;
}

}  // namespace

Result<DeviceBuffer> DeviceBuffer::Make(Device& device, int64_t bytes) {
  ASSIGN_OR_RETURN(void* const memory, device.Allocate(std::max<int64_t>(bytes, 1)));
  return DeviceBuffer(device, memory);
}

Result<Bindings> Bindings::Make(Device& device, const Graph& graph, const Program& program,
                                const graph::TensorValues& inputs) {
  Bindings bindings;
  for (const ProgramTensor& tensor : program.tensors)
    RETURN_IF_ERROR(bindings.Add(device, graph, tensor, inputs));
  ASSIGN_OR_RETURN(DeviceBuffer workspace, DeviceBuffer::Make(device, program.workspace_bytes));
  bindings.workspace_ = workspace.get();
  bindings.buffers_.push_back(std::move(workspace));
  return bindings;
}

Result<std::vector<double>> Bindings::Read(Device& device, const Tensor& tensor) const {
  ASSIGN_OR_RETURN(const std::vector<std::byte> image,
                   Download(device, by_uid_.at(tensor.uid).device, ImageBytes(tensor)));
  return graph::Unpack(tensor, image.data());
}

Status Bindings::CheckInputs(Device& device, const Graph& graph) const {
  std::map<int64_t, bool> is_written;
  for (const TensorId id : graph::Outputs(graph)) is_written[graph[id].uid] = true;
  for (const auto& [uid, memory] : by_uid_) {
    if (is_written.contains(uid)) continue;
    ASSIGN_OR_RETURN(const std::vector<std::byte> now,
                     Download(device, memory.device, memory.before.size()));
    const auto at = std::ranges::mismatch(now, memory.before).in1 - now.begin();
    if (static_cast<size_t>(at) != now.size())
      return Status::Error(Code::kUnexpectedValue, "byte {} of the input with uid {} was written",
                           at, uid);
  }
  return {};
}

// An in-place graph has two tensors of one uid: the buffer holds what is read, and is as large as
// either.
Status Bindings::Add(Device& device, const Graph& graph, const ProgramTensor& wanted,
                     const graph::TensorValues& inputs) {
  // Bytes that no kernel writes stay NaN, or -1.
  std::vector<std::byte> image;
  const Tensor* input = nullptr;
  const std::vector<double>* values = nullptr;
  for (size_t id = 0; id < graph.tensors.size(); ++id) {
    const Tensor& tensor = graph.tensors[id];
    if (tensor.uid != wanted.uid || tensor.is_constant()) continue;
    image.resize(std::max(image.size(), ImageBytes(tensor)), std::byte{0xff});
    const auto found = inputs.find(static_cast<TensorId>(id));
    if (found == inputs.end()) continue;
    input = &tensor;
    values = &found->second;
  }
  if (input != nullptr) graph::Pack(*input, *values, image);
  const auto bytes = static_cast<int64_t>(image.size());
  if (wanted.by_value) {
    host_scalars_.push_back(std::make_unique<std::vector<std::byte>>(std::move(image)));
    pointers_.push_back(host_scalars_.back()->data());
    return {};
  }
  ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Make(device, bytes));
  RETURN_IF_ERROR(device.CopyIn(buffer.get(), image.data(), bytes));
  pointers_.push_back(buffer.get());
  by_uid_[wanted.uid] = {.device = buffer.get(), .before = std::move(image)};
  buffers_.push_back(std::move(buffer));
  return {};
}

}  // namespace kiln::cli
