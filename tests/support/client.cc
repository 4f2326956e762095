// Loading, descriptors, heuristics, plans. The operations of a case are in client_ops.cc.
#include "tests/support/client.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tests/support/client_ops.h"
#include "tests/support/nvidia_library.h"

namespace kiln::testing {

std::unique_ptr<Cudnn> Cudnn::Load(const std::string& path, std::string* error) {
  std::unique_ptr<Cudnn> cudnn(new Cudnn);
  cudnn->path_ = path;
  *error = cudnn->Resolve();
  return error->empty() ? std::move(cudnn) : nullptr;
}

std::unique_ptr<Cudnn> Cudnn::Open(const std::string& path, void* stream, std::string* error) {
  auto cudnn = Load(path, error);
  if (!cudnn) return nullptr;
  if (const auto status = cudnn->create(&cudnn->handle_); status != CUDNN_STATUS_SUCCESS) {
    *error = cudnn->ErrorOf(status, "cudnnCreate").text;
    return nullptr;
  }
  if (stream == nullptr) return cudnn;
  const auto status = cudnn->setStream(cudnn->handle_, static_cast<cudaStream_t>(stream));
  if (status == CUDNN_STATUS_SUCCESS) return cudnn;
  *error = cudnn->ErrorOf(status, "cudnnSetStream").text;
  return nullptr;
}

std::string Cudnn::Resolve() {
  // Local: a second libcudnn in the process must not bind to this one's symbols.
  if (std::string error = LoadPartsBeside(path_); !error.empty()) return error;
  library_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return dlerror();
  const auto slot = [](auto& function) { return reinterpret_cast<void**>(&function); };
  const std::pair<const char*, void**> symbols[] = {
      {"cudnnCreate", slot(create)},
      {"cudnnDestroy", slot(destroy)},
      {"cudnnSetStream", slot(setStream)},
      {"cudnnGetVersion", slot(getVersion)},
      {"cudnnGetErrorString", slot(getErrorString)},
      {"cudnnGetLastErrorString", slot(getLastErrorString)},
      {"cudnnBackendCreateDescriptor", slot(createDescriptor)},
      {"cudnnBackendDestroyDescriptor", slot(destroyDescriptor)},
      {"cudnnBackendSetAttribute", slot(setAttribute)},
      {"cudnnBackendGetAttribute", slot(getAttribute)},
      {"cudnnBackendFinalize", slot(finalize)},
      {"cudnnBackendExecute", slot(execute)}};
  for (const auto& [name, function] : symbols) {
    *function = dlsym(library_, name);
    const bool is_of_9 = function == slot(getLastErrorString);
    if (*function == nullptr && !is_of_9) return fmt::format("{} does not export {}", path_, name);
  }
  return "";
}

Cudnn::~Cudnn() {
  // The library stays loaded: its threads and the driver's callbacks may outlive the handle.
  if (handle_ != nullptr) destroy(handle_);
}

ClientError Cudnn::ErrorOf(cudnnStatus_t status, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  std::array<char, 2048> sentence{};
  if (getLastErrorString != nullptr) getLastErrorString(sentence.data(), sentence.size());
  return {.status = status,
          .text = fmt::format("{}: {}: {}", call, getErrorString(status), sentence.data())};
}

Descriptor::Descriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type) : cudnn_(&cudnn) {
  error_ =
      cudnn.ErrorOf(cudnn.createDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : cudnn_(other.cudnn_),
      descriptor_(std::exchange(other.descriptor_, nullptr)),
      error_(std::move(other.error_)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(cudnn_, other.cudnn_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(error_, other.error_);
  return *this;
}

Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) cudnn_->destroyDescriptor(descriptor_);
}

Descriptor& Descriptor::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t count, const void* data) {
  if (!error_.ok()) return *this;
  const auto status = cudnn_->setAttribute(descriptor_, name, type, count, data);
  error_ = cudnn_->ErrorOf(
      status, fmt::format("cudnnBackendSetAttribute({})", static_cast<int>(name)).c_str());
  return *this;
}

Descriptor& Descriptor::Set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  if (!value.error().ok() && error_.ok()) error_ = value.error();
  const cudnnBackendDescriptor_t raw = value.get();
  return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

