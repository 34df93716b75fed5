#include "plan/inference/watched/record_files.h"

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

std::shared_ptr<const std::vector<FileId>> shared_list(std::vector<FileId> files) {
  return std::make_shared<const std::vector<FileId>>(std::move(files));
}

// A file by itself, in the folder where it lies.
PlanSpec records_in(const Catalog& catalog, FileId file, std::string_view format) {
  PlanSpec records;
  records.root = catalog.path(catalog.parent(file));
  records.file = catalog.name(file);
  records.format = format;
  return records;
}

// A pattern for all names, with what they have in common before and behind.
std::string common_pattern(const Catalog& catalog, std::span<const FileId> files) {
  const std::string_view first = catalog.name(files.front());
  size_t before = first.size();
  size_t shortest = first.size();
  for (const FileId file : files) {
    const std::string_view name = catalog.name(file);
    const auto end = std::mismatch(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(before),
                                   name.begin(), name.end());
    before = static_cast<size_t>(end.first - first.begin());
    shortest = std::min(shortest, name.size());
  }
  size_t behind = shortest - before;
  for (const FileId file : files) {
    const std::string_view name = catalog.name(file);
    const auto end = std::mismatch(first.rbegin(), first.rbegin() + static_cast<std::ptrdiff_t>(behind),
                                   name.rbegin(), name.rend());
    behind = static_cast<size_t>(end.first - first.rbegin());
  }
  return std::string(first.substr(0, before)) + "*" + std::string(first.substr(first.size() - behind));
}

// How a plan of `records`, in the folder of the first, names the files; nothing if it cannot.
std::optional<std::string> name_of_files(const DatasetSource& source, std::span<const FileId> files,
                                         const PlanSpec& records) {
  const Catalog& catalog = *source.catalog;
  const FileId folder = catalog.parent(files.front());
  const bool named = std::all_of(files.begin(), files.end(), [&](FileId file) {
    return catalog.parent(file) == folder && catalog.name(file).find_first_of("*?") == std::string_view::npos;
  });
  if (!named) return std::nullopt;
  if (files.size() == 1) return records.file;
  PlanSpec all = records;
  all.file = common_pattern(catalog, files);
  const auto root = find_root(all, source);
  if (!root || place_of(catalog, all) != files.front()) return std::nullopt;
  const auto found = find_data_files(source, *root, all.file, all.format == "lmdb" ? "data.mdb" : "");
  if (!found || !std::equal(found->begin(), found->end(), files.begin(), files.end())) return std::nullopt;
  return all.file;
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
  records.lmdb_keys = text.substr(kKeys.size(), skip - kKeys.size());
  records.skip = text.substr(skip + kSkip.size(), db - skip - kSkip.size());
  records.db = text.substr(db + kDb.size());
  return !keys_name_file(records.lmdb_keys);
}

}  // namespace

// Of a pair of Megatron's the first has the tokens.
std::vector<FileId> files_of_key(const IndexKey& key) {
  std::vector<FileId> files;
  const size_t each = key.format == "megatron" ? 2 : 1;
  for (size_t i = 0; i < key.files.size(); i += each) files.push_back(key.files[i]);
  return files;
}

std::optional<PlanSpec> records_of_key(const IndexKey& key, const DatasetSource& source) {
  const std::vector<FileId> files = files_of_key(key);
  if (files.empty()) return std::nullopt;
  PlanSpec records = records_in(*source.catalog, files.front(), key.format);
  const auto name = name_of_files(source, files, records);
  if (!name) return std::nullopt;
  records.file = *name;
  constexpr std::string_view kDataset = "dataset=";
  if (key.format == "megatron" && key.parameters.empty()) return records;
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
  others_.push_back({shared_list({file}), records_in(catalog, file, "npy")});
  note_files();
  return true;
}

