// The indexes of Megatron-LM's GPTDataset as it saves them: HASH-GPTDataset-train-document_index.npy, and
// ...-sample_index.npy and ...-shuffle_index.npy beside it.
// Source: NVIDIA/Megatron-LM, megatron/core/datasets/gpt_dataset.py.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/records/megatron_gpt.h"
#include "plan/formats/records/megatron_index.h"

namespace clairfs {

struct GptIndexFiles {
  FileId documents;
  FileId samples;
  FileId shuffled;
};

/// The indexes that `cache` stands for: a folder below the root with those of one set of training samples, or
/// the path of one document_index.npy. Megatron's older releases do not say in the names which samples they
/// are of. Errors: EINVAL, of which the message is the cause alone.
Result<GptIndexFiles> find_gpt_cache(const DatasetSource& source, const DatasetRoot& root,
                                     std::string_view cache);

/// The indexes in the files, of `documents`, the sequences of the .idx. The sizes of the files bound memory,
/// and their documents and samples bound the ranges of all samples together. Errors: EINVAL as above, also
/// where samples are not of `sequence_length` tokens; what a read returned.
Result<GptIndexes> read_gpt_cache(const DatasetSource& source, const GptIndexFiles& files,
                                  const std::vector<MegatronSequence>& documents, uint64_t sequence_length);

}  // namespace clairfs
