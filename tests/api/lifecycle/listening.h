// The text of the API log while a test runs, by cudnnSetCallback.
#pragma once

#include <cudnn.h>

#include <string>

namespace kiln::testing {

// The messages that are logged while it lives, or until it is stopped.
class Listening {
 public:
  Listening() {
    cudnnSetCallback(CUDNN_SEV_INFO_EN | CUDNN_SEV_ERROR_EN, &text_,
                     [](cudnnSeverity_t, void* text, const cudnnDebug_t*, const char* message) {
                       *static_cast<std::string*>(text) += std::string(message) + "\n";
                     });
  }
  ~Listening() { Stop(); }
  Listening(const Listening&) = delete;

  const std::string& Stop() {
    if (!stopped_) cudnnSetCallback(0, nullptr, nullptr);
    stopped_ = true;
    return text_;
  }

 private:
  std::string text_;
  bool stopped_ = false;
};

}  // namespace kiln::testing
