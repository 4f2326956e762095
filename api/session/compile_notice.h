// CompileNotice: a client that waits for a compiler is told once, at KILN_LOG=warn, what it waited
// for and how the next process need not. Held by the session while it makes a plan.
#pragma once

#include <chrono>
#include <string>

#include "ir/graph/graph.h"

namespace kiln::api {

class CompileNotice {
 public:
  // The first plan of a process that takes longer is worth a line.
  static constexpr double kSecondsWorthALine = 1;

  // `kernels`: how many of the plan's are in no cache. `graph` must outlive the notice.
  CompileNotice(const graph::Graph& graph, size_t kernels);
  ~CompileNotice();
  CompileNotice(const CompileNotice&) = delete;
  CompileNotice& operator=(const CompileNotice&) = delete;

  // "a plan of conv_fprop and pointwise waited 1.7 s for 3 kernels to be compiled. …" `folder`: of
  // the kernel cache; empty where kernels are kept in memory alone.
  static std::string Text(const graph::Graph& graph, size_t kernels, double seconds,
                          const std::string& folder);

 private:
  const graph::Graph& graph_;
  const size_t kernels_;
  const std::chrono::steady_clock::time_point begin_;
};

}  // namespace kiln::api
