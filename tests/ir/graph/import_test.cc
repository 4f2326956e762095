// Importers: the examples, cudnn-frontend's JSON in its details, every recorded graph, and damaged
// input. `bazel run //tests/ir/graph:import_test` also rewrites docs/recorded_graphs.md.
#include "ir/graph/import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ir/graph/eval.h"
#include "ir/graph/import_frontend.h"
#include "ir/graph/import_recorded.h"

namespace kiln::graph {
namespace {

using nlohmann::json;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> RecordedLines() {
  std::vector<std::string> lines;
  std::istringstream text(ReadFile("tests/data/recorded_graphs.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(ImportAny, ReadsEveryExample) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("examples/graphs")) {
    if (entry.path().extension() != ".kiln" && entry.path().extension() != ".json") continue;
    const auto graph = ImportAny(ReadFile(entry.path()));
    EXPECT_TRUE(graph.ok()) << entry.path() << ": " << graph.status().message();
    ++count;
  }
  EXPECT_GE(count, 7);
}

// x[2,4] -> relu with a clip -> + 0.125 -> y, as the frontend logs it before uids and types are
// resolved.
json UnbuiltGraph() {
  return json::parse(R"({
    "context": {"name": "", "compute_data_type": "FLOAT", "intermediate_data_type": "FLOAT", "io_data_type": "HALF"},
    "nodes": [
      {"tag": "POINTWISE", "name": "relu", "mode": "RELU_FWD", "compute_data_type": null, "axis": null,
       "relu_upper_clip": "40C00000", "relu_lower_clip": null, "inputs": {"IN_0": "x"}, "outputs": {"OUT_0": "relu::OUT_0"}},
      {"tag": "POINTWISE", "name": "add", "mode": "ADD", "compute_data_type": "DOUBLE",
       "inputs": {"IN_0": "relu::OUT_0", "IN_1": "c"}, "outputs": {"OUT_0": "y"}}],
    "tensors": {
      "x": {"name": "x", "data_type": null, "dim": [2, 4], "stride": [4, 1], "is_virtual": false, "uid": 0, "uid_assigned": false},
      "relu::OUT_0": {"name": "relu::OUT_0", "data_type": null, "dim": [], "stride": [], "is_virtual": true, "uid": 0,
                      "uid_assigned": false},
      "c": {"name": "c", "data_type": "FLOAT", "dim": [1, 1], "stride": [1, 1], "is_virtual": false, "is_pass_by_value": true,
            "pass_by_value": {"index": 3, "value": "3E000000"}, "uid": 3, "uid_assigned": true},
      "y": {"name": "y", "data_type": "BFLOAT16", "dim": null, "stride": null, "is_virtual": false, "uid_assigned": false}}})");
}

TEST(ImportFrontend, ResolvesNamesTypesScalarsAndExtents) {
  const auto graph = ImportFrontend(UnbuiltGraph().dump());
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(Print(*graph), R"(graph graph {
  tensor %c uid=3 f32 [1,1] strides=[1,1] by_value value=0.125
  tensor %relu__OUT_0 f32 [2,4] strides=[4,1] virtual
  tensor %x uid=1 f16 [2,4] strides=[4,1]
  tensor %y uid=2 bf16 [2,4] strides=[4,1]
  %relu__OUT_0 = pointwise(%x) compute=f32 mode=relu_fwd relu_upper=6 propagate_nan name="relu"
  %y = pointwise(%relu__OUT_0, %c) compute=f64 mode=add name="add"
}
)");
}

json OneNode(const std::string& node, const std::string& tensors) {
  json document = {{"context", json::object()},
                   {"nodes", json::array({json::parse(node)})},
                   {"tensors", json::object()}};
  const json extents = json::parse(tensors);
  for (const auto& [uid, dims] : extents.items()) {
    document["tensors"][uid] = {{"uid", std::stoi(uid)}, {"uid_assigned", true}, {"dim", dims}};
  }
  return document;
}

TEST(ImportFrontend, KnowsEveryTagThatWeHaveAnOperationFor) {
  const std::string conv =
      R"("pre_padding": [1], "post_padding": [1], "stride": [1], "dilation": [1], "math_mode": "CONVOLUTION")";
  for (
      const auto& [node, tensors, line] : std::vector<std::array<std::string, 3>>{
          {R"({"tag": "CONV_FPROP", "inputs": {"X": 1, "W": 2}, "outputs": {"Y": 3}, )" + conv +
               "}",
           R"({"1": [2,4,8], "2": [6,4,3], "3": null})",
           "%t3 = conv_fprop(%t1, %t2) compute=f32 pre_padding=[1] post_padding=[1] stride=[1] "
           "dilation=[1] flip"},
          {R"({"tag": "CONV_DGRAD", "inputs": {"DY": 1, "W": 2}, "outputs": {"DX": 3}, )" + conv +
               "}",
           R"({"1": [2,6,8], "2": [6,4,3], "3": [2,4,8]})",
           "%t3 = conv_dgrad(%t1, %t2) compute=f32 pre_padding=[1] post_padding=[1] stride=[1] "
           "dilation=[1] flip"},
          {R"({"tag": "CONV_WGRAD", "inputs": {"X": 1, "DY": 2}, "outputs": {"DW": 3}, )" + conv +
               "}",
           R"({"1": [2,4,8], "2": [2,6,8], "3": [6,4,3]})",
           "%t3 = conv_wgrad(%t1, %t2) compute=f32 pre_padding=[1] post_padding=[1] stride=[1] "
           "dilation=[1] flip"},
          {R"({"tag": "REDUCTION", "mode": "AMAX", "inputs": {"X": 1}, "outputs": {"Y": 2}})",
           R"({"1": [2,4], "2": [1,1]})", "%t2 = reduction(%t1) compute=f32 mode=amax"},
          {R"({"tag": "MATMUL", "padding_value": 2.5, "inputs": {"A": 1, "B": 2}, "outputs": {"C": 3}})",
           R"({"1": [2,4,3], "2": [1,3,5], "3": null})",
           "%t3 = matmul(%t1, %t2) compute=f32 padding_value=2.5"},
          {R"({"tag": "GENSTATS", "inputs": {"X": 1}, "outputs": {"SUM": 2, "SQ_SUM": 3}})",
           R"({"1": [2,4,3], "2": null, "3": [1,4,1]})", "%t2, %t3 = gen_stats(%t1) compute=f32"},
          {R"({"tag": "BN_FINALIZE", "inputs": {"SUM": 1, "SQ_SUM": 2, "EPSILON": 4, "ACCUM_COUNT": 5},
                "outputs": {"MEAN": 3, "INV_VARIANCE": 6}})",
           R"({"1": [1,4,1], "2": [1,4,1], "3": null, "4": [1], "5": [1], "6": null})",
           "_, _, %t3, %t6 = bn_finalize(%t1, %t2, _, _, _, _, %t4, _, %t5) compute=f32"},
          {R"({"tag": "LAYER_NORM", "forward_phase": "TRAINING",
                "inputs": {"X": 1, "SCALE": 2, "BIAS": 3, "EPSILON": 4},
                "outputs": {"Y": 5, "MEAN": 6, "INV_VARIANCE": 7}})",
           R"({"1": [4,8], "2": [1,8], "3": [1,8], "4": [1], "5": null, "6": null, "7": null})",
           "%t5, %t6, %t7 = norm_forward(%t1, _, _, %t2, %t3, %t4) compute=f32 mode=layer"},
          {R"({"tag": "RMS_NORM", "forward_phase": "INFERENCE",
                "inputs": {"X": 1, "SCALE": 2, "EPSILON": 4}, "outputs": {"Y": 5}})",
           R"({"1": [4,8], "2": [1,8], "4": [1], "5": null})",
           "%t5 = norm_forward(%t1, _, _, %t2, _, %t4) compute=f32 mode=rms inference"},
          {R"({"tag": "BATCHNORM_INFERENCE",
                "inputs": {"X": 1, "MEAN": 2, "INV_VARIANCE": 3}, "outputs": {"Y": 5}})",
           R"({"1": [4,8], "2": [1,8], "3": [1,8], "5": null})",
           "%t5 = norm_forward(%t1, %t2, %t3) compute=f32 mode=batch inference"},
          {R"({"tag": "INSTANCE_NORM_BPROP",
                "inputs": {"DY": 1, "X": 2, "SCALE": 3, "MEAN": 4, "INV_VARIANCE": 5},
                "outputs": {"DX": 6, "DSCALE": 7, "DBIAS": 8}})",
           R"({"1": [2,3,4], "2": [2,3,4], "3": [1,3,1], "4": [2,3,1], "5": [2,3,1], "6": null,
               "7": null, "8": null})",
           "%t6, %t7, %t8 = norm_backward(%t2, %t1, %t4, %t5, %t3) compute=f32 mode=instance"},
          {R"({"tag": "DBN_WEIGHT",
                "inputs": {"DY": 1, "X": 2, "SCALE": 3, "MEAN": 4, "INV_VARIANCE": 5},
                "outputs": {"DSCALE": 6, "EQ_BIAS": 7}})",
           R"({"1": [2,3,4], "2": [2,3,4], "3": [1,3,1], "4": [1,3,1], "5": [1,3,1], "6": null,
               "7": null})",
           "%t6, _, _, _, %t7 = bn_bwd_weights(%t2, %t1, %t4, %t5, %t3) compute=f32"},
          {R"({"tag": "RESHAPE", "inputs": {"X": 1}, "outputs": {"Y": 2}, "dim": [8], "stride": [1]})",
           R"({"1": [2,4], "2": null})", "%t2 = reshape(%t1) compute=f32"},
          {R"({"tag": "CONCATENATE", "axis": 1, "in_place_index": null, "inputs": [1, 2], "outputs": {"Y": 3}})",
           R"({"1": [2,4], "2": [2,3], "3": null})", "%t3 = concat(%t1, %t2) compute=f32 axis=1"},
          {R"({"tag": "SLICE", "slices": [[0,2],[1,4]], "slice_strides": [1,2], "inputs": {"X": 1}, "outputs": {"Y": 2}})",
           R"({"1": [2,4], "2": null})", "%t2 = slice(%t1) compute=f32 start=[0,1] step=[1,2]"},
          {R"({"tag": "TRANSPOSE", "permutation": [1,0], "inputs": {"X": 1}, "outputs": {"Y": 2}})",
           R"({"1": [2,4], "2": null})", "%t2 = transpose(%t1) compute=f32 permutation=[1,0]"}}) {
    const auto graph = ImportFrontend(OneNode(node, tensors).dump());
    ASSERT_TRUE(graph.ok()) << node << ": " << graph.status().message();
    EXPECT_NE(Print(*graph).find("  " + line + "\n"), std::string::npos) << line << "\n"
                                                                         << Print(*graph);
  }
}

