// The parts of a shared object that ld.so reads: whom it needs and where it wants them looked for.
// `kiln doctor` reads the objects of other people's installations with it, so that a file may be as
// large or as damaged as it likes: all is read by place and length, and a file that does not fit is
// a sentence.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/base/result.h"

namespace kiln::cli {

struct ElfFile {
  bool is_ours = false;  // of this machine's kind; ld.so passes all others over in silence
  bool is_kiln = false;  // has the note of api/entry/kiln_note.cc
  bool has_no_default_folders = false;  // linked with -z nodefaultlib
  std::optional<std::string> soname, rpath, runpath;
  std::vector<std::string> needed;

  // The DT_RPATH that counts: ld.so forgets it beside a DT_RUNPATH.
  const std::string* Rpath() const { return rpath && !runpath ? &*rpath : nullptr; }
};

// Reads an object. One of another kind has `is_ours` false and nothing else.
Result<ElfFile> ReadElf(const std::string& path);

}  // namespace kiln::cli
