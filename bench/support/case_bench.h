// A graph of the case language, ready to execute again and again on one library: what the
// benchmarks time.
#pragma once

#include <memory>
#include <string>

#include "tests/support/client.h"
#include "tests/support/runner.h"

namespace kiln::bench {

using testing::Case;
using testing::Cudnn;
using testing::Device;
using testing::Graph;
using testing::Plan;

// A choice of a library's plan: the first that can be made from this one on, in the order of the
// heuristics, or that of an engine, by its global index, as it likes to be.
struct PlanChoice {
  size_t first = 0;
  int64_t engine = -1;
};

// A plan of the heuristics, with the tensors of `c` in device memory that the caller owns.
class CaseBench {
 public:
  // Null with the reason in `error` where the library refuses the graph.
  static std::unique_ptr<CaseBench> Make(const Cudnn& cudnn, const Case& c, std::string* error,
                                         const PlanChoice& choice = {});
  // As NVIDIA's library likes it: in each of the forms of cases_rank.h, with every mode of the
  // heuristics. A form in which `small`, the same graph, comes out wrong does not count. The uids
  // are those of `c`, so that both libraries share its memory.
  static std::unique_ptr<CaseBench> MakeForNvidia(const Cudnn& cudnn, Device& device, const Case& c,
                                                  const Case& small, std::string* error);

  int64_t workspace_bytes() const { return plan_->workspace_bytes; }
  const Plan& plan() const { return *plan_; }

  // Binds memory, and makes the variant pack that Launch uses.
  std::string Bind(const testing::Pack& pack);
  cudnnStatus_t Launch() const {
    return cudnn_->execute(cudnn_->handle(), plan_->descriptor().get(), pack_.get());
  }
  cudnnStatus_t LaunchWithNewPack() const;
  std::string Describe(cudnnStatus_t status) const {
    return cudnn_->ErrorOf(status, "cudnnBackendExecute").text;
  }

 private:
  const Cudnn* cudnn_ = nullptr;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Plan> plan_;
  testing::Pack pointers_;
  testing::Descriptor pack_;
};

// A line of the case language that stands in a program.
Case ParseOrExit(const char* line);

// Runs `small` (the same graph at extents that the oracle manages) and compares with the oracle.
std::string CheckNumbers(const Cudnn& cudnn, Device& device, const Case& small);

// Facts that a result file begins with, and the flags that both programs take.
struct Options {
  std::string out, commit, date, cudnn, nvidia, filter;
  int repeats = 20;
  PlanChoice plan;  // of ours

  // Reads --out, --commit, --date, --cudnn, --nvidia, --filter, --repeats, --plan, --engine; else
  // KILN_TEST_CUDNN and the like. `nvidia` is the newest library found, and empty after --nvidia
  // none.
  static Options Parse(int argc, char** argv);
};
std::string JsonText(const std::string& text);  // quoted and escaped

// Writes {"benchmark": name, "commit", "date", "device", "nvidia_version", "rows": [rows]} to
// options.out, whose folder is made; `rows` are lines of JSON. Nothing without --out. False, said
// on stderr, where it cannot.
bool WriteResults(const Options& options, const std::string& name, const std::string& device,
                  size_t nvidia_version, const std::string& rows);

}  // namespace kiln::bench
