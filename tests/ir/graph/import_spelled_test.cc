// Operations of 9.22 and later that the graph has not and the importers spell out: rotations, the
// gradient of experts' weights, reshapes that keep the order of elements. From cudnn-frontend's
// JSON, as 1.23 and as 1.32 lay it out, and from recorded graphs; evaluated, and compared with
// plain loops.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/graph/eval.h"
#include "ir/graph/import_frontend.h"
#include "ir/graph/import_recorded.h"

namespace kiln::graph {
namespace {

using Values = std::vector<double>;

struct Given {
  int64_t uid;
  std::string type;
  Dims dims, strides = {};
};

std::string List(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

Dims StridesOf(const Given& t) { return t.strides.empty() ? PackedStrides(t.dims) : t.strides; }

// `version` 1 keys tensors by uid, 2 lists them.
std::string Frontend(int version, const std::string& node, const std::vector<Given>& tensors) {
  std::vector<std::string> each;
  for (const Given& t : tensors)
    each.push_back(fmt::format(
        R"({}{{"uid": {}, "name": "t{}", "data_type": "{}", "dim": {}, "stride": {}, "is_virtual": false}})",
        version == 1 ? fmt::format("\"{}\": ", t.uid) : "", t.uid, t.uid, t.type, List(t.dims),
        List(StridesOf(t))));
  return fmt::format(
      R"({{"context": {{"name": "", "compute_data_type": "FLOAT", "intermediate_data_type": "FLOAT",
      "io_data_type": "FLOAT"}}, "json_version": "{}.0", "nodes": [{{{}}}], "tensors": {}{}{}}})",
      version, node, version == 1 ? "{" : "[", fmt::join(each, ", "), version == 1 ? "}" : "]");
}

std::string Recorded(const std::string& operation, const std::vector<Given>& tensors) {
  std::vector<std::string> each;
  for (const Given& t : tensors)
    each.push_back(
        fmt::format(R"("{}": {{"DATA_TYPE": "DATA_{}", "DIMENSIONS": {}, "STRIDES": {}}})", t.uid,
                    t.type, List(t.dims), List(StridesOf(t))));
  return fmt::format(R"({{"test": "spelled", "ops": [{{{}}}], "tensors": {{{}}}}})", operation,
                     fmt::join(each, ", "));
}

Values Numbers(int64_t count, double first) {
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(std::sin(first + 1.7 * double(i)));
  return values;
}

int64_t Count(const Dims& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

// The result of uid 9, of values by uid.
Values Computed(const Result<Graph>& graph, const std::map<int64_t, Values>& given) {
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  if (!graph.ok()) return {};
  TensorValues values;
  TensorId result = kAbsent;
  for (TensorId id = 0; id < std::ssize(graph->tensors); ++id) {
    const Tensor& t = (*graph)[id];
    if (t.is_virtual || t.value) continue;
    if (t.uid == 9 && !t.name.ends_with("_before")) {  // not what its memory held
      result = id;
      continue;
    }
    if (const auto found = given.find(t.uid); found != given.end()) values[id] = found->second;
  }
  const Status status = Evaluate(*graph, values);
  EXPECT_TRUE(status.ok()) << status.message();
  return result == kAbsent || !status.ok() ? Values{} : values.at(result);
}

void ExpectNear(const Values& actual, const Values& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
}

// ---- rotations

struct Rotation {
  Dims x = {2, 3, 5, 12};
  int64_t places = 5, width = 12, rope_dim = 0;
  double scale = 1;
  bool backward = false;
};

Values Rotated(const Rotation& r, const Values& x, const Values& angles) {
  const int64_t depth = r.x.back(), places = r.x[r.x.size() - 2];
  const int64_t turned = r.rope_dim == 0 ? depth : r.rope_dim, half = turned / 2;
  Values y(x.size());
  for (int64_t row = 0; row < std::ssize(x) / depth; ++row) {
    const auto at = [&](int64_t i) -> size_t { return static_cast<size_t>(row * depth + i); };
    for (int64_t i = 0; i < depth - turned; ++i) y[at(i)] = r.scale * x[at(i)];
    for (int64_t i = 0; i < half; ++i) {
      const double angle = angles[static_cast<size_t>(row % places * r.width + i)];
      const double cos = std::cos(angle), sin = std::sin(angle) * (r.backward ? -1 : 1);
      const double low = x[at(depth - turned + i)], high = x[at(depth - turned + half + i)];
      y[at(depth - turned + i)] = r.scale * (low * cos - high * sin);
      y[at(depth - turned + half + i)] = r.scale * (high * cos + low * sin);
    }
  }
  return y;
}

std::vector<Given> TensorsOf(const Rotation& r) {
  Dims angles(r.x.size(), 1);
  angles[0] = r.places, angles.back() = r.width;
  return {{1, "FLOAT", r.x}, {2, "FLOAT", angles}, {9, "FLOAT", r.x}};
}

std::string FrontendNode(const Rotation& r) {
  return fmt::format(
      R"("tag": "{}", "name": "turn", "inputs": {{"{}": 1, "FREQS": 2}}, "outputs": {{"{}": 9}},
      "output_scale": {}, "rope_dim": {})",
      r.backward ? "ROPE_BWD" : "ROPE", r.backward ? "DY" : "INPUT", r.backward ? "DX" : "OUTPUT",
      r.scale, r.rope_dim);
}

