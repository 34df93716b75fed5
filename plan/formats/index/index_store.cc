#include "plan/formats/index/index_store.h"

#include <array>
#include <cerrno>
#include <chrono>

#include <fmt/format.h>

#include "cache/base/own_file.h"
#include "cache/base/plural.h"
#include "cache/base/printable.h"

namespace clairfs {
namespace {

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
  const std::string name = saved_index_name(*catalog, key);
  if (work != nullptr) work->begin();
  {
    MutexLock lock(mutex_);
    while (known_[name].wanted) {
      if (work != nullptr && work->cancelled()) return Error{ECANCELED, "plan: cancelled"};
      changed_.wait_for(lock, kLook);
    }
    if (Table table = known_[name].table.lock()) {
      if (work != nullptr) work->note_origin(IndexWork::Origin::memory, path(key, *catalog));
      return table;
    }
    known_[name].wanted = true;
  }
  Result<Table> table = load_or_make(key, catalog, work, make);
  MutexLock lock(mutex_);
  known_[name] = {table ? *table : nullptr, false};
  std::erase_if(known_,
                [](const auto& known) { return known.second.table.expired() && !known.second.wanted; });
  changed_.notify_all();
  return table;
}

Result<Table> IndexStore::load_or_make(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog,
                                       IndexWork* work, const Make& make) const {
  const std::string file = path(key, *catalog);
  if (!file.empty()) {
    Result<Table> loaded = load_index(file, key, catalog);
    if (loaded) {
      log_.info("index: {} of {} reloaded from {}", pluralize((*loaded)->size(), "sample", "samples"),
                key.format, printable(file));
      if (work != nullptr) work->note_origin(IndexWork::Origin::file, file);
      return loaded;
    }
    if (loaded.error().code != ENOENT)
      log_.warn("{} is not used, the index is made anew: {}", printable(file), loaded.error().message);
  }
  Result<Table> made = make();
  if (!made || file.empty()) return made;
  const Status saved = save_own_file(file, encode_index(**made, key, *catalog));
  if (!saved) log_.warn("index: not saved, the next mount makes it again: {}", saved.error().message);
  if (saved && work != nullptr) work->note_origin(IndexWork::Origin::made, file);
  return made;
}

SampleIndexResult stored_index(const DatasetSource& source, const IndexKey& key,
                               const IndexStore::Make& make) {
  const auto table =
      source.indexes != nullptr ? source.indexes->get(key, source.catalog, source.work.get(), make) : make();
  if (!table) return table.error();
  return SampleIndexResult(*table);
}

}  // namespace clairfs
