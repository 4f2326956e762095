// libcudart as far as cudnn-frontend's Python package uses it, on the host: one device of compute
// capability 9.0 whose memory is the host's, streams and events that are always done. With it the
// package, which will not start without a CUDA runtime, runs on a machine without a GPU, over
// Kiln's CPU target (//tests/clients).
//
// A capture records nothing, since the CPU target works at once: what is executed between begin and
// end has run when the capture ends, and the captured graph is empty. Nothing here needs CUDA's
// headers; values and the layout of cudaDeviceProp are those of CUDA 12 and 13, which agree in all
// that is filled in.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace {

enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInvalidDevice = 101,
  kInvalidResourceHandle = 400,
  kIllegalState = 401,
  kNotSupported = 801,
};

struct Graph;

struct Stream {
  Graph* capture = nullptr;  // what is being captured into, if anything
};

struct Event {
  std::chrono::steady_clock::time_point time;
};

// An object that a client gives a graph to keep, and the function that is called when nothing does
// any more.
struct UserObject {
  void* pointer;
  void (*destroy)(void*);
  std::atomic<unsigned> references;
};

struct Graph {
  int nodes = 0;
  std::vector<std::pair<UserObject*, unsigned>> kept;
};

void Release(UserObject* object, unsigned count) {
  if (object->references.fetch_sub(count) != count) return;
  object->destroy(object->pointer);
  delete object;
}

void Destroy(Graph* graph) {
  for (const auto& [object, count] : graph->kept) Release(object, count);
  delete graph;
}

// The head of cudaDeviceProp; both generations are longer, and nothing behind `minor` is filled in.
struct DeviceProperties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_mask;
  size_t global_memory;
  size_t shared_memory_per_block;
  int registers_per_block;
  int warp_size;
  size_t memory_pitch;
  int threads_per_block;
  int block_extents[3];
  int grid_extents[3];
  int clock_rate;
  size_t constant_memory;
  int major;
  int minor;
};
static_assert(offsetof(DeviceProperties, global_memory) == 288 &&
              offsetof(DeviceProperties, major) == 360);

constexpr int kComputeCapabilityMajor =
    75;  // cudaDevAttrComputeCapabilityMajor, and Minor after it
constexpr int kMultiprocessorCount = 16;
constexpr int kMemoryTypeDevice = 2;

thread_local int last_error = kSuccess;

int Report(int error) {
  if (error != kSuccess) last_error = error;
  return error;
}

// Streams that live. The default streams (null, and the legacy and per-thread handles 1 and 2)
// always do.
std::mutex streams_mutex;
std::set<Stream*>& Streams() {
  static auto* streams = new std::set<Stream*>;
  return *streams;
}

bool IsStream(const Stream* stream) {
  if (reinterpret_cast<uintptr_t>(stream) <= 2) return true;
  const std::lock_guard lock(streams_mutex);
  return Streams().count(const_cast<Stream*>(stream)) != 0;
}

bool IsDefault(const Stream* stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// ---- device

int cudaGetDeviceCount(int* count) {
  *count = 1;
  return kSuccess;
}

int cudaGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}

int cudaSetDevice(int device) { return Report(device == 0 ? kSuccess : kInvalidDevice); }

int cudaGetDeviceProperties(void* out, int device) {
  if (device != 0) return Report(kInvalidDevice);
  DeviceProperties properties = {};
  std::strcpy(properties.name, "Kiln host stand-in");
  properties.global_memory = size_t{16} << 30;
  properties.shared_memory_per_block = 48 << 10;
  properties.registers_per_block = 65536;
  properties.warp_size = 32;
  properties.threads_per_block = 1024;
  properties.constant_memory = 64 << 10;
  properties.major = 9;
  properties.minor = 0;
  std::memcpy(out, &properties, sizeof(properties));
  return kSuccess;
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 0) return Report(kInvalidDevice);
  switch (attribute) {
    case kMultiprocessorCount:
      *value = 132;
      return kSuccess;
    case kComputeCapabilityMajor:
      *value = 9;
      return kSuccess;
    case kComputeCapabilityMajor + 1:
      *value = 0;
      return kSuccess;
    default:
      return Report(kNotSupported);
  }
}

int cudaDeviceSynchronize() { return kSuccess; }

int cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

const char* cudaGetErrorString(int error) {
  switch (error) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument";
    case kMemoryAllocation:
      return "out of memory";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kInvalidResourceHandle:
      return "invalid resource handle";
    case kIllegalState:
      return "the operation cannot be performed in the present state";
    case kNotSupported:
      return "operation not supported by the host stand-in for the CUDA runtime";
    default:
      return "unrecognized error code";
  }
}

int cudaGetLastError() {
  const int error = last_error;
  last_error = kSuccess;
  return error;
}

// ---- memory

int cudaMalloc(void** out, size_t bytes) {
  *out = bytes == 0 ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (bytes != 0 && *out == nullptr) return Report(kMemoryAllocation);
  // As a frontend's warm-up executes on this memory, what it reads is defined.
  if (bytes != 0) std::memset(*out, 0, bytes);
  return kSuccess;
}

int cudaFree(void* pointer) {
  std::free(pointer);
  return kSuccess;
}

int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  if (bytes != 0) std::memmove(to, from, bytes);
  return kSuccess;
}

