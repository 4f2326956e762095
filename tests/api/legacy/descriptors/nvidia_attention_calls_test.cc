// Arguments that do not fit one another, one at a time, in the calls of multi-head attention: each
// is BAD_PARAM here, on memory of the host, and in NVIDIA's 9.19, which is given what it refuses
// alone, since the rest reaches for a GPU. Its half is skipped where 9.19 is not installed.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/support/legacy_client.h"
#include "tests/support/nvidia_library.h"

namespace {

using kiln::testing::LegacyClient;

// ---- a call, and what may be changed of it: 2 heads of 3 elements, 5 queries and 5 keys of 4

struct Sequences {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int steps = 5, batch = 2, beam = 1, width = 4;
  int length = 0;  // 0: all steps
  bool by_time = true, is_set = true;
};
struct Arguments {
  Sequences q, k, v, o = {.width = 6};
  int step = -1, wgrad = CUDNN_WGRAD_MODE_ADD;
  bool has_residuals = false, trains = true, is_set = true;
  int64_t weights = 0, work = 0, reserve = 0;  // bytes more than enough
  size_t work_offset = 0;
};

enum Calls : unsigned { kForward = 1, kData = 2, kWeights = 4 };
constexpr unsigned kAll = kForward | kData | kWeights, kBackward = kData | kWeights, kNone = 0;
constexpr std::pair<Calls, const char*> kNames[] = {
    {kForward, "cudnnMultiHeadAttnForward"},
    {kData, "cudnnMultiHeadAttnBackwardData"},
    {kWeights, "cudnnMultiHeadAttnBackwardWeights"}};

struct Row {
  const char* name;
  unsigned refused;    // by these calls; the others take it
  unsigned by_nvidia;  // by these of them in 9.19
  std::function<void(Arguments&)> change;
};

const Row kRows[] = {
    {"q of half", kAll, kNone, [](Arguments& a) { a.q.type = CUDNN_DATA_HALF; }},
    {"k of half", kAll, kNone, [](Arguments& a) { a.k.type = CUDNN_DATA_HALF; }},
    {"v of doubles", kAll, kNone, [](Arguments& a) { a.v.type = CUDNN_DATA_DOUBLE; }},
    {"o of half", kAll, kNone, [](Arguments& a) { a.o.type = CUDNN_DATA_HALF; }},
    {"a q that is not set", kAll, kNone, [](Arguments& a) { a.q.is_set = false; }},
    {"a v that is not set", kAll, kNone, [](Arguments& a) { a.v.is_set = false; }},
    {"a layer that is not set", kAll, kNone, [](Arguments& a) { a.is_set = false; }},
    {"a wider q", kAll, kAll, [](Arguments& a) { a.q.width = 5; }},
    {"a wider k", kAll, kAll, [](Arguments& a) { a.k.width = 5; }},
    {"a narrower v", kAll, kAll, [](Arguments& a) { a.v.width = 3; }},
    {"a narrower o", kAll, kAll, [](Arguments& a) { a.o.width = 4; }},
    {"more queries than there may be", kAll, kAll, [](Arguments& a) { a.q.steps = a.o.steps = 6; }},
    {"more keys than there may be", kAll, kAll, [](Arguments& a) { a.k.steps = a.v.steps = 6; }},
    {"fewer q than o", kAll, kAll, [](Arguments& a) { a.q.steps = 4; }},
    {"fewer k than v", kAll, kAll, [](Arguments& a) { a.k.steps = 4; }},
    {"q of one sequence", kAll, kAll, [](Arguments& a) { a.q.batch = 1; }},
    {"queries of one sequence", kAll, kAll, [](Arguments& a) { a.q.batch = a.o.batch = 1; }},
    {"k of one sequence", kAll, kAll, [](Arguments& a) { a.k.batch = 1; }},
    {"keys of one sequence", kAll, kAll, [](Arguments& a) { a.k.batch = a.v.batch = 1; }},
    {"more sequences than there may be", kAll, kAll,
     [](Arguments& a) { a.q.batch = a.k.batch = a.v.batch = a.o.batch = 3; }},
    {"q of two beams", kAll, kAll, [](Arguments& a) { a.q.beam = 2; }},
    {"keys of two beams", kAll, kAll, [](Arguments& a) { a.k.beam = a.v.beam = 2; }},
    {"more beams than there may be", kAll, kAll, [](Arguments& a) { a.q.beam = a.o.beam = 3; }},
    {"q in another order", kAll, kAll, [](Arguments& a) { a.q.by_time = false; }},
    {"keys in another order", kAll, kAll, [](Arguments& a) { a.k.by_time = a.v.by_time = false; }},
    {"q of other lengths", kAll, kAll, [](Arguments& a) { a.q.length = 3; }},
    {"k of other lengths", kAll, kAll, [](Arguments& a) { a.k.length = 3; }},
    {"o of other lengths", kAll, kAll, [](Arguments& a) { a.o.length = 3; }},
    {"weights of a byte less", kAll, kAll, [](Arguments& a) { a.weights = -1; }},
    {"no bytes of weights", kAll, kAll, [](Arguments& a) { a.weights = INT64_MIN; }},
    {"more weights", kNone, kNone, [](Arguments& a) { a.weights = 64; }},
    {"no bytes of work space", kAll, kNone, [](Arguments& a) { a.work = INT64_MIN; }},
    {"a work space that words straddle", kAll, kNone, [](Arguments& a) { a.work_offset = 2; }},
    {"a reserve space of a byte less", kAll, kAll, [](Arguments& a) { a.reserve = -1; }},
    {"no bytes of reserve space", kAll, kBackward, [](Arguments& a) { a.reserve = INT64_MIN; }},
    {"one step in training", kForward, kForward, [](Arguments& a) { a.step = 0; }},
    {"a step behind the last one", kForward, kForward,
     [](Arguments& a) {
       a.step = 5;
       a.trains = false;
     }},
    {"the last step", kNone, kNone,
     [](Arguments& a) {
       a.step = 4;
       a.trains = false;
     }},
    {"residuals of another width", kForward, kForward,
     [](Arguments& a) { a.has_residuals = true; }},
    {"another mode of weights", kWeights, kWeights, [](Arguments& a) { a.wgrad = 2; }},
};

// ---- making it

class Caller {
 public:
  Caller(void* library, cudnnHandle_t handle) : client(library), handle_(handle) {}

