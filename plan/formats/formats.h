// The formats, one function each; make_sample_index() chooses among them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/sample_index.h"

namespace clairfs {

using SampleIndexResult = Result<std::shared_ptr<const SampleIndex>>;

/// torchvision.datasets.ImageFolder (folder.py, the same since 0.8; `allow_empty` as in 0.18). Errors where
/// torchvision raises, and where the numbering depends on folders outside the dataset.
SampleIndexResult index_imagefolder(const DatasetSource& source, const DatasetRoot& root, bool allow_empty);

/// All regular files below the root by bytewise sorted relative path; symlinks are neither followed nor
/// listed.
SampleIndexResult index_files(const DatasetSource& source, const DatasetRoot& root);

/// The files that the list names, one path below the root a line (or a JSON array of them), in its order.
/// Blank lines and lines that start with '#' are skipped. Errors: EINVAL with the line.
SampleIndexResult index_list(const DatasetSource& source, const DatasetRoot& root, const std::string& list);

/// The rows of the array in the NumPy file `file`, a path below the root.
SampleIndexResult index_npy(const DatasetSource& source, const DatasetRoot& root, std::string_view file);

}  // namespace clairfs
