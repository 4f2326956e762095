// The plug-in as a program sees it: opened by path, three C symbols, nothing else.
#include "runtime/cpu/plugin.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "runtime/device.h"

namespace kiln::runtime {
namespace {

constexpr char kPath[] = "runtime/cpu/libkiln_cpu.so";  // in the runfiles, where tests start
constexpr char kText[] = R"(kernel fill(y: ptr<f32>, n: i32, v: f32) threads 1 {
  for bx in 0..n block_x {
    store y[bx] = exp(v)
  }
}
)";

class Plugin : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(kPath, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  template <class F>
  F* Find(const char* name, F*) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }
  void* library_ = nullptr;
};

TEST_F(Plugin, ADeviceRunsAKernel) {
  auto* create = Find("KilnCpuDeviceCreate", &KilnCpuDeviceCreate);
  ASSERT_NE(create, nullptr);
  char error[512] = "";
  const std::unique_ptr<Device> device(create(error, sizeof error));
  ASSERT_NE(device, nullptr) << error;
  const auto kernel =
      device->Load({.kind = SourceKind::kTileIr, .entry = "fill", .text = kText, .arch = "native"});
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  float y[100] = {};
  float* pointer = y;
  int32_t n = 100;
  float v = 0;
  void* args[] = {&pointer, &n, &v};
  ASSERT_TRUE(device
                  ->Launch(**kernel,
                           {.grid = {100, 1, 1}, .block = {1, 1, 1}, .dynamic_shared_bytes = 0},
                           args, nullptr)
                  .ok());
  for (const float value : y) ASSERT_EQ(value, 1.0f);
}

TEST_F(Plugin, LlvmTextOfAKernel) {
  auto* emit = Find("KilnCpuEmitLlvm", &KilnCpuEmitLlvm);
  auto* free_text = Find("KilnCpuFreeText", &KilnCpuFreeText);
  ASSERT_TRUE(emit && free_text);
  char* text = nullptr;
  char error[512] = "";
  ASSERT_EQ(emit(kText, &text, error, sizeof error), 0) << error;
  EXPECT_NE(std::strstr(text, "define void @fill("), nullptr) << text;
  free_text(text);

  EXPECT_NE(emit("kernel broken(", &text, error, sizeof error), 0);
  EXPECT_NE(std::strlen(error), 0u);
  char small[8];
  EXPECT_NE(emit("kernel broken(", &text, small, sizeof small), 0);
  EXPECT_EQ(small[7], '\0');
}

TEST_F(Plugin, NothingElseIsExported) {
  for (const char* name :
       {"_ZN4kiln7runtime9CpuDevice6CreateERKNS1_7OptionsE",
        "_ZN4kiln4tile5ParseESt17basic_string_viewIcSt11char_traitsIcEE", "_ZN4kiln6StatusC1Ev"}) {
    EXPECT_EQ(dlsym(library_, name), nullptr) << name;
  }
}

}  // namespace
}  // namespace kiln::runtime
