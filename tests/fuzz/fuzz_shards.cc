// Tar archives and TFRecord files that are read at random, and the lists beside them: whatever they say,
// samples lie in their files, each shard is walked once, and a list that is believed says what the headers
// say.
//
// Checksums are made right first, as far as they are reached: nobody guesses them.
#include <algorithm>
#include <vector>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/formats.h"
#include "plan/formats/shards/tar_header.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/support/shard_bytes.h"

using namespace clairfs;

namespace {

/// A shard and the list beside it, which outlive it; `read` counts what is read of the shard.
DatasetSource shard_dataset(std::string_view shard, std::string_view list, uint64_t& read) {
  CatalogBuilder builder("/source", 4096, 3);
  SourceAttributes attributes;
  attributes.mode = S_IFDIR | 0755;
  const FileId root = builder.add(FileId(0), "", attributes);
  attributes.mode = S_IFREG | 0644;
  attributes.size = list.size();
  const FileId beside = builder.add(root, "x.idx", attributes);
  attributes.size = shard.size();
  builder.add(root, "x.tar", attributes);
  DatasetSource source;
  source.catalog = builder.finish(0, 0).value();
  source.prefixes.is_directory = [](const std::string&) { return false; };
  source.read_bytes = [=, &read](FileId file, uint64_t offset, uint32_t length) -> Result<std::string> {
    const std::string_view bytes = file == beside ? list : shard;
    fuzz::require(offset <= bytes.size() && length <= bytes.size() - offset, "no read outside the file");
    if (file != beside) read += length;
    return std::string(bytes.substr(offset, length));
  };
  return source;
}

std::vector<ByteRange> samples_of(std::string_view format, std::string_view shard, std::string_view list) {
  uint64_t read = 0;
  const DatasetSource source = shard_dataset(shard, list, read);
  const auto index = index_record_shards(source, DatasetRoot{FileId(0), 0}, format, "x.tar", "");
  // A header that lies across the end of a read is read again, and so is each that a list is compared with.
  fuzz::require(read <= 3 * shard.size() + 33 * kTarBlock, "a shard is read once");
  std::vector<ByteRange> samples;
  if (!index) return samples;
  for (uint32_t sample = 0; sample < (*index)->size(); ++sample) {
    const ByteRange range = (*index)->range(sample, 0);
    fuzz::require(range.offset <= shard.size() && range.length <= shard.size() - range.offset,
                  "a sample lies in its file");
    samples.push_back(range);
  }
  return samples;
}

std::string with_tar_checksums(std::string shard) {
  for (size_t at = 0; at + kTarBlock <= shard.size();) {
    const std::string block = with_checksum(shard.substr(at, kTarBlock));
    shard.replace(at, kTarBlock, block);
    const auto header = parse_tar_header(block);
    if (!header || header->size > shard.size()) break;
    at += kTarBlock + in_tar_blocks(header->is_extension() ? header->size : header->data());
  }
  return shard;
}

std::string with_frame_checksums(std::string shard) {
  for (size_t at = 0; at + 16 <= shard.size();) {
    uint64_t length = 0;
    for (unsigned i = 0; i < 8; ++i) length |= uint64_t{static_cast<uint8_t>(shard[at + i])} << (8 * i);
    shard.replace(at, 12, frame_head(length));
    if (length > shard.size()) break;
    at += 16 + length;
  }
  return shard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(fuzz::text_of(data, size));
  for (const char* format : {"tar", "tfrecord"}) samples_of(format, bytes, "");
  samples_of("tar", with_tar_checksums(bytes), "");
  samples_of("tfrecord", with_frame_checksums(bytes), "");

  static const std::string frames = frame("one") + frame("") + frame("three");
  static const auto expected = samples_of("tfrecord", frames, "");
  const auto listed = samples_of("tfrecord", frames, bytes);
  fuzz::require(std::equal(listed.begin(), listed.end(), expected.begin(), expected.end(),
                           [](const ByteRange& a, const ByteRange& b) {
                             return a.offset == b.offset && a.length == b.length;
                           }),
                "a list that is believed says what the headers say");
  static const std::string tar =
      tar_member("a.x", "1") + tar_member("a.y", "23") + tar_member("b.x", "4") + tar_end();
  samples_of("tar", tar, bytes);
  return 0;
}
