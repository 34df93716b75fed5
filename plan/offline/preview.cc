#include "plan/offline/preview.h"

#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/catalog/scan.h"
#include "plan/sequence/plan_sampler.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? real.get() : path;
}

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

Result<DatasetSource> scan_root(const std::string& root, Logger& log) {
  DatasetSource source;
  auto catalog = scan_catalog(root, ScanOptions(), log);
  if (!catalog) return catalog.error();
  source.catalog = std::move(*catalog);
  source.prefixes.source = real_path(root);
  source.read_bytes = [catalog = source.catalog, root](FileId file, uint64_t offset, uint32_t length) {
    return read_piece(root + "/" + catalog->path(file), offset, length);
  };
  return source;
}

}  // namespace

Result<PlanPreview> preview_plan(PlanSpec given, uint32_t nodes, Logger& log) {
  const std::string root = std::exchange(given.root, "");
  if (root.empty() && given.n == 0) {
    return plan_error("root", "", "missing; want root=DIR, or n=SAMPLES alone for an order of numbers");
  }
  Result<PlanSpec> spec = resolve_plan(std::move(given), nodes);
  if (!spec) return spec.error();

  DatasetSource source;
  std::shared_ptr<const SampleIndex> index;
  if (!root.empty()) {
    Result<DatasetSource> scanned = scan_root(root, log);
    if (!scanned) return scanned.error();
    source = std::move(*scanned);
    auto made = make_sample_index(*spec, source);
    if (!made) return made.error();
    index = std::move(*made);
  }
  const uint32_t n = index ? index->size() : static_cast<uint32_t>(spec->n);
  auto sampler = make_plan_sampler(*spec, n, source, index.get());
  if (!sampler) return sampler.error();
  auto sequence = AccessSequence::make(std::move(*spec), std::move(*sampler));
  if (!sequence) return sequence.error();
  return PlanPreview{std::move(source), std::move(index), n, std::move(*sequence)};
}

}  // namespace clairfs
