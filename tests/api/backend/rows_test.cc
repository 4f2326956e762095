// Every attribute of the interface is a row of its kind; the refused ones stand here.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "api/backend/descriptor.h"
#include "api/spec/names.h"

namespace kiln::api {
namespace {

// Attributes that are refused both ways: one that NVIDIA's 9.19 takes on no descriptor
// (nvidia_attributes_test), a name without a use, as ranges of their numbers.
constexpr std::pair<int, int> kRefused[] = {
    {CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES, CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES},
};

bool IsRefused(int attribute) {
  return std::ranges::any_of(kRefused, [&](const std::pair<int, int>& range) {
    return attribute >= range.first && attribute <= range.second;
  });
}

std::map<int, const Kind*> RowsByAttribute() {
  std::map<int, const Kind*> rows;
  for (const Kind& kind : AllKinds()) {
    for (const AttrRow& row : kind.rows) {
      EXPECT_TRUE(rows.emplace(row.name, &kind).second)
          << NameOf(row.name) << " stands in two kinds";
    }
  }
  return rows;
}

TEST(Rows, EveryAttributeOfTheInterfaceIsARow) {
  const std::map<int, const Kind*> rows = RowsByAttribute();
  for (const EnumName& attribute : AllAttributeNames()) {
    const auto kind = rows.find(attribute.value);
    ASSERT_NE(kind, rows.end()) << attribute.name << " is in no row";
    const auto row = std::ranges::find(kind->second->rows, attribute.value, &AttrRow::name);
    EXPECT_EQ(row->use == Use::kRefused, IsRefused(attribute.value)) << attribute.name;
  }
  EXPECT_EQ(rows.size(), AllAttributeNames().size());
  EXPECT_GE(rows.size(), 383u);
  EXPECT_EQ(AllKinds().size(), 51u);
}

TEST(Rows, KindsAreSortedAndMadeAsTheyAreNamed) {
  int last = -1;
  for (const Kind& kind : AllKinds()) {
    EXPECT_EQ(static_cast<int>(kind.type), last + 1) << "FindKind takes the number for the place";
    last = kind.type;
    EXPECT_EQ(kind.make()->type(), kind.type);
    EXPECT_LE(kind.rows.size(), 64u);
  }
}

TEST(Rows, RowsAreConsistent) {
  for (const Kind& kind : AllKinds()) {
    for (const AttrRow& row : kind.rows) {
      SCOPED_TRACE(NameOf(row.name));
      bool refused = row.use == Use::kRefused;
      EXPECT_EQ(row.reason != nullptr, refused);
      EXPECT_EQ(row.get != nullptr, !refused);
      EXPECT_EQ(row.types != 0, !refused);
      bool settable = row.use == Use::kRequired || row.use == Use::kOptional;
      EXPECT_TRUE(!settable || row.set != nullptr);
      EXPECT_TRUE(!kind.read_only || row.use == Use::kReadOnly);
    }
  }
}

}  // namespace
}  // namespace kiln::api
