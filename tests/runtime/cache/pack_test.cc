// Packs under all that may happen to a file: every byte turned over, every length cut off, rows
// that lead out of it, other owners, and files without an end. A damaged pack is a miss, never
// another kernel's code.
#include "runtime/cache/pack.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "runtime/cache/kernel_cache.h"
#include "runtime/cache/pack_format.h"
#include "runtime/cache/pack_set.h"
#include "runtime/cache/zstd.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::runtime {
namespace {

namespace fs = std::filesystem;
using Origin = CachedKernel::Origin;

constexpr uint32_t kToolkit = 13;

CacheRequest Request(const std::string& name, const std::string& compiler = "") {
  CacheRequest request;
  request.fields = {
      {"library", "test"}, {"compiler", compiler}, {"arch", "sm_90a"}, {"entry", name}};
  request.source = "text of " + name;
  return request;
}

// As different as cubins are, and larger than their frames.
std::string CubinOf(const std::string& name) {
  std::string cubin = "cubin of " + name + std::string(200, 'x');
  for (int i = 0; i < 50; ++i) cubin += fmt::format("{} {}", name, i * i);
  return cubin;
}

PackItem Item(const std::string& name, uint32_t toolkit = kToolkit) {
  auto item = MakePackItem(Request(name, fmt::format("nvrtc {}", toolkit)), CubinOf(name), toolkit);
  EXPECT_TRUE(item.ok()) << item.status().message();
  return *std::move(item);
}

std::string BytesOf(std::vector<PackItem> items) {
  auto bytes = MakePack(std::move(items));
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return *std::move(bytes);
}

class PackTest : public testing::Test {
 protected:
  std::string Write(std::string_view bytes, const std::string& name = "a.pack") const {
    const std::string path = folder_.path() + "/" + name;
    fs::remove(path);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // The cubin that a process finds which has this pack alone.
  static std::optional<std::string> Find(const std::string& path, const std::string& name,
                                         int driver_major = 0) {
    return PackSet({path}).Find(Request(name), driver_major);
  }

  TemporaryFolder folder_;
};

TEST_F(PackTest, KernelsComeBackByTextWhoeverCompiledThem) {
  const std::string path = Write(BytesOf({Item("b"), Item("a"), Item("c")}));
  const auto pack = Pack::Open(path);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  ASSERT_EQ(pack->kernels().size(), 3u);
  for (const PackedKernel& kernel : pack->kernels()) {
    const std::string name(kernel.entry);
    EXPECT_EQ(kernel.arch, "sm_90a");
    EXPECT_EQ(kernel.compiler, "nvrtc 13");
    EXPECT_EQ(kernel.text_bytes, Request(name).source.size());
    EXPECT_LT(kernel.frame_bytes, kernel.cubin_bytes);
    EXPECT_EQ(*pack->Read(kernel), CubinOf(name));
  }
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(Find(path, name), CubinOf(name));
  EXPECT_EQ(Find(path, "d"), std::nullopt);
  EXPECT_EQ(PackKey(Request("a", "one")), PackKey(Request("a", "another")));
}

TEST_F(PackTest, EveryFieldButTheCompilerIsPartOfTheKey) {
  const CacheRequest request = Request("a", "nvrtc");
  for (size_t i = 0; i < request.fields.size(); ++i) {
    CacheRequest other = request;
    other.fields[i].value += "'";
    EXPECT_EQ(PackKey(other) == PackKey(request), other.fields[i].name == "compiler");
  }
  CacheRequest other = request;
  other.source += ' ';
  EXPECT_NE(PackKey(other), PackKey(request));
}

TEST_F(PackTest, NoKernelsAreAPackToo) {
  const std::string path = Write(BytesOf({}));
  const auto pack = Pack::Open(path);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  EXPECT_TRUE(pack->kernels().empty());
  EXPECT_EQ(Find(path, "a"), std::nullopt);
}

TEST_F(PackTest, BytesDependOnTheSetOfKernelsAlone) {
  std::vector<PackItem> items;
  for (int i = 0; i < 20; ++i) items.push_back(Item(fmt::format("k{}", i)));
  const std::string bytes = BytesOf(items);
  std::mt19937 random(1);
  for (int i = 0; i < 10; ++i) {
    std::vector<PackItem> shuffled = items;
    shuffled.push_back(items[static_cast<size_t>(i)]);  // one that comes twice
    std::ranges::shuffle(shuffled, random);
    EXPECT_EQ(BytesOf(std::move(shuffled)), bytes);
  }
}

TEST_F(PackTest, TheNewerCompilersKernelStays) {
  for (const bool newer_first : {false, true}) {
    std::vector<PackItem> items = {Item("a", 12), Item("a", 13)};
    if (newer_first) std::ranges::reverse(items);
    const auto pack = Pack::Open(Write(BytesOf(std::move(items))));
    ASSERT_TRUE(pack.ok());
    ASSERT_EQ(pack->kernels().size(), 1u);
    EXPECT_EQ(pack->kernels()[0].toolkit_major, 13u);
  }
}

TEST_F(PackTest, OlderDriversDoNotGetCodeOfNewerToolkits) {
  const std::string path = Write(BytesOf({Item("old", 12), Item("new", 13)}));
  EXPECT_EQ(Find(path, "old", 12), CubinOf("old"));
  EXPECT_EQ(Find(path, "new", 12), std::nullopt);
  EXPECT_EQ(Find(path, "new", 13), CubinOf("new"));
  EXPECT_EQ(Find(path, "new", 14), CubinOf("new"));
}

TEST_F(PackTest, KernelsOfAPackBecomeThoseOfAnother) {
  const std::string bytes = BytesOf({Item("a"), Item("b")});
  const auto pack = Pack::Open(Write(bytes));
  ASSERT_TRUE(pack.ok());
  std::vector<PackItem> items;
  for (const PackedKernel& kernel : pack->kernels()) items.push_back(*TakePackItem(*pack, kernel));
  EXPECT_EQ(BytesOf(std::move(items)), bytes);
}

// Whether each kernel that is still found is the right one; how many are found.
int FoundAndRight(const std::string& path, std::initializer_list<const char*> names) {
  int found = 0;
  PackSet packs({path});
  for (const char* name : names) {
    const auto cubin = packs.Find(Request(name), 0);
    if (!cubin) continue;
    EXPECT_EQ(*cubin, CubinOf(name));
    ++found;
  }
  return found;
}

TEST_F(PackTest, EachByteTurnedOverIsAMiss) {
  const std::string bytes = BytesOf({Item("a"), Item("b")});
  const std::string path = Write(bytes);
  const size_t payloads = bytes.size() - Item("a").frame.size() - Item("b").frame.size();
  ASSERT_EQ(FoundAndRight(path, {"a", "b"}), 2);
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int bit : {0, 7}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      Write(damaged);
      const int found = FoundAndRight(path, {"a", "b"});
      // Damage of the index loses all kernels, damage of a payload its own.
      if (at < payloads) {
        EXPECT_EQ(found, 0) << "byte " << at;
      } else {
        EXPECT_EQ(found, 1) << "byte " << at;
      }
    }
  }
}