std::string RecordedOperation(const Rotation& r) {
  const std::string_view way = r.backward ? "BWD" : "FWD";
  return fmt::format(R"("_": "OPERATION_ROPE_{0}_DESCRIPTOR", "OPERATION_ROPE_{0}_{1}": 1,
      "OPERATION_ROPE_{0}_FREQSDESC": 2, "OPERATION_ROPE_{0}_{2}": 9,
      "OPERATION_ROPE_{0}_OUTPUT_SCALE": "f{3}", "OPERATION_ROPE_{0}_ROPE_DIM": {4})",
                     way, r.backward ? "DYDESC" : "XDESC", r.backward ? "DXDESC" : "YDESC", r.scale,
                     r.rope_dim);
}

TEST(ImportSpelled, Rotations) {
  for (const bool backward : {false, true})
    for (Rotation r : {Rotation{}, Rotation{.places = 8, .rope_dim = 4, .scale = 0.5},
                       Rotation{.x = {1, 1, 1, 2}, .places = 1, .width = 2},
                       Rotation{.x = {7, 6}, .places = 9}}) {
      r.backward = backward;
      if (r.x.back() == 6) r.width = 6;
      SCOPED_TRACE(FrontendNode(r));
      const Values x = Numbers(Count(r.x), 0), angles = Numbers(r.places * r.width, 0.3);
      const Values expected = Rotated(r, x, angles);
      const std::map<int64_t, Values> given = {{1, x}, {2, angles}};
      for (const int version : {1, 2})
        ExpectNear(
            Computed(ImportFrontend(Frontend(version, FrontendNode(r), TensorsOf(r))), given),
            expected);
      ExpectNear(Computed(ImportRecorded(Recorded(RecordedOperation(r), TensorsOf(r))), given),
                 expected);
    }
}

TEST(ImportSpelled, RotationsThatCannotBeAreRefused) {
  struct Row {
    Rotation rotation;
    std::vector<Given> tensors;
    const char* sentence;
  };
  const Rotation plain;
  const std::vector<Given> good = TensorsOf(plain);
  const auto with = [&](size_t i, Given t) {
    std::vector<Given> tensors = good;
    tensors[i] = std::move(t);
    return tensors;
  };
  for (const Row& row :
       {Row{{.rope_dim = 14}, good, "14 elements to turn"},
        Row{{.rope_dim = 3}, good, "3 elements"}, Row{{.rope_dim = -2}, good, "-2 elements"},
        Row{plain, with(1, {2, "FLOAT", {4, 1, 1, 12}}), "the angles"},
        Row{plain, with(1, {2, "FLOAT", {5, 1, 3, 12}}), "the angles"},
        Row{plain, with(1, {2, "FLOAT", {5, 12}}), "the angles"},
        Row{plain, with(1, {2, "INT32", {5, 1, 1, 12}}), "only floating-point types"},
        Row{plain, with(2, {9, "FLOAT", {2, 3, 5, 10}}), "equal extents"},
        Row{plain,
            {{1, "FLOAT", {12}}, {2, "FLOAT", {12}}, {9, "FLOAT", {12}}},
            "equal extents"}}) {
    SCOPED_TRACE(row.sentence);
    const auto json = ImportFrontend(Frontend(2, FrontendNode(row.rotation), row.tensors));
    ASSERT_FALSE(json.ok());
    EXPECT_NE(json.status().message().find(row.sentence), std::string::npos)
        << json.status().message();
    const auto recorded = ImportRecorded(Recorded(RecordedOperation(row.rotation), row.tensors));
    ASSERT_FALSE(recorded.ok());
    EXPECT_NE(recorded.status().message().find(row.sentence), std::string::npos)
        << recorded.status().message();
  }
  EXPECT_FALSE(
      ImportFrontend(Frontend(2, R"("tag": "ROPE", "inputs": {}, "outputs": {})", good)).ok());
  EXPECT_FALSE(ImportRecorded(Recorded(R"("_": "OPERATION_ROPE_FWD_DESCRIPTOR")", good)).ok());
}