  cudnnStatus_t Run(Calls call, const Arguments& a) {
    auto layer = client.New<cudnnAttnDescriptor_t>("Attn");
    if (a.is_set) Set(layer);
    const cudnnSeqDataDescriptor_t q = Describe(a.q), k = Describe(a.k), v = Describe(a.v),
                                   o = Describe(a.o);
    constexpr int kLow[8] = {}, kHigh[8] = {5, 5, 5, 5, 5, 5, 5, 5};
    const auto* const lengths = reinterpret_cast<const int*>(Place(0));
    const size_t weights = Bytes(weights_, a.weights), work = Bytes(work_, a.work),
                 reserve = Bytes(reserve_, a.reserve);
    void *const scratch = Place(kScratch) + a.work_offset, *const kept = Place(kReserve);
    if (call == kForward)
      return KILN_CALL(client, cudnnMultiHeadAttnForward, handle_, layer, a.step, kLow, kHigh,
                       lengths, lengths, q, Const(1), a.has_residuals ? Const(1) : nullptr, k,
                       Const(2), v, Const(3), o, Place(4), weights, Const(5), work, scratch,
                       a.trains ? reserve : 0, a.trains ? kept : nullptr);
    if (call == kData)
      return KILN_CALL(client, cudnnMultiHeadAttnBackwardData, handle_, layer, kLow, kHigh, lengths,
                       lengths, o, Const(6), q, Place(7), Const(1), k, Place(8), Const(2), v,
                       Place(9), Const(3), weights, Const(5), work, scratch, reserve, kept);
    return KILN_CALL(client, cudnnMultiHeadAttnBackwardWeights, handle_, layer,
                     static_cast<cudnnWgradMode_t>(a.wgrad), q, Const(1), k, Const(2), v, Const(3),
                     o, Const(6), weights, Const(5), Place(10), work, scratch, reserve, kept);
  }

  // Bytes that the calls of right arguments need. NVIDIA's tells without a GPU, and then fails.
  void Measure() {
    auto layer = client.New<cudnnAttnDescriptor_t>("Attn");
    Set(layer);
    KILN_CALL(client, cudnnGetMultiHeadAttnBuffers, handle_, layer, &weights_, &work_, &reserve_);
    ASSERT_GT(weights_, 0u);
    ASSERT_GT(reserve_, 0u);
    memory_.assign(Behind(work_) + reserve_ + (kScratch + 2) * kSlot, 0);
    for (int i = 0; i < 4; ++i) reinterpret_cast<int*>(Place(0))[i] = 5;  // lengths
  }

  std::string Sentence() {
    char text[512] = {};
    client.LastError(text, sizeof text);
    return text;
  }

  LegacyClient client;

 private:
  // Operands have a slot each; the spaces are behind them.
  static constexpr size_t kSlot = 4096, kScratch = 11, kReserve = 12;

