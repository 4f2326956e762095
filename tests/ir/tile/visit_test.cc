// Walks see every statement and expression; substitution rebuilds and folds.
#include "ir/tile/visit.h"

#include <gtest/gtest.h>

#include "ir/tile/tools.h"
#include "tests/ir/tile/kernels.h"
#include "tests/ir/tile/random_kernel.h"

namespace kiln::tile {
namespace {

TEST(TileVisit, WalksSeeEverything) {
  const Kernel kernel = *Parse(kBlockSum);
  int stores = 0, loads = 0, shuffles = 0;
  Walk(kernel.body, [&](const Stmt& s) { stores += std::holds_alternative<Store>(s.node); });
  WalkExprs(kernel.body, [&](const Expr& e) {
    loads += e->kind == ExprKind::kLoad;
    shuffles += e->kind == ExprKind::kShuffle;
  });
  EXPECT_EQ(stores, 10);
  EXPECT_EQ(loads, 15);
  EXPECT_EQ(shuffles, 5);
}

TEST(TileVisit, SubstituteFolds) {
  const Expr i = Var("i", DType::kI32), n = Var("n", DType::kI32);
  const Expr e = i * n + Load("x", DType::kI32, i + Int(1));
  EXPECT_EQ(Print(Substitute(e, {{"i", Int(0)}})), "load x[1]");
  EXPECT_EQ(Print(Substitute(e, {{"n", Int(1)}})), "add(i, load x[add(i, 1)])");
  EXPECT_EQ(Substitute(e, {{"z", Int(1)}}), e) << "what does not change is shared";
  EXPECT_TRUE(Mentions(e, "i"));
  EXPECT_FALSE(Mentions(e, "x"));
}

TEST(TileVisit, TheIdentityRewriteChangesNoText) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    Kernel kernel = RandomKernel(seed);
    const std::string text = Print(kernel);
    kernel.body = Rewrite(kernel.body, [](const Expr& e) { return e; });
    EXPECT_EQ(Print(kernel), text) << "seed " << seed;
  }
}

TEST(TileVisit, SubstituteReachesEveryStatement) {
  Kernel kernel = *Parse(kEveryConstruct);
  kernel.body = Substitute(kernel.body, {{"n", Var("m", DType::kI32)}});
  WalkExprs(kernel.body,
            [](const Expr& e) { EXPECT_FALSE(e->kind == ExprKind::kVar && e->name == "n"); });
}

}  // namespace
}  // namespace kiln::tile