Descriptor& Descriptor::Set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
  return Set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}

Descriptor& Descriptor::SetInt(cudnnBackendAttributeName_t name, int64_t value) {
  return Set(name, CUDNN_TYPE_INT64, 1, &value);
}

Descriptor& Descriptor::SetFloat(cudnnBackendAttributeName_t name, float value) {
  return Set(name, CUDNN_TYPE_FLOAT, 1, &value);
}

Descriptor& Descriptor::SetDouble(cudnnBackendAttributeName_t name, double value) {
  return Set(name, CUDNN_TYPE_DOUBLE, 1, &value);
}

Descriptor& Descriptor::SetBool(cudnnBackendAttributeName_t name, bool value) {
  return Set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

Descriptor& Descriptor::SetEnum(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                int value) {
  return Set(name, type, 1, &value);
}

ClientError Descriptor::Finalize() {
  if (error_.ok()) error_ = cudnn_->ErrorOf(cudnn_->finalize(descriptor_), "cudnnBackendFinalize");
  return error_;
}

Descriptor Pack::Make(const Cudnn& cudnn, ClientError* error) const {
  Descriptor pack(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<int64_t>(pointers.size()), pointers.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids);
  *error = pack.Finalize();
  return pack;
}

ClientError Plan::Execute(const Pack& pack) const {
  ClientError error;
  const Descriptor descriptor = pack.Make(*cudnn_, &error);
  if (!error.ok()) return error;
  return cudnn_->ErrorOf(cudnn_->execute(cudnn_->handle(), plan_.get(), descriptor.get()),
                         "cudnnBackendExecute");
}

std::unique_ptr<Graph> Graph::Build(const Cudnn& cudnn, const Case& c, ClientError* error) {
  std::unique_ptr<Graph> graph(new Graph(cudnn));
  const std::vector<Descriptor> ops = MakeOperations(cudnn, c, error);
  if (!error->ok()) return nullptr;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& op : ops) raw.push_back(op.get());
  graph->graph_ = Descriptor(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  const cudnnHandle_t handle = cudnn.handle();
  graph->graph_.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph->graph_.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    static_cast<int64_t>(raw.size()), raw.data());
  *error = graph->graph_.Finalize();
  return error->ok() ? std::move(graph) : nullptr;
}

ClientError Graph::Heuristics() { return Collect({CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}); }

ClientError Graph::AllHeuristics() {
  return Collect({CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK});
}

ClientError Graph::Collect(const std::vector<int>& modes) {
  configs_.clear();
  ClientError last;
  for (const int mode : modes) last = CollectMode(mode);
  if (!configs_.empty()) return {};
  if (last.ok())
    return {.status = CUDNN_STATUS_NOT_SUPPORTED, .text = "the heuristics give no engine config"};
  return last;
}

