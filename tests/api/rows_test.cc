// Every attribute of the interface is a row of its kind, or stands here with the reason why it is
// not.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "api/backend/descriptor.h"
#include "api/names.h"

namespace kiln::api {
namespace {

// Prefixes of attributes whose descriptor kinds Kiln does not have yet:
// cudnnBackendCreateDescriptor says so.
constexpr std::string_view kKindsToCome[] = {};

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

TEST(Rows, EveryAttributeOfTheInterfaceIsARowOrHasAReason) {
  std::map<int, const Kind*> rows = RowsByAttribute();
  std::set<std::string_view> used;
  for (const EnumName& attribute : AllAttributeNames()) {
    std::string_view waits;
    for (std::string_view prefix : kKindsToCome) {
      if (attribute.name.starts_with(prefix)) waits = prefix;
    }
    used.insert(waits);
    EXPECT_NE(rows.contains(attribute.value), !waits.empty())
        << attribute.name
        << (waits.empty() ? " is in no row" : " is a row now: take its kind off the list");
  }
  for (std::string_view prefix : kKindsToCome)
    EXPECT_TRUE(used.contains(prefix)) << prefix << " matches nothing";
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
