// Files of tuning records, as lines: what a line says is compiler/tune/record.h's business. A
// file only grows, by one write a line, so that any number of processes may append to it. Beside
// them are networks (api/prefetch/known_networks.h). Called by the record store (api/tuning), the
// session and `kiln records`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/base/result.h"

namespace kiln::runtime {

// The folder of this user's records: KILN_RECORDS_DIR, else "records" beside the kernels of the
// cache. Empty where there is no home.
std::string UserRecordFolder();
// The paths of a variable that holds several, between colons.
std::vector<std::string> BetweenColons(const std::string& listed);
// The paths of shipped records: the files and folders of KILN_RECORDS (between colons), then
// share/kiln/records of the installation that this library belongs to.
std::vector<std::string> ShippedRecordPaths();

// `path` itself, or the files *.txt of the folder, sorted. Empty where `path` does not exist.
std::vector<std::string> RecordFiles(const std::string& path);
// The files *.kiln of all folders of records, the user's first.
std::vector<std::string> NetworkFiles();
// The lines of `file` that are neither empty nor comments (#).
Result<std::vector<std::string>> ReadRecordLines(const std::string& file);
// Appends one line atomically; makes the folder and the file. A line that another process left
// unfinished is closed first.
Status AppendRecordLine(const std::string& file, std::string_view line);
// Replaces the whole file at once, by a rename.
Status ReplaceFile(const std::string& file, std::string_view content);

}  // namespace kiln::runtime
