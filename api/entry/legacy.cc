// The functions of the legacy API, from api/spec/legacy.tsv: each hands its arguments to the core's
// function of its name.
#include "api/entry/entry.h"
#include "api/legacy/functions.h"

namespace api = kiln::api;
using kiln::Code;

extern "C" {

#include "api/spec/legacy_entries.inc"

}  // extern "C"