void RecordFiles::know(const PlanSpec& plan) {
  if (plan.format != "raw" || plan.file.empty() || plan.record == 0) return;
  const auto root = find_root(plan, source_);
  if (!root) return;
  const auto file = find_data_file(source_, *root, plan.file);  // a pattern is none
  if (!file) return;
  Way way{shared_list({*file}), records_in(*source_.catalog, *file, "raw")};
  if (way.records.file.find_first_of("*?") != std::string::npos) return;
  take_record_keys(plan, way.records);
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
  size_t files = 0;
  for (IndexKey& key : source_.indexes->saved(*source_.catalog, kMostIndexBytes)) {
    auto records = records_of_key(key, source_);
    if (!records || found.size() == kMostIndexed) continue;
    std::vector<FileId> of_key = files_of_key(key);
    if (of_key.size() > kMostIndexedFiles - files) continue;
    files += of_key.size();
    found.push_back({shared_list(std::move(of_key)), std::move(*records), std::move(key)});
  }
  let_go();  // the files may have more indexes than they are numbered by
  const MutexLock lock(mutex_);
  indexed_ = std::move(found);
  note_files();
}

void RecordFiles::note_files() {
  files_.clear();
  for (const auto* ways : {&indexed_, &others_}) {
    for (const Way& way : *ways) files_.insert(files_.end(), way.files->begin(), way.files->end());
  }
  std::sort(files_.begin(), files_.end());
  files_.erase(std::unique(files_.begin(), files_.end()), files_.end());
  uint64_t bits = 0;
  for (const FileId file : files_) bits |= bit_of(file);
  bits_ = bits;
}

void RecordFiles::stop_watching(FileId place) {
  const MutexLock lock(mutex_);
  for (auto* ways : {&indexed_, &others_})
    std::erase_if(*ways, [&](const Way& way) { return way.place() == place; });
  note_files();
  if (std::find(refused_.begin(), refused_.end(), place) != refused_.end()) return;
  if (refused_.size() == kMostRefused) refused_.erase(refused_.begin());
  refused_.push_back(place);
}

// The places of files that are read most, the most first.
std::vector<FileId> RecordFiles::most_read(std::span<const SeenOpen> opens, size_t least) const {
  std::map<FileId, size_t> reads;
  for (const SeenOpen& open : opens) {
    if (open.pages != 0) ++reads[open.file];
  }
  std::vector<std::shared_ptr<const std::vector<FileId>>> lists;
  {
    const MutexLock lock(mutex_);
    for (const auto* ways : {&indexed_, &others_}) {
      for (const Way& way : *ways) lists.push_back(way.files);
    }
  }
  std::map<FileId, size_t> of_places;
  for (const auto& files : lists) {
    size_t count = 0;
    for (const FileId file : *files) {
      const auto read = reads.find(file);
      count += read == reads.end() ? 0 : read->second;
    }
    size_t& most = of_places[files->front()];
    most = std::max(most, count);
  }
  std::vector<std::pair<size_t, FileId>> places;
  for (const auto& [place, count] : of_places) {
    if (count >= least) places.emplace_back(count, place);
  }
  std::sort(places.rbegin(), places.rend());
  if (places.size() > kMostNumbered) places.resize(kMostNumbered);
  std::vector<FileId> most;
  for (const auto& [count, place] : places) most.push_back(place);
  return most;
}

std::map<FileId, std::vector<Numbering>> RecordFiles::numbered(std::span<const SeenOpen> opens,
                                                               size_t least) {
  std::map<FileId, std::vector<Numbering>> before = std::exchange(kept_, {});
  for (const FileId place : most_read(opens, least)) {
    const auto known = before.find(place);
    using Made = Result<std::vector<Numbering>>;
    Made numberings = known == before.end() ? number(place) : Made(std::move(known->second));
    if (!numberings) continue;
    if (numberings->empty()) {
      stop_watching(place);
    } else {
      kept_.emplace(place, std::move(*numberings));
    }
  }
  return kept_;
}

// A read that failed may succeed the next time; what a file has been found not to be it will not become.
Result<std::vector<Numbering>> RecordFiles::number(FileId place) const {
  std::vector<Way> ways;
  {
    const MutexLock lock(mutex_);
    for (const auto* known : {&indexed_, &others_}) {
      std::copy_if(known->begin(), known->end(), std::back_inserter(ways),
                   [&](const Way& way) { return way.place() == place; });
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
    uint64_t bytes = 0;
    for (const FileId file : *way.files) bytes += source_.catalog->stamp(file).size;
    if (bytes / index->size() < kLeastMean) continue;
    if (!numberings.empty() && held + index->memory_bytes() > most_held_) continue;
    held += index->memory_bytes();
    std::string root = way.records.root;
    numberings.push_back({std::move(root), std::move(index), std::move(way.records), way.files});
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
