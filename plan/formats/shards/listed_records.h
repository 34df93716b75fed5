// Indexes that other programs leave beside shards, which make a walk through them unnecessary.
//
//   of a TFRecord file  a line "OFFSET LENGTH" a frame (DALI's and PyPI tfrecord's tfrecord2idx)
//   of a tar            "v1.2 SAMPLES", and then a line a sample, "EXT OFFSET SIZE NAME" for each member
//   (DALI's
//                       wds2idx)
//
// Sources: NVIDIA/DALI, tools/{tfrecord2idx,wds2idx.py}.
//
// Such a file may be older than its shard, or of another one. It is believed if it leaves no gap that its
// shard cannot have, and if the headers that it names, some of them from the first to the last, say the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/shards/record_walk.h"

namespace clairfs {

/// The file that may be the index of the shard: in its folder, with its name, or a part of that up to a dot,
/// and then .idx or .index.
std::optional<FileId> find_shard_index(const Catalog& catalog, FileId shard);

/// A frame, or a member of a tar.
struct ListedRecord {
  RecordPlace place;
  std::string name;  ///< of a member
};

/// The records of a shard of that size by a list, if it can be true: frames without a gap from the shard's
/// beginning to its end, or members that leave room for their headers. The text may be anything.
std::optional<std::vector<ListedRecord>> parse_tfrecord_list(std::string_view text, uint64_t shard_size);
std::optional<std::vector<ListedRecord>> parse_tar_list(std::string_view text, uint64_t shard_size);

/// The samples of the shard, as its list has them; nothing when it is not to be believed. Errors: what a read
/// returned.
Result<std::optional<std::vector<RecordPlace>>> listed_tfrecord(const DatasetSource& source, FileId shard,
                                                                FileId list);
Result<std::optional<std::vector<RecordPlace>>> listed_tar(const DatasetSource& source, FileId shard,
                                                           FileId list);

}  // namespace clairfs
