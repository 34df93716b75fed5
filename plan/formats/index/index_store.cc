#include "plan/formats/index/index_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/own_file.h"
#include "cache/base/plural.h"

namespace clairfs {
namespace {

// Of the beginning of a saved index: enough for the source's path, and the keys and paths of some hundred
// files of some ten characters each, beside which 32 bytes tell whether the file has changed.
constexpr uint64_t kSavedKeyBytes = 64 << 10;

// How often those who wait for another's index look whether they are still wanted.
constexpr auto kLook = std::chrono::milliseconds(50);

using Table = IndexStore::Table;

Result<Table> load_index(const std::string& path, const IndexKey& key,
                         const std::shared_ptr<const Catalog>& catalog) {
  const Result<OwnFile> file = open_own_file(path);
  if (!file) return file.error();
  // The start first, so that no memory is taken for a large file that is no index.
  std::array<std::byte, kIndexStartBytes> start{};
  if (Status read = read_own_file(*file, start); !read) return read.error();
  if (Status ours = check_index_start(start); !ours) return ours.error();
  const Result<Mapping> image = Mapping::anonymous(file->size);
  if (!image) return image.error();
  // Read rather than mapped: what was verified must not change under us afterwards.
  const std::span bytes(image->data(), file->size);
  if (Status read = read_own_file(*file, bytes); !read) return read.error();
  return decode_index(bytes, key, catalog);
}

}  // namespace

std::string IndexStore::path(const IndexKey& key, const Catalog& catalog) const {
  return directory_.empty() ? "" : directory_ + "/" + saved_index_name(catalog, key);
}

Result<Table> IndexStore::get(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog,
                              IndexWork* work, const Make& make) {
  const uint64_t index = index_number(*catalog, key);
  IndexWork unwatched;
  IndexWork& watched = work != nullptr ? *work : unwatched;
  watched.begin();
  const TimePoint begun = steady_now();
  {
    MutexLock lock(mutex_);
    while (known_[index].stage != Stage::none) {
      if (watched.cancelled()) return Error{ECANCELED, "plan: cancelled"};
      changed_.wait_for(lock, kLook);
    }
    if (Table table = known_[index].table.lock()) {
      watched.note_origin(IndexWork::Origin::memory, path(key, *catalog));
      return table;
    }
    known_[index] = {key, catalog, {}, Stage::loading, &watched};
  }
  Result<Table> table = load_or_make(key, catalog, watched, make);
  watched.note_took(steady_now() - begun);
  {
    MutexLock lock(mutex_);
    known_[index] = {key, catalog, table ? *table : nullptr, Stage::none, nullptr};
    std::erase_if(known_, [](const auto& known) {
      return known.second.table.expired() && known.second.stage == Stage::none;
    });
    changed_.notify_all();
  }
  // Nobody who waits for the index has to wait for the file.
  if (table && watched.origin() != IndexWork::Origin::file) save(**table, key, *catalog, watched);
  return table;
}

Result<Table> IndexStore::find(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog) {
  const uint64_t index = index_number(*catalog, key);
  {
    MutexLock lock(mutex_);
    const auto known = known_.find(index);
    if (known != known_.end()) {
      if (Table table = known->second.table.lock()) return table;
    }
  }
  const std::string file = path(key, *catalog);
  if (file.empty()) return Error{ENOENT, "index: saved nowhere"};
  Result<Table> table = load_index(file, key, catalog);
  if (!table) return table;
  MutexLock lock(mutex_);
  Known& known = known_[index];
  // A loader at work has a table of its own.
  if (known.stage == Stage::none && known.table.expired())
    known = {key, catalog, *table, Stage::none, nullptr};
  return table;
}

std::vector<IndexKey> IndexStore::saved(const Catalog& catalog, uint64_t most) const {
  namespace fs = std::filesystem;
  std::vector<IndexKey> keys;
  std::error_code failure;
  fs::directory_iterator entry(directory_, failure);
  for (; !failure && entry != fs::directory_iterator(); entry.increment(failure)) {
    if (entry->path().extension() != ".idx") continue;
    const Result<OwnFile> file = open_own_file(entry->path());
    if (!file || file->size > most) continue;
    std::vector<std::byte> beginning(std::min(file->size, kSavedKeyBytes));
    if (!read_own_file(*file, beginning)) continue;
    auto key = key_of_saved(beginning, catalog);
    if (key) keys.push_back(std::move(*key));
  }
  return keys;
}

// Returns an error, too, where memory is not enough: threads wait for the end, and nodes ask how far it is.
Result<Table> IndexStore::load_or_make(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog,
                                       IndexWork& work, const Make& make) try {
  const std::string file = path(key, *catalog);
  if (Result<Table> loaded = load(file, key, catalog)) {
    work.note_origin(IndexWork::Origin::file, file);
    return loaded;
  }
  const auto now = [&](Stage stage) {
    MutexLock lock(mutex_);
    known_[index_number(*catalog, key)].stage = stage;
  };
  now(Stage::asking);
  Result<Table> table = ask_peers(key, catalog, work);
  IndexWork::Origin origin = IndexWork::Origin::node;
  if (!table) {
    if (table.error().code == ECANCELED) return table;
    now(Stage::making);
    table = make();
    origin = IndexWork::Origin::made;
  }
  work.note_origin(origin, "");
  return table;
} catch (const std::bad_alloc&) {
  return Error{ENOMEM, "plan: not enough memory for its index"};
}

void IndexStore::save(const RecordTable& table, const IndexKey& key, const Catalog& catalog,
                      IndexWork& work) const try {
  const std::string file = path(key, catalog);
  if (file.empty()) return;
  const Status saved = save_own_file(file, encode_index(table, key, catalog));
  if (!saved) log_.warn("index: not saved, the next mount makes it again: {}", saved.error().message);
  if (saved) work.note_origin(work.origin(), file);
} catch (const std::bad_alloc&) {  // of its copy: the index itself is there
  log_.warn("index: not saved, the next mount makes it again: not enough memory");
}

Result<Table> IndexStore::load(const std::string& file, const IndexKey& key,
                               const std::shared_ptr<const Catalog>& catalog) const {
  if (file.empty()) return Error{ENOENT, "index: saved nowhere"};
  Result<Table> loaded = load_index(file, key, catalog);
  if (loaded) {
    log_.info("index: {} of {} reloaded from {}", pluralize((*loaded)->size(), "sample", "samples"),
              key.format, escaped(file));
  } else if (loaded.error().code != ENOENT) {
    log_.warn("{} is not used; the index is made again: {}", escaped(file), loaded.error().message);
  }
  return loaded;
}

Result<Table> IndexStore::ask_peers(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog,
                                    IndexWork& work) const {
  if (peers_ == nullptr) return Error{ENOENT, "index: no other nodes"};
  const Result<Mapping> image = peers_->fetch(index_number(*catalog, key), work);
  if (!image) return image.error();
  Result<Table> table =
      decode_index(std::span(image->data(), image->size()), key, catalog, IndexOrigin::other_node);
  if (table) {
    log_.info("index: {} of {} from another node", pluralize((*table)->size(), "sample", "samples"),
              key.format);
    return table;
  }
  log_.warn("the index that another node sent is not used; it is made again: {}", table.error().message);
  return Error{EBADMSG, table.error().message};
}

IndexStore::Progress IndexStore::progress(uint64_t index) const {
  MutexLock lock(mutex_);
  const auto found = known_.find(index);
  if (found == known_.end()) return {};
  const Known& known = found->second;
  if (known.stage == Stage::none) return {known.table.expired() ? Stage::none : Stage::here, 0, 0};
  return {known.stage, known.work->percent(), known.work->bytes_read()};
}

std::vector<std::byte> IndexStore::image(uint64_t index) const try {
  Known known;
  Table table;
  {
    MutexLock lock(mutex_);
    const auto found = known_.find(index);
    if (found == known_.end() || found->second.stage != Stage::none) return {};
    known = found->second;
    table = known.table.lock();
  }
  return table ? encode_index(*table, known.key, *known.catalog) : std::vector<std::byte>();
} catch (const std::bad_alloc&) {
  return {};
}

SampleIndexResult stored_index(const DatasetSource& source, const IndexKey& key,
                               const IndexStore::Make& make) {
  const auto table =
      source.indexes != nullptr ? source.indexes->get(key, source.catalog, source.work.get(), make) : make();
  if (!table) return table.error();
  return SampleIndexResult(*table);
}

}  // namespace clairfs
