#include "plan/formats/scanned_dataset.h"

#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/metrics.h"
#include "cache/catalog/scan.h"
#include "cache/io/backend.h"
#include "cache/source/pfs_source.h"
#include "plan/formats/source_reads.h"

namespace clairfs {
namespace {

// Reads a file of the scanned directory, for the headers of packed formats.
Result<std::string> read_piece(const std::string& path, uint64_t offset, uint32_t length) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error(errno, "plan: open " + path);
  std::string bytes(length, '\0');
  const ssize_t got = ::pread(fd.get(), bytes.data(), length, static_cast<off_t>(offset));
  if (got < 0) return system_error(errno, "plan: read " + path);
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

// Reads the files of the scanned directory, many at a time.
struct ScannedFiles {
  ScannedFiles(std::shared_ptr<const Catalog> scanned, std::unique_ptr<IoBackend> backend, Fd root,
               Logger& log)
      : catalog(std::move(scanned)),
        io(std::move(backend)),
        source(*catalog, std::move(root), *io, options(), clock, metrics, log, [](FileId) {}) {}

  // Over in a moment: no time to find out how many reads at once are best.
  static PfsOptions options() {
    PfsOptions options;
    options.initial_concurrency = options.most_concurrency;
    return options;
  }

  const std::shared_ptr<const Catalog> catalog;
  const SteadyClock clock;
  Metrics metrics;
  const std::unique_ptr<IoBackend> io;
  PfsSource source;
};

Result<std::shared_ptr<ScannedFiles>> open_files(const std::string& root,
                                                 std::shared_ptr<const Catalog> catalog, Logger& log) {
  Fd directory(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return system_error(errno, "plan: open " + root);
  IoOptions options;
  options.depth = ScannedFiles::options().most_concurrency;
  options.name = "plan-io";
  auto io = make_io_backend(options, log);
  if (!io) return io.error();
  return std::make_shared<ScannedFiles>(std::move(catalog), std::move(*io), std::move(directory), log);
}

}  // namespace

Result<DatasetSource> scan_dataset(const std::string& root, Logger& log) {
  DatasetSource source;
  auto catalog = scan_catalog(root, ScanOptions(), log);
  if (!catalog) return catalog.error();
  source.catalog = std::move(*catalog);
  std::error_code failure;
  const std::string resolved = std::filesystem::canonical(root, failure);
  source.prefixes.source = failure ? root : resolved;
  source.read_bytes = [catalog = source.catalog, root](FileId file, uint64_t offset, uint32_t length) {
    return read_piece(root + "/" + catalog->path(file), offset, length);
  };
  const auto files = open_files(root, source.catalog, log);
  if (!files) return files.error();
  source.read_many = [files = *files](std::span<const ByteRange> pieces) {
    return read_pieces(files->source, pieces);
  };
  return source;
}

}  // namespace clairfs
