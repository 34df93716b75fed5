#include "cache/catalog/file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include "cache/base/escaped.h"
#include "cache/base/fd.h"
#include "cache/base/own_file.h"
#include "cache/base/plural.h"
#include "cache/base/units.h"
#include "cache/catalog/image.h"

namespace clairfs {
namespace {

// Resolution of file times where the kernel takes them from its tick: 10 ms at HZ=100, twice that to be
// safe.
constexpr auto kClockTick = std::chrono::milliseconds(20);

namespace fs = std::filesystem;

int64_t wall_clock_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

Error failure(const char* what, const std::string& path) {
  return system_error(errno, std::string(what) + " " + escaped(path));
}

bool lies_below(const fs::path& path, const fs::path& top) {
  return std::mismatch(top.begin(), top.end(), path.begin(), path.end()).first == top.end();
}

// `options.directory` resolved as far as it exists.
Result<std::string> resolve_directory(const std::string& directory, const std::string& source) {
  std::error_code code;
  const fs::path path = fs::weakly_canonical(fs::absolute(directory, code), code);
  if (code) return system_error(code.value(), "catalog directory " + escaped(directory));
  if (lies_below(path, source)) {
    return Error{EINVAL,
                 fmt::format("catalog directory {} lies in the source {}, which is never written; choose "
                             "another one",
                             escaped(path.native()), escaped(source))};
  }
  return path.native();
}

// A source that is not mounted shows as an empty directory. A mount that took it for the dataset would lose
// all that is kept.
Status check_has_files(const Catalog& catalog) {
  if (catalog.count(Catalog::Kind::file) + catalog.count(Catalog::Kind::symlink) > 0) return {};
  const std::string source = escaped(catalog.source());
  if (catalog.unreadable() > 0)
    return Error{EACCES, source + " has no files that this user may read; mount as one who may"};
  return Error{ENOENT, source + " has no files; is its filesystem mounted?"};
}

// The saved catalog if it may be used, else why not.
Result<std::shared_ptr<const Catalog>> reload(const std::string& file, const std::string& source,
                                              const CatalogOptions& options, const ScanProgress& progress) {
  Result<std::shared_ptr<const Catalog>> loaded = load_catalog(file, options.scan.most_memory);
  if (!loaded) return loaded.error().code == ENOENT ? Error{ENOENT, "no saved catalog"} : loaded.error();
  const Catalog& catalog = **loaded;
  if (catalog.source() != source || catalog.largest_chunk() != options.scan.chunk_size) {
    return Error{EBADMSG, "the saved catalog is of another source"};
  }
  if (catalog.lookup(FileId(0), options.scan.reserved))
    return Error{EBADMSG, "the saved catalog has an entry that is left out now"};
  if (!check_has_files(catalog)) return Error{EBADMSG, "the saved catalog has no files"};
  const Fd root(::open(source.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return failure("open", source);
  const std::optional<std::string> change =
      find_change(catalog, root.get(), options.check, options.scan.threads, progress);
  if (change) return Error{ESTALE, "the source has changed: " + *change};
  return loaded;
}

// Whether an entry has changed since just before `start_ns`. A ctime in the future is a clock set wrongly
// once.
bool written_since(const Catalog& catalog, int64_t start_ns) {
  const int64_t first = start_ns - std::chrono::nanoseconds(kClockTick).count();
  const int64_t last = wall_clock_ns() + std::chrono::nanoseconds(kClockTick).count();
  for (FileId id(0); id.value < catalog.size(); ++id.value) {
    const int64_t ctime = catalog.source_state(id).ctime_ns;
    if (ctime >= first && ctime <= last) return true;
  }
  return false;
}

bool try_save(const Catalog& catalog, const std::string& file, int64_t scan_start_ns, Logger& log) {
  if (written_since(catalog, scan_start_ns)) {
    log.warn("catalog: {} was being written to during the scan; not saved, the next mount scans again",
             escaped(catalog.source()));
    return false;
  }
  const Status saved = save_catalog(catalog, file);
  if (!saved) log.warn("catalog: not saved, the next mount scans again: {}", saved.error().message);
  return saved.ok();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string saved_catalog_path(const std::string& directory, const std::string& source,
                               const ScanOptions& options) {
  std::string of = source;
  if (!options.record_chunks.empty()) of += '\0' + RecordChunks(options.record_chunks).text();
  const XXH128_hash_t hash = XXH3_128bits(of.data(), of.size());
  return fmt::format("{}/catalog-{:016x}{:016x}-{}", directory, hash.high64, hash.low64, options.chunk_size);
}

Status save_catalog(const Catalog& catalog, const std::string& file) {
  return save_own_file(file, catalog.image());
}

Result<std::shared_ptr<const Catalog>> load_catalog(const std::string& file, uint64_t most_memory) {
  const Result<OwnFile> opened = open_own_file(file);
  if (!opened) return opened.error();
  if (opened->size == 0) return Error{ESTALE, escaped(file) + ": emptied when the source had changed"};
  catalog_image::Header header;
  if (opened->size < sizeof header)
    return Error{EBADMSG, escaped(file) + ": catalog: shorter than its header"};
  // The header first, so that no memory is taken for a large file that is no catalog.
  Status status = read_own_file(*opened, std::as_writable_bytes(std::span(&header, 1)));
  if (!status) return status.error();
  if (header.magic != catalog_image::kMagic || header.bytes != opened->size) {
    return Error{EBADMSG, escaped(file) + ": catalog: cut off, or not a catalog"};
  }
  if (header.bytes > most_memory) {
    const std::string what = fmt::format("the catalog saved in {} ({}; remove it if the dataset has shrunk)",
                                         escaped(file), pluralize(header.entries, "entry", "entries"));
    return no_memory_for_catalog(what, header.bytes, most_memory);
  }
  // Read rather than mapped: what was verified must not change under us afterwards.
  Result<Mapping> image = Mapping::anonymous(opened->size);
  if (!image) return image.error();
  status = read_own_file(*opened, {image->data(), opened->size});
  if (!status) return status.error();
  Result<std::shared_ptr<const Catalog>> catalog = Catalog::adopt(std::move(*image));
  if (!catalog) return Error{catalog.error().code, escaped(file) + ": " + catalog.error().message};
  return catalog;
}

Status invalidate_saved_catalog(const std::string& saved_file) {
  if (saved_file.empty()) return {};
  // O_NONBLOCK: should somebody have put a pipe there.
  const Fd emptied(::open(saved_file.c_str(), O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (emptied || errno == ENOENT) return {};
  return failure("empty", saved_file);
}

Result<LoadedCatalog> load_or_scan_catalog(const std::string& source, const CatalogOptions& options,
                                           Logger& log, const ScanProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  std::error_code code;
  const std::string resolved = fs::canonical(source, code);
  if (code) return system_error(code.value(), "read source directory " + escaped(source));
  LoadedCatalog out;
  out.reason = "nowhere to save it";
  std::string file;
  if (!options.directory.empty()) {
    const Result<std::string> directory = resolve_directory(options.directory, resolved);
    if (!directory) return directory.error();
    file = saved_catalog_path(*directory, resolved, options.scan);
    Result<std::shared_ptr<const Catalog>> saved = reload(file, resolved, options, progress);
    if (saved) {
      log.info("catalog: reloaded {} of {} from {} in {:.2f} s",
               pluralize((*saved)->size(), "entry", "entries"), escaped(resolved), escaped(file),
               seconds_since(start));
      return LoadedCatalog{*saved, true, false, "", seconds_since(start), file};
    }
    if (saved.error().code == ENOMEM) return saved.error();  // a scan takes more
    out.reason = saved.error().message;
  }
  log.info("catalog: scanning {}: {}", escaped(resolved), out.reason);
  std::this_thread::sleep_for(
      kClockTick);  // so that what was written until now shows as written before the scan
  const int64_t scan_start_ns = wall_clock_ns();
  Result<std::shared_ptr<const Catalog>> scanned = scan_catalog(resolved, options.scan, log, progress);
  if (!scanned) return scanned.error();
  if (Status status = check_has_files(**scanned); !status) return status.error();
  out.catalog = *scanned;
  if (!file.empty() && try_save(*out.catalog, file, scan_start_ns, log)) out.saved_file = file;
  out.seconds = seconds_since(start);
  log.info("catalog: {}, {}, {}, {} in {}, scanned in {:.2f} s",
           pluralize(out.catalog->count(Catalog::Kind::file), "file", "files"),
           pluralize(out.catalog->count(Catalog::Kind::directory), "directory", "directories"),
           pluralize(out.catalog->count(Catalog::Kind::symlink), "symlink", "symlinks"),
           format_size(out.catalog->total_bytes()), pluralize(out.catalog->chunk_count(), "chunk", "chunks"),
           out.seconds);
  return out;
}

}  // namespace clairfs
