#include "plan/formats/records/megatron_gpt.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>

#include <fmt/format.h>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/records/megatron_cache.h"
#include "plan/formats/records/megatron_index.h"
#include "plan/formats/samples/record_table.h"
#include "plan/random/numpy_shuffle.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// How often the documents come.
struct GptEpochs {
  uint64_t tokens_each = 0;
  uint64_t count = 1;
  uint64_t samples_before_last = 0;  // of all epochs but the last
  bool separate_final = false;

  uint64_t samples(uint64_t length) const { return (count * tokens_each - kGptExtraToken) / length; }
};

// GPTDataset's number of epochs for `wanted` samples (0: one epoch).
GptEpochs gpt_epochs(uint64_t tokens, uint64_t length, uint64_t wanted) {
  GptEpochs epochs{.tokens_each = tokens};
  const uint64_t needed = wanted * length + kGptExtraToken;
  if (wanted != 0) epochs.count = std::max<uint64_t>((needed + tokens - 1) / tokens, 1);
  if (epochs.count == 1) return epochs;
  epochs.samples_before_last = ((epochs.count - 1) * tokens - kGptExtraToken) / length;
  // The last epoch is shuffled by itself if less than four fifths of it are needed.
  const auto threshold =
      static_cast<uint64_t>(0.80 * static_cast<double>((tokens - kGptExtraToken) / length));
  epochs.separate_final = wanted - epochs.samples_before_last < threshold;
  return epochs;
}

// build_sample_idx(): where each sample begins, and where the last one ends.
std::vector<GptPlace> gpt_sample_index(const std::vector<MegatronSequence>& documents,
                                       const std::vector<uint32_t>& order, uint64_t length,
                                       uint64_t samples) {
  std::vector<GptPlace> places{GptPlace{}};
  places.reserve(samples + 1);
  GptPlace at;
  while (places.size() <= samples) {
    uint64_t missing = length + kGptExtraToken;
    while (documents[order[at.document]].tokens - at.token < missing && at.document + 1 < order.size()) {
      missing -= documents[order[at.document]].tokens - at.token;
      at = {at.document + 1, 0};
    }
    // The last token of a sample is the first of the next.
    const uint64_t left = documents[order[at.document]].tokens - at.token;
    at.token += static_cast<uint32_t>(std::max(std::min(missing, left), kGptExtraToken) - kGptExtraToken);
    places.push_back(at);
  }
  return places;
}

class GptSamples {
 public:
  GptSamples(FileId data, std::vector<MegatronSequence> documents, GptIndexes indexes)
      : data_(data), documents_(std::move(documents)), indexes_(std::move(indexes)) {}

  // Adds them in the order of their shuffle. Errors: as the builder's.
  Status add_all(RecordTableBuilder& table) const {
    for (const uint32_t sample : indexes_.shuffled) {
      if (Status status = add(sample, table); !status) return status;
    }
    return {};
  }

 private:
  // The tokens of a sample, a range for each document.
  Status add(uint32_t sample, RecordTableBuilder& table) const {
    const GptPlace begin = indexes_.places[sample];
    const GptPlace end = indexes_.places[sample + 1];
    if (Status status = table.add_sample(); !status) return status;
    for (uint32_t at = begin.document; at <= end.document; ++at) {
      const MegatronSequence& document = documents_[indexes_.documents[at]];
      const uint64_t from = at == begin.document ? begin.token : 0;
      const uint64_t to = at == end.document ? end.token + kGptExtraToken : document.tokens;
      if (to <= from) continue;
      const ByteRange range{data_, document.offset + from * document.token_bytes,
                            (to - from) * document.token_bytes};
      if (Status status = table.add_range(range); !status) return status;
    }
    return {};
  }

  const FileId data_;
  const std::vector<MegatronSequence> documents_;
  const GptIndexes indexes_;
};

// The documents of a file. Errors: EINVAL with the cause alone; what a read returned.
Result<std::vector<MegatronSequence>> read_documents(const DatasetSource& source,
                                                     const MegatronFiles& files) {
  std::vector<MegatronSequence> documents;
  // Before samples are numbered: some hundred damaged bytes could ask for billions of them.
  const uint64_t data_bytes = source.catalog->stamp(files.data).size;
  uint64_t named = 0;
  const Status read = for_each_sequence(source, files.index, [&](const MegatronSequence& sequence) -> Status {
    const bool inside = sequence.offset <= data_bytes && sequence.bytes() <= data_bytes - sequence.offset &&
                        sequence.bytes() <= data_bytes - named;
    if (!inside) return Error{EINVAL, "names more tokens than its .bin has"};
    named += sequence.bytes();
    documents.push_back(sequence);
    return {};
  });
  if (!read) return read.error();
  return documents;
}

