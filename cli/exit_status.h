// Exit statuses of the tool. Scripts rely on the numbers, so `kiln --help` lists them.
#pragma once

namespace kiln::cli {

enum ExitStatus : int {
  kExitOk = 0,
  kExitFailed = 1,  // a check failed, or the graph could not be compiled or run here
  kExitUsage = 2,   // malformed input, a wrong option, a wrong KILN_* variable
};

}  // namespace kiln::cli
