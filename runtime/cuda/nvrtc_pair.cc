#include "runtime/cuda/nvrtc_pair.h"

#include "ir/base/env.h"
#include "ir/base/log.h"

namespace kiln::runtime {
namespace {

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

const Nvrtc* NvrtcPair::Second() {
  constexpr int kManyCompiles = 4;  // under way before a second front end is worth its memory
  if (const Nvrtc* second = second_) return second;
  if (of_first_ < kManyCompiles || made_.exchange(true)) return nullptr;
  Result<std::unique_ptr<Nvrtc>> copy = first_.OpenCopy();
  if (!copy.ok()) {
    LOG(kDebug, "kernels are compiled by one NVRTC: {}", copy.status().message());
    return nullptr;
  }
  owned_ = *std::move(copy);
  return second_ = owned_.get();
}

Result<NvrtcResult> NvrtcPair::Compile(const KernelSource& source, NvrtcOutput output) {
  const Nvrtc* second = Second();
  const bool takes_second = second != nullptr && of_second_ < of_first_;
  const Counted counted(takes_second ? of_second_ : of_first_);
  return (takes_second ? *second : first_).Compile(source, output);
}

Result<NvrtcPair*> ProcessNvrtcPair() {
  ASSIGN_OR_RETURN(const Nvrtc* first, ProcessNvrtc());
  // Leaked, as the library is.
  static auto* pair = new NvrtcPair(*first, static_cast<int>(EnvInt(Env::kNvrtcCopies)));
  return pair;
}

}  // namespace kiln::runtime