TEST(ImportFrontend, SaysWhatItCannotTake) {
  struct Row {
    const char* pointer;
    json value;
    const char* message;
  };
  for (const Row& row :
       {Row{"/nodes/0/tag", "SDPA", "nodes[0]: nodes of tag SDPA are not supported yet"},
        {"/nodes/0/mode", "GELU",
         "relu: nodes[0].mode: is \"GELU\", not a known mode; near it are GELU_FWD, "
         "GELU_APPROX_TANH_FWD, GELU_BWD, GELU_APPROX_TANH_BWD"},
        {"/nodes/0/inputs/IN_0", "z", "nodes[0].inputs.IN_0: no tensor \"z\" in tensors"},
        {"/nodes/0/inputs/X", "x", "nodes[0].inputs.X: the node has no such port"},
        {"/nodes/0/relu_upper_clip", "4.5",
         "relu: nodes[0].relu_upper_clip: is \"4.5\", not the bits of a float in hex "
         "digits, as \"3F800000\""},
        {"/tensors/x/data_type", "FP6_E3M2",
         "tensors.x.data_type: data type FP6_E3M2 is not supported"},
        {"/tensors/x/dim", "big", "tensors.x.dim: is \"big\", not a whole number"},
        {"/tensors/x/dim/1", 1e30, "tensors.x.dim[1]: is 1e+30, not a whole number"},
        {"/tensors/x/ragged_offset_uid", 7, "tensors.x: ragged offsets are not supported yet"},
        {"/tensors/x/reordering_type", "INT9x32",
         "tensors.x.reordering_type: is \"INT9x32\", not NONE, F16x16, F8_128x4 or INT8x32"},
        {"/tensors/x/reordering_type", "INT8x32",
         "tensors.x: 2x4 has channels that are no multiple of 32, as the order INT8x32 needs them"},
        {"/tensors/c/pass_by_value/index", 9, "tensors.c.pass_by_value.index: is 9, not 0..5"},
        {"/nodes", 3, "nodes: is 3, not a list of nodes"},
        {"/context", nullptr, "context: is missing, an object is needed"}}) {
    json document = UnbuiltGraph();
    document[json::json_pointer(row.pointer)] = row.value;
    const auto graph = ImportFrontend(document.dump());
    ASSERT_FALSE(graph.ok()) << row.pointer;
    EXPECT_EQ(graph.status().message(), row.message) << row.pointer;
  }
}

