// Folding of the expression builders: what index arithmetic in full generality becomes when parts
// are known.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "ir/base/env.h"
#include "ir/tile/tile.h"

namespace kiln::tile {
namespace {

const Expr i = Var("i", DType::kI32);
const Expr l = Var("l", DType::kI64);
const Expr x = Var("x", DType::kF32);
const Expr c = Var("c", DType::kBool);

struct Folding {
  Expr expr;
  const char* text;
};

void ExpectAll(const std::vector<Folding>& rows) {
  for (const Folding& row : rows) EXPECT_EQ(Print(row.expr), row.text);
}

TEST(TileBuilders, IntegersFold) {
  ExpectAll({
      {i + Int(0), "i"},
      {Int(0) + i, "i"},
      {i - Int(0), "i"},
      {i * Int(1), "i"},
      {Int(1) * i, "i"},
      {i * Int(0), "0"},
      {i / Int(1), "i"},
      {i % Int(1), "0"},
      {Int(0) / i, "0"},
      {Int(7) / Int(2) + Int(7) % Int(4), "6"},
      {Int(7) / Int(0), "0"},
      {Int(std::numeric_limits<int32_t>::max()) + Int(1), "-2147483648"},
      {Op(ScalarOp::kFloor, {i}), "i"},
      {i + Int(1) + Int(2), "add(add(i, 1), 2)"},
  });
}

TEST(TileBuilders, ConditionsFold) {
  ExpectAll({
      {And(Bool(true), c), "c"},
      {And(c, Bool(false)), "false"},
      {Op(ScalarOp::kOr, {c, Bool(false)}), "c"},
      {Op(ScalarOp::kOr, {Bool(true), c}), "true"},
      {Op(ScalarOp::kNot, {Bool(true)}), "false"},
      {Lt(Int(1), Int(2)), "true"},
      {Ge(Float(1), Float(2)), "false"},
      {Select(Bool(true), i, Int(3)), "i"},
      {Select(Bool(false), i, Int(3)), "3"},
      {Select(c, i, i), "i"},
      {Select(c, i, Int(3)), "select(c, i, 3)"},
  });
}

TEST(TileBuilders, FloatsFoldOnlyWhereExact) {
  ExpectAll({
      {x * Float(1), "x"},
      {x / Float(1), "x"},
      {x - Float(0), "x"},
      {x + Float(0), "add(x, 0x0p+0f)"},      // -0 + 0 is 0
      {x - Float(-0.0), "sub(x, -0x0p+0f)"},  // -0 - -0 is 0
      {x * Float(0), "mul(x, 0x0p+0f)"},      // NaN and infinities
      {Float(1) / Float(3), "0x1.555556p-2f"},
      {Op(ScalarOp::kExp, {Float(0.5)}), "exp(0x1p-1f)"},  // the device's exp may round otherwise
      {Op(ScalarOp::kMax, {Float(NAN), Float(2)}), "0x1p+1f"},
  });
}

TEST(TileBuilders, IntegerTypesMeet) {
  ExpectAll({
      {l * Int(4), "mul(l, 4l)"},
      {Int(4) * l, "mul(4l, l)"},
      {l + i, "add(l, cast<i64>(i))"},
      {i + Int(4, DType::kI64), "add(i, 4)"},
      {Select(c, Int(1), l), "select(c, 1l, l)"},
  });
  EXPECT_EQ((l * Int(4))->type, DType::kI64);
  EXPECT_EQ(Lt(l, i)->type, DType::kBool);
}

// An expression that an engine must not build stops it at the place.
TEST(TileBuildersDeathTest, WrongTypesFailACheck) {
  setenv("KILN_ABORT_ON_CHECK", "1", 1);
  ResetEnvForTest();
  EXPECT_DEATH((void)(i + x), "add of i and x");
  EXPECT_DEATH((void)Op(ScalarOp::kAdd, {i}), "add takes 2 operands, not 1");
  EXPECT_DEATH((void)Int(int64_t{1} << 40), "1099511627776 does not fit in i32");
  EXPECT_DEATH((void)ShuffleXor(x, 32), "lane mask 32");
}

TEST(TileBuilders, CastsOfConstantsFold) {
  ExpectAll({
      {Cast(DType::kI32, i), "i"},
      {Cast(DType::kF32, Int(3)), "0x1.8p+1f"},
      {Cast(DType::kF64, Float(0.1)), "0x1.99999ap-4"},
      {Cast(DType::kI32, Float(2.5)), "2"},
      {Cast(DType::kI32, Float(NAN)), "0"},
      {Cast(DType::kI32, Float(1e20)), "2147483647"},
      {Cast(DType::kI64, Int(-5)), "-5l"},
      {Cast(DType::kBool, Float(NAN)), "true"},
      {Cast(DType::kF16, Float(1)), "cast<f16>(0x1p+0f)"},
  });
}

TEST(TileBuilders, EqualComparesStructure) {
  EXPECT_TRUE(Equal(i + Int(1), Var("i", DType::kI32) + Int(1)));
  EXPECT_FALSE(Equal(i + Int(1), i + Int(2)));
  EXPECT_FALSE(Equal(i + Int(1), i - Int(1)));
  EXPECT_FALSE(Equal(Float(0), Float(-0.0)));
  EXPECT_TRUE(Equal(Float(NAN), Float(NAN)));
  EXPECT_FALSE(Equal(Load("a", DType::kF32, i), Load("b", DType::kF32, i)));
}

}  // namespace
}  // namespace kiln::tile
