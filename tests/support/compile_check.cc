// See the header.
#include "tests/support/compile_check.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace kiln::compiler {

void CompileCheck::Add(const Program& program, const std::string& where) {
  for (const KernelSource& kernel : program.kernels)
    if (kernel.kind == SourceKind::kCuda)
      texts_.try_emplace({kernel.entry, kernel.arch}, Text{kernel, where});
}

std::vector<std::string> CompileCheck::Run(const runtime::Nvrtc& nvrtc, size_t limit) const {
  std::vector<const Text*> jobs;
  size_t step = texts_.empty() ? 1 : (texts_.size() + limit - 1) / limit;
  if (step % 3 == 0) ++step;  // else a text's architectures, often three, would not take turns
  size_t number = 0;
  for (const auto& [name, text] : texts_)
    if (number++ % step == 0) jobs.push_back(&text);
  std::vector<std::string> failures;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t j = next++; j < jobs.size(); j = next++) {
      const Text& job = *jobs[j];
      const auto result = nvrtc.Compile(job.source, runtime::NvrtcOutput::kCubin);
      const std::string& complaint = result.ok() ? result->log : result.status().message();
      if (complaint.empty()) continue;
      const std::lock_guard lock(mutex);
      failures.push_back(
          fmt::format("{}, {}: {}\n{}", job.where, job.source.arch, complaint, job.source.text));
    }
  };
  std::thread second(work);
  work();
  second.join();
  fmt::print("compiled {} texts of {}\n", jobs.size(), texts_.size());
  return failures;
}

bool TestAll() { return std::getenv("KILN_TEST_ALL") != nullptr; }

}  // namespace kiln::compiler