TEST(ImportAny, NamesLineAndColumnOfBadSyntax) {
  for (const auto& [text, place] : std::vector<std::pair<std::string, std::string>>{
           {"", "1:1: "},
           {"{\n  \"nodes\": [,]\n}", "2:13: "},
           {"{\"a\": 1", "1:8: "},
           {"{\"a\": \"\x01\"}", "1:8: "},
           {"grap g {}", "1:1: expected 'graph', found 'grap'"},
           {std::string(100000, '['), "1:1: "},
           {"{\"a\":" + std::string(100000, '[') + "}", "1:69: nested deeper than 64 levels"}}) {
    const auto graph = ImportAny(text);
    ASSERT_FALSE(graph.ok());
    EXPECT_TRUE(graph.status().message().starts_with(place))
        << graph.status().message().substr(0, 200) << " for " << place;
  }
}

// One row a recorded graph that does not import: what is missing.
std::string MissingTable(const std::vector<std::string>& lines) {
  std::string out =
      "# Recorded graphs that do not import yet\n\n"
      "Of the backend graphs in `tests/data/recorded_graphs.jsonl`, with the operation or tensor "
      "feature that is\n"
      "missing. Written by `bazel run //tests/ir/graph:import_test`; the same test fails when it "
      "is stale.\n\n"
      "| line | recorded from | missing |\n|---|---|---|\n";
  size_t imported = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto graph = ImportAny(lines[i]);
    if (graph.ok()) {
      ++imported;
      continue;
    }
    const json document = json::parse(lines[i]);
    std::string message = graph.status().message();
    if (graph.status().code() == Code::kNotSupported)
      message = message.substr(0, message.rfind(": "));
    out += fmt::format("| {} | {} | {} |\n", i + 1, document.value("test", ""), message);
  }
  return out + fmt::format("\n{} of {} import.\n", imported, lines.size());
}