TEST_F(PackTest, EachLengthCutOffIsAMiss) {
  const std::string bytes = BytesOf({Item("a"), Item("b")});
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_EQ(FoundAndRight(Write(bytes.substr(0, length)), {"a", "b"}), 0) << length;
  EXPECT_EQ(FoundAndRight(Write(bytes + "x"), {"a", "b"}), 0);
}

// A pack whose hashes are right over whatever `change` does to its rows.
std::string Forged(const std::vector<PackItem>& items,
                   const std::function<void(std::string& index)>& change) {
  const std::string bytes = BytesOf(items);
  size_t frames = 0;
  for (const PackItem& item : items) frames += item.frame.size();
  std::string index = bytes.substr(kPackHeaderBytes, bytes.size() - kPackHeaderBytes - frames);
  change(index);
  std::string head = bytes.substr(0, 32);
  PackOutput out(head);
  out.Hash(HashBytes(index)).U64(0);
  out.U64(HashBytes(head).low);
  return head + index + bytes.substr(bytes.size() - frames);
}

TEST_F(PackTest, NumbersThatLeadOutAreRefusedThoughTheirHashIsRight) {
  const std::vector<PackItem> items = {Item("a"), Item("b")};
  EXPECT_EQ(FoundAndRight(Write(Forged(items, [](std::string&) {})), {"a", "b"}), 2);
  // offset, bytes of the frame, of the cubin, entry, arch, compiler
  for (const size_t at : {40, 48, 52, 64, 68, 72}) {
    for (const unsigned char value : {0x80, 0xff}) {
      const std::string forged = Forged(items, [&](std::string& index) {
        for (size_t i = 0; i < 4; ++i) index[at + i] = static_cast<char>(value);
      });
      EXPECT_FALSE(Pack::Open(Write(forged)).ok()) << at;
      EXPECT_EQ(FoundAndRight(Write(forged), {"a", "b"}), 0) << at;
    }
  }
  // An offset into the header; no order; another frame's length; a cubin of another length.
  const auto number = [](size_t at, uint32_t value) {
    return [=](std::string& index) {
      for (size_t i = 0; i < 4; ++i) index[at + i] = static_cast<char>(value >> (8 * i));
    };
  };
  EXPECT_FALSE(Pack::Open(Write(Forged(items, number(40, 8)))).ok());
  EXPECT_FALSE(Pack::Open(Write(Forged(items, [](std::string& index) {
                 std::rotate(index.begin(), index.begin() + kPackRowBytes,
                             index.begin() + 2 * kPackRowBytes);
               }))).ok());
  EXPECT_EQ(FoundAndRight(Write(Forged(items, number(48, 3))), {"a", "b"}), 1);
  EXPECT_EQ(FoundAndRight(Write(Forged(items, number(52, 9))), {"a", "b"}), 1);
  EXPECT_EQ(FoundAndRight(Write(Forged(items, number(52, 1 << 20))), {"a", "b"}), 1);
}

