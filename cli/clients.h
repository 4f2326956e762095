// Which libcudnn each framework of a Python environment would load, why, and what to do where it is
// not Kiln's: a part of `kiln doctor`. Nothing is started or loaded; what ld.so would do is
// loader.h, what the frameworks do is frameworks.h, and a process is taken to have one of them.
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
