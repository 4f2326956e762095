// Runs a case on a library: memory, graph, every engine config, copies back.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/client.h"
#include "tests/support/evaluate.h"
#include "tests/support/spelled.h"

namespace kiln::testing {

// Settings of the test programs, from the environment. The KILN_TEST_* variables are removed when
// read: the library under test reports every KILN_* name that it does not know.
struct TestOptions {
  std::string cudnn;   // KILN_TEST_CUDNN, else //api:libcudnn.so.9 or ../lib beside the program
  std::string nvidia;  // KILN_TEST_NVIDIA; NvidiaLibraryPath() finds one where it is empty
  std::string cases;   // KILN_TEST_CASES, else tests/cases
  std::string filter;  // KILN_TEST_FILTER: part of a case's file:list/name
  uint64_t seed = 0;   // KILN_TEST_SEED, else from the clock

  static const TestOptions& Get();
};

// In the folder of the cases, and no case file: see tests/numerics/differences.h.
constexpr const char* kDifferencesFile = "nvidia_differs.txt";
// Files of the same folder and form that are for benchmarks: too large for an oracle.
constexpr const char* kBenchPrefix = "bench_";

// Every case of tests/cases but the benchmarks' that the filter admits; errors of parsing end the
// program's run as a failure.
CaseFile LoadAllCases(const TestOptions& options);

class CaseRunner {
 public:
  CaseRunner(const Cudnn& cudnn, Device& device, const Case& c)
      : cudnn_(cudnn), device_(device), case_(SpelledOut(c)) {}

  ClientError Prepare();            // graph and heuristics, as clients do
  ClientError PrepareThoroughly();  // graph and every mode of the heuristics
  ClientError AddEngines();
  size_t configs() const { return graph_ ? graph_->configs() : 0; }
  // Precision that the config's engine admits to: see EvaluateOptions.
  EvaluateOptions PrecisionOf(size_t config) const;

  // One engine config on a copy of `before`; `after` gets what memory holds then.
  ClientError Run(size_t config, const CaseData& before, CaseData* after) const;

 private:
  const Cudnn& cudnn_;
  Device& device_;
  const Case case_;
  std::unique_ptr<Graph> graph_;
};

// Device copies of a case's images, its scalars on the host, and the pack that names them.
class CaseMemory {
 public:
  CaseMemory(Device& device, const Case& c, const CaseData& data, int64_t workspace_bytes);
  const Pack& pack() const { return pack_; }
  std::string error() const { return error_; }
  void Download(CaseData* data) const;
  std::string CheckWorkspaceGuard() const;  // that nothing was written behind the workspace

 private:
  Device& device_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<std::array<uint8_t, 8>>> scalars_;
  std::unique_ptr<Buffer> workspace_;
  int64_t workspace_bytes_;
  Pack pack_;
  std::string error_;
};

}  // namespace kiln::testing
