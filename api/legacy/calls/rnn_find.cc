// Algorithms of recurrent networks: which one a network has, persistent plans, and the searches
// that measure them. Reference 7.2.2, 7.2.4, 7.2.9, 7.2.13, 7.2.17, 7.2.22, 7.2.23, 7.2.44, 7.2.45
// and 8.2.6 to 8.2.8.
//
// An algorithm is a name here: every one runs the plan that is best for the problem. So a search
// measures once, and lists the names that the network takes.
#include <algorithm>

#include "api/legacy/calls/rnn_v6.h"
#include "api/legacy/descriptors/algorithm_objects.h"
#include "api/legacy/functions.h"

namespace kiln::api::legacy {
namespace {

constexpr int kAlgorithms = CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H + 1;

struct PersistentPlan {
  static constexpr uint64_t kTag = 0x6b696c6e'726e6e70;  // "kilnrnnp"
  static constexpr std::string_view kName = "cudnnPersistentRNNPlan_t";

  int32_t batch = 0, type = CUDNN_DATA_FLOAT;
};

// Persistent algorithms take neither projections nor other biases than both, and static ones no
// doubles: as cudnnSetRNNDescriptor_v8 has it.
bool Takes(const RnnDesc& rnn, int algorithm) {
  if (algorithm == CUDNN_RNN_ALGO_STANDARD) return true;
  const bool is_static = algorithm != CUDNN_RNN_ALGO_PERSIST_DYNAMIC;
  return rnn.bias == CUDNN_RNN_DOUBLE_BIAS && rnn.projected == rnn.hidden &&
         !(is_static && rnn.type == CUDNN_DATA_DOUBLE);
}

Status CheckRequest(int wanted, const int* found, void* const* results) {
  if (wanted <= 0) return Status::Error(Code::kBadParam, "{} algorithms are asked for", wanted);
  RETURN_IF_ERROR(NotNull(found, "the place for the number of algorithms"));
  return NotNull(results, "the array of performance objects");
}

// The descriptors of algorithms that results name are theirs, and live as long as they do.
Status Report(const RnnDesc& rnn, double seconds, size_t work_bytes, int wanted, int* found,
              void* const* results) {
  *found = 0;
  for (int algorithm = 0; algorithm < kAlgorithms && *found < wanted; ++algorithm) {
    if (!Takes(rnn, algorithm)) continue;
    ASSIGN_OR_RETURN(AlgorithmPerformance * result, Get<AlgorithmPerformance>(results[*found]));
    RETURN_IF_ERROR(OwnAlgorithm(*result, algorithm));
    result->status = 0;
    result->time = static_cast<float>(seconds * 1e3);
    result->memory = work_bytes;
    ++*found;
  }
  return {};
}

Status MaxCount(void* handle, void* rnn, int* count) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  RETURN_IF_ERROR(Get<RnnDesc>(rnn).status());
  RETURN_IF_ERROR(NotNull(count, "the place for the number of algorithms"));
  *count = kAlgorithms;
  return {};
}

Status FindForward(void* handle, void* rnn, bool trains, int steps, V6Data x, V6State hx,
                   V6State cx, V6State w, V6Data y, V6State hy, V6State cy, RnnSpace work,
                   RnnSpace reserve, int wanted, int* found, void* const* results) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(CheckRequest(wanted, found, results));
  V6Forward call;
  RETURN_IF_ERROR(FillForward(call, rnn, trains, steps, x, hx, cx, w, y, hy, cy, work, reserve));
  double seconds = 0;
  call.args.seconds = &seconds;
  RETURN_IF_ERROR(RnnForward(*h, call.args));
  return Report(call.rnn, seconds, work.bytes, wanted, found, results);
}

}  // namespace

Status BuildRNNDynamic(void* handle, void* rnn, int batch) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(CheckSet(*desc));
  RETURN_IF_ERROR(CheckSetByV8(*desc));
  if (batch > 0) return {};
  return Status::Error(Code::kBadParam, "miniBatch is {}", batch);
}

// ---- 8 alone ----

Status CreatePersistentRNNPlan(void* rnn, int batch, int type, void** plan) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(CheckSet(*desc));
  if (batch <= 0) return Status::Error(Code::kBadParam, "minibatch is {}", batch);
  RETURN_IF_ERROR(CheckEnum(type, CUDNN_DATA_BFLOAT16, "cudnnDataType_t"));
  RETURN_IF_ERROR(CreateDescriptor<PersistentPlan>(plan));
  ASSIGN_OR_RETURN(PersistentPlan * made, Get<PersistentPlan>(*plan));
  *made = {.batch = batch, .type = type};
  return {};
}

Status DestroyPersistentRNNPlan(void* plan) { return DestroyDescriptor<PersistentPlan>(plan); }

Status SetPersistentRNNPlan(void* rnn, void* plan) {
  ASSIGN_OR_RETURN(const RnnDesc* desc, Get<RnnDesc>(rnn));
  RETURN_IF_ERROR(Get<PersistentPlan>(plan).status());
  if (desc->algo == CUDNN_RNN_ALGO_PERSIST_DYNAMIC) return {};
  return Status::Error(
      Code::kBadParam,
      "a persistent plan with algorithm {}; CUDNN_RNN_ALGO_PERSIST_DYNAMIC has one", desc->algo);
}

