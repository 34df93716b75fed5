// The files of the dataset that a plan names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"

namespace clairfs {

/// The file that `path`, below the plan's root, leads to. Errors: EINVAL, of which the message is the cause
/// alone.
Result<FileId> find_data_file(const DatasetSource& source, const DatasetRoot& root, std::string_view path);

/// The files that `pattern`, a path below the plan's root, stands for: in each of its components '*' is any
/// number of characters and '?' one; a name that begins with '.' is met by a '.' only. In the order in which
/// Python's sorted() has the paths. A folder stands for the file `in_folder` in it, unless that is empty.
/// Errors: as above, also when there is none.
Result<std::vector<FileId>> find_data_files(const DatasetSource& source, const DatasetRoot& root,
                                            std::string_view pattern, std::string_view in_folder = "");

/// EINVAL "FILE WHY": what a part of a format says of a file, the cause alone.
Error wrong_file(const DatasetSource& source, FileId file, std::string_view why);

/// A plan's refusal "plan: KEY=VALUE: CAUSE" of such a cause. Other errors, those of reads, stay as they are.
Error plan_refusal(std::string_view key, std::string_view value, const Error& error);

/// Whether `text` is what `pattern` stands for; '/' is a character like any other. Takes time in the order of
/// the product of their lengths.
bool matches_wildcards(std::string_view pattern, std::string_view text);

}  // namespace clairfs