// The indexes as GPTDataset makes them. Errors: EINVAL naming the key.
Result<GptIndexes> computed_indexes(const std::vector<MegatronSequence>& documents, std::string_view file,
                                    const GptPlan& plan) {
  const auto training = gpt_training_documents(plan.split, static_cast<uint32_t>(documents.size()));
  if (!training) return plan_error("split", plan.split, "want parts such as 969,30,1");
  uint64_t tokens = 0;
  for (uint32_t i = 0; i < training->count; ++i) tokens += documents[training->first + i].tokens;
  if (tokens <= plan.sequence_length) return plan_error("file", file, "has not enough tokens for a sample");
  const GptEpochs epochs = gpt_epochs(tokens, plan.sequence_length, plan.train_samples);
  const uint64_t samples = epochs.samples(plan.sequence_length);
  if (epochs.count >= kMostGptEntries / training->count || samples >= kMostGptEntries) {
    return plan_error("train_samples", std::to_string(plan.train_samples), "too many to number");
  }
  Mt19937 random(plan.seed);
  GptIndexes made;
  made.documents =
      gpt_document_index(training->first, training->count, epochs.count, epochs.separate_final, random);
  made.places = gpt_sample_index(documents, made.documents, plan.sequence_length, samples);
  made.shuffled =
      gpt_shuffle_index(epochs.separate_final ? epochs.samples_before_last : samples, samples, random);
  return made;
}

}  // namespace

std::vector<uint32_t> gpt_document_index(uint32_t first, uint32_t count, uint64_t epochs,
                                         bool separate_final_epoch, Mt19937& random) {
  const uint64_t together = separate_final_epoch && epochs > 1 ? epochs - 1 : epochs;
  std::vector<uint32_t> index(epochs * count);
  for (uint64_t i = 0; i < index.size(); ++i) index[i] = first + static_cast<uint32_t>(i % count);
  const std::span<uint32_t> all(index);
  numpy_shuffle(random, all.first(together * count));
  numpy_shuffle(random, all.subspan(together * count));
  return index;
}

std::vector<uint32_t> gpt_shuffle_index(uint64_t samples, uint64_t total, Mt19937& random) {
  std::vector<uint32_t> index(total);
  std::iota(index.begin(), index.end(), 0U);
  const std::span<uint32_t> all(index);
  numpy_shuffle(random, all.first(samples));
  numpy_shuffle(random, all.subspan(samples));
  return index;
}

std::optional<GptDocuments> gpt_training_documents(std::string_view split, uint32_t documents) {
  std::vector<double> parts;
  for (size_t at = 0; at <= split.size();) {
    const size_t comma = std::min(split.find(',', at), split.size());
    const std::string part(split.substr(at, comma - at));
    char* end = nullptr;
    const double weight = std::strtod(part.c_str(), &end);
    if (part.empty() || *end != '\0' || !std::isfinite(weight) || weight < 0) return std::nullopt;
    parts.push_back(weight);
    at = comma + 1;
  }
  const double total = std::accumulate(parts.begin(), parts.end(), 0.0);
  if (parts.size() > 3 || !(total > 0) || parts.front() <= 0) return std::nullopt;
  // Python's round(): halves go to the even number, as nearbyint() does it.
  return GptDocuments{0, static_cast<uint32_t>(std::nearbyint(parts.front() / total * documents))};
}

SampleIndexResult index_megatron_gpt(const DatasetSource& source, const DatasetRoot& root,
                                     std::string_view file, const GptPlan& plan) {
  const auto refuse = [&](const Error& error) { return plan_refusal("file", file, error); };
  const auto files = find_megatron_files(source, root, file);
  if (!files) return refuse(files.error());
  if (files->size() != 1)
    return plan_error("file", file, "GPT samples of several files are a blend; want one .bin");
  const MegatronFiles& pair = files->front();
  auto documents = read_documents(source, pair);
  if (!documents) return refuse(documents.error());
  std::vector<FileId> shared{pair.index};  // of which each worker reads all
  Result<GptIndexes> indexes = GptIndexes();
  if (plan.cache.empty()) {
    indexes = computed_indexes(*documents, file, plan);
    if (!indexes) return indexes.error();
  } else {
    const auto saved = find_gpt_cache(source, root, plan.cache);
    if (!saved) return plan_error("cache", plan.cache, saved.error().message);
    indexes = read_gpt_cache(source, *saved, *documents, plan.sequence_length);
    if (!indexes) return plan_refusal("cache", plan.cache, indexes.error());
    shared.insert(shared.end(), {saved->documents, saved->samples, saved->shuffled});
  }
  RecordTableBuilder table(source.catalog, "megatron");
  const GptSamples all(pair.data, std::move(*documents), std::move(*indexes));
  if (const Status added = all.add_all(table); !added) return refuse(added.error());
  for (const FileId whole : shared) {
    if (const Status status = table.share({whole, 0, source.catalog->stamp(whole).size}); !status)
      return refuse(status.error());
  }
  return SampleIndexResult(table.finish());
}

}  // namespace clairfs
