#include "plan/inference/records/record_files.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "plan/formats/data_files.h"
#include "plan/formats/index/index_store.h"

namespace clairfs {
namespace {

// Bytes of the file for each of its records. Of fewer no page is that of one record, and no READ shows any.
constexpr uint64_t kLeastMean = kPageSize / 2;

uint64_t bit_of(FileId file) {
  return uint64_t{1} << (file.value % 64);
}

// A file by itself, in the folder where it lies.
PlanSpec records_in(const Catalog& catalog, FileId file, std::string_view format) {
  PlanSpec records;
  records.root = catalog.path(catalog.parent(file));
  records.file = catalog.name(file);
  records.format = format;
  return records;
}

// "keys=cursor\nskip=\ndb=" (plan/formats/lmdb/lmdb.cc)
bool read_lmdb_keys(std::string_view text, PlanSpec& records) {
  constexpr std::string_view kKeys = "keys=";
  constexpr std::string_view kSkip = "\nskip=";
  constexpr std::string_view kDb = "\ndb=";
  const size_t skip = text.find(kSkip);
  const size_t db = text.rfind(kDb);
  if (!text.starts_with(kKeys) || skip == std::string_view::npos || db == std::string_view::npos ||
      db < skip + kSkip.size())
    return false;
  records.keys = text.substr(kKeys.size(), skip - kKeys.size());
  records.skip = text.substr(skip + kSkip.size(), db - skip - kSkip.size());
  records.db = text.substr(db + kDb.size());
  return !keys_name_file(records.keys);
}

}  // namespace

std::optional<PlanSpec> records_of_key(const IndexKey& key, const Catalog& catalog) {
  const bool megatron = key.format == "megatron";
  if (key.files.size() != (megatron ? 2U : 1U)) return std::nullopt;  // of the two the first has the tokens
  PlanSpec records = records_in(catalog, key.files.front(), key.format);
  if (records.file.find_first_of("*?") != std::string::npos) return std::nullopt;  // would be a pattern
  constexpr std::string_view kDataset = "dataset=";
  if (megatron && key.parameters.empty()) return records;
  if (key.format == "hdf5" && key.parameters.starts_with(kDataset)) {
    records.dataset = key.parameters.substr(kDataset.size());
    return records;
  }
  if (key.format == "lmdb" && read_lmdb_keys(key.parameters, records)) return records;
  return std::nullopt;
}

bool RecordFiles::watches(FileId file) const {
  if ((bits_.load(std::memory_order_relaxed) & bit_of(file)) == 0) return false;
  const MutexLock lock(mutex_);
  return std::binary_search(files_.begin(), files_.end(), file);
}

std::optional<ReadPages> RecordFiles::read(ThreadId thread, FileId file, uint64_t offset, uint64_t length) {
  constexpr uint64_t kMostPages = std::numeric_limits<uint16_t>::max();
  // Those that cannot be told, as in other containers, are taken for one.
  const ThreadId reader = thread.value == 0 ? ThreadId(std::numeric_limits<uint32_t>::max()) : thread;
  if (runs_.note(reader, file, offset, length) != Access::read) return std::nullopt;
  const uint64_t first = offset / kPageSize;
  if (first > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  const uint64_t count = (offset % kPageSize + length + kPageSize - 1) / kPageSize;
  return ReadPages{static_cast<uint32_t>(first), static_cast<uint16_t>(std::min(count, kMostPages))};
}

// A file of one chunk is read whole by the mount, whatever is asked for.
bool RecordFiles::meet(FileId file) {
  const Catalog& catalog = *source_.catalog;
  if (catalog.kind(file) != Catalog::Kind::file || catalog.chunks(file).count < 2) return false;
  if (!catalog.name(file).ends_with(".npy")) return false;
  const MutexLock lock(mutex_);
  if (std::binary_search(files_.begin(), files_.end(), file)) return false;
  if (std::find(refused_.begin(), refused_.end(), file) != refused_.end()) return false;
  if (others_.size() == kMostOthers) others_.erase(others_.begin());
  others_.push_back({file, records_in(catalog, file, "npy")});
  note_files();
  return true;
}

void RecordFiles::know(const PlanSpec& plan) {
  if (plan.format != "raw" || plan.file.empty() || plan.record == 0) return;
  const auto root = find_root(plan, source_);
  if (!root) return;
  const auto file = find_data_file(source_, *root, plan.file);  // a pattern is none
  if (!file) return;
  Way way{*file, records_in(*source_.catalog, *file, "raw")};
  if (way.records.file.find_first_of("*?") != std::string::npos) return;
  way.records.record = plan.record;
  way.records.header = plan.header;
  way.records.stride = plan.stride;
  const MutexLock lock(mutex_);
  const bool known = std::any_of(others_.begin(), others_.end(),
                                 [&](const Way& other) { return other.records == way.records; });
  if (known) return;
  if (others_.size() == kMostOthers) others_.erase(others_.begin());
  others_.push_back(std::move(way));
  note_files();
}

void RecordFiles::look_for_indexes() {
  if (source_.indexes == nullptr) return;
  std::vector<Way> found;
  for (IndexKey& key : source_.indexes->saved(*source_.catalog, kMostIndexBytes)) {
    auto records = records_of_key(key, *source_.catalog);
    if (!records || found.size() == kMostIndexed) continue;
    const FileId file = key.files.front();
    found.push_back({file, std::move(*records), std::move(key)});
  }
  const MutexLock lock(mutex_);
  indexed_ = std::move(found);
  note_files();
}

void RecordFiles::note_files() {
  files_.clear();
  uint64_t bits = 0;
  for (const auto* ways : {&indexed_, &others_}) {
    for (const Way& way : *ways) {
      files_.push_back(way.file);
      bits |= bit_of(way.file);
    }
  }
  std::sort(files_.begin(), files_.end());
  bits_ = bits;
}

void RecordFiles::stop_watching(FileId file) {
  const MutexLock lock(mutex_);
  for (auto* ways : {&indexed_, &others_})
    std::erase_if(*ways, [&](const Way& way) { return way.file == file; });
  note_files();
  if (std::find(refused_.begin(), refused_.end(), file) != refused_.end()) return;
  if (refused_.size() == kMostRefused) refused_.erase(refused_.begin());
  refused_.push_back(file);
}

std::map<FileId, std::vector<Numbering>> RecordFiles::numbered(std::span<const SeenOpen> opens,
                                                               size_t least) {
  std::map<FileId, size_t> reads;
  for (const SeenOpen& open : opens) {
    if (open.pages != 0) ++reads[open.file];
  }
  std::vector<std::pair<size_t, FileId>> most;
  for (const auto& [file, count] : reads) {
    if (count >= least) most.emplace_back(count, file);
  }
  std::sort(most.rbegin(), most.rend());
  if (most.size() > kMostNumbered) most.resize(kMostNumbered);
  std::map<FileId, std::vector<Numbering>> before = std::exchange(kept_, {});
  for (const auto& [count, file] : most) {
    const auto known = before.find(file);
    using Made = Result<std::vector<Numbering>>;
    Made numberings = known == before.end() ? number(file) : Made(std::move(known->second));
    if (!numberings) continue;
    if (numberings->empty()) {
      stop_watching(file);
    } else {
      kept_.emplace(file, std::move(*numberings));
    }
  }
  return kept_;
}

// A read that failed may succeed the next time; what a file has been found not to be it will not become.
Result<std::vector<Numbering>> RecordFiles::number(FileId file) const {
  std::vector<Way> ways;
  {
    const MutexLock lock(mutex_);
    for (const auto* known : {&indexed_, &others_}) {
      std::copy_if(known->begin(), known->end(), std::back_inserter(ways),
                   [&](const Way& way) { return way.file == file; });
    }
  }
  std::vector<Numbering> numberings;
  Status were_read;
  uint64_t held = 0;
  for (Way& way : ways) {
    auto made = index_of(way);
    if (!made) {
      if (!way.index && made.error().code != EINVAL) were_read = made.error();
      continue;
    }
    std::shared_ptr<const SampleIndex> index = std::move(*made);
    if (index->size() < 2 || index->size() > kMostRecords) continue;
    if (source_.catalog->stamp(file).size / index->size() < kLeastMean) continue;
    if (!numberings.empty() && held + index->memory_bytes() > most_held_) continue;
    held += index->memory_bytes();
    std::string root = way.records.root;
    numberings.push_back({std::move(root), std::move(index), std::move(way.records)});
  }
  if (numberings.empty() && !were_read) return were_read.error();
  return numberings;
}

Result<std::shared_ptr<const SampleIndex>> RecordFiles::index_of(const Way& way) const {
  if (!way.index) return make_sample_index(way.records, source_);
  auto table = source_.indexes->find(*way.index, source_.catalog);
  if (!table) return table.error();
  return std::shared_ptr<const SampleIndex>(std::move(*table));
}

}  // namespace clairfs
