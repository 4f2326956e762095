// KnownNetworks: what is compiled ahead, after which graphs, and at which batch.
#include "api/prefetch/known_networks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace kiln::api {
namespace {

// A 1x1 convolution of `channels`, `direction` one of fprop, dgrad and wgrad.
std::string Convolution(const std::string& direction, int64_t batch, int64_t channels) {
  const auto image = [&](const char* name) {
    return fmt::format("  tensor %{} f16 [{},{},7,5] strides=[{},1,{},{}]\n", name, batch, channels,
                       35 * channels, 5 * channels, channels);
  };
  const std::string filter =
      fmt::format("  tensor %w f16 [{0},{0},1,1] strides=[{0},1,{0},{0}]\n", channels);
  const std::string call = direction == "fprop"   ? "%y = conv_fprop(%x, %w)"
                           : direction == "dgrad" ? "%x = conv_dgrad(%y, %w)"
                                                  : "%w = conv_wgrad(%x, %y)";
  return fmt::format("graph {} {{\n{}{}{}  {} compute=f32\n}}\n", direction, image("x"), filter,
                     image("y"), call);
}

graph::Graph Parsed(const std::string& text) {
  auto graph = graph::Parse(text);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return *std::move(graph);
}

std::string Written(const std::string& name, const std::string& text) {
  const std::string file = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::ofstream(file) << text;
  return file;
}

std::vector<std::string> Texts(const std::vector<graph::Graph>& graphs) {
  std::vector<std::string> texts;
  for (const graph::Graph& graph : graphs) texts.push_back(graph::CanonicalText(graph));
  return texts;
}

std::string Canonical(const std::string& direction, int64_t batch, int64_t channels) {
  return graph::CanonicalText(Parsed(Convolution(direction, batch, channels)));
}

// The filter of 8 channels has the batch of the list as its dim 0, and keeps it.
std::string Network() {
  return "# a comment\n" + Convolution("fprop", 8, 16) + Convolution("fprop", 8, 8) +
         Convolution("dgrad", 8, 8) + Convolution("wgrad", 8, 8);
}

TEST(KnownNetworksTest, TheSecondGraphBringsTheRestAtItsBatch) {
  for (const int64_t batch : {8, 1, 3}) {
    KnownNetworks networks({Written("a.kiln", Network())});
    EXPECT_TRUE(networks.Beside(Parsed(Convolution("fprop", batch, 16))).empty());
    EXPECT_TRUE(networks.Beside(Parsed(Convolution("fprop", batch, 16))).empty()) << "once more";
    const auto beside = networks.Beside(Parsed(Convolution("fprop", batch, 8)));
    const std::vector<std::string> wanted = {
        Canonical("dgrad", batch, 8), Canonical("wgrad", batch, 8), Canonical("fprop", batch, 16)};
    EXPECT_EQ(Texts(beside), wanted) << batch;
    EXPECT_TRUE(networks.Beside(Parsed(Convolution("dgrad", batch, 8))).empty()) << "it is known";
  }
}

TEST(KnownNetworksTest, BatchesAreApart) {
  KnownNetworks networks({Written("a.kiln", Network())});
  EXPECT_TRUE(networks.Beside(Parsed(Convolution("fprop", 2, 16))).empty());
  EXPECT_TRUE(networks.Beside(Parsed(Convolution("fprop", 4, 8))).empty());
  EXPECT_EQ(networks.Beside(Parsed(Convolution("dgrad", 4, 8))).size(), 3u);
}

TEST(KnownNetworksTest, AnotherGraphBringsNothing) {
  KnownNetworks networks({Written("a.kiln", Network())});
  for (const int64_t channels : {24, 32, 40})
    EXPECT_TRUE(networks.Beside(Parsed(Convolution("fprop", 8, channels))).empty());
  KnownNetworks none({});
  EXPECT_TRUE(none.empty());
}

TEST(KnownNetworksTest, ADamagedFileIsSkipped) {
  const std::string damaged =
      Written("b.kiln", Convolution("fprop", 8, 16) + "graph x {\n  tensor %x\n");
  const auto read = ReadNetwork(damaged);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("b.kiln, graph 2"), std::string::npos)
      << read.status().message();
  KnownNetworks networks({damaged, Written("a.kiln", Network())});
  networks.Beside(Parsed(Convolution("fprop", 8, 16)));
  EXPECT_EQ(networks.Beside(Parsed(Convolution("fprop", 8, 8))).size(), 3u);
}

}  // namespace
}  // namespace kiln::api
