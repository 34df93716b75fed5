// Megatron-LM's GPTDataset: samples of a number of tokens each, which span documents in a shuffled order.
// Source: NVIDIA/Megatron-LM, megatron/core/datasets/gpt_dataset.py, helpers.cpp (build_sample_idx).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/random/mt19937.h"

namespace clairfs {

/// add_extra_token_to_sequence: labels are the tokens moved by one.
inline constexpr uint64_t kGptExtraToken = 1;
/// Samples, or documents of all epochs, are fewer: some GB while they are numbered.
inline constexpr uint64_t kMostGptEntries = 1 << 28;

/// A place in the row of all documents of all epochs.
struct GptPlace {
  uint32_t document = 0;  ///< position in GptIndexes::documents
  uint32_t token = 0;     ///< in that document
};

/// The document, sample and shuffle index that GPTDataset makes of the documents of a file.
struct GptIndexes {
  std::vector<uint32_t> documents;  ///< those of all epochs, in a row
  std::vector<GptPlace> places;     ///< where each sample begins, and where the last one ends
  std::vector<uint32_t> shuffled;   ///< places of dataset[0], dataset[1] and so on
};

/// _build_document_index(): the documents first ... first + count - 1 of each epoch, all epochs shuffled
/// together; the last one by itself with `separate_final_epoch`.
std::vector<uint32_t> gpt_document_index(uint32_t first, uint32_t count, uint64_t epochs,
                                         bool separate_final_epoch, Mt19937& random);

/// _build_shuffle_index(): 0 ... total - 1, the first `samples` and the rest each shuffled by itself.
std::vector<uint32_t> gpt_shuffle_index(uint64_t samples, uint64_t total, Mt19937& random);

/// The documents that a split such as "969,30,1" gives to training.
struct GptDocuments {
  uint32_t first = 0;
  uint32_t count = 0;
};
/// Nothing for text that is no split.
std::optional<GptDocuments> gpt_training_documents(std::string_view split, uint32_t documents);

}  // namespace clairfs
