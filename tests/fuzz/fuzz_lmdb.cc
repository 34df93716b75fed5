// LMDB data files, indexes of Megatron's and of MDS shards, and lists of ranges: whatever they say, samples
// lie in their files, and what is read of a file is bounded by its size.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/formats.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;

namespace {

/// A dataset of files with these bytes, which outlive it; `read` counts what is read of them.
DatasetSource packed_dataset(std::string_view bytes, uint64_t& read) {
  CatalogBuilder builder("/source", 4096, 4);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  const FileId root = builder.add(FileId(0), "", attributes);
  attributes.mode = S_IFREG | 0644;
  attributes.size = bytes.size();
  for (const char* name : {"shard.mds", "x", "x.bin", "x.idx"}) builder.add(root, name, attributes);
  DatasetSource source;
  source.catalog = builder.finish(0, 0).value();
  source.prefixes.is_directory = [](const std::string&) { return false; };
  source.read_bytes = [bytes, &read](FileId, uint64_t offset, uint32_t length) -> Result<std::string> {
    fuzz::require(offset <= bytes.size() && length <= bytes.size() - offset, "no read outside the file");
    read += length;
    return std::string(bytes.substr(offset, length));
  };
  return source;
}

void check_ranges(const DatasetSource& source, const SampleIndexResult& index) {
  if (!index) return;
  const auto inside = [&](const ByteRange& range) {
    const uint64_t size = source.catalog->stamp(range.file).size;
    fuzz::require(range.offset <= size && range.length <= size - range.offset, "a range lies in its file");
  };
  for (const ByteRange& range : (*index)->shared_ranges()) inside(range);
  for (uint32_t sample = 0; sample < (*index)->size(); ++sample) {
    for (uint32_t piece = 0; piece < (*index)->range_count(sample); ++piece) {
      const ByteRange range = (*index)->range(sample, piece);
      inside(range);
      bool found = range.length == 0;
      (*index)->samples_of(range.file, range.offset, 1, [&](uint32_t other) { found |= other == sample; });
      fuzz::require(found, "a sample is found by its bytes");
    }
  }
}

/// The input as an index.json, and as a shard of an index that names it.
void check_mds(std::string_view bytes) {
  uint64_t read = 0;
  const DatasetSource source = packed_dataset(bytes, read);
  const DatasetRoot root{FileId(0), 0};
  check_ranges(source, index_mds(source, root, "x"));
  const std::string index =
      R"({"shards":[{"format":"mds","samples":3,"raw_data":{"basename":"shard.mds"}}]})";
  const auto shard_bytes = source.read_bytes;
  DatasetSource with_index = packed_dataset(bytes, read);
  const FileId shard = with_index.catalog->find("shard.mds").value();
  with_index.read_bytes = [&](FileId file, uint64_t offset, uint32_t length) -> Result<std::string> {
    if (file == shard) return shard_bytes(file, offset, length);
    return offset > index.size() ? std::string() : index.substr(offset, length);
  };
  check_ranges(with_index, index_mds(with_index, root, "x"));
}

/// As numpy.save() writes 32-bit numbers.
std::string npy_bytes(const std::string& shape, const std::vector<uint32_t>& numbers) {
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  std::string bytes = std::string("\x93NUMPY\x01\0\x76\0", 10) + header + '\n';
  for (const uint32_t number : numbers) bytes += {static_cast<char>(number), 0, 0, 0};
  return bytes;
}

/// The input as each of the indexes that GPTDataset saves, beside two that are right.
void check_gpt_cache(std::string_view input) {
  const std::string idx = std::string("MMIDIDX\0\0", 9) + std::string("\1\0\0\0\0\0\0\0\1", 9) +
                          std::string("\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16) +
                          std::string("\3\0\0\0\4\0\0\0", 8) +
                          std::string("\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16);
  for (const char* fuzzed : {"a-document_index.npy", "a-sample_index.npy", "a-shuffle_index.npy"}) {
    std::map<std::string, std::string> files{{"a-document_index.npy", npy_bytes("(2,)", {1, 0})},
                                             {"a-sample_index.npy", npy_bytes("(3, 2)", {0, 0, 0, 3, 1, 2})},
                                             {"a-shuffle_index.npy", npy_bytes("(2,)", {1, 0})},
                                             {"x.bin", "1234567"},
                                             {"x.idx", idx}};
    const bool right = files[fuzzed] == input;
    files[fuzzed] = input;
    CatalogBuilder builder("/source", 4096, files.size() + 1);
    SourceAttributes attributes;
    attributes.mode = S_IFDIR | 0755;
    const FileId root = builder.add(FileId(0), "", attributes);
    attributes.mode = S_IFREG | 0644;
    for (const auto& [name, bytes] : files) {
      attributes.size = bytes.size();
      builder.add(root, name, attributes);
    }
    DatasetSource source;
    source.catalog = builder.finish(0, 0).value();
    source.prefixes.is_directory = [](const std::string&) { return false; };
    uint64_t read = 0;
    source.read_bytes = [&](FileId file, uint64_t offset, uint32_t length) -> Result<std::string> {
      const std::string& bytes = files.at(source.catalog->path(file));
      fuzz::require(offset <= bytes.size() && length <= bytes.size() - offset, "no read outside the file");
      read += length;
      return bytes.substr(offset, length);
    };
    const auto index = index_megatron_gpt(source, DatasetRoot{FileId(0), 0}, "x.bin", {3, 0, 1, "1", "."});
    fuzz::require(index || !right, "what Megatron saves is taken");
    check_ranges(source, index);
    fuzz::require(read <= 2 * input.size() + 2048, "the header is read twice, and all else once");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  uint64_t read = 0;
  const DatasetSource source = packed_dataset(bytes, read);
  const DatasetRoot root{FileId(0), 0};
  for (const char* keys : {"cursor", "decimal", "k%03d,l%d"}) {
    for (const char* db : {"", "db"}) {
      read = 0;
      check_ranges(source, index_lmdb(source, root, {"x", keys, "s*", db}));
      fuzz::require(read <= 4 * size + 1024, "a file is read once, for each of its trees");
    }
  }
  check_ranges(source, index_megatron(source, root, "x.bin"));
  check_ranges(source, index_megatron_gpt(source, root, "x.bin", {3, 40, 1, "2,1", ""}));
  check_gpt_cache(bytes);
  check_mds(bytes);
  const fuzz::MemoryFile list(bytes);
  check_ranges(source, index_ranges(source, root, list.path()));
  return 0;
}
