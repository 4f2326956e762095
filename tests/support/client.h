// A client of the backend C API, as programs are: loads a libcudnn.so.9 by path and drives it
// through its exported functions only. Two libraries, ours and NVIDIA's, can be open in one
// process.
//
// It keeps the habits of real clients: sub-descriptors are destroyed as soon as their user is
// finalised, the heuristics are asked for a count first, scalars by value are host pointers, the
// pack has a new descriptor for each execution.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "include/v9/cudnn_graph.h"
#include "tests/support/cases.h"
#include "tests/support/device_memory.h"

namespace kiln::testing {

// A failed call in words; CUDNN_STATUS_SUCCESS means none.
struct ClientError {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  std::string text;

  bool ok() const { return status == CUDNN_STATUS_SUCCESS; }
  bool is_bad_param() const { return status / 1000 == 2; }
  bool is_not_supported() const { return status / 1000 == 3; }
};

// One loaded library with one handle.
class Cudnn {
 public:
  // `stream` is a cudaStream_t or null.
  static std::unique_ptr<Cudnn> Open(const std::string& path, void* stream, std::string* error);
  // Without a handle: descriptors alone, on machines where cudnnCreate finds no device.
  static std::unique_ptr<Cudnn> Load(const std::string& path, std::string* error);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  const std::string& path() const { return path_; }
  size_t version() const { return getVersion(); }
  cudnnHandle_t handle() const { return handle_; }
  ClientError ErrorOf(cudnnStatus_t status, const char* call) const;

  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) setStream = nullptr;
  decltype(&cudnnGetVersion) getVersion = nullptr;
  decltype(&cudnnGetErrorString) getErrorString = nullptr;
  decltype(&cudnnGetLastErrorString) getLastErrorString = nullptr;
  decltype(&cudnnBackendCreateDescriptor) createDescriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroyDescriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) setAttribute = nullptr;
  decltype(&cudnnBackendGetAttribute) getAttribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

 private:
  Cudnn() = default;
  std::string Resolve();

  std::string path_;
  void* library_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
};

// A backend descriptor. The first failing call is kept and later ones do nothing, so that a
// sequence is checked once, at its end.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  Descriptor& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* data);
  Descriptor& Set(cudnnBackendAttributeName_t name, const Descriptor& value);
  Descriptor& Set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values);
  Descriptor& SetInt(cudnnBackendAttributeName_t name, int64_t value);
  Descriptor& SetFloat(cudnnBackendAttributeName_t name, float value);
  Descriptor& SetDouble(cudnnBackendAttributeName_t name, double value);
  Descriptor& SetBool(cudnnBackendAttributeName_t name, bool value);
  Descriptor& SetEnum(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int value);
  ClientError Finalize();

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  const ClientError& error() const { return error_; }

 private:
  const Cudnn* cudnn_ = nullptr;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  ClientError error_;
};

// Pointers for one execution, by uid.
struct Pack {
  std::vector<int64_t> uids;
  std::vector<void*> pointers;
  void* workspace = nullptr;

  Descriptor Make(const Cudnn& cudnn, ClientError* error) const;
};

// Facts that an engine config tells of itself.
struct ConfigFacts {
  int64_t engine = -1;                         // its global index
  std::vector<std::pair<int, int64_t>> knobs;  // cudnnBackendKnobType_t and the choice
  std::vector<int> notes;                      // cudnnBackendNumericalNote_t of the engine

  bool Has(cudnnBackendNumericalNote_t note) const;
  std::string Text() const;  // engine 3, knobs 1=4 7=0
};

class Plan {
 public:
  int64_t workspace_bytes = 0;

  ClientError Execute(const Pack& pack) const;
  const Descriptor& descriptor() const { return plan_; }

 private:
  friend class Graph;
  const Cudnn* cudnn_ = nullptr;
  Descriptor plan_;
};

// The operation graph of a case, finalised.
class Graph {
 public:
  static std::unique_ptr<Graph> Build(const Cudnn& cudnn, const Case& c, ClientError* error);

  // Engine configs of the heuristics in the library's order: modes A and FALLBACK, as clients ask.
  ClientError Heuristics();
  // Modes A, B and FALLBACK. An error only where none gives a config.
  ClientError AllHeuristics();
  // Adds what one mode gives to the configs.
  ClientError AddMode(cudnnBackendHeurMode_t mode) { return CollectMode(mode); }
  // Adds a config without settings for every engine of the library that takes the graph, for graphs
  // of which the heuristics know nothing. Not for engines in `known`.
  ClientError AddEngines(const std::set<int64_t>& known = {});
  // Adds the configuration of one engine, by its global index.
  ClientError AddEngine(int64_t index);
  ConfigFacts FactsOf(size_t config) const;
  size_t configs() const { return configs_.size(); }
  const Descriptor& descriptor() const { return graph_; }
  std::unique_ptr<Plan> MakePlan(size_t config, ClientError* error) const;

 private:
  explicit Graph(const Cudnn& cudnn) : cudnn_(&cudnn) {}
  ClientError Collect(const std::vector<int>& modes);
  ClientError CollectMode(int mode);

  const Cudnn* cudnn_;
  Descriptor graph_;
  std::vector<Descriptor> configs_;
};

}  // namespace kiln::testing
