// The samples of tar and TFRecord shards, for those who read them at random.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/formats/data_files.h"
#include "plan/formats/formats.h"
#include "plan/formats/index/index_store.h"
#include "plan/formats/samples/record_table.h"
#include "plan/formats/shards/listed_records.h"
#include "plan/formats/shards/record_walk.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// Shards that are walked at the same time. The hops in one depend on each other, so this is the number of
// reads in flight: a little more than the source is asked to do at once.
constexpr size_t kShardsAtOnce = 128;

// As many as samples have numbers.
constexpr size_t kMostOfShard = UINT32_MAX - 1;

// A shard whose records are being found.
struct OpenShard {
  FileId file;
  std::unique_ptr<RecordWalk> walk;  // none where a list says them
  std::optional<std::vector<RecordPlace>> listed;

  bool done() const { return !walk || walk->done(); }
  const std::vector<RecordPlace>& records() const { return walk ? walk->records() : *listed; }
};

// Fills a table with the records of the shards, in their order. Errors: EINVAL, of which the message is the
// cause alone; what a read returned.
class ShardIndexer {
 public:
  ShardIndexer(const DatasetSource& source, std::string_view format, RecordTableBuilder& table)
      : source_(source), of_tar_(format == "tar"), table_(table) {}

  Status add(const std::vector<FileId>& shards) {
    for (const FileId shard : shards) all_bytes_ += source_.catalog->stamp(shard).size;
    auto next = shards.begin();
    while (next != shards.end() || !open_.empty()) {
      for (; next != shards.end() && open_.size() < kShardsAtOnce; ++next) {
        if (Status status = open(*next); !status) return status;
        if (Status status = close_done(); !status) return status;
      }
      if (Status status = hop(); !status) return status;
      if (Status status = close_done(); !status) return status;
    }
    return {};
  }

 private:
  Status close_done() {
    for (; !open_.empty() && open_.front().done(); open_.pop_front()) {
      if (Status status = close(open_.front()); !status) return status;
    }
    return {};
  }

  Status open(FileId file) {
    OpenShard shard{file, nullptr, std::nullopt};
    const uint64_t size = source_.catalog->stamp(file).size;
    if (const auto list = find_shard_index(*source_.catalog, file)) {
      auto listed = of_tar_ ? listed_tar(source_, file, *list) : listed_tfrecord(source_, file, *list);
      if (!listed && listed.error().code == ECANCELED) return listed.error();
      if (listed) shard.listed = std::move(*listed);  // else the headers say, as where the list is wrong
      if (shard.listed) {
        if (Status status = table_.share({*list, 0, source_.catalog->stamp(*list).size}); !status)
          return status;
      }
    }
    if (!shard.listed) shard.walk = of_tar_ ? walk_tar(size) : walk_tfrecord(size);
    open_.push_back(std::move(shard));
    return {};
  }

  // One header of each shard, or as many as lie close together.
  Status hop() {
    std::vector<OpenShard*> walking;
    std::vector<ByteRange> pieces;
    for (OpenShard& shard : open_) {
      if (shard.done()) continue;
      walking.push_back(&shard);
      pieces.push_back({shard.file, shard.walk->next(), shard.walk->wanted()});
    }
    if (pieces.empty()) return {};
    const auto read = source_.read_all(pieces);
    if (!read) return read.error();
    for (size_t i = 0; i < pieces.size(); ++i) {
      if ((*read)[i].size() != pieces[i].length) return wrong_file(source_, pieces[i].file, "is cut off");
      RecordWalk& walk = *walking[i]->walk;
      const Status taken = walk.take((*read)[i]);
      if (!taken) return wrong_file(source_, pieces[i].file, taken.error().message);
      if (walk.records().size() >= kMostOfShard)
        return wrong_file(source_, pieces[i].file, "has too many samples");
      passed_ += walk.next() - pieces[i].offset;
    }
    if (source_.work) source_.work->note(passed_, all_bytes_);
    return {};
  }

  Status close(const OpenShard& shard) {
    for (const RecordPlace& record : shard.records()) {
      const Status added = table_.add_sample(ByteRange{shard.file, record.offset, record.length});
      if (!added) return added;
    }
    if (!shard.walk) passed_ += source_.catalog->stamp(shard.file).size;
    return {};
  }

  const DatasetSource& source_;
  const bool of_tar_;
  RecordTableBuilder& table_;
  std::deque<OpenShard> open_;  // in the order of the shards
  uint64_t all_bytes_ = 0;
  uint64_t passed_ = 0;
};

// A name in a list may lead out of the dataset: no bytes of it are read here, and it has no samples.
Result<std::vector<FileId>> files_of(const SampleIndex& shards) {
  std::vector<FileId> files;
  for (uint32_t shard = 0; shard < shards.size(); ++shard) {
    if (shards.range_count(shard) == 0) {
      return Error{EINVAL, fmt::format("{} is no file of the dataset", shortened(shards.path(shard), 200))};
    }
    files.push_back(shards.range(shard, 0).file);
  }
  return files;
}

}  // namespace

SampleIndexResult index_record_shards(const DatasetSource& source, const DatasetRoot& root,
                                      std::string_view format, const std::string& file,
                                      const std::string& list) {
  const auto refuse = [&](const Error& error) {
    return file.empty() ? plan_refusal("format", format, error) : plan_refusal("file", file, error);
  };
  const SampleIndexResult shards = choose_shards(source, root, format, file, list);
  if (!shards) return shards;
  const auto files = files_of(**shards);
  if (!files) return refuse(files.error());
  // Where the shards end among the key's files: a list of one plan may be a shard of another.
  IndexKey key{std::string(format), fmt::format("random_access shards={}", files->size()), *files};
  for (const FileId shard : *files) {
    if (const auto beside = find_shard_index(*source.catalog, shard)) key.files.push_back(*beside);
  }
  return stored_index(source, key, [&]() -> Result<IndexStore::Table> {
    RecordTableBuilder table(source.catalog, format);
    table.set_read_block(kBufferedBlock);  // tarfile reads through Python's own files
    ShardIndexer indexer(source, format, table);
    const Status added = indexer.add(*files);
    if (!added) return refuse(added.error());
    return table.finish();
  });
}

}  // namespace clairfs
