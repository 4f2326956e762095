// A client of the legacy API on a library opened by path, which writes down what every call
// answered: two libraries did the same where the transcripts are equal.
#pragma once

#include <cudnn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kiln::testing {

// Calls a function by name, of whatever type the public header has it. A macro, since a name and
// its type are wanted at once.
#define KILN_CALL(client, function, ...) \
  (client).Call<decltype(function)>(#function __VA_OPT__(, ) __VA_ARGS__)

class LegacyClient {
 public:
  // `after_each` hears the name of each function when it has returned.
  explicit LegacyClient(void* library, void (*after_each)(const char* function) = nullptr)
      : library_(library), after_each_(after_each) {}
  ~LegacyClient() {
    for (const auto& undo : undo_) undo();
  }
  LegacyClient(const LegacyClient&) = delete;
  LegacyClient& operator=(const LegacyClient&) = delete;

  template <class F, class... Args>
  cudnnStatus_t Call(const char* name, Args... args) {
    auto* function = reinterpret_cast<F*>(dlsym(library_, name));
    if (function == nullptr) {
      ADD_FAILURE() << name << " is not exported";
      return CUDNN_STATUS_NOT_INITIALIZED;
    }
    const cudnnStatus_t status = function(args...);
    transcript_ += cudnnStatusName(status) + "; ";
    called_.insert(name);
    failures_ += status != CUDNN_STATUS_SUCCESS;
    if (after_each_ != nullptr) after_each_(name);
    return status;
  }

  // A descriptor that lives as long as the client.
  template <class D>
  D New(const std::string& kind) {
    D object = nullptr;
    Call<cudnnStatus_t(D*)>(("cudnnCreate" + kind + "Descriptor").c_str(), &object);
    undo_.push_back([this, object, kind] {
      Call<cudnnStatus_t(D)>(("cudnnDestroy" + kind + "Descriptor").c_str(), object);
    });
    return object;
  }

  // The library's sentence about this thread's last failure.
  void LastError(char* text, size_t size) {
    auto* function = reinterpret_cast<decltype(&cudnnGetLastErrorString)>(
        dlsym(library_, "cudnnGetLastErrorString"));
    if (function != nullptr) function(text, size);
  }

  // Notes the values that a call gave back.
  template <class T>
  void Note(std::span<const T> values) {
    for (const T& value : values) transcript_ += std::to_string(value) + " ";
  }
  template <class T, size_t kCount>
  void Note(const std::array<T, kCount>& values) {
    Note(std::span<const T>(values));
  }
  const std::string& transcript() const { return transcript_; }
  const std::set<std::string>& called() const { return called_; }
  int failures() const { return failures_; }

 private:
  std::string cudnnStatusName(cudnnStatus_t status) const {
    auto* name =
        reinterpret_cast<decltype(&cudnnGetErrorString)>(dlsym(library_, "cudnnGetErrorString"));
    return name(status);
  }

  void* library_;
  void (*after_each_)(const char* function);
  std::string transcript_;
  std::set<std::string> called_;
  int failures_ = 0;
  std::vector<std::function<void()>> undo_;
};

}  // namespace kiln::testing