Status SetRNNAlgorithmDescriptor(void* handle, void* rnn, void* algorithm) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  ASSIGN_OR_RETURN(RnnDesc * desc, Get<RnnDesc>(rnn));
  ASSIGN_OR_RETURN(const AlgorithmDesc* wanted, Get<AlgorithmDesc>(algorithm));
  RETURN_IF_ERROR(CheckEnum(wanted->algorithm, kAlgorithms - 1, "cudnnRNNAlgo_t"));
  if (!Takes(*desc, wanted->algorithm))
    return Status::Error(Code::kNotSupported,
                         "algorithm {} with the biases, projection or data type of the network",
                         wanted->algorithm);
  desc->algo = wanted->algorithm;
  return {};
}

Status GetRNNForwardInferenceAlgorithmMaxCount(void* handle, void* rnn, int* count) {
  return MaxCount(handle, rnn, count);
}
Status GetRNNForwardTrainingAlgorithmMaxCount(void* handle, void* rnn, int* count) {
  return MaxCount(handle, rnn, count);
}
Status GetRNNBackwardDataAlgorithmMaxCount(void* handle, void* rnn, int* count) {
  return MaxCount(handle, rnn, count);
}
Status GetRNNBackwardWeightsAlgorithmMaxCount(void* handle, void* rnn, int* count) {
  return MaxCount(handle, rnn, count);
}

Status FindRNNForwardInferenceAlgorithmEx(void* handle, void* rnn, int steps, void* const* x_desc,
                                          const void* x, void* hx_desc, const void* hx,
                                          void* cx_desc, const void* cx, void* w_desc,
                                          const void* w, void* const* y_desc, void* y,
                                          void* hy_desc, void* hy, void* cy_desc, void* cy, float,
                                          int wanted, int* found, void** results, void* work,
                                          size_t work_bytes) {
  return FindForward(handle, rnn, false, steps, {x_desc, x}, {hx_desc, hx}, {cx_desc, cx},
                     {w_desc, w}, {y_desc, y}, {hy_desc, hy}, {cy_desc, cy}, {work, work_bytes}, {},
                     wanted, found, results);
}

Status FindRNNForwardTrainingAlgorithmEx(void* handle, void* rnn, int steps, void* const* x_desc,
                                         const void* x, void* hx_desc, const void* hx,
                                         void* cx_desc, const void* cx, void* w_desc, const void* w,
                                         void* const* y_desc, void* y, void* hy_desc, void* hy,
                                         void* cy_desc, void* cy, float, int wanted, int* found,
                                         void** results, void* work, size_t work_bytes,
                                         void* reserve, size_t reserve_bytes) {
  return FindForward(handle, rnn, true, steps, {x_desc, x}, {hx_desc, hx}, {cx_desc, cx},
                     {w_desc, w}, {y_desc, y}, {hy_desc, hy}, {cy_desc, cy}, {work, work_bytes},
                     {reserve, reserve_bytes}, wanted, found, results);
}

Status FindRNNBackwardDataAlgorithmEx(void* handle, void* rnn, int steps, void* const* y_desc,
                                      const void* y, void* const* dy_desc, const void* dy,
                                      void* dhy_desc, const void* dhy, void* dcy_desc,
                                      const void* dcy, void* w_desc, const void* w, void* hx_desc,
                                      const void* hx, void* cx_desc, const void* cx,
                                      void* const* dx_desc, void* dx, void* dhx_desc, void* dhx,
                                      void* dcx_desc, void* dcx, float, int wanted, int* found,
                                      void** results, void* work, size_t work_bytes, void* reserve,
                                      size_t reserve_bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(CheckRequest(wanted, found, results));
  V6BackwardData call;
  RETURN_IF_ERROR(FillBackwardData(call, rnn, steps, {y_desc, y}, {dy_desc, dy}, {dhy_desc, dhy},
                                   {dcy_desc, dcy}, {w_desc, w}, {hx_desc, hx}, {cx_desc, cx},
                                   {dx_desc, dx}, {dhx_desc, dhx}, {dcx_desc, dcx},
                                   {work, work_bytes}, {reserve, reserve_bytes}));
  double seconds = 0;
  call.args.seconds = &seconds;
  RETURN_IF_ERROR(RnnBackwardData(*h, call.args));
  return Report(call.rnn, seconds, work_bytes, wanted, found, results);
}

Status FindRNNBackwardWeightsAlgorithmEx(void* handle, void* rnn, int steps, void* const* x_desc,
                                         const void* x, void* hx_desc, const void* hx,
                                         void* const* y_desc, const void* y, float, int wanted,
                                         int* found, void** results, const void* work,
                                         size_t work_bytes, void* dw_desc, void* dw,
                                         const void* reserve, size_t reserve_bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(CheckRequest(wanted, found, results));
  V6BackwardWeights call;
  RETURN_IF_ERROR(FillBackwardWeights(call, rnn, steps, {x_desc, x}, {hx_desc, hx}, {y_desc, y},
                                      {dw_desc, dw}, {const_cast<void*>(work), work_bytes},
                                      {const_cast<void*>(reserve), reserve_bytes}));
  double seconds = 0;
  call.args.seconds = &seconds;
  RETURN_IF_ERROR(RnnBackwardWeights(*h, call.args));
  return Report(call.rnn, seconds, work_bytes, wanted, found, results);
}

}  // namespace kiln::api::legacy