TEST(ImportRecorded, EveryGraphImportsOrNamesWhatIsMissing) {
  const auto lines = RecordedLines();
  ASSERT_EQ(lines.size(), 120u);
  std::set<std::string> unexplained;
  size_t imported = 0;
  for (const std::string& line : lines) {
    const auto graph = ImportAny(line);
    const std::string name = json::parse(line).value("test", "");
    if (graph.ok()) {
      ++imported;
      const auto again = Parse(Print(*graph));
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_EQ(Print(*again), Print(*graph));
      EXPECT_EQ(CanonicalText(*again), CanonicalText(*graph));
    } else if (graph.status().code() != Code::kNotSupported) {
      unexplained.insert(name);
    }
  }
  EXPECT_GE(imported, 112u);
  EXPECT_EQ(unexplained, std::set<std::string>{});
}

TEST(ImportRecorded, TheListOfWhatIsMissingIsFresh) {
  const std::string table = MissingTable(RecordedLines());
  if (const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY")) {
    std::ofstream(std::filesystem::path(workspace) / "docs/recorded_graphs.md") << table;
    return;
  }
  EXPECT_EQ(ReadFile("docs/recorded_graphs.md"), table)
      << "run: bazel run //tests/ir/graph:import_test";
}

TEST(ImportRecorded, AReductionWithoutResultIsRefused) {
  const Result<Graph> graph = ImportAny(
      R"({"test":"t","ops":[{"_":"OPERATION_REDUCTION_DESCRIPTOR","OPERATION_REDUCTION_XDESC":1,)"
      R"("OPERATION_REDUCTION_DESC":{"_":"REDUCTION_DESCRIPTOR","REDUCTION_OPERATOR":)"
      R"("REDUCE_TENSOR_AMAX","REDUCTION_COMP_TYPE":"DATA_FLOAT"}}],"tensors":{"1":{)"
      R"("BYTE_ALIGNMENT":16,"DATA_TYPE":"DATA_FLOAT","DIMENSIONS":[4,8],"STRIDES":[8,1]}}})");
  ASSERT_FALSE(graph.ok());
  EXPECT_NE(graph.status().message(), "");
}