// ---- the gradient of experts' weights

constexpr std::string_view kMoeNode =
    R"("tag": "MOE_GROUPED_MATMUL_BWD", "name": "", "inputs": {"DOutput": 2, "Token": 1,
    "FirstTokenOffset": 3}, "outputs": {"DWeight": 9})";
constexpr std::string_view kMoeOperation =
    R"("_": "OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR",
    "OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC": "DATA_FLOAT",
    "OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC": 1,
    "OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC": 2,
    "OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC": 3,
    "OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC": 9)";

std::vector<Given> TensorsOfExperts(int64_t groups, int64_t experts, int64_t tokens) {
  return {{1, "FLOAT", {1, tokens, 3}},
          {2, "FLOAT", {1, tokens, 5}},
          {3, "INT32", {groups, 1, 1}},
          {9, "FLOAT", {experts, 3, 5}}};
}

TEST(ImportSpelled, GradientsOfExperts) {
  struct Row {
    Values first;
    int64_t experts, tokens;
  };
  for (const Row& row : {Row{{0, 4, 4}, 3, 11}, Row{{0}, 1, 1}, Row{{0, 2, 3, 3, 7, 9}, 3, 10}}) {
    const auto groups = std::ssize(row.first);
    const Values token = Numbers(row.tokens * 3, 1), grad = Numbers(row.tokens * 5, 2);
    Values expected(static_cast<size_t>(row.experts * 15), 0);
    for (int64_t g = 0; g < groups; ++g) {
      const auto begin = static_cast<int64_t>(row.first[static_cast<size_t>(g)]);
      const int64_t end =
          g + 1 < groups ? static_cast<int64_t>(row.first[static_cast<size_t>(g + 1)]) : row.tokens;
      for (int64_t t = begin; t < end; ++t)
        for (int64_t k = 0; k < 3; ++k)
          for (int64_t n = 0; n < 5; ++n)
            expected[static_cast<size_t>((g % row.experts * 3 + k) * 5 + n)] +=
                token[static_cast<size_t>(t * 3 + k)] * grad[static_cast<size_t>(t * 5 + n)];
    }
    const auto tensors = TensorsOfExperts(groups, row.experts, row.tokens);
    const std::map<int64_t, Values> given = {{1, token}, {2, grad}, {3, row.first}};
    for (const int version : {1, 2})
      ExpectNear(Computed(ImportFrontend(Frontend(version, std::string(kMoeNode), tensors)), given),
                 expected);
    ExpectNear(Computed(ImportRecorded(Recorded(std::string(kMoeOperation), tensors)), given),
               expected);
  }
}

TEST(ImportSpelled, GradientsOfExpertsThatCannotBeAreRefused) {
  const auto refused = [&](size_t i, Given t, std::string_view sentence) {
    auto tensors = TensorsOfExperts(3, 3, 11);
    tensors[i] = std::move(t);
    for (const auto& graph : {ImportFrontend(Frontend(2, std::string(kMoeNode), tensors)),
                              ImportRecorded(Recorded(std::string(kMoeOperation), tensors))}) {
      ASSERT_FALSE(graph.ok()) << sentence;
      EXPECT_NE(graph.status().message().find(sentence), std::string::npos)
          << graph.status().message();
    }
  };
  refused(0, {1, "FLOAT", {2, 11, 3}}, "must be 1xTxK");
  refused(0, {1, "FLOAT", {11, 3}}, "2 dims, not 3");
  refused(1, {2, "FLOAT", {1, 10, 5}}, "must be 1xTxK");
  refused(2, {3, "INT32", {4, 1, 1}}, "the first tokens");
  refused(2, {3, "FLOAT", {3, 1, 1}}, "counted by i32 or i64");
  refused(3, {9, "FLOAT", {3, 5, 3}}, "must be 1xTxK");
}

// ---- reshapes