  static size_t Behind(size_t bytes) { return (bytes + kSlot) / kSlot * kSlot; }
  char* Place(size_t slot) {
    const size_t aligned = 64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64;
    if (slot == kReserve) return memory_.data() + aligned + kScratch * kSlot + Behind(work_);
    return memory_.data() + aligned + slot * kSlot;
  }
  const char* Const(size_t slot) { return Place(slot); }
  static size_t Bytes(size_t enough, int64_t more) {
    return more == INT64_MIN ? 0 : enough + static_cast<size_t>(more);
  }
  void Set(cudnnAttnDescriptor_t layer) {
    EXPECT_EQ(
        KILN_CALL(client, cudnnSetAttnDescriptor, layer, 0u, 2, 1.0, CUDNN_DATA_FLOAT,
                  CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH,
                  static_cast<cudnnDropoutDescriptor_t>(nullptr),
                  static_cast<cudnnDropoutDescriptor_t>(nullptr), 4, 4, 4, 3, 3, 3, 6, 5, 5, 2, 2),
        CUDNN_STATUS_SUCCESS);
  }
  cudnnSeqDataDescriptor_t Describe(const Sequences& s) {
    auto desc = client.New<cudnnSeqDataDescriptor_t>("SeqData");
    if (!s.is_set) return desc;
    const int dims[CUDNN_SEQDATA_DIM_COUNT] = {s.steps, s.batch, s.beam, s.width};
    const cudnnSeqDataAxis_t axes[CUDNN_SEQDATA_DIM_COUNT] = {
        s.by_time ? CUDNN_SEQDATA_TIME_DIM : CUDNN_SEQDATA_BATCH_DIM,
        s.by_time ? CUDNN_SEQDATA_BATCH_DIM : CUDNN_SEQDATA_TIME_DIM, CUDNN_SEQDATA_BEAM_DIM,
        CUDNN_SEQDATA_VECT_DIM};
    const std::vector<int> lengths(static_cast<size_t>(s.batch * s.beam),
                                   s.length == 0 ? s.steps : s.length);
    EXPECT_EQ(KILN_CALL(client, cudnnSetSeqDataDescriptor, desc, s.type, CUDNN_SEQDATA_DIM_COUNT,
                        static_cast<const int*>(dims), static_cast<const cudnnSeqDataAxis_t*>(axes),
                        lengths.size(), static_cast<const int*>(lengths.data()), nullptr),
              CUDNN_STATUS_SUCCESS);
    return desc;
  }

  cudnnHandle_t handle_;
  size_t weights_ = 0, work_ = 0, reserve_ = 0;
  std::vector<char> memory_;
};

bool IsBadParam(cudnnStatus_t status) { return status / 1000 == 2; }

TEST(AttentionCallArguments, ThatDoNotFitAreRefused) {
  void* const ours = dlopen("api/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(ours, nullptr) << dlerror();
  cudnnHandle_t handle = nullptr;
  LegacyClient client(ours);
  ASSERT_EQ(KILN_CALL(client, cudnnCreate, &handle), CUDNN_STATUS_SUCCESS);
  for (const auto& [call, name] : kNames) {
    Caller caller(ours, handle);
    caller.Measure();
    for (const auto& [before, name_of_before] : kNames)
      ASSERT_EQ(caller.Run(before, {}), CUDNN_STATUS_SUCCESS) << caller.Sentence();
    for (const Row& row : kRows) {
      Arguments a;
      row.change(a);
      const cudnnStatus_t status = caller.Run(call, a);
      if ((row.refused & call) != 0)
        EXPECT_TRUE(IsBadParam(status)) << name << ", " << row.name << ": " << status;
      else
        EXPECT_EQ(status, CUDNN_STATUS_SUCCESS)
            << name << ", " << row.name << ": " << caller.Sentence();
    }
  }
  KILN_CALL(client, cudnnDestroy, handle);
}

TEST(AttentionCallArguments, ThatNvidiasRefusesAreThose) {
  const std::string path = kiln::testing::NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  void* const theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (theirs == nullptr) GTEST_SKIP() << path << " does not load: " << dlerror();
  if (kiln::testing::ProbeVersion(path) / 100 != 919) GTEST_SKIP() << path << " is not 9.19";
  std::vector<char> zeros(1 << 20);
  for (const auto& [call, name] : kNames) {
    Caller caller(theirs, reinterpret_cast<cudnnHandle_t>(zeros.data()));
    caller.Measure();
    for (const Row& row : kRows) {
      if ((row.refused & row.by_nvidia & call) == 0) continue;
      Arguments a;
      row.change(a);
      EXPECT_TRUE(IsBadParam(caller.Run(call, a))) << name << ", " << row.name;
    }
  }
}

}  // namespace