TEST(ImportRecorded, GroupedReductionsBecomeReshapes) {
  for (const std::string& line : RecordedLines()) {
    if (line.find("[2,12,512,128]") == std::string::npos ||
        line.find("REDUCE_TENSOR_ADD") == std::string::npos)
      continue;
    const auto graph = ImportAny(line);
    ASSERT_TRUE(graph.ok());
    EXPECT_NE(Print(*graph).find("[2,4,3,512,128]"), std::string::npos);
    return;
  }
  FAIL() << "no such graph";
}

// A client declares a row maximum with the extents of what it reduces; its reader has one a row.
TEST(ImportRecorded, AMaximumThatIsReadByRowsIsOneOfRows) {
  for (const std::string& line : RecordedLines()) {
    if (json::parse(line).value("test", "") != "Toy sdpa forward with sink") continue;
    const auto graph = ImportAny(line);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    EXPECT_NE(
        Print(*graph).find("tensor %t33 uid=33 f32 [3,4,1024,1] strides=[4096,1024,1,1] virtual"),
        std::string::npos)
        << Print(*graph);
    return;
  }
  FAIL() << "no such graph";
}

TEST(ImportRecorded, ABlockMaskIsTheLastOperandOfAttention) {
  const auto graph =
      ImportRecorded(R"({"test": "block mask", "ops": [{"_": "OPERATION_SDPA_FWD_DESCRIPTOR",
    "OPERATION_SDPA_FWD_QDESC": 1, "OPERATION_SDPA_FWD_KDESC": 2, "OPERATION_SDPA_FWD_VDESC": 3,
    "OPERATION_SDPA_FWD_ODESC": 4, "OPERATION_SDPA_FWD_BLOCK_MASK_DESC": 5}], "tensors": {
      "1": {"DATA_TYPE": "DATA_HALF", "DIMENSIONS": [1, 2, 200, 8], "STRIDES": [3200, 1600, 8, 1]},
      "2": {"DATA_TYPE": "DATA_HALF", "DIMENSIONS": [1, 2, 300, 8], "STRIDES": [4800, 2400, 8, 1]},
      "3": {"DATA_TYPE": "DATA_HALF", "DIMENSIONS": [1, 2, 300, 8], "STRIDES": [4800, 2400, 8, 1]},
      "4": {"DATA_TYPE": "DATA_HALF", "DIMENSIONS": [1, 2, 200, 8], "STRIDES": [3200, 1600, 8, 1]},
      "5": {"DATA_TYPE": "DATA_UINT8", "DIMENSIONS": [1, 2, 2, 1], "STRIDES": [4, 2, 1, 1]}}})");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_NE(Print(*graph).find("sdpa_fwd(%t1, %t2, %t3, _, _, _, _, _, _, _, _, %t5)"),
            std::string::npos)
      << Print(*graph);
}

