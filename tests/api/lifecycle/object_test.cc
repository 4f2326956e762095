// Handles as clients hold them: found by their kind, gone once destroyed, and never mistaken for
// memory that is not ours, from several threads at once. api/entry and api/backend stand on it.
#include "api/lifecycle/object.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace kiln::api {
namespace {

struct Apple {
  static constexpr uint64_t kTag = 0xa991e;
  int value = 7;
};
struct Pear {
  static constexpr uint64_t kTag = 0x9ea4;
};

TEST(Object, IsFoundByItsKindUntilItIsDestroyed) {
  void* address = nullptr;
  Apple* apple = Make<Apple>(&address);
  ASSERT_NE(apple, nullptr);
  EXPECT_EQ(Find<Apple>(address), apple);
  EXPECT_EQ(Find<Pear>(address), nullptr);
  EXPECT_FALSE(Destroy<Pear>(address));
  EXPECT_TRUE(Destroy<Apple>(address));
  EXPECT_EQ(Find<Apple>(address), nullptr);
  EXPECT_FALSE(Destroy<Apple>(address));
}

TEST(Object, ForeignPointersAreRefusedUntouched) {
  alignas(64) char local[128] = {};
  const void* foreign[] = {nullptr,
                           local,
                           local + 1,
                           reinterpret_cast<void*>(0x40),
                           reinterpret_cast<void*>(1),
                           reinterpret_cast<void*>(0x7fffffffffc0),
                           reinterpret_cast<void*>(~uintptr_t{0}),
                           reinterpret_cast<void*>(~uintptr_t{63})};
  for (const void* pointer : foreign) EXPECT_EQ(Find<Apple>(pointer), nullptr) << pointer;
  void* address = nullptr;
  Make<Apple>(&address);
  EXPECT_EQ(Find<Apple>(static_cast<char*>(address) + 8), nullptr)
      << "inside an object is not the object";
  Destroy<Apple>(address);
}

TEST(Object, MoreThanASlabOfLiveObjectsAreDistinct) {
  std::vector<void*> addresses(40000);
  for (void*& address : addresses) ASSERT_NE(Make<Apple>(&address), nullptr);
  EXPECT_EQ(std::set<void*>(addresses.begin(), addresses.end()).size(), addresses.size());
  for (void* address : addresses) EXPECT_TRUE(Destroy<Apple>(address));
}

TEST(Object, OfManyThreadsThatDestroyOneObjectOneWins) {
  for (int round = 0; round < 200; ++round) {
    void* address = nullptr;
    Make<Apple>(&address);
    std::atomic<int> wins = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { wins += Destroy<Apple>(address); });
    threads.clear();
    ASSERT_EQ(wins, 1);
  }
}

TEST(Object, CellsMadeInOneThreadMayDieInAnother) {
  std::vector<void*> addresses(1000);
  std::jthread([&] {
    for (void*& address : addresses) Make<Apple>(&address);
  }).join();
  std::jthread([&] {
    for (void* address : addresses) EXPECT_TRUE(Destroy<Apple>(address));
  }).join();
}

}  // namespace
}  // namespace kiln::api
