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
      texts_.try_emplace(kernel.entry, Text{kernel.text, where});
}

std::vector<std::string> CompileCheck::Run(const runtime::Nvrtc& nvrtc,
                                           std::span<const char* const> archs, size_t limit,
                                           bool one_arch_each) const {
  struct Job {
    const std::string* entry;
    const Text* text;
    const char* arch;
  };
  std::vector<Job> jobs;
  const size_t step = texts_.empty() ? 1 : (texts_.size() + limit - 1) / limit;
  size_t number = 0;
  for (const auto& [entry, text] : texts_) {
    if (number++ % step != 0) continue;
    for (size_t a = 0; a < archs.size(); ++a)
      if (!one_arch_each || (number / step) % archs.size() == a)
        jobs.push_back({&entry, &text, archs[a]});
  }
  std::vector<std::string> failures;
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t j = next++; j < jobs.size(); j = next++) {
      const Job& job = jobs[j];
      const auto result = nvrtc.Compile({.kind = SourceKind::kCuda,
                                         .entry = *job.entry,
                                         .text = job.text->text,
                                         .arch = job.arch},
                                        runtime::NvrtcOutput::kCubin);
      const std::string& complaint = result.ok() ? result->log : result.status().message();
      if (complaint.empty()) continue;
      const std::lock_guard lock(mutex);
      failures.push_back(
          fmt::format("{}, {}: {}\n{}", job.text->where, job.arch, complaint, job.text->text));
    }
  };
  std::thread second(work);
  work();
  second.join();
  fmt::print("compiled {} texts of {}, {} compilations\n", (texts_.size() + step - 1) / step,
             texts_.size(), jobs.size());
  return failures;
}

bool TestAll() { return std::getenv("KILN_TEST_ALL") != nullptr; }

}  // namespace kiln::compiler
