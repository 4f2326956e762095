// The manifest's text: print → parse is the identity, and no changed byte goes unnoticed.
#include "runtime/cache/manifest.h"

#include <gtest/gtest.h>

namespace kiln::runtime {
namespace {

CacheRequest Request() {
  CacheRequest request;
  request.fields = {{"arch", "sm_90a"}, {"options", "two\nlines \\n and = signs"}, {"empty", ""}};
  request.source = "__global__ void k() {}\n";
  return request;
}

TEST(ManifestTest, ParsesWhatItPrints) {
  CacheRequest request = Request();
  auto manifest = ParseManifest(PrintManifest(request, "payload"));
  ASSERT_TRUE(manifest.has_value());
  EXPECT_EQ(manifest->fields, request.fields);
  EXPECT_EQ(manifest->source.name, "kernel.cu");
  EXPECT_EQ(manifest->payload.name, "kernel.cubin");
  EXPECT_TRUE(manifest->source.Matches(request.source));
  EXPECT_TRUE(manifest->payload.Matches("payload"));
  EXPECT_FALSE(manifest->payload.Matches("payloae"));
  EXPECT_FALSE(manifest->payload.Matches("payloa"));
}

TEST(ManifestTest, EveryChangedByteIsNoticed) {
  const std::string text = PrintManifest(Request(), "payload");
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(ParseManifest(changed).has_value()) << "byte " << i;
  }
}

TEST(ManifestTest, EveryTruncationIsNoticed) {
  const std::string text = PrintManifest(Request(), "payload");
  for (size_t n = 0; n < text.size(); ++n) {
    EXPECT_FALSE(ParseManifest(text.substr(0, n)).has_value()) << n << " bytes";
  }
  EXPECT_FALSE(ParseManifest(text + "\n").has_value());
}

TEST(ManifestTest, FieldsAreLengthPrefixedInTheKey) {
  CacheRequest a, b;
  a.fields = {{"x", "ab"}, {"y", "c"}};
  b.fields = {{"x", "a"}, {"y", "bc"}};
  EXPECT_NE(a.Key(), b.Key());
  b = a;
  EXPECT_EQ(a.Key(), b.Key());
  b.source = "other";
  EXPECT_NE(a.Key(), b.Key());
}

TEST(ManifestTest, ANameThatLeavesTheEntryIsRefused) {
  CacheRequest request = Request();
  request.payload_file = "../../escape";
  EXPECT_FALSE(ParseManifest(PrintManifest(request, "payload")).has_value());
}

}  // namespace
}  // namespace kiln::runtime
