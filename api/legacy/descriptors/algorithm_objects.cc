// Reference 3.2.4, 3.2.7, 3.2.8, 3.2.22, 3.2.23, 3.2.38 to 3.2.40, 3.2.72, 3.2.74, 3.2.77
// and 3.2.78.
#include "api/legacy/descriptors/algorithm_objects.h"

#include <cstring>

#include "api/legacy/functions.h"
#include "api/lifecycle/handle.h"
#include "api/spec/generation.h"

namespace kiln::api::legacy {
namespace {

// cudnnSaveAlgorithm writes this.
struct SavedAlgorithm {
  static constexpr uint32_t kMagic = 0x6b616c67;  // "kalg"

  uint32_t magic = kMagic;
  int32_t version = 0;
  int32_t algorithm = 0;
  uint32_t check = 0;
};

int32_t Version() {
  const Generation& generation = ThisGeneration();
  return generation.major * 10000 + generation.minor * 100 + generation.patch;
}

uint32_t CheckOf(const SavedAlgorithm& saved) {
  return ~(saved.magic ^ static_cast<uint32_t>(saved.version) * 0x9e3779b9u ^
           static_cast<uint32_t>(saved.algorithm));
}

// The result and the descriptor that is its own.
Status DestroyPerformance(void* object) {
  if (object == nullptr) return {};
  ASSIGN_OR_RETURN(const AlgorithmPerformance* performance, Get<AlgorithmPerformance>(object));
  RETURN_IF_ERROR(DestroyDescriptor<AlgorithmDesc>(performance->owned));
  return DestroyDescriptor<AlgorithmPerformance>(object);
}

}  // namespace

Status OwnAlgorithm(AlgorithmPerformance& result, int algorithm) {
  if (result.owned == nullptr) RETURN_IF_ERROR(CreateDescriptor<AlgorithmDesc>(&result.owned));
  ASSIGN_OR_RETURN(AlgorithmDesc * desc, Get<AlgorithmDesc>(result.owned));
  desc->algorithm = algorithm;
  result.algorithm = result.owned;
  return {};
}

Status CreateAlgorithmDescriptor(void** out) { return CreateDescriptor<AlgorithmDesc>(out); }
Status DestroyAlgorithmDescriptor(void* object) { return DestroyDescriptor<AlgorithmDesc>(object); }

Status SetAlgorithmDescriptor(void* object, const void* algorithm) {
  ASSIGN_OR_RETURN(AlgorithmDesc * desc, Get<AlgorithmDesc>(object));
  std::memcpy(&desc->algorithm, algorithm, sizeof desc->algorithm);
  return {};
}

Status GetAlgorithmDescriptor(void* object, void* algorithm) {
  ASSIGN_OR_RETURN(const AlgorithmDesc* desc, Get<AlgorithmDesc>(object));
  RETURN_IF_ERROR(NotNull(algorithm, "the place for the algorithm"));
  std::memcpy(algorithm, &desc->algorithm, sizeof desc->algorithm);
  return {};
}

Status CopyAlgorithmDescriptor(void* source, void* destination) {
  ASSIGN_OR_RETURN(const AlgorithmDesc* from, Get<AlgorithmDesc>(source));
  ASSIGN_OR_RETURN(AlgorithmDesc * to, Get<AlgorithmDesc>(destination));
  *to = *from;
  return {};
}

Status CreateAlgorithmPerformance(void** out, int count) {
  RETURN_IF_ERROR(NotNull(out, "the place for the performance objects"));
  if (count < 0) return Status::Error(Code::kBadParam, "{} performance objects", count);
  for (int i = 0; i < count; ++i) {
    if (Status made = CreateDescriptor<AlgorithmPerformance>(out + i); !made.ok()) {
      while (i-- > 0) RETURN_IF_ERROR(DestroyDescriptor<AlgorithmPerformance>(out[i]));
      return made;
    }
  }
  return {};
}

Status DestroyAlgorithmPerformance(void** objects, int count) {
  RETURN_IF_ERROR(NotNull(objects, "the array of performance objects"));
  if (count < 0) return Status::Error(Code::kBadParam, "{} performance objects", count);
  for (int i = 0; i < count; ++i) RETURN_IF_ERROR(DestroyPerformance(objects[i]));
  return {};
}

Status SetAlgorithmPerformance(void* object, void* algorithm, int status, float time,
                               size_t memory) {
  ASSIGN_OR_RETURN(AlgorithmPerformance * performance, Get<AlgorithmPerformance>(object));
  RETURN_IF_ERROR(Get<AlgorithmDesc>(algorithm).status());
  performance->algorithm = algorithm;
  performance->status = status;
  performance->time = time;
  performance->memory = memory;
  return {};
}

Status GetAlgorithmPerformance(void* object, void** algorithm, int* status, float* time,
                               size_t* memory) {
  ASSIGN_OR_RETURN(const AlgorithmPerformance* performance, Get<AlgorithmPerformance>(object));
  Store(algorithm, performance->algorithm);
  Store(status, performance->status);
  Store(time, performance->time);
  Store(memory, performance->memory);
  return {};
}

Status GetAlgorithmSpaceSize(void* handle, void* object, size_t* bytes) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  RETURN_IF_ERROR(Get<AlgorithmDesc>(object).status());
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  *bytes = sizeof(SavedAlgorithm);
  return {};
}

Status SaveAlgorithm(void* handle, void* object, void* space, size_t bytes) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  ASSIGN_OR_RETURN(const AlgorithmDesc* desc, Get<AlgorithmDesc>(object));
  RETURN_IF_ERROR(NotNull(space, "algoSpace"));
  if (bytes < sizeof(SavedAlgorithm))
    return Status::Error(Code::kBadParam, "algoSpace has {} bytes; {} are needed", bytes,
                         sizeof(SavedAlgorithm));
  SavedAlgorithm saved = {.version = Version(), .algorithm = desc->algorithm};
  saved.check = CheckOf(saved);
  std::memcpy(space, &saved, sizeof saved);
  return {};
}

Status RestoreAlgorithm(void* handle, void* space, size_t bytes, void* object) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  RETURN_IF_ERROR(NotNull(space, "algoSpace"));
  ASSIGN_OR_RETURN(AlgorithmDesc * desc, Get<AlgorithmDesc>(object));
  if (bytes < sizeof(SavedAlgorithm))
    return Status::Error(Code::kBadParam, "algoSpace has {} bytes; {} are needed", bytes,
                         sizeof(SavedAlgorithm));
  SavedAlgorithm saved;
  std::memcpy(&saved, space, sizeof saved);
  if (saved.magic != SavedAlgorithm::kMagic || saved.check != CheckOf(saved))
    return Status::Text(Code::kBadParam, "algoSpace holds nothing that was saved, or is damaged");
  if (saved.version != Version())
    return Status::Error(Code::kNotSupported, "algoSpace was saved by version {}, this is {}",
                         saved.version, Version());
  desc->algorithm = saved.algorithm;
  return {};
}

}  // namespace kiln::api::legacy
