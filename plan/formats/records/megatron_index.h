// NAME.idx of Megatron-LM's IndexedDataset: the length and the place of each sequence of NAME.bin.
// Source: NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"

namespace clairfs {

/// NAME.bin and its NAME.idx.
struct MegatronFiles {
  FileId data;
  FileId index;
};

/// The pairs that `file`, the path of a NAME.bin below the root or a pattern for several, stands for. Errors:
/// EINVAL, of which the message is the cause alone.
Result<std::vector<MegatronFiles>> find_megatron_files(const DatasetSource& source, const DatasetRoot& root,
                                                       std::string_view file);

/// A sequence in NAME.bin.
struct MegatronSequence {
  uint64_t offset = 0;  ///< bytes
  uint32_t tokens = 0;
  uint32_t token_bytes = 0;

  uint64_t bytes() const { return uint64_t{tokens} * token_bytes; }
};

/// Calls `visit` for each sequence, in their order, until it returns an error, which is returned. Errors:
/// EINVAL for an index that is none or is damaged, with the cause alone; what a read returned.
Status for_each_sequence(const DatasetSource& source, FileId index,
                         const std::function<Status(const MegatronSequence&)>& visit);

}  // namespace clairfs
