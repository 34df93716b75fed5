// From a plan and a catalog to the numbering of samples.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/link_resolver.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

class IndexStore;
class IndexWork;

/// The plan's root folder, and what has been followed to get there.
struct DatasetRoot {
  FileId folder;
  uint32_t links = 0;
};

/// The dataset as numbering needs it. The calls may block: not for a thread that answers FUSE requests.
struct DatasetSource {
  std::shared_ptr<const Catalog> catalog;
  LinkPrefixes prefixes;
  /// `length` bytes of a catalog file, fewer only at its end; for the headers of packed formats.
  std::function<Result<std::string>(FileId file, uint64_t offset, uint32_t length)> read_bytes;
  /// The same for several pieces at a time, in their order; may be empty. For indexes of many pages: one
  /// after the other would take as long as all their latencies together.
  std::function<Result<std::vector<std::string>>(std::span<const ByteRange> pieces)> read_many;
  /// Indexes that were made before; may be null. Outlives the source.
  IndexStore* indexes = nullptr;
  /// Is told how far an index is that is being made, and may end it; may be null.
  std::shared_ptr<IndexWork> work;
  /// Where the relative path of a list, weights or indices file starts; empty: the current directory.
  std::string list_folder;

  /// read_many(), or read_bytes() again and again. Errors: theirs; ENOTSUP with neither; ECANCELED when the
  /// work was cancelled.
  Result<std::vector<std::string>> read_all(std::span<const ByteRange> pieces) const;

  /// All of a file, whose size the caller has found to be bearable. Errors: as read_all().
  Result<std::string> read_whole(FileId file) const;

  /// Where a list file of that name is read.
  std::string list_path(const std::string& path) const;
};

/// A list may name 10^8 samples in a line of ten bytes each; what is longer is refused before it takes the
/// memory.
inline constexpr uint64_t kMaxListBytes = 1ULL << 30;

/// The first `most` bytes of a regular file, which may have kMaxListBytes. Errors: errno; EINVAL for a pipe,
/// a device or a longer file.
Result<std::string> read_list_file(const std::string& path, uint64_t most = kMaxListBytes);

/// The plan's root folder. Errors: EINVAL when it is no folder of the dataset.
Result<DatasetRoot> find_root(const PlanSpec& spec, const DatasetSource& source);

/// As the plan key "index" has it; empty where the catalog alone says where the samples are.
std::string identity_text(const SampleIndex& index);

/// Numbers the samples as `spec.format` says; without one: imagefolder if torchvision would take the folder,
/// else files. Takes time in the order of the catalog's size. Errors: EINVAL naming the key and the cause, or
/// what the callbacks returned.
Result<std::shared_ptr<const SampleIndex>> make_sample_index(const PlanSpec& spec,
                                                             const DatasetSource& source);

}  // namespace clairfs