TEST(ImportSpelled, ALogicalReshapeKeepsTheOrderOfElements) {
  const auto node = [](std::string_view mode) {
    return fmt::format(
        R"("tag": "RESHAPE", "name": "", "dim": [], "stride": [], "inputs": {{"X": 1}},
        "outputs": {{"Y": 9}}, "reshape_mode": {})",
        mode);
  };
  // x lies transposed: the value of element (i, j) is 10 i + j.
  const std::vector<Given> tensors = {{1, "FLOAT", {2, 3}, {1, 2}}, {9, "FLOAT", {3, 2}}};
  const std::map<int64_t, Values> given = {{1, {0, 1, 2, 10, 11, 12}}};
  const auto computed = [&](std::string_view mode) {
    return Computed(ImportFrontend(Frontend(2, node(mode), tensors)), given);
  };
  EXPECT_EQ(computed("\"LOGICAL\""), (Values{0, 1, 2, 10, 11, 12}));
  EXPECT_EQ(computed("\"VIEW_ONLY\""), computed("null"));
  EXPECT_EQ(computed("null"), (Values{0, 10, 1, 11, 2, 12})) << "memory as it lies";
  const auto other = ImportFrontend(Frontend(2, node("\"SIDEWAYS\""), tensors));
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("not VIEW_ONLY or LOGICAL"), std::string::npos)
      << other.status().message();
}

TEST(ImportSpelled, ARecordedReshapeHasItsMode) {
  const std::vector<Given> tensors = {{1, "FLOAT", {2, 3}, {1, 2}}, {9, "FLOAT", {3, 2}}};
  const std::map<int64_t, Values> given = {{1, {0, 1, 2, 10, 11, 12}}};
  const auto imported = [&](std::string_view mode) {
    return ImportRecorded(
        Recorded(fmt::format(R"("_": "OPERATION_RESHAPE_DESCRIPTOR", "OPERATION_RESHAPE_XDESC": 1,
            "OPERATION_RESHAPE_YDESC": 9, "OPERATION_RESHAPE_MODE": {})",
                             mode),
                 tensors));
  };
  EXPECT_EQ(Computed(imported("\"RESHAPE_LOGICAL\""), given), (Values{0, 1, 2, 10, 11, 12}));
  EXPECT_EQ(Computed(imported("\"RESHAPE_VIEW_ONLY\""), given), (Values{0, 10, 1, 11, 2, 12}));
  EXPECT_FALSE(imported("\"RESHAPE_OTHER\"").ok());
}

// Two sequences of 2 and 1 rows of 4 elements, whose offsets count rows.
TEST(ImportSpelled, RecordedOffsetsCountElements) {
  const auto imported = [](std::string_view unit) {
    const auto ragged = [&](int uid) {
      return fmt::format(R"("{}": {{"DATA_TYPE": "DATA_FLOAT", "DIMENSIONS": [2, 1, 3, 4],
          "STRIDES": [12, 4, 4, 1], "RAGGED_OFFSET_DESC": 3, "RAGGED_OFFSET_MULTIPLIER": {}}})",
                         uid, unit);
    };
    return ImportRecorded(fmt::format(
        R"({{"test": "ragged", "ops": [{{"_": "OPERATION_POINTWISE_DESCRIPTOR",
        "OPERATION_POINTWISE_PW_DESCRIPTOR": {{"POINTWISE_MODE": "POINTWISE_NEG",
        "POINTWISE_MATH_PREC": "DATA_FLOAT"}}, "OPERATION_POINTWISE_XDESC": 1,
        "OPERATION_POINTWISE_YDESC": 9}}], "tensors": {{{}, {}, "3": {{"DATA_TYPE": "DATA_INT32",
        "DIMENSIONS": [3, 1, 1, 1], "STRIDES": [1, 1, 1, 1]}}}}}})",
        ragged(1), ragged(9)));
  };
  const Result<Graph> graph = imported("4");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const auto memory = std::ranges::find(graph->tensors, 1, &Tensor::uid);
  ASSERT_NE(memory, graph->tensors.end());
  const Values x = Numbers(Count(memory->dims), 3);
  const Values y = Computed(graph, {{1, x}, {3, {0, 2, 3}}, {9, Values(x.size(), 7)}});
  ASSERT_EQ(y.size(), x.size());
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y[i], i < 12 ? -x[i] : 7, 1e-6) << i << ": what follows is left alone";
  EXPECT_FALSE(imported("0").ok());
  EXPECT_FALSE(imported("-4").ok());
  EXPECT_FALSE(imported("\"many\"").ok());
}

TEST(ImportSpelled, AListOfTensorsHasOneOfEachUid) {
  const std::string node = FrontendNode({});
  auto tensors = TensorsOf({});
  tensors.push_back(tensors[0]);
  const auto twice = ImportFrontend(Frontend(2, node, tensors));
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.status().message().find("tensors[3]: is a second tensor of uid 1"),
            std::string::npos)
      << twice.status().message();
  std::string without = Frontend(2, node, TensorsOf({}));
  without.replace(without.rfind("\"uid\""), 5, "\"u\"");
  EXPECT_FALSE(ImportFrontend(without).ok());
}

}  // namespace
}  // namespace kiln::graph
