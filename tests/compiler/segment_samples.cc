// Segments in small extents, as text: rows read by wide copies and element by element, through a
// gather and maps; maxima with places; the segment of each place, moved and not.
#include "ir/base/check.h"
#include "tests/compiler/sample_graphs.h"

namespace kiln::compiler {
namespace {

constexpr const char* kAggregate = R"(graph segments_wide {
  tensor %x uid=1 f16 [5,16]
  tensor %o uid=2 i32 [4]
  tensor %r uid=3 i32 [9]
  tensor %y uid=4 f16 [3,16]
  %y = segment_reduce(%x, %o, %r) compute=f32 mode=mean
})";

constexpr const char* kMaximum = R"(graph segments_maximum {
  tensor %x uid=1 bf16 [5,3]
  tensor %o uid=2 i64 [4]
  tensor %r uid=3 i64 [9]
  tensor %y uid=4 f32 [3,3]
  tensor %p uid=5 i64 [3,3]
  %y, %p = segment_reduce(%x, %o, %r) compute=f32 mode=max
})";

constexpr const char* kMaximumWide = R"(graph segments_maximum_wide {
  tensor %x uid=1 f32 [9,8]
  tensor %o uid=2 i32 [4]
  tensor %y uid=4 f32 [3,8]
  tensor %p uid=5 i32 [3,8]
  %y, %p = segment_reduce(%x, %o) compute=f32 mode=min
})";

constexpr const char* kWeighted = R"(graph segments_weighted {
  tensor %x uid=1 bf16 [5,2,8]
  tensor %s uid=2 i32 [9,1,1]
  tensor %w uid=3 f32 [9,2,1] strides=[1,9,1]
  tensor %o uid=4 i32 [4,1,1]
  tensor %y uid=5 f32 [3,2,8]
  tensor %g bf16 [9,2,8] virtual
  tensor %t f32 [9,2,8] virtual
  %g = gather(%x, %s) compute=bf16 axis=0
  %t = map(%w, %g) compute=f32 op=mul
  %y = segment_reduce(%t, %o) compute=f32 mode=add
})";

constexpr const char* kIds = R"(graph segments_of_places {
  tensor %o uid=1 i32 [6]
  tensor %r uid=2 i32 [9]
  tensor %x uid=3 i64 [9]
  tensor %i uid=4 i32 [9]
  tensor %m uid=5 i64 [9]
  tensor %j uid=6 i64 [9]
  %i, %m = segment_ids(%o, %r, %x) compute=i32
  %j = segment_ids(%o) compute=i32
})";

SampleGraph Parsed(const char* name, const char* text) {
  Result<graph::Graph> g = graph::Parse(text);
  CHECK(g.ok(), "{}: {}", name, g.status().message());
  return {name, *std::move(g)};
}

}  // namespace

std::vector<SampleGraph> SegmentSamples() {
  return {Parsed("segments_wide", kAggregate), Parsed("segments_maximum", kMaximum),
          Parsed("segments_maximum_wide", kMaximumWide), Parsed("segments_weighted", kWeighted),
          Parsed("segments_of_places", kIds)};
}

}  // namespace kiln::compiler
