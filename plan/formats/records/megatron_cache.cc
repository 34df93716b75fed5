#include "plan/formats/records/megatron_cache.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "plan/formats/data_files.h"
#include "plan/formats/npy_header.h"
#include "plan/formats/records/little_endian.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

constexpr std::string_view kDocumentIndex = "document_index.npy";

// Whole numbers in a NumPy file, all of which the file has.
struct SavedNumbers {
  FileId file;
  uint64_t begin = 0;  ///< of the first, in bytes
  uint64_t width = 0;  ///< of each, in bytes
  uint64_t rows = 0;
  uint64_t columns = 1;
};

// Errors: EINVAL with the file and the cause; what a read returned.
Result<SavedNumbers> open_numbers(const DatasetSource& source, FileId file, size_t dimensions) {
  const uint64_t size = source.catalog->stamp(file).size;
  const ByteRange start{file, 0, std::min<uint64_t>(size, kNpyPreamble + kMaxNpyHeader)};
  const auto read = start.length == 0 ? std::vector<std::string>(1) : source.read_all({&start, 1});
  if (!read) return read.error();
  const auto header = parse_npy_header(read->front());
  if (!header) return wrong_file(source, file, "is damaged: " + header.error().message);
  const std::string& type = header->type;
  if (type != "<i4" && type != "<u4" && type != "<i8")
    return wrong_file(source, file, "holds other numbers than Megatron's");
  if (header->shape.size() != dimensions || (dimensions == 2 && header->shape[1] != 2))
    return wrong_file(source, file, "has another shape than Megatron's");
  const SavedNumbers numbers{file, header->data_offset, header->item_bytes, header->shape[0],
                             dimensions == 2 ? uint64_t{2} : uint64_t{1}};
  if (numbers.rows == 0) return wrong_file(source, file, "is empty");
  if (numbers.rows > kMostGptEntries) return wrong_file(source, file, "has more entries than are numbered");
  if (numbers.rows * numbers.columns * numbers.width > size - numbers.begin)
    return wrong_file(source, file, "is cut off");
  return numbers;
}

// Calls `visit` for each number, row by row, until it returns an error, which is returned. Errors: as above.
template <class Visit>
Status for_each_number(const DatasetSource& source, const SavedNumbers& numbers, Visit&& visit) {
  constexpr uint64_t kAtOnce = 1 << 20;
  const uint64_t all = numbers.rows * numbers.columns;
  for (uint64_t done = 0; done < all; done += kAtOnce) {
    const uint64_t count = std::min(kAtOnce, all - done);
    const ByteRange piece{numbers.file, numbers.begin + done * numbers.width, count * numbers.width};
    const auto read = source.read_all({&piece, 1});
    if (!read) return read.error();
    const std::string& bytes = read->front();
    if (bytes.size() != piece.length) return wrong_file(source, numbers.file, "is cut off");
    for (uint64_t i = 0; i < count; ++i) {
      if (Status status = visit(little_endian_at(bytes, i * numbers.width, numbers.width)); !status)
        return status;
    }
  }
  return {};
}

Result<std::vector<uint32_t>> read_document_index(const DatasetSource& source, FileId file,
                                                  uint64_t documents) {
  const auto numbers = open_numbers(source, file, 1);
  if (!numbers) return numbers.error();
  std::vector<uint32_t> index;
  index.reserve(numbers->rows);
  const Status read = for_each_number(source, *numbers, [&](uint64_t document) -> Status {
    if (document >= documents) return wrong_file(source, file, "names documents that the .idx has not");
    index.push_back(static_cast<uint32_t>(document));
    return {};
  });
  if (!read) return read.error();
  return index;
}

