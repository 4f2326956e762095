// A Device for tests that runs nothing: it records launches, with the bytes of their arguments.
#pragma once

#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/check.h"
#include "runtime/device.h"

namespace kiln::runtime {

struct RecordedLaunch {
  std::string entry;
  LaunchShape shape;
  std::vector<uint64_t> args;
  Stream stream;
};

// The fake device's graph: nodes at addresses that stay, in order.
using FakeGraph = std::deque<RecordedLaunch>;

class FakeDevice : public Device {
 public:
  struct Kernel final : LoadedKernel {
    std::string entry;
    size_t arg_count;
  };

  FakeDevice() { target_.name = "fake"; }

  const Target& target() const override { return target_; }
  // A kernel's text is its number of arguments.
  Result<std::shared_ptr<LoadedKernel>> Load(const KernelSource& source) override {
    ++loads;
    if (source.text.empty())
      return Status::Error(Code::kCompilationFailed, "{}: no text", source.entry);
    auto kernel = std::make_shared<Kernel>();
    kernel->entry = source.entry;
    kernel->arg_count = std::stoul(source.text);
    return std::shared_ptr<LoadedKernel>(kernel);
  }
  Status Launch(const LoadedKernel& kernel, const LaunchShape& shape, void** args,
                Stream stream) override {
    if (!recording) return {};
    launches.push_back(Record(kernel, shape, args, stream));
    if (static_cast<int>(launches.size()) == fail_at)
      return Status::Error(Code::kExecutionFailed, "as asked");
    return {};
  }

  bool has_graphs() const override { return true; }
  Result<NativeNode> AddNode(NativeGraph graph, NativeNode after, const LoadedKernel& kernel,
                             const LaunchShape& shape, void** args) override {
    auto& nodes = *static_cast<FakeGraph*>(graph);
    CHECK(after == (nodes.empty() ? nullptr : &nodes.back()), "nodes stand in a row");
    return NativeNode{&nodes.emplace_back(Record(kernel, shape, args, nullptr))};
  }
  Result<std::vector<NativeNode>> NodesOf(NativeGraph graph) override {
    std::vector<NativeNode> nodes;
    for (RecordedLaunch& node : *static_cast<FakeGraph*>(graph)) nodes.push_back(&node);
    return nodes;
  }
  bool IsNodeOf(NativeNode node, const LoadedKernel& kernel) override {
    return static_cast<RecordedLaunch*>(node)->entry == static_cast<const Kernel&>(kernel).entry;
  }
  Status SetNode(NativeNode node, const LoadedKernel& kernel, const LaunchShape& shape,
                 void** args) override {
    *static_cast<RecordedLaunch*>(node) = Record(kernel, shape, args, nullptr);
    return {};
  }

  Owner OwnerOf(const void* pointer) const override {
    return pointer == own ? Owner::kThisDevice : Owner::kOtherDevice;
  }
  Result<int32_t*> FaultWord() override { return &fault; }
  int32_t TakeFault() override { return std::exchange(fault, 0); }

  Result<void*> Allocate(int64_t bytes) override {
    return ::operator new(static_cast<size_t>(bytes));
  }
  void Free(void* pointer) override { ::operator delete(pointer); }
  Status CopyIn(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
    return {};
  }
  Status CopyOut(void* host, const void* device, int64_t bytes) override {
    return CopyIn(host, device, bytes);
  }
  Status CopyWithin(void* to, const void* from, int64_t bytes) override {
    return CopyIn(to, from, bytes);
  }
  Status Fill(void* device, std::byte value, int64_t bytes) override {
    std::memset(device, static_cast<int>(value), static_cast<size_t>(bytes));
    return {};
  }
  Status Synchronize(Stream) override { return {}; }
  Result<double> Measure(std::function<Status()> run, int, Stream) override {
    RETURN_IF_ERROR(run());
    return 0.0;
  }

  static RecordedLaunch Record(const LoadedKernel& kernel, const LaunchShape& shape, void** args,
                               Stream stream) {
    const auto& k = static_cast<const Kernel&>(kernel);
    RecordedLaunch launch = {.entry = k.entry, .shape = shape, .args = {}, .stream = stream};
    for (size_t i = 0; i < k.arg_count; ++i) {
      uint64_t bits = 0;
      std::memcpy(&bits, args[i], sizeof bits);
      launch.args.push_back(bits);
    }
    return launch;
  }

  Target target_;
  std::vector<RecordedLaunch> launches;
  bool recording = true;
  const void* own = nullptr;  // the one pointer that is this device's
  int32_t fault = 0;
  int loads = 0;
  int fail_at = 0;  // the number of the launch that fails; 0: none
};

}  // namespace kiln::runtime
