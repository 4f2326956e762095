// Names that a word that is none may have meant: by its beginning, by a letter, by a part.
#include "ir/base/similar_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kiln {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kOps[] = {"pointwise",  "reduction",   "conv_fprop", "conv_dgrad",
                                     "conv_wgrad", "matmul",      "reduce",     "reshape",
                                     "transpose",  "norm_forward"};

TEST(SimilarNames, ByTheBeginning) {
  EXPECT_THAT(SimilarNames("conv", kOps), ElementsAre("conv_fprop", "conv_dgrad", "conv_wgrad"));
  EXPECT_THAT(SimilarNames("CONV_", kOps), ElementsAre("conv_fprop", "conv_dgrad", "conv_wgrad"));
  EXPECT_THAT(SimilarNames("conv", kOps, 2), ElementsAre("conv_fprop", "conv_dgrad"));
}

TEST(SimilarNames, ByLetters) {
  EXPECT_THAT(SimilarNames("matmull", kOps), ElementsAre("matmul"));
  EXPECT_THAT(SimilarNames("mamtul", kOps), ElementsAre("matmul"));
  EXPECT_THAT(SimilarNames("conv_fprob", kOps, 1), ElementsAre("conv_fprop"));
  EXPECT_THAT(SimilarNames("pointwize", kOps), ElementsAre("pointwise"));
}

TEST(SimilarNames, ByAPart) {
  EXPECT_THAT(SimilarNames("wgrad", kOps, 1), ElementsAre("conv_wgrad"));
  EXPECT_THAT(SimilarNames("batched_matmul", kOps), ElementsAre("matmul"));
}

TEST(SimilarNames, NothingIsNear) {
  for (const std::string& word : {std::string(), std::string("q"), std::string("zzzzzz"),
                                  std::string("4"), std::string(100000, 'c')})
    EXPECT_THAT(SimilarNames(word, kOps), IsEmpty()) << word.size();
  constexpr std::string_view kDevices[] = {"auto", "cuda", "cpu"};
  EXPECT_THAT(SimilarNames("gpu", kDevices), IsEmpty());
  EXPECT_THAT(SimilarNames("CPU", kDevices), ElementsAre("cpu"));
}

TEST(NearestText, NamesTheNearestOrAll) {
  EXPECT_EQ(NearestText("matmull", kOps), "; the nearest is matmul");
  EXPECT_EQ(NearestText("conv", kOps), "; the nearest are conv_fprop, conv_dgrad, conv_wgrad");
  constexpr std::string_view kFew[] = {"auto", "cuda", "cpu"};
  EXPECT_EQ(NearestText("tpx", kFew, "x.md lists them"), "; there are auto, cuda, cpu");
  const std::vector<std::string_view> many(20, "name");
  EXPECT_EQ(NearestText("q", many, "x.md lists them"), "; x.md lists them");
}

}  // namespace
}  // namespace kiln
