// NULL in place of each pointer of each function of the legacy API, all other arguments being
// valid: the answer is that of api/spec/nulls.tsv, and success where every pointer is there. The
// table has what NVIDIA's 9.19 answers too; where that library is installed, calls that need no
// handle are made on it, each in a process of its own, since it crashes on many.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "tests/support/nvidia_library.h"
#include "tests/support/valid_calls.h"

namespace kiln::testing {
namespace {

constexpr const char* kCrashes = "crashes";

struct NullRow {
  std::string function, named_case, parameter, nvidia, answer, by, note;
};

std::vector<std::string> Split(const std::string& line, char separator) {
  std::vector<std::string> cells;
  std::istringstream text(line + separator);
  for (std::string cell; std::getline(text, cell, separator);) cells.push_back(cell);
  return cells;
}

std::vector<std::vector<std::string>> Table(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) rows.push_back(Split(line, '\t'));
  return rows;
}

std::vector<NullRow> NullRows() {
  std::vector<NullRow> rows;
  for (std::vector<std::string> r : Table("api/spec/nulls.tsv")) {
    r.resize(7);
    rows.push_back({r[0], r[1], r[2], r[3], r[4], r[5], r[6]});
  }
  return rows;
}

// Names of parameters by function, in order.
std::map<std::string, std::vector<std::string>> Parameters() {
  std::map<std::string, std::vector<std::string>> names;
  for (const char* table : {"api/spec/legacy.tsv", "api/spec/roles.tsv"}) {
    for (const std::vector<std::string>& r : Table(table)) {
      if (r.size() < 3 || r[2].empty()) continue;
      for (const std::string& parameter : Split(r[2], ';'))
        names[r[0]].push_back(
            parameter.substr(parameter.find_first_not_of(' '),
                             parameter.find('=') - parameter.find_first_not_of(' ')));
    }
  }
  return names;
}

// Makes one call with the argument at `spoiled` NULL, -1 for none.
class OneCall {
 public:
  OneCall(LegacyClient& client, std::string function, std::string named_case, int spoiled)
      : client_(client),
        function_(std::move(function)),
        case_(std::move(named_case)),
        spoiled_(spoiled) {}

  bool Wants(const char* function, const char* named_case) const {
    return function == function_ && named_case == case_;
  }
  template <class F, class... Args>
  void Visit(Args... args) {
    Typed(static_cast<F*>(nullptr), std::make_tuple(args...));
  }
  bool made() const { return made_; }
  cudnnStatus_t status() const { return status_; }

 private:
  template <class... P, class Given>
  void Typed(cudnnStatus_t (*)(P...), const Given& given) {
    [&]<size_t... kAt>(std::index_sequence<kAt...>) {
      made_ = true;
      status_ = client_.Call<cudnnStatus_t(P...)>(function_.c_str(),
                                                  Argument<P>(std::get<kAt>(given), kAt)...);
    }(std::index_sequence_for<P...>());
  }
  template <class P, class V>
  P Argument(V value, size_t at) const {
    if constexpr (std::is_pointer_v<P>) {
      if (static_cast<int>(at) == spoiled_) return nullptr;
    }
    return (P)value;  // enumerations and pointers of results, from what the table has
  }

  LegacyClient& client_;
  const std::string function_, case_;
  const int spoiled_;
  bool made_ = false;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
};

std::string NameOf(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
      return "BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "NOT_SUPPORTED";
    default:
      return std::to_string(status);
  }
}

std::string Answer(LegacyClient& client, ValidArguments& arguments, const NullRow& row,
                   int spoiled) {
  OneCall call(client, row.function, row.named_case, spoiled);
  VisitLegacyCalls(arguments, call);
  return call.made() ? NameOf(call.status()) : "valid_calls.h has no such call";
}

class NullArguments : public ::testing::Test {
 protected:
  static int At(const NullRow& row) {
    static const auto parameters = Parameters();
    const std::vector<std::string>& names = parameters.at(row.function);
    const auto found = std::ranges::find(names, row.parameter);
    EXPECT_NE(found, names.end()) << row.function << " " << row.parameter;
    return static_cast<int>(found - names.begin());
  }
  // The answer of NVIDIA's library, or what it does, in a child.
  static std::string InChild(void* library, const NullRow& row) {
    const pid_t child = fork();
    if (child == 0) {
      LegacyClient client(library);
      auto* const arguments = new ValidArguments(client);
      const std::string answer = Answer(client, *arguments, row, At(row));
      for (int known = 0; known < 4; ++known)
        if (answer == kAnswers[known]) _exit(known);
      _exit(9);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) return kCrashes;
    return WEXITSTATUS(status) < 4 ? kAnswers[WEXITSTATUS(status)] : "another status";
  }
  static constexpr const char* kAnswers[] = {"SUCCESS", "BAD_PARAM", "BAD_PARAM_NULL_POINTER",
                                             "NOT_SUPPORTED"};
};

TEST_F(NullArguments, AreAnsweredAsTheTableSays) {
  void* const ours = dlopen("api/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(ours, nullptr) << dlerror();
  LegacyClient client(ours);
  ValidArguments arguments(client);
  const std::vector<NullRow> rows = NullRows();
  EXPECT_GT(rows.size(), 800u);
  std::string last;
  for (const NullRow& row : rows) {
    const std::string call = row.function + " " + row.named_case;
    // Packs and plans of fused operations that are not complete, and a tag that must be NULL.
    const bool is_refused = row.function.starts_with("cudnnMakeFused") ||
                            row.function.starts_with("cudnnFused") ||
                            row.function == "cudnnQueryRuntimeError";
    if (call != last && !is_refused) {
      EXPECT_EQ(Answer(client, arguments, row, -1), "SUCCESS") << call;
    }
    last = call;
    EXPECT_EQ(Answer(client, arguments, row, At(row)), row.answer)
        << call << ", " << row.parameter << " is NULL; 9.19: " << row.nvidia;
  }
}

// A pointer of a function that no row speaks of is one that nobody has asked NVIDIA's about.
// Functions of backend descriptors are not here, nor is the one among them whose name does not say
// so.
TEST_F(NullArguments, AreAllInTheTable) {
  std::map<std::string, int> rows;
  for (const NullRow& row : NullRows()) ++rows[row.function];
  for (const std::vector<std::string>& r : Table("api/spec/functions.tsv")) {
    const bool asked = r[3] == "y" && r[6] == "y" && r[7].find('*') != std::string::npos &&
                       !r[0].starts_with("cudnnBackend") &&
                       r[0] != "cudnnGetExecutionPlanWorkspaceSize" &&
                       r[0] != "cudnnGetErrorString" && r[0] != "cudnnGetLastErrorString" &&
                       r[7].starts_with("cudnnStatus_t");
    if (asked) {
      EXPECT_GT(rows[r[0]], 0) << r[0];
    }
  }
}

TEST_F(NullArguments, AreWhatNvidiaAnswers) {
  const std::string path = NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "no libcudnn.so.9 of NVIDIA's";
  void* const theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(theirs, nullptr) << dlerror();
  const auto parameters = Parameters();
  int asked = 0;
  for (const NullRow& row : NullRows()) {
    const std::vector<std::string>& names = parameters.at(row.function);
    const bool needs_handle = std::ranges::find(names, "handle") != names.end();
    if (row.nvidia == "not asked") continue;
    if (needs_handle || row.function.find("Dropout") != std::string::npos) continue;
    EXPECT_EQ(InChild(theirs, row), row.nvidia) << row.function << " " << row.parameter;
    ++asked;
  }
  EXPECT_GT(asked, 150);
}

}  // namespace
}  // namespace kiln::testing
