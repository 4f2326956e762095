// The libcudnn that each framework of a Python environment would load, why, and what to do where it
// is not Kiln's: a part of `kiln doctor`. Nothing is started or loaded; loader.h has the rules of
// ld.so, frameworks.h the habits of the frameworks, and a process is taken to have one of them.
#pragma once

#include <string>
#include <vector>

#include "cli/loader.h"
#include "cli/python_sites.h"
#include "runtime/device_select.h"

namespace kiln::cli {

std::vector<runtime::DoctorLine> ExamineClients(const PythonSites& sites,
                                                const LoaderSettings& settings);

}  // namespace kiln::cli
