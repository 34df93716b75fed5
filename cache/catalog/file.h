// The catalog on disk, and the one call that gets a catalog from there or from a scan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "cache/catalog/check.h"
#include "cache/catalog/scan.h"

namespace clairfs {

struct CatalogOptions {
  ScanOptions scan;
  /// Where catalogs are saved, created with mode 0700 when missing; "" saves and reloads nothing. Must not
  /// lie below the source, which is never written.
  std::string directory;
  CatalogCheck check = CatalogCheck::full;
};

/// A catalog and how it was come by.
struct LoadedCatalog {
  std::shared_ptr<const Catalog> catalog;
  bool reloaded = false;   ///< from the saved file
  bool received = false;   ///< from another node, which may have reloaded it; if neither, scanned
  std::string reason;      ///< why it was scanned: "no saved catalog", "a/b: modified", ...; "" when reloaded
  double seconds = 0;      ///< that loading and checking or scanning and saving took
  std::string saved_file;  ///< path of the file that holds this catalog; "" when none does
};

/// The saved catalog of `source` if the source is unchanged (see CatalogCheck), else a new scan, saved. A
/// saved file that is damaged, foreign or outdated, and one that cannot be written, cost one log line. A
/// source that something writes to during the scan is not saved: a change within the clock tick in which a
/// file was looked at could not be seen later. Errors: those of scan_catalog(); ENOMEM, without a scan, if
/// there is no memory for the saved one; EINVAL when the directory lies below the source.
Result<LoadedCatalog> load_or_scan_catalog(const std::string& source, const CatalogOptions& options,
                                           Logger& log, const ScanProgress& progress = {});

/// Where the catalog of `source` (absolute, resolved) is saved: another file for other sizes of chunks.
std::string saved_catalog_path(const std::string& directory, const std::string& source,
                               const ScanOptions& options);

/// Writes to a temporary file that is synced and renamed, with mode 0600. Two processes may save the same
/// catalog at once; one of them then leaves it to the other. Errors: those of the system calls, with the
/// path.
Status save_catalog(const Catalog& catalog, const std::string& file);

/// Errors: ENOENT; EPERM when the file is not ours alone to write; ESTALE after invalidate_saved_catalog();
/// EBADMSG with what is wrong in it; ENOMEM, before it is read, if it takes more than `most_memory` bytes;
/// those of the system calls.
Result<std::shared_ptr<const Catalog>> load_catalog(const std::string& file,
                                                    uint64_t most_memory = kNoMemoryLimit);

/// Empties a saved catalog that turned out not to describe the source any more, so that the next mount scans
/// and can say why. `saved_file` may be "" or gone. Errors: those of open().
Status invalidate_saved_catalog(const std::string& saved_file);

}  // namespace clairfs
