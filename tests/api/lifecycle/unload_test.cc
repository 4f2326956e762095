// dlopen, use, dlclose and exit in many orders, with threads and both generations: each order in a
// process of its own, on the CPU device and on a driver that ends the process if it is called once
// main has returned, so that no static or thread's destructor touches CUDA.
//
// The program is its own child: `unload_test ORDER` plays one order.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr unsigned kSecondsToHang = 60;

// The functions that a client calls, by name, so that the library can be gone.
class Library {
 public:
  explicit Library(const char* generation) {
    const std::string path = std::string("api/libcudnn.so.") + generation;
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) Fail(dlerror());
  }
  ~Library() { Close(); }
  Library(const Library&) = delete;
  void Close() {
    if (library_ != nullptr && dlclose(library_) != 0) Fail(dlerror());
    library_ = nullptr;
  }
  void Forget() { library_ = nullptr; }  // it stays open

  template <class... Args>
  void Call(const char* name, Args... args) const {
    auto* const function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    if (function == nullptr) Fail(name);
    if (function(args...) != 0) Fail((std::string(name) + " failed").c_str());
  }
  void* Create() const {
    void* handle = nullptr;
    Call("cudnnCreate", &handle);
    return handle;
  }
  void Destroy(void* handle) const { Call("cudnnDestroy", handle); }

  // relu of n numbers, checked where it is computed.
  void Use(void* handle, int n) const {
    void *tensor = nullptr, *activation = nullptr;
    Call("cudnnCreateTensorDescriptor", &tensor);
    Call("cudnnSetTensor4dDescriptor", tensor, 0, 0, 1, 1, 1, n);
    Call("cudnnCreateActivationDescriptor", &activation);
    Call("cudnnSetActivationDescriptor", activation, 1, 0, 0.0);
    std::vector<float> x(static_cast<size_t>(n), -2), y(x.size(), 7);
    x[0] = 3;
    const float one = 1, zero = 0;
    const void *alpha = &one, *beta = &zero, *from = x.data();
    void* const to = y.data();
    Call("cudnnActivationForward", handle, activation, alpha, tensor, from, beta, tensor, to);
    if (std::strcmp(std::getenv("KILN_DEVICE"), "cpu") == 0 && (y[0] != 3 || y.back() != 0))
      Fail("wrong results");
    Call("cudnnDestroyTensorDescriptor", tensor);
    Call("cudnnDestroyActivationDescriptor", activation);
  }
  // A network of one unit that adds up n ones.
  void UseNetwork(void* handle, int n) const {
    void *rnn = nullptr, *data = nullptr, *state = nullptr;
    const int three_ones[] = {1, 1, 1};
    Call("cudnnCreateRNNDescriptor", &rnn);
    Call("cudnnSetRNNDescriptor_v8", rnn, 0, 0, 0, 0, 0, 0, 0, 3, 1, 1, 1, 1,
         static_cast<void*>(nullptr), 0u);
    Call("cudnnCreateRNNDataDescriptor", &data);
    Call("cudnnSetRNNDataDescriptor", data, 0, 1, n, 1, 1, static_cast<const int*>(&n),
         static_cast<void*>(nullptr));
    Call("cudnnCreateTensorDescriptor", &state);
    Call("cudnnSetTensorNdDescriptor", state, 0, 3, &three_ones[0], &three_ones[0]);
    size_t work = 0, reserve = 0;
    Call("cudnnGetRNNTempSpaceSizes", handle, rnn, 0, data, &work, &reserve);
    std::vector<char> space(work);
    const std::vector<float> ones(static_cast<size_t>(n), 1), weights(2, 1);
    std::vector<float> y(ones.size(), -7);
    const void *const x = ones.data(), *const none = nullptr, *const w = weights.data();
    void *const out = y.data(), *const no_result = nullptr, *const temporary = space.data();
    Call("cudnnRNNForward", handle, rnn, 0, static_cast<const int*>(&n), data, x, data, out, state,
         none, no_result, state, none, no_result, weights.size() * sizeof(float), w, work,
         temporary, size_t{0}, no_result);
    if (std::strcmp(std::getenv("KILN_DEVICE"), "cpu") == 0 && y.back() != static_cast<float>(n))
      Fail("wrong sums");
    Call("cudnnDestroyTensorDescriptor", state);
    Call("cudnnDestroyRNNDataDescriptor", data);
    Call("cudnnDestroyRNNDescriptor", rnn);
  }
  void UseOnce(int n = 100) const {
    void* const handle = Create();
    Use(handle, n);
    UseNetwork(handle, n % 7 + 1);
    Destroy(handle);
  }

 private:
  [[noreturn]] static void Fail(const char* why) {
    std::fprintf(stderr, "unload_test: %s\n", why);
    _exit(2);
  }
  void* library_ = nullptr;
};