TEST_F(PackTest, ARowOfAnotherKernelIsNoKernelOfItsText) {
  // The row says that its text is longer than the one that is asked for.
  const std::vector<PackItem> items = {Item("a")};
  EXPECT_EQ(FoundAndRight(Write(Forged(items, [](std::string& index) { index[56] = 99; })), {"a"}),
            0);
}

TEST_F(PackTest, WhatIsNoFileSaysSo) {
  const auto message = [](const std::string& path) {
    const auto pack = Pack::Open(path);
    return pack.ok() ? std::string() : pack.status().message();
  };
  EXPECT_EQ(message("/nowhere/a.pack"), "there is no file /nowhere/a.pack");
  EXPECT_EQ(message("/dev/zero"), "/dev/zero is not a regular file");
  EXPECT_EQ(message(folder_.path()), folder_.path() + " is not a regular file");
  const std::string fifo = folder_.path() + "/fifo.pack";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(message(fifo), fifo + " is not a regular file");
  EXPECT_NE(message(Write("#!/bin/sh\n")).find("does not begin as a pack does"), std::string::npos);
}

// Neither read nor mapped: the header says how long it is.
TEST_F(PackTest, AFileOfTerabytesIsRefused) {
  const std::string path = Write(BytesOf({Item("a")}));
  if (::truncate(path.c_str(), off_t{1} << 42) != 0) {
    // A file system without such files has one of as many bytes as it can.
    ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 33), 0);
  }
  const auto pack = Pack::Open(path);
  ASSERT_FALSE(pack.ok());
  EXPECT_NE(pack.status().message().find("by its header"), std::string::npos);
}

TEST_F(PackTest, AnOtherFormatSaysWhich) {
  std::string bytes = BytesOf({Item("a")});
  bytes[kPackMagic.size()] = 2;
  std::string head = bytes.substr(0, kPackHashedHeaderBytes);
  PackOutput(head).U64(HashBytes(head).low);
  const auto pack = Pack::Open(Write(head + bytes.substr(kPackHeaderBytes)));
  ASSERT_FALSE(pack.ok());
  EXPECT_NE(pack.status().message().find("it has format 2, and this build reads format 1"),
            std::string::npos);
}

