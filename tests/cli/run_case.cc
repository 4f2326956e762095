// run_case LIBRARY 'name: relu_fwd(x:f32[4,8]) -> y:f32': a client of libcudnn that asks the
// heuristics, makes a plan of the first configuration, runs it and checks it. What tuning's tests
// have as the application.
#include <cstdio>

#include "tests/support/runner.h"

int main(int argc, char** argv) {
  using namespace kiln::testing;
  if (argc != 3) return 2;
  std::string error;
  const auto parsed = ParseCase(argv[2], &error);
  const auto device = parsed ? OpenTestDevice(&error) : nullptr;
  const auto cudnn = device ? Cudnn::Open(argv[1], device->stream(), &error) : nullptr;
  if (!cudnn) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  CaseRunner runner(*cudnn, *device, *parsed);
  const CaseData before = MakeData(*parsed, 1);
  CaseData after;
  ClientError failed = runner.Prepare();
  if (failed.ok()) failed = runner.Run(0, before, &after);
  const std::string wrong =
      failed.ok() ? CheckRun(*parsed, before, after, Evaluate(*parsed, before)) : failed.text;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  return wrong.empty() ? 0 : 1;
}
