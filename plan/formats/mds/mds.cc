// The samples of MosaicML Streaming's MDS shards, read in place.
// Source: mosaicml/streaming, streaming/base/format/mds/{reader,writer}.py: u32 count, u32 begin of each
// sample and the end of the last, then what describes the columns, then the samples. A reader opens the shard
// without a buffer for each sample, reads two of these numbers, and then the sample.
#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/mds/mds_index.h"
#include "plan/formats/records/little_endian.h"
#include "plan/formats/samples/record_table.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

constexpr uint64_t kTablesAtOnce = 16 << 20;  // bytes: thousands of shards of as many samples
constexpr uint64_t kLargestTable =
    256 << 20;  // bytes: 67 million samples in a shard of 4 GiB, whose offsets are 32 bits

uint32_t mds_number(std::string_view bytes, uint64_t index) {
  return static_cast<uint32_t>(little_endian_at(bytes, 4 * index, 4));
}

// A shard's file and the numbers at its beginning.
struct MdsTable {
  uint32_t samples;
  ByteRange range;
};

Result<MdsTable> locate_table(const DatasetSource& source, const DatasetRoot& root, const std::string& folder,
                              const MdsShard& shard) {
  const std::string path = folder + shard.basename;
  const auto refuse = [&](std::string_view why) {
    return Error{EINVAL, fmt::format("{} {}", shortened(path, 200), why)};
  };
  if (shard.format != "mds") return refuse("is of another format; want format=list, or ranges");
  const Result<FileId> file = find_data_file(source, root, path);
  if (!file) {
    return refuse(shard.compressed ? "is compressed: the bytes of a sample are in no one place"
                                   : "is not there: " + file.error().message);
  }
  const uint64_t bytes = 4 * (uint64_t{shard.samples} + 2);
  if (bytes > kLargestTable || bytes > source.catalog->stamp(*file).size) return refuse("is cut off");
  return MdsTable{shard.samples, {*file, 0, bytes}};
}

// Errors: EINVAL with the cause alone.
Status add_shard(const DatasetSource& source, const MdsTable& table, std::string_view bytes,
                 RecordTableBuilder& builder) {
  const auto refuse = [&](std::string_view why) { return wrong_file(source, table.range.file, why); };
  if (bytes.size() != table.range.length) return refuse("is cut off");
  if (mds_number(bytes, 0) != table.samples) return refuse("has not as many samples as index.json says");
  for (uint64_t sample = 0; sample < table.samples; ++sample) {
    const uint32_t begin = mds_number(bytes, 1 + sample);
    const uint32_t end = mds_number(bytes, 2 + sample);
    if (begin < table.range.length || end < begin) return refuse("is damaged");
    if (Status status = builder.add_sample(ByteRange{table.range.file, begin, end - begin}); !status)
      return status;
  }
  return builder.share(table.range);
}

Status add_shards(const DatasetSource& source, const std::vector<MdsTable>& tables,
                  RecordTableBuilder& builder) {
  for (size_t next = 0; next < tables.size();) {
    std::vector<ByteRange> pieces;
    uint64_t bytes = 0;
    while (next + pieces.size() < tables.size() && bytes < kTablesAtOnce) {
      pieces.push_back(tables[next + pieces.size()].range);
      bytes += pieces.back().length;
    }
    const auto read = source.read_all(pieces);
    if (!read) return read.error();
    for (const std::string& table : *read) {
      if (Status status = add_shard(source, tables[next], table, builder); !status) return status;
      ++next;
    }
  }
  return {};
}

// One stream: an index.json, and the shards beside it.
struct MdsStream {
  FileId index;
  std::vector<MdsTable> tables;
};

// `named`: the shards so far, of all streams. One that is named over and over would make any number of
// samples of a few megabytes. No writer names one twice, and StreamingDataset takes no folder twice. Errors:
// EINVAL with the cause alone.
Result<MdsStream> open_stream(const DatasetSource& source, const DatasetRoot& root, const std::string& name,
                              std::unordered_set<FileId>& named) {
  const Result<FileId> index = find_data_file(source, root, name);
  if (!index) return index.error();
  if (source.catalog->stamp(*index).size > kMaxMdsIndexBytes) return Error{EINVAL, "is larger than 64 MiB"};
  const Result<std::string> text = source.read_whole(*index);
  if (!text) return text.error();
  const Result<std::vector<MdsShard>> shards = parse_mds_index(*text);
  if (!shards) return shards.error();
  if (const auto sizes = mds_shard_sizes(*shards); !sizes) return sizes.error();
  const size_t slash = name.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash + 1);
  MdsStream stream{*index, {}};
  for (const MdsShard& shard : *shards) {
    const Result<MdsTable> table = locate_table(source, root, folder, shard);
    if (!table) return table.error();
    const FileId file = table->range.file;
    if (!named.insert(file).second) return wrong_file(source, file, "is named twice");
    stream.tables.push_back(*table);
  }
  return stream;
}

// "A/index.json,B/index.json" in its parts. A comma elsewhere belongs to a name.
std::vector<std::string> stream_names(std::string_view file) {
  constexpr std::string_view kBorder = "index.json,";
  std::vector<std::string> names;
  for (size_t begin = 0;;) {
    const size_t border = file.find(kBorder, begin);
    if (border == std::string_view::npos) {
      names.emplace_back(file.substr(begin));
      return names;
    }
    const size_t end = border + kBorder.size() - 1;
    names.emplace_back(file.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

SampleIndexResult index_mds(const DatasetSource& source, const DatasetRoot& root, std::string_view file) {
  RecordTableBuilder builder(source.catalog, "mds");
  std::unordered_set<FileId> named;
  for (const std::string& name : stream_names(file)) {
    const auto refuse = [&](const Error& error) { return plan_refusal("file", name, error); };
    const Result<MdsStream> stream = open_stream(source, root, name, named);
    if (!stream) return refuse(stream.error());
    if (const Status added = add_shards(source, stream->tables, builder); !added)
      return refuse(added.error());
    const ByteRange index{stream->index, 0, source.catalog->stamp(stream->index).size};
    if (const Status shared = builder.share(index); !shared) return refuse(shared.error());
  }
  return SampleIndexResult(builder.finish());
}

}  // namespace clairfs