TEST_F(PackTest, AFileThatOthersMayChangeIsRefused) {
  const std::string path = Write(BytesOf({Item("a")}));
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(Pack::Open(path).status().code(), Code::kNotSupported);
  EXPECT_EQ(Find(path, "a"), std::nullopt);
  ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
  EXPECT_EQ(Find(path, "a"), CubinOf("a"));
}

// A process that has opened a pack lives on whatever happens to the file.
TEST_F(PackTest, AnOpenedPackThatChangesIsAMiss) {
  const std::string bytes = BytesOf({Item("a"), Item("b")});
  const std::string path = Write(bytes);
  PackSet packs({path});
  EXPECT_EQ(packs.Find(Request("a"), 0), CubinOf("a"));
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
  EXPECT_EQ(packs.Find(Request("b"), 0), std::nullopt);
  Write(BytesOf({Item("c"), Item("d")}));
  EXPECT_EQ(packs.Find(Request("a"), 0), std::nullopt);
  Write(bytes);
  EXPECT_EQ(packs.Find(Request("b"), 0), CubinOf("b"));
  fs::remove(path);
  EXPECT_EQ(packs.Find(Request("a"), 0), std::nullopt);
}

TEST_F(PackTest, FoldersAreSearchedInOrder) {
  fs::create_directory(folder_.path() + "/packs");
  Write("no pack", "packs/0.pack");
  Write(BytesOf({Item("a")}), "packs/1.pack");
  Write(BytesOf({Item("b")}), "packs/2.pack");
  Write(BytesOf({Item("c")}), "packs/notes.txt");
  const std::string alone = Write(BytesOf({Item("d")}), "alone.bin");
  PackSet packs({folder_.path() + "/packs", folder_.path() + "/missing", alone});
  for (const char* name : {"a", "b", "d"}) EXPECT_EQ(packs.Find(Request(name), 0), CubinOf(name));
  EXPECT_EQ(packs.Find(Request("c"), 0), std::nullopt);
}

class PackCacheTest : public PackTest {
 protected:
  KernelCache::Options Options(const std::string& pack) const {
    return {.root = folder_.path() + "/cache", .packs = {pack}};
  }
};

TEST_F(PackCacheTest, KernelsOfPacksAreKeptInMemoryAndNotOnDisk) {
  const std::string path = Write(BytesOf({Item("a")}));
  KernelCache cache(Options(path));
  const auto first = cache.FindInPacks(Request("a"), 0);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->origin, Origin::kPack);
  EXPECT_EQ(*first->payload, CubinOf("a"));
  fs::remove(path);
  const auto again = cache.FindInPacks(Request("a"), 0);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->origin, Origin::kMemory);
  EXPECT_EQ(again->payload, first->payload);
  EXPECT_FALSE(cache.FindInPacks(Request("b"), 0).has_value());
  EXPECT_TRUE(cache.List().empty());
}

TEST_F(PackCacheTest, ThreadsGetOneCopy) {
  KernelCache cache(Options(Write(BytesOf({Item("a"), Item("b")}))));
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (const char* name : {"a", "b"}) {
        const auto kernel = cache.FindInPacks(Request(name), 0);
        wrong += !kernel || *kernel->payload != CubinOf(name);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(ZstdTest, FramesComeBackAndDamagedOnesAreWords) {
  for (const size_t size : {0, 1, 1000, 1 << 20}) {
    std::string bytes(size, 'a');
    for (size_t i = 0; i < size; i += 7) bytes[i] = static_cast<char>(i * i >> 5);
    const auto frame = Compress(bytes);
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    EXPECT_EQ(*Decompress(*frame, size), bytes);
    EXPECT_FALSE(Decompress(*frame, size + 1).ok());
    if (size > 0) {
      EXPECT_FALSE(Decompress(*frame, size - 1).ok());
    }
    EXPECT_EQ(Decompress(frame->substr(0, frame->size() / 2), size).status().code(),
              Code::kInvalidValue);
  }
}

}  // namespace
}  // namespace kiln::runtime