// ---- orders

void OpenUseCloseAgain() {
  for (int i = 0; i < 3; ++i) Library("9").UseOnce(100 + i);
}

void OpenAtTheEnd() {
  OpenUseCloseAgain();
  Library last("9");
  last.UseOnce();
  last.Forget();
}

void HandlesThatStay() {
  Library library("9");
  library.Use(library.Create(), 100);
  library.Close();
  Library again("9");
  again.Use(again.Create(), 100);
}

void BothGenerations() {
  auto nine = std::make_unique<Library>("9");
  const Library eight("8");
  nine->UseOnce();
  void* const handle = eight.Create();
  eight.Use(handle, 100);
  nine.reset();
  eight.Use(handle, 101);
  Library("9").UseOnce();
  eight.Destroy(handle);
}

void ThreadsThatEndAfterTheLibrary() {
  Library library("9");
  std::atomic<int> used = 0;
  std::atomic<bool> closed = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      library.UseOnce(100 + t);
      ++used;
      while (!closed) std::this_thread::yield();  // and its thread-local objects go
    });
  }
  while (used < 4) std::this_thread::yield();
  library.Close();
  closed = true;
  for (std::thread& thread : threads) thread.join();
  Library("9").UseOnce();
}

void ThreadsThatOpenAndClose() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 5; ++i) Library(t % 2 == 0 ? "9" : "8").UseOnce(100 + t + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A client's static objects go behind main.
struct StaticClient {
  std::unique_ptr<Library> library;
  void* handle = nullptr;
  ~StaticClient() {
    if (library != nullptr) library->Destroy(handle);
  }
};
StaticClient static_client;

void HandlesOfStaticObjects() {
  static_client.library = std::make_unique<Library>("9");
  static_client.handle = static_client.library->Create();
  static_client.library->Use(static_client.handle, 100);
}

void ExitAmidThreads() {
  auto* const library = new Library("9");
  auto* const used = new std::atomic<int>(0);
  for (int t = 0; t < 3; ++t) {
    std::thread([=] {
      library->UseOnce(100 + t);
      for (++*used;;) pause();
    }).detach();
  }
  while (*used < 3) std::this_thread::yield();
}

struct Order {
  const char* name;
  void (*play)();
};
constexpr Order kOrders[] = {
    {"OpenUseCloseAgain", OpenUseCloseAgain},
    {"OpenAtTheEnd", OpenAtTheEnd},
    {"HandlesThatStay", HandlesThatStay},
    {"BothGenerations", BothGenerations},
    {"ThreadsThatEndAfterTheLibrary", ThreadsThatEndAfterTheLibrary},
    {"ThreadsThatOpenAndClose", ThreadsThatOpenAndClose},
    {"HandlesOfStaticObjects", HandlesOfStaticObjects},
    {"ExitAmidThreads", ExitAmidThreads},
};

// The driver, where it is ours; opened by the library before.
void EndOfDriver() {
  const char* const path = std::getenv("KILN_LIBCUDA");
  void* const driver = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return;
  reinterpret_cast<void (*)()>(dlsym(driver, "standinIsOver"))();
}

// The order with the driver called after its end: what the other orders must not do is noticed.
void CallAfterTheEnd() {
  Library library("9");
  library.UseOnce();
  EndOfDriver();
  library.UseOnce(55);
}

int Play(const std::string& name) {
  alarm(kSecondsToHang);
  if (name == "CallAfterTheEnd") CallAfterTheEnd();
  for (const Order& order : kOrders)
    if (name == order.name) order.play();
  EndOfDriver();
  return 0;
}

int InChild(const char* order) {
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("TEST_PREMATURE_EXIT_FILE");
    execl("/proc/self/exe", "unload_test", order, nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Unload, InEveryOrder) {
  for (const Order& order : kOrders) EXPECT_EQ(InChild(order.name), 0) << order.name;
}

// The CPU device calls none.
TEST(Unload, CallsOfTheDriverAreNoticed) {
  const bool has_driver = std::getenv("KILN_LIBCUDA") != nullptr;
  EXPECT_EQ(InChild("CallAfterTheEnd"), has_driver ? 1000 + SIGABRT : 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && argv[1][0] != '-') return Play(argv[1]);
  setenv("KILN_CACHE_DIR", (std::string(std::getenv("TEST_TMPDIR")) + "/cache").c_str(), 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