// A tensor that a caller passes needs a uid: those of the text that have none, or a negative one,
// get the next free number; two tensors of one negative uid stay one memory.
TEST(ImportAny, GivesUidsWhereThereAreNone) {
  const auto uids = [](const char* tensors) {
    const auto graph =
        ImportAny(fmt::format("graph g {{ {} %t = pointwise(%x, %c) mode=add %y = "
                              "pointwise(%t) mode=exp }}",
                              tensors));
    std::map<std::string, int64_t> found;
    if (graph.ok())
      for (const Tensor& tensor : graph->tensors) found[tensor.name] = tensor.uid;
    return found;
  };
  using Uids = std::map<std::string, int64_t>;
  EXPECT_EQ(uids("tensor %x f32 [4] tensor %c f32 [1] by_value value=2 tensor %t f32 virtual "
                 "tensor %y uid=1 f32 [4]"),
            (Uids{{"x", 2}, {"c", -1}, {"t", -1}, {"y", 1}}));
  EXPECT_EQ(uids("tensor %x f32 [4] tensor %c f32 [1] by_value tensor %t f32 [4] tensor %y f32"),
            (Uids{{"x", 1}, {"c", 2}, {"t", 3}, {"y", 4}}));
  EXPECT_EQ(uids("tensor %x uid=-5 f32 [4] tensor %c uid=7 f32 [1] tensor %t f32 virtual tensor %y "
                 "uid=-5 f32"),
            (Uids{{"x", 1}, {"c", 7}, {"t", -1}, {"y", 1}}));
}

TEST(ImportRecorded, AnInPlaceUidIsTwoTensors) {
  const auto graph =
      ImportRecorded(R"({"test": "in place", "ops": [{"_": "OPERATION_POINTWISE_DESCRIPTOR",
    "OPERATION_POINTWISE_PW_DESCRIPTOR": {"POINTWISE_MODE": "POINTWISE_ADD", "POINTWISE_MATH_PREC": "DATA_FLOAT"},
    "OPERATION_POINTWISE_XDESC": 1, "OPERATION_POINTWISE_BDESC": 2, "OPERATION_POINTWISE_YDESC": 1,
    "OPERATION_POINTWISE_ALPHA2": "f0.5"}], "tensors": {
      "1": {"DATA_TYPE": "DATA_FLOAT", "DIMENSIONS": 4, "STRIDES": 1},
      "2": {"DATA_TYPE": "DATA_HALF", "DIMENSIONS": [1], "STRIDES": [1], "IS_BY_VALUE": true}}})");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(Inputs(*graph).size(), 2u);
  ASSERT_EQ(Outputs(*graph).size(), 1u);
  EXPECT_EQ((*graph)[Outputs(*graph)[0]].uid, 1);
  EXPECT_NE(Print(*graph).find("%t1 = pointwise(%t1_before, %t2) compute=f32 mode=add alpha2=0.5"),
            std::string::npos)
      << Print(*graph);
}

