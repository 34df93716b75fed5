// The indexes of record formats, each made once: it is kept in memory as long as a plan uses it, and in a
// file for the next mount. In a job another node's is taken before one is made.
//
// The file is believed only if this user's processes alone could have written it, its checksum holds, it is
// of the same source and key, and each file that it was made from has the catalog's stamp. Else it is made
// again, which costs one log line.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "plan/formats/formats.h"
#include "plan/formats/index/index_peers.h"
#include "plan/formats/index/saved_index.h"
#include "plan/formats/index_work.h"

namespace clairfs {

/// Thread-safe.
class IndexStore {
 public:
  using Table = std::shared_ptr<const RecordTable>;
  using Make = std::function<Result<Table>()>;

  /// How far this node is with an index.
  enum class Stage : uint8_t { none, loading, asking, making, here };
  struct Progress {
    Stage stage = Stage::none;
    unsigned percent = 0;     ///< while it is made
    uint64_t bytes_read = 0;  ///< for it so far
  };

  /// `directory` is made with mode 0700 when missing; empty: nothing is saved. `log` and `peers`, which may
  /// be null, outlive the store.
  IndexStore(std::string directory, Logger& log, IndexPeers* peers = nullptr)
      : directory_(std::move(directory)), log_(log), peers_(peers) {}

  /// The index of that key: the one in memory, else the saved one, else another node's, else that of `make`;
  /// the last two are saved, once all waiting callers have them. A call for an index that another caller is
  /// making waits for it; `work` may end that wait, or be null. Errors: those of `make`; ECANCELED; ENOMEM
  /// where `make` or loading takes more memory than there is.
  Result<Table> get(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog, IndexWork* work,
                    const Make& make);

  /// The one in memory, else the saved one. Takes no other node's, and makes none. Errors: as decode_index();
  /// those of open_own_file(), ENOENT where it is not saved.
  Result<Table> find(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog);

  /// The keys of the indexes of that dataset whose files, of `most` bytes at most, are in the directory, but
  /// of those with a very long key. Reads their beginnings.
  std::vector<IndexKey> saved(const Catalog& catalog, uint64_t most) const;

  /// Where the index of that key is or would be saved; empty: nowhere.
  std::string path(const IndexKey& key, const Catalog& catalog) const;

  // For other nodes, by index_number().
  Progress progress(uint64_t index) const;
  /// encode_index() of it; empty unless it is here, and where there is no memory for that.
  std::vector<std::byte> image(uint64_t index) const;

 private:
  struct Known {
    IndexKey key;
    std::shared_ptr<const Catalog> catalog;
    std::weak_ptr<const RecordTable> table;
    Stage stage = Stage::none;        ///< asking or making: a caller is at it
    const IndexWork* work = nullptr;  ///< of the caller that makes it
  };
  Result<Table> load_or_make(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog,
                             IndexWork& work, const Make& make);
  Result<Table> load(const std::string& file, const IndexKey& key,
                     const std::shared_ptr<const Catalog>& catalog) const;
  void save(const RecordTable& table, const IndexKey& key, const Catalog& catalog, IndexWork& work) const;
  Result<Table> ask_peers(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog,
                          IndexWork& work) const;

  const std::string directory_;
  Logger& log_;
  IndexPeers* const peers_;
  mutable Mutex mutex_;  // leaf; not held while an index is loaded, made or encoded
  CondVar changed_;
  std::map<uint64_t, Known> known_ GUARDED_BY(mutex_);  // by index_number()
};

/// The index of that key as a plan's numbering: from the source's store if it has one, else of `make`.
SampleIndexResult stored_index(const DatasetSource& source, const IndexKey& key,
                               const IndexStore::Make& make);

}  // namespace clairfs
