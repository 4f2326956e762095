// cuBLAS beside the cuDNN libraries, for problems that are a matrix product: what it is asked for
// is exactly the problem's graph, with scales, bias and activation where it has an epilogue for
// them.
//
// cublasLt comes by dlopen, and its types are spelled out here, as with the driver's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/contract/data.h"

namespace kiln::bench {

class Blas {
 public:
  // `near` is a library's path: Python packages of cuBLAS lie in folders beside cuDNN's.
  static std::unique_ptr<Blas> Open(const std::string& named, const std::string& near,
                                    std::string* error);
  ~Blas();

  struct Algorithm {
    std::string label;
    std::function<std::string()> launch;  // an error in words, or empty
  };
  // The algorithms that it recommends, best first, bound to the problem's memory. They live no
  // longer than `this`, `memory` and the next call.
  std::vector<Algorithm> Algorithms(const Problem& problem, const ProblemMemory& memory,
                                    void* workspace, size_t workspace_bytes, void* stream,
                                    std::string* refusal);
  const std::string& path() const { return path_; }
  size_t version() const;

 private:
  struct Functions;
  struct Call;
  Blas();
  std::string path_;
  std::unique_ptr<Functions> lt_;
  void* handle_ = nullptr;
  std::unique_ptr<Call> call_;
};

}  // namespace kiln::bench