int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, Stream* stream) {
  return IsStream(stream) ? cudaMemcpy(to, from, bytes, kind) : Report(kInvalidResourceHandle);
}

int cudaMemset(void* to, int value, size_t bytes) {
  if (bytes != 0) std::memset(to, value, bytes);
  return kSuccess;
}

int cudaMemsetAsync(void* to, int value, size_t bytes, Stream* stream) {
  return IsStream(stream) ? cudaMemset(to, value, bytes) : Report(kInvalidResourceHandle);
}

int cudaPointerGetAttributes(void* out, const void* pointer) {
  struct {
    int type;
    int device;
    void* device_pointer;
    void* host_pointer;
  } attributes = {kMemoryTypeDevice, 0, const_cast<void*>(pointer), const_cast<void*>(pointer)};
  std::memcpy(out, &attributes, sizeof(attributes));
  return kSuccess;
}

// ---- streams and events

int cudaStreamCreate(Stream** out) {
  *out = new Stream;
  const std::lock_guard lock(streams_mutex);
  Streams().insert(*out);
  return kSuccess;
}

int cudaStreamCreateWithFlags(Stream** out, unsigned) { return cudaStreamCreate(out); }

int cudaStreamDestroy(Stream* stream) {
  {
    const std::lock_guard lock(streams_mutex);
    if (Streams().erase(stream) == 0) return Report(kInvalidResourceHandle);
  }
  if (stream->capture != nullptr) Destroy(stream->capture);
  delete stream;
  return kSuccess;
}

int cudaStreamSynchronize(Stream* stream) {
  return Report(IsStream(stream) ? kSuccess : kInvalidResourceHandle);
}

int cudaEventCreate(Event** out) {
  *out = new Event;
  return kSuccess;
}

int cudaEventDestroy(Event* event) {
  delete event;
  return kSuccess;
}

int cudaEventRecord(Event* event, Stream* stream) {
  if (!IsStream(stream)) return Report(kInvalidResourceHandle);
  event->time = std::chrono::steady_clock::now();
  return kSuccess;
}

int cudaEventSynchronize(Event*) { return kSuccess; }

int cudaEventElapsedTime(float* milliseconds, const Event* start, const Event* end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return kSuccess;
}

// ---- capture and graphs

int cudaStreamIsCapturing(Stream* stream, int* status) {
  if (!IsStream(stream)) return Report(kInvalidResourceHandle);
  *status = !IsDefault(stream) && stream->capture != nullptr ? 1 : 0;
  return kSuccess;
}

// CUDA 13's; that of CUDA 12 has no edge data. The graph is null where nothing is captured.
int cudaStreamGetCaptureInfo(Stream* stream, int* status, unsigned long long* id, Graph** graph,
                             const void** dependencies, const void** edge_data, size_t* count) {
  if (const int error = cudaStreamIsCapturing(stream, status); error != kSuccess) return error;
  if (id != nullptr) *id = reinterpret_cast<uintptr_t>(stream);
  if (graph != nullptr) *graph = *status == 1 ? stream->capture : nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edge_data != nullptr) *edge_data = nullptr;
  if (count != nullptr) *count = 0;
  return kSuccess;
}

int cudaStreamGetCaptureInfo_v2(Stream* stream, int* status, unsigned long long* id, Graph** graph,
                                const void** dependencies, size_t* count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, nullptr, count);
}

int cudaThreadExchangeStreamCaptureMode(int* mode) {
  thread_local int current = 0;
  std::swap(*mode, current);
  return kSuccess;
}

int cudaStreamBeginCapture(Stream* stream, int) {
  if (!IsStream(stream)) return Report(kInvalidResourceHandle);
  // CUDA does not capture the legacy default stream.
  if (IsDefault(stream) || stream->capture != nullptr) return Report(kIllegalState);
  stream->capture = new Graph;
  return kSuccess;
}

int cudaStreamEndCapture(Stream* stream, Graph** graph) {
  if (!IsStream(stream)) return Report(kInvalidResourceHandle);
  if (IsDefault(stream) || stream->capture == nullptr) return Report(kIllegalState);
  *graph = std::exchange(stream->capture, nullptr);
  return kSuccess;
}

int cudaGraphCreate(Graph** graph, unsigned) {
  *graph = new Graph;
  return kSuccess;
}

int cudaGraphDestroy(Graph* graph) {
  Destroy(graph);
  return kSuccess;
}

int cudaUserObjectCreate(UserObject** out, void* pointer, void (*destroy)(void*), unsigned count,
                         unsigned) {
  *out = new UserObject{pointer, destroy, count};
  return kSuccess;
}

int cudaUserObjectRelease(UserObject* object, unsigned count) {
  Release(object, count);
  return kSuccess;
}

// The graph takes references of its own, whoever made the object keeping its.
int cudaGraphRetainUserObject(Graph* graph, UserObject* object, unsigned count, unsigned) {
  object->references += count;
  graph->kept.emplace_back(object, count);
  return kSuccess;
}

int cudaGraphGetNodes(Graph* graph, void**, size_t* count) {
  *count = static_cast<size_t>(graph->nodes);
  return kSuccess;
}

int cudaGraphGetRootNodes(Graph* graph, void** nodes, size_t* count) {
  return cudaGraphGetNodes(graph, nodes, count);
}

}  // extern "C"
#pragma GCC visibility pop
