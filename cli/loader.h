// The file that ld.so would take for the name of a library, and by which of its rules, without
// loading anything. glibc's rules, in their order:
//
//   loaded already     here: what LD_PRELOAD and /etc/ld.so.preload name, by DT_SONAME
//   DT_RPATH           of who asks, of who loaded that one, and so on to the program; not where who
//                      asks has a DT_RUNPATH, and none of an object that has a DT_RUNPATH
//   LD_LIBRARY_PATH
//   DT_RUNPATH         of who asks alone
//   /etc/ld.so.cache, then the system's folders; none of these where who asks was linked
//                      -z nodefaultlib
//
// Files of other machines are passed over; a file that is no ELF file ends the search. Not modelled
// are $LIB and $PLATFORM, folders below glibc-hwcaps, objects that the process has loaded for other
// reasons, and that a preloaded library of another DT_SONAME, which is not taken for the one that
// is asked for, still is the first to be searched for functions. The tests ask ld.so itself. Called
// by `kiln doctor` (clients.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/elf_file.h"

namespace kiln::cli {

struct LoaderSettings {
  std::string preload, library_path;  // LD_PRELOAD, LD_LIBRARY_PATH
  std::string preload_file = "/etc/ld.so.preload";
  std::string cache_file = "/etc/ld.so.cache";
  std::vector<std::string> folders;  // the system's

  static LoaderSettings OfEnvironment();
};

enum class LoaderRule { kPreload, kRpath, kLibraryPath, kRunpath, kCache, kFolders, kNone };

struct FoundLibrary {
  LoaderRule rule = LoaderRule::kNone;
  std::string path;    // empty for kNone, and where the search ended at a file that is none
  std::string owner;   // whose DT_RPATH or DT_RUNPATH it was
  std::string folder;  // as it is written there
  std::string damage;  // why the search ended
};

// An object and those that loaded it, one after the other; the program is the last.
struct LoadedObject {
  std::string path;
  ElfFile file;
};

FoundLibrary FindLibrary(const LoaderSettings& settings, std::span<const LoadedObject> chain,
                         const std::string& name);

// The entries of LD_LIBRARY_PATH as ld.so reads it; an empty one is the working folder.
std::vector<std::string> LibraryPathFolders(const LoaderSettings& settings);

}  // namespace kiln::cli