// A convolution of int8 in vectors of 32, whose filter is in the order INT8x32, as clients of
// IMMA's engines describe it: 64 channels become 32, at 2x1 places.
TEST(ImportRecorded, VectorsAndReorderedFiltersAreRead) {
  const auto graph = ImportRecorded(R"({"test": "int8x32", "ops": [
    {"_": "OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR", "OPERATION_CONVOLUTION_FORWARD_X": 1,
     "OPERATION_CONVOLUTION_FORWARD_W": 2, "OPERATION_CONVOLUTION_FORWARD_Y": 3,
     "OPERATION_CONVOLUTION_FORWARD_CONV_DESC": {"CONVOLUTION_COMP_TYPE": "DATA_INT32",
       "CONVOLUTION_CONV_MODE": "CROSS_CORRELATION", "CONVOLUTION_PRE_PADDINGS": [0, 0],
       "CONVOLUTION_POST_PADDINGS": [0, 0], "CONVOLUTION_FILTER_STRIDES": [1, 1],
       "CONVOLUTION_DILATIONS": [1, 1]}}], "tensors": {
    "1": {"DATA_TYPE": "DATA_INT8", "DIMENSIONS": [1,2,2,1], "STRIDES": [4,2,1,1],
          "VECTOR_COUNT": 32, "VECTORIZED_DIMENSION": 1},
    "2": {"DATA_TYPE": "DATA_INT8", "DIMENSIONS": [32,2,1,1], "STRIDES": [2,1,1,1],
          "VECTOR_COUNT": 32, "VECTORIZED_DIMENSION": 1,
          "REORDERING_MODE": "TENSOR_REORDERING_INT8x32"},
    "3": {"DATA_TYPE": "DATA_INT32", "DIMENSIONS": [1,1,2,1], "STRIDES": [2,2,1,1],
          "VECTOR_COUNT": 32, "VECTORIZED_DIMENSION": 1}}})");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const auto by_uid = [&](int64_t uid) {
    const auto found = std::ranges::find(graph->tensors, uid, &Tensor::uid);
    return static_cast<TensorId>(found - graph->tensors.begin());
  };
  const auto x = [](int64_t c, int64_t h) { return static_cast<double>((c * 5 + h * 3) % 7 - 3); };
  const auto w = [](int64_t o, int64_t c) { return static_cast<double>((o * 11 + c) % 9 - 4); };
  std::vector<double> image(128), filter(2048);
  for (int64_t c = 0; c < 64; ++c) {
    for (int64_t h = 0; h < 2; ++h)
      image[static_cast<size_t>((c / 32 * 2 + h) * 32 + c % 32)] = x(c, h);
    for (int64_t o = 0; o < 32; ++o) {
      // Inputs by 32, outputs by 8, halves of pairs of outputs, inputs by 4, pairs, inputs.
      const int64_t place =
          ((((c / 32 * 4 + o / 8) * 2 + o % 2) * 8 + c / 4 % 8) * 4 + o / 2 % 4) * 4 + c % 4;
      filter[static_cast<size_t>(place)] = w(o, c);
    }
  }
  TensorValues values = {{by_uid(1), image}, {by_uid(2), filter}};
  ASSERT_TRUE(Evaluate(*graph, values).ok());
  const std::vector<double>& y = values.at(by_uid(3));
  ASSERT_EQ(y.size(), 64u);
  for (int64_t o = 0; o < 32; ++o) {
    for (int64_t h = 0; h < 2; ++h) {
      double sum = 0;
      for (int64_t c = 0; c < 64; ++c) sum += x(c, h) * w(o, c);
      EXPECT_EQ(y[static_cast<size_t>(h * 32 + o)], sum) << o << " " << h;
    }
  }
}

TEST(ImportRecorded, LayoutsThatCannotBeAreRefused) {
  struct Row {
    const char* more;
    const char* message;
  };
  for (const Row& row :
       {Row{R"("VECTOR_COUNT": 0)", "tensors.1.VECTOR_COUNT: is 0, not 1 to 1048576"},
        {R"("VECTOR_COUNT": 4, "VECTORIZED_DIMENSION": 4)",
         "tensors.1.VECTORIZED_DIMENSION: is 4, not one of the 4 dimensions"},
        {R"("REORDERING_MODE": "TENSOR_REORDERING_F8_128x4")",
         "tensors.1: the last two dimensions of 1x2x2x1, strides [4,2,1,1], are no whole tiles of "
         "128 by 4, as the order F8_128x4 has them"},
        {R"("REORDERING_MODE": "F8")",
         "tensors.1.REORDERING_MODE: is \"F8\", not TENSOR_REORDERING_NONE, "
         "TENSOR_REORDERING_F16x16, TENSOR_REORDERING_F8_128x4 or TENSOR_REORDERING_INT8x32"}}) {
    const std::string tensor =
        R"({"DATA_TYPE": "DATA_INT8", "DIMENSIONS": [1,2,2,1], "STRIDES": [4,2,1,1])";
    const auto graph = ImportRecorded(
        R"({"test": "t", "ops": [{"_": "OPERATION_POINTWISE_DESCRIPTOR",
        "OPERATION_POINTWISE_PW_DESCRIPTOR": {"POINTWISE_MODE": "POINTWISE_IDENTITY",
        "POINTWISE_MATH_PREC": "DATA_FLOAT"}, "OPERATION_POINTWISE_XDESC": 1,
        "OPERATION_POINTWISE_YDESC": 2}], "tensors": {"1": )" +
        tensor + ", " + row.more + R"(}, "2": )" + tensor + "}}}");
    ASSERT_FALSE(graph.ok()) << row.more;
    EXPECT_EQ(graph.status().message(), row.message);
  }
}