// That samples have `length` tokens each is all that has to hold of their places.
Result<std::vector<GptPlace>> read_sample_index(const DatasetSource& source, FileId file,
                                                const std::vector<MegatronSequence>& documents,
                                                const std::vector<uint32_t>& order, uint64_t length) {
  const auto numbers = open_numbers(source, file, 2);
  if (!numbers) return numbers.error();
  std::vector<GptPlace> places;
  places.reserve(numbers->rows);
  uint64_t at = 0;
  uint64_t document = 0;
  uint64_t passed = 0;        // documents in the row before the place
  uint64_t tokens = 0;        // in them
  uint64_t begin_before = 0;  // token of the place before, in the row
  const Status read = for_each_number(source, *numbers, [&](uint64_t number) -> Status {
    if (at++ % 2 == 0) {
      document = number;
      return {};
    }
    const bool goes_on = document >= passed && document < order.size();
    for (; goes_on && passed < document; ++passed) tokens += documents[order[passed]].tokens;
    const uint64_t there = goes_on ? documents[order[document]].tokens : 0;
    // The first document may be empty; every other place is that of a token.
    if (!goes_on || number > there || (number == there && !places.empty()))
      return wrong_file(source, file, "names tokens that the documents have not");
    const uint64_t begin = tokens + number;
    if (!places.empty() && begin - begin_before != length) {
      return wrong_file(source, file,
                        fmt::format("has samples of other than sequence_length={} tokens", length));
    }
    begin_before = begin;
    places.push_back({static_cast<uint32_t>(document), static_cast<uint32_t>(number)});
    return {};
  });
  if (!read) return read.error();
  return places;
}

// Each sample once: samples may be long, and would take memory out of all proportion if one came often.
Result<std::vector<uint32_t>> read_shuffle_index(const DatasetSource& source, FileId file, uint64_t samples) {
  const auto numbers = open_numbers(source, file, 1);
  if (!numbers) return numbers.error();
  if (numbers->rows != samples) return wrong_file(source, file, "shuffles another number of samples");
  std::vector<uint32_t> index;
  index.reserve(samples);
  std::vector<bool> seen(samples);
  const Status read = for_each_number(source, *numbers, [&](uint64_t sample) -> Status {
    if (sample >= samples || seen[sample]) return wrong_file(source, file, "is no permutation");
    seen[sample] = true;
    index.push_back(static_cast<uint32_t>(sample));
    return {};
  });
  if (!read) return read.error();
  return index;
}

}  // namespace

Result<GptIndexFiles> find_gpt_cache(const DatasetSource& source, const DatasetRoot& root,
                                     std::string_view cache) {
  const Catalog& catalog = *source.catalog;
  std::string pattern(cache);
  if (!cache.ends_with(kDocumentIndex)) pattern += "/*-" + std::string(kDocumentIndex);
  const auto found = find_data_files(source, root, pattern);
  if (!found) return Error{EINVAL, "no document_index.npy of Megatron's there, below the plan's root"};
  std::vector<std::string> paths;
  for (const FileId file : *found) paths.push_back(catalog.path(file));
  const auto of_training = [](const std::string& path) {
    return path.ends_with("-train-document_index.npy");
  };
  if (std::any_of(paths.begin(), paths.end(), of_training))
    std::erase_if(paths, [&](const std::string& path) { return !of_training(path); });
  if (paths.size() != 1)
    return Error{EINVAL, fmt::format("there are {} document_index.npy; want the path of one", paths.size())};
  const std::string& path = paths.front();
  const auto beside = [&](const char* name) -> std::optional<FileId> {
    if (!path.ends_with(kDocumentIndex)) return std::nullopt;  // a link led there
    const auto file = catalog.find(path.substr(0, path.size() - kDocumentIndex.size()) + name);
    return file && catalog.kind(*file) == Catalog::Kind::file ? file : std::nullopt;
  };
  const auto samples = beside("sample_index.npy");
  const auto shuffled = beside("shuffle_index.npy");
  if (!samples || !shuffled) {
    return Error{EINVAL, fmt::format("{} has no {}_index.npy beside it", shortened(path, 200),
                                     samples ? "shuffle" : "sample")};
  }
  return GptIndexFiles{*catalog.find(path), *samples, *shuffled};
}

Result<GptIndexes> read_gpt_cache(const DatasetSource& source, const GptIndexFiles& files,
                                  const std::vector<MegatronSequence>& documents, uint64_t sequence_length) {
  auto order = read_document_index(source, files.documents, documents.size());
  if (!order) return order.error();
  auto places = read_sample_index(source, files.samples, documents, *order, sequence_length);
  if (!places) return places.error();
  if (places->size() < 2) return wrong_file(source, files.samples, "has no sample");
  auto shuffled = read_shuffle_index(source, files.shuffled, places->size() - 1);
  if (!shuffled) return shuffled.error();
  return GptIndexes{std::move(*order), std::move(*places), std::move(*shuffled)};
}

}  // namespace clairfs
