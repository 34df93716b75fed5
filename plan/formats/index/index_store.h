// The indexes of record formats, each made once: it is kept in memory as long as a plan uses it, and in a
// file for the next mount.
//
// The file is believed only if this user's processes alone could have written it, its checksum holds, it is
// of the same source and key, and each file that it was made from has the catalog's stamp. Else it is made
// anew, which costs one log line.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "plan/formats/formats.h"
#include "plan/formats/index/index_work.h"
#include "plan/formats/index/saved_index.h"

namespace clairfs {

/// Thread-safe.
class IndexStore {
 public:
  using Table = std::shared_ptr<const RecordTable>;
  using Make = std::function<Result<Table>()>;

  /// `directory` is made with mode 0700 when missing; empty: nothing is saved. `log` outlives the store.
  IndexStore(std::string directory, Logger& log) : directory_(std::move(directory)), log_(log) {}

  /// The index of that key: the one in memory, else the saved one, else that of `make`, which is saved. Who
  /// asks for an index that somebody else is making waits for it; `work` may end that wait, or be null.
  /// Errors: those of `make`; ECANCELED.
  Result<Table> get(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog, IndexWork* work,
                    const Make& make);

  /// Where the index of that key is or would be saved; empty: nowhere.
  std::string path(const IndexKey& key, const Catalog& catalog) const;

 private:
  struct Known {
    std::weak_ptr<const RecordTable> table;
    bool wanted = false;  ///< somebody is loading or making it
  };
  Result<Table> load_or_make(const IndexKey& key, const std::shared_ptr<const Catalog>& catalog,
                             IndexWork* work, const Make& make) const;

  const std::string directory_;
  Logger& log_;
  Mutex mutex_;  // leaf; not held while an index is loaded or made
  CondVar changed_;
  std::map<std::string, Known> known_ GUARDED_BY(mutex_);  // by name of the file
};

/// The index of that key as a plan's numbering: from the source's store if it has one, else of `make`.
SampleIndexResult stored_index(const DatasetSource& source, const IndexKey& key,
                               const IndexStore::Make& make);

}  // namespace clairfs