ClientError Graph::CollectMode(int mode) {
  Descriptor heuristics(*cudnn_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
      .SetEnum(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (ClientError error = heuristics.Finalize(); !error.ok()) return error;
  int64_t count = 0;
  const auto get = [&](int64_t requested, void* array) {
    return cudnn_->ErrorOf(
        cudnn_->getAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, requested, &count, array),
        "cudnnBackendGetAttribute(ENGINEHEUR_RESULTS)");
  };
  if (ClientError error = get(0, nullptr); !error.ok()) return error;
  std::vector<Descriptor> results;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i)
    raw.push_back(results.emplace_back(*cudnn_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (ClientError error = get(count, raw.data()); !error.ok()) return error;
  // The second count may be smaller: what was written then.
  for (int64_t i = 0; i < count && static_cast<size_t>(i) < results.size(); ++i)
    configs_.push_back(std::move(results[static_cast<size_t>(i)]));
  return {};
}

ClientError Graph::AddEngines(const std::set<int64_t>& known) {
  int64_t count = 0;
  const ClientError error = cudnn_->ErrorOf(
      cudnn_->getAttribute(graph_.get(), CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT,
                           CUDNN_TYPE_INT64, 1, nullptr, &count),
      "cudnnBackendGetAttribute(ENGINE_GLOBAL_COUNT)");
  if (!error.ok()) return error;
  const size_t before = configs_.size();
  ClientError last{.status = CUDNN_STATUS_NOT_SUPPORTED, .text = "the library has no engine"};
  for (int64_t i = 0; i < count; ++i) {
    if (known.contains(i)) continue;
    if (ClientError refused = AddEngine(i); !refused.ok()) last = refused;
  }
  return configs_.size() > before ? ClientError{} : last;
}

ClientError Graph::AddEngine(int64_t index) {
  Descriptor engine(*cudnn_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.Set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph_)
      .SetInt(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index);
  if (ClientError error = engine.Finalize(); !error.ok()) return error;
  Descriptor config(*cudnn_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.Set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (ClientError error = config.Finalize(); !error.ok()) return error;
  configs_.push_back(std::move(config));
  return {};
}

namespace {

// The descriptors that an attribute holds; empty where it cannot be read.
std::vector<Descriptor> GetDescriptors(const Cudnn& cudnn, const Descriptor& of,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendDescriptorType_t type, int64_t most) {
  std::vector<Descriptor> list;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i) raw.push_back(list.emplace_back(cudnn, type).get());
  int64_t count = 0;
  const auto status =
      cudnn.getAttribute(of.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, raw.data());
  list.resize(status == CUDNN_STATUS_SUCCESS ? static_cast<size_t>(std::min(count, most)) : 0);
  return list;
}

template <typename T>
T GetScalar(const Cudnn& cudnn, const Descriptor& of, cudnnBackendAttributeName_t name,
            cudnnBackendAttributeType_t type, T fallback) {
  T value = fallback;
  int64_t count = 0;
  const auto status = cudnn.getAttribute(of.get(), name, type, 1, &count, &value);
  return status == CUDNN_STATUS_SUCCESS ? value : fallback;
}

}  // namespace

bool ConfigFacts::Has(cudnnBackendNumericalNote_t note) const {
  return std::ranges::find(notes, static_cast<int>(note)) != notes.end();
}

std::string ConfigFacts::Text() const {
  std::string text = fmt::format("engine {}", engine);
  for (const auto& [type, value] : knobs)
    text += fmt::format("{} {}={}", &type == &knobs.front().first ? ", knobs" : "", type, value);
  return text;
}

ConfigFacts Graph::FactsOf(size_t config) const {
  ConfigFacts facts;
  const auto engines = GetDescriptors(*cudnn_, configs_[config], CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  if (engines.empty()) return facts;
  facts.engine =
      GetScalar<int64_t>(*cudnn_, engines[0], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, -1);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  int64_t count = 0;
  if (cudnn_->getAttribute(engines[0].get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                           CUDNN_TYPE_NUMERICAL_NOTE, static_cast<int64_t>(notes.size()), &count,
                           notes.data()) == CUDNN_STATUS_SUCCESS) {
    for (int64_t i = 0; i < count && i < static_cast<int64_t>(notes.size()); ++i)
      facts.notes.push_back(static_cast<int>(notes[static_cast<size_t>(i)]));
  }
  for (const Descriptor& choice :
       GetDescriptors(*cudnn_, configs_[config], CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                      CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    const auto type =
        GetScalar<cudnnBackendKnobType_t>(*cudnn_, choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                          CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_COUNTS);
    facts.knobs.emplace_back(static_cast<int>(type),
                             GetScalar<int64_t>(*cudnn_, choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                                CUDNN_TYPE_INT64, -1));
  }
  return facts;
}

std::unique_ptr<Plan> Graph::MakePlan(size_t config, ClientError* error) const {
  auto plan = std::make_unique<Plan>();
  plan->cudnn_ = cudnn_;
  plan->plan_ = Descriptor(*cudnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  const cudnnHandle_t handle = cudnn_->handle();
  plan->plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  plan->plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs_[config]);
  *error = plan->plan_.Finalize();
  if (!error->ok()) return nullptr;
  // No element count: real clients pass NULL for scalars.
  *error = cudnn_->ErrorOf(
      cudnn_->getAttribute(plan->plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                           CUDNN_TYPE_INT64, 1, nullptr, &plan->workspace_bytes),
      "cudnnBackendGetAttribute(WORKSPACE_SIZE)");
  return error->ok() ? std::move(plan) : nullptr;
}

}  // namespace kiln::testing
