#include "tests/support/ptxas_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace kiln::testing {
namespace {

constexpr const char* kNvcc = "/usr/local/cuda/bin/nvcc";

std::string Complaints(const KernelSource& kernel, const std::filesystem::path& folder) {
  const std::filesystem::path source = folder / (kernel.entry + kernel.arch + ".cu");
  const std::string log = source.string() + ".log";
  std::ofstream(source) << kernel.text;
  const std::string command =
      fmt::format("{} -cubin -std=c++17 -arch={} -Xptxas=-v -o {}.cubin {} > {} 2>&1", kNvcc,
                  kernel.arch, source.string(), source.string(), log);
  if (std::system(command.c_str()) != 0) return command + " failed";
  std::ifstream file(log);
  std::string line, found;
  int lines = 0;
  while (std::getline(file, line)) {
    if (line.find("(C7") != line.npos) found += line + "\n";
    if (line.find("spill stores") == line.npos) continue;
    ++lines;
    if (line.find(" 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") == line.npos)
      found += line + "\n";
  }
  return lines > 0 ? found : "ptxas said nothing of spills";
}

}  // namespace

bool HasNvcc() { return std::filesystem::exists(kNvcc); }

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
  const auto work = [&] {
    for (size_t j = next++; j < jobs.size(); j = next++) {
      const std::string complaints = Complaints(jobs[j]->source, ::testing::TempDir());
      if (complaints.empty()) continue;
      const std::lock_guard lock(mutex);
      all.push_back(fmt::format("{} ({}): {}", jobs[j]->where, jobs[j]->source.entry, complaints));
    }
  };
  std::thread second(work);
  work();
  second.join();
  return all;
}

}  // namespace kiln::testing