// A boolean in memory is one bit, a virtual one is a value like others; the later BYTE_BOOLEAN has
// a byte.
TEST(ImportRecorded, BooleansInMemoryAreBits) {
  const char* text = R"({"test": "mask", "ops": [
    {"_": "OPERATION_POINTWISE_DESCRIPTOR", "OPERATION_POINTWISE_PW_DESCRIPTOR":
      {"POINTWISE_MODE": "POINTWISE_CMP_GT", "POINTWISE_MATH_PREC": "DATA_FLOAT"},
     "OPERATION_POINTWISE_XDESC": 1, "OPERATION_POINTWISE_BDESC": 1, "OPERATION_POINTWISE_YDESC": 2},
    {"_": "OPERATION_POINTWISE_DESCRIPTOR", "OPERATION_POINTWISE_PW_DESCRIPTOR":
      {"POINTWISE_MODE": "POINTWISE_IDENTITY", "POINTWISE_MATH_PREC": "DATA_BOOLEAN"},
     "OPERATION_POINTWISE_XDESC": 2, "OPERATION_POINTWISE_YDESC": 3}], "tensors": {
    "1": {"DATA_TYPE": "DATA_FLOAT", "DIMENSIONS": [24], "STRIDES": [1]},
    "2": {"DATA_TYPE": "DATA_BOOLEAN", "DIMENSIONS": [24], "STRIDES": [1], "IS_VIRTUAL": true},
    "3": {"DATA_TYPE": "DATA_BOOLEAN", "DIMENSIONS": [24], "STRIDES": [1]}}})";
  std::string bytes = text;
  bytes.replace(bytes.rfind("DATA_BOOLEAN"), 12, "DATA_BYTE_BOOLEAN");
  for (const auto& [document, type] :
       {std::pair<std::string, const char*>{text, "b1"}, {bytes, "bool"}}) {
    const auto graph = ImportRecorded(document);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    const std::string printed = Print(*graph);
    EXPECT_NE(printed.find("tensor %t2 uid=2 bool [24] strides=[1] virtual"), std::string::npos)
        << printed;
    EXPECT_NE(printed.find(fmt::format("tensor %t3 uid=3 {} [24] strides=[1]\n", type)),
              std::string::npos)
        << printed;
    EXPECT_EQ(MemoryBytes((*graph)[Outputs(*graph)[0]]), type[1] == '1' ? 3 : 24);
  }
}

// Damages legal documents at every level: the importers answer, whatever comes.
TEST(ImportAny, SurvivesDamage) {
  const auto lines = RecordedLines();
  const std::vector<std::string> documents = {UnbuiltGraph().dump(), lines[20], lines[49]};
  uint64_t state = 7;
  const auto next = [&](size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % n;
  };
  const std::vector<json> junk = {nullptr,
                                  -1,
                                  0,
                                  INT64_MAX,
                                  UINT64_MAX,
                                  1e300,
                                  "",
                                  "x",
                                  json::array(),
                                  json::object(),
                                  true,
                                  json::array({-1, INT64_MAX}),
                                  json::array({"a"})};
  for (const std::string& text : documents) {
    const json flat = json::parse(text).flatten();
    for (const auto& [pointer, value] : flat.items()) {
      json document = json::parse(text);
      document[json::json_pointer(pointer)] = junk[next(junk.size())];
      (void)ImportAny(document.dump());
    }
    for (int i = 0; i < 1000; ++i) {
      std::string damaged = text;
      damaged[next(damaged.size())] = static_cast<char>(next(256));
      if (i % 4 == 0) damaged.resize(next(damaged.size()));
      (void)ImportAny(damaged);
    }
  }
}

}  // namespace
}  // namespace kiln::graph
