#include "tests/support/ptxas_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <sstream>
#include <thread>

#include "runtime/cuda/nvrtc.h"

namespace kiln::testing {
namespace {

std::string Complaints(const runtime::Nvrtc& nvrtc, const KernelSource& kernel) {
  const std::string options[] = {"--ptxas-options=-v"};
  const auto compiled = nvrtc.Compile(kernel, runtime::NvrtcOutput::kCubin, options);
  if (!compiled.ok()) return compiled.status().message();
  std::istringstream log(compiled->log);
  std::string found;
  int lines = 0;
  for (std::string line; std::getline(log, line);) {
    if (line.find("(C7") != line.npos) found += line + "\n";
    if (line.find("spill stores") == line.npos) continue;
    ++lines;
    if (line.find(" 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") == line.npos)
      found += line + "\n";
  }
  return lines > 0 ? found : "ptxas said nothing of spills";
}

}  // namespace

bool HasNvrtc() { return runtime::ProcessNvrtc().ok(); }

void PtxasCheck::Add(const Program& program, const std::string& where) {
  for (const KernelSource& kernel : program.kernels)
    kernels_.try_emplace(kernel.entry + kernel.arch, Kernel{kernel, where});
}

std::vector<std::string> PtxasCheck::Run() const {
  std::vector<const Kernel*> jobs;
  for (const auto& [name, kernel] : kernels_) jobs.push_back(&kernel);
  std::vector<std::string> all;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto work = [&](const runtime::Nvrtc& nvrtc) {
    for (size_t j = next++; j < jobs.size(); j = next++) {
      const std::string complaints = Complaints(nvrtc, jobs[j]->source);
      if (complaints.empty()) continue;
      const std::lock_guard lock(mutex);
      all.push_back(fmt::format("{} ({}): {}", jobs[j]->where, jobs[j]->source.entry, complaints));
    }
  };
  const runtime::Nvrtc& nvrtc = **runtime::ProcessNvrtc();
  // One NVRTC compiles one text at a time, whatever the number of threads.
  const auto copy = nvrtc.OpenCopy();
  std::thread second([&] {
    if (copy.ok()) work(**copy);
  });
  work(nvrtc);
  second.join();
  return all;
}

}  // namespace kiln::testing
