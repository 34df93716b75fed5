#include "plan/simulator/model/calibration.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/base/thread.h"
#include "cache/catalog/scan.h"
#include "plan/simulator/model/request_pump.h"

namespace clairfs {
namespace {

constexpr uint64_t kPage = 4096;             // of O_DIRECT
constexpr uint64_t kLargestPiece = 4 << 20;  // the chunk size: the daemon reads no more at once
constexpr uint64_t kSmallFile = 64 << 10;    // most of its time is not its bytes
constexpr uint64_t kWritePiece = 1 << 20;    // large enough for any disk to reach its bandwidth
constexpr size_t kMostSmallFiles = 500;      // enough for a median
constexpr auto kMemoryTime = std::chrono::milliseconds(300);
constexpr size_t kMemoryBlock = size_t{32} << 20;  // beyond the caches of a core

std::vector<unsigned> thread_counts(unsigned most) {
  std::vector<unsigned> counts;
  for (unsigned threads = 1; threads < most; threads *= 2) counts.push_back(threads);
  counts.push_back(most);
  return counts;
}

Result<Mapping> buffers(unsigned count, uint64_t bytes) {
  auto memory = Mapping::anonymous(count * bytes);
  if (memory) std::memset(memory->data(), 0x5a, memory->size());  // faults are no part of a measurement
  return memory;
}

Status check(const PumpResult& result) {
  if (result.requests > result.failed || !result.first_failure) return {};
  return *result.first_failure;
}

// A piece of a source file.
struct Piece {
  FileId file;
  uint64_t offset = 0;
  uint64_t length = 0;
};

// The source's files as pieces in random order, which is how training reads them.
class SourceProbe {
 public:
  SourceProbe(const CalibrationOptions& options, std::shared_ptr<const Catalog> catalog, const Clock& clock,
              Logger& log)
      : options_(options), catalog_(std::move(catalog)), clock_(clock), log_(log) {}

  Status open() {
    directory_.reset(::open(options_.source.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory_) return system_error(errno, "open " + options_.source);
    for (uint32_t id = 0; id < catalog_->size(); ++id) {
      if (catalog_->kind(FileId(id)) != Catalog::Kind::file) continue;
      const uint64_t size = catalog_->stamp(FileId(id)).size;
      for (uint64_t offset = 0; offset < size; offset += kLargestPiece) {
        pieces_.push_back({FileId(id), offset, std::min(kLargestPiece, size - offset)});
      }
    }
    if (pieces_.empty()) return Error{EINVAL, options_.source + " holds no file with bytes to read"};
    std::shuffle(pieces_.begin(), pieces_.end(), std::mt19937_64(1));
    return {};
  }

  Result<double> bandwidth(unsigned threads) {
    auto io = make_io_backend({options_.io, threads, "calibrate"}, log_);
    if (!io) return io.error();
    auto memory = buffers(threads, kLargestPiece);
    if (!memory) return memory.error();
    give_back_page_cache();
    size_t left = pieces_.size();  // each at most once: the second time it would come from memory
    const auto result =
        run_pump({threads, options_.time, options_.bytes}, clock_, [&](unsigned slot, PumpDone done) {
          if (left == 0) return false;
          --left;
          submit(**io, next(), memory->data() + slot * kLargestPiece, std::move(done));
          return true;
        });
    if (!result) return result.error();
    const Status read = check(*result);
    if (!read) return read.error();
    return result->mb_per_second();
  }

  // Median seconds of small files one after the other; 0 when there are none.
  Result<double> small_file_latency(uint64_t& largest) {
    auto io = make_io_backend({options_.io, 1, "calibrate"}, log_);
    if (!io) return io.error();
    auto memory = buffers(1, kLargestPiece);
    if (!memory) return memory.error();
    give_back_page_cache();
    std::vector<double> seconds;
    const TimePoint begin = clock_.now();
    for (const Piece& piece : pieces_) {
      if (seconds.size() == kMostSmallFiles || clock_.now() - begin > options_.time) break;
      if (piece.offset > 0 || piece.length > kSmallFile) continue;
      bool started = false;
      const auto result = run_pump({1, options_.time, UINT64_MAX}, clock_, [&](unsigned, PumpDone done) {
        if (std::exchange(started, true)) return false;
        submit(**io, piece, memory->data(), std::move(done));
        return true;
      });
      if (!result) return result.error();
      if (result->failed > 0) continue;
      seconds.push_back(result->seconds);
      largest = std::max(largest, piece.length);
    }
    if (seconds.empty()) return 0.0;
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2),
                     seconds.end());
    return seconds[seconds.size() / 2];
  }

 private:
  const Piece& next() {
    next_ = (next_ + 1) % pieces_.size();
    return pieces_[next_];
  }

  void submit(IoBackend& io, const Piece& piece, std::byte* memory, PumpDone done) const {
    FileRead read;
    read.directory_fd = directory_.get();
    read.path = catalog_->path(piece.file);
    read.offset = piece.offset;
    read.memory = {{memory, piece.length}};
    read.done = [done = std::move(done)](const Result<FileRead::Outcome>& outcome) {
      done(outcome ? Result<uint64_t>(outcome->bytes) : Result<uint64_t>(outcome.error()));
    };
    io.submit(std::move(read));
  }

  // Of the pieces that come next, as many as the byte limit allows to be read.
  void give_back_page_cache() const {
    uint64_t bytes = 0;
    for (size_t ahead = 0; ahead < pieces_.size() && bytes < options_.bytes; ++ahead) {
      const Piece& piece = pieces_[(next_ + 1 + ahead) % pieces_.size()];
      bytes += piece.length;
      const Fd fd(
          ::openat(directory_.get(), catalog_->path(piece.file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      if (fd) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
  }

  const CalibrationOptions& options_;
  std::shared_ptr<const Catalog> catalog_;
  const Clock& clock_;
  Logger& log_;
  Fd directory_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

// A file without a name in the NVMe directory.
class NvmeProbe {
 public:
  NvmeProbe(const CalibrationOptions& options, uint64_t piece, const Clock& clock, Logger& log)
      : options_(options), piece_(piece), clock_(clock), log_(log) {}

  Status open() {
    const Status made = make_file();
    if (!made) return made;
    struct statvfs space {};
    if (::fstatvfs(fd_.get(), &space) != 0)
      return system_error(errno, "look at the space of " + options_.nvme);
    // Half of what is free at most: the disk is somebody's.
    const uint64_t room = uint64_t{space.f_bavail} * space.f_frsize / 2;
    size_ = std::min(options_.bytes, room) / kWritePiece * kWritePiece;
    if (size_ < kLargestPiece) return system_error(ENOSPC, "measure in " + options_.nvme);
    return {};
  }

  bool cached() const { return !direct_; }

  Result<double> write_bandwidth(unsigned threads) {
    uint64_t offset = 0;
    auto rate = transfer(Transfer::Direction::write, threads, kWritePiece, [&]() -> std::optional<uint64_t> {
      if (offset == size_) return std::nullopt;
      return std::exchange(offset, offset + kWritePiece);
    });
    written_ = std::max(written_, offset);
    return rate;
  }

  // REQUIRES: something was written.
  Result<double> read_bandwidth(unsigned threads) {
    if (cached()) ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
    const uint64_t places = std::max<uint64_t>(written_ / piece_, 1);
    std::mt19937_64 random(threads);
    return transfer(Transfer::Direction::read, threads, piece_,
                    [&]() -> std::optional<uint64_t> { return random() % places * piece_; });
  }

 private:
  Status make_file() {
    for (const int direct : {O_DIRECT, 0}) {
      fd_.reset(::open(options_.nvme.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC | direct, 0600));
      if (!fd_ && (errno == EOPNOTSUPP || errno == EISDIR)) make_named_file(direct);
      direct_ = direct != 0;
      if (fd_) return {};
      if (errno != EINVAL) break;  // EINVAL: no O_DIRECT here
    }
    return system_error(errno, "make a file in " + options_.nvme);
  }

  // Where there is no O_TMPFILE: the name is gone before anything is written.
  void make_named_file(int direct) {
    std::string path = options_.nvme + "/.clairfs-calibrate-XXXXXX";
    fd_.reset(::mkostemp(path.data(), O_CLOEXEC | direct));
    const int failure = errno;
    if (fd_) ::unlink(path.c_str());
    errno = failure;
  }

  template <class NextOffset>
  Result<double> transfer(Transfer::Direction direction, unsigned threads, uint64_t piece,
                          NextOffset&& next_offset) {
    auto io = make_io_backend({options_.io, threads, "calibrate"}, log_);
    if (!io) return io.error();
    auto memory = buffers(threads, piece);
    if (!memory) return memory.error();
    const TimePoint begin = clock_.now();
    const auto result =
        run_pump({threads, options_.time, options_.bytes}, clock_, [&](unsigned slot, PumpDone done) {
          const std::optional<uint64_t> offset = next_offset();
          if (!offset) return false;
          (*io)->submit(Transfer{
              direction, fd_.get(), *offset, {{memory->data() + slot * piece, piece}}, std::move(done)});
          return true;
        });
    if (!result) return result.error();
    const Status done = check(*result);
    if (!done) return done.error();
    if (direction == Transfer::Direction::read) return result->mb_per_second();
    if (::fdatasync(fd_.get()) != 0) return system_error(errno, "write to " + options_.nvme);
    const double seconds = std::chrono::duration<double>(clock_.now() - begin).count();
    return static_cast<double>(result->bytes) / (1 << 20) / seconds;
  }

  const CalibrationOptions& options_;
  const uint64_t piece_;
  const Clock& clock_;
  Logger& log_;
  Fd fd_;
  bool direct_ = true;
  uint64_t size_ = 0;
  uint64_t written_ = 0;
};

Result<double> copy_bandwidth(unsigned threads) {
  auto memory = buffers(2 * threads, kMemoryBlock);
  if (!memory) return memory.error();
  std::atomic<uint64_t> bytes = 0;
  const auto begin = std::chrono::steady_clock::now();
  {
    std::vector<NamedThread> copiers;
    for (unsigned thread = 0; thread < threads; ++thread) {
      std::byte* block = memory->data() + 2 * thread * kMemoryBlock;
      copiers.emplace_back("calibrate", [&bytes, block, begin] {
        while (std::chrono::steady_clock::now() - begin < kMemoryTime) {
          std::memcpy(block, block + kMemoryBlock, kMemoryBlock);
          bytes += kMemoryBlock;
        }
      });
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return static_cast<double>(bytes.load()) / (1 << 20) / seconds;
}

class Calibrator {
 public:
  Calibrator(const CalibrationOptions& options, Logger& log, const CalibrationProgress& progress)
      : options_(options),
        log_(log),
        progress_(progress),
        counts_(thread_counts(std::max(options.most_threads, 1U))) {
    points_ = counts_.size() * (options.nvme.empty() ? 2 : 4) + 1;
  }

  Result<Calibration> run() {
    for (const auto step :
         {&Calibrator::measure_source, &Calibrator::measure_nvme, &Calibrator::measure_memory}) {
      const Status done = (this->*step)();
      if (!done) return done.error();
    }
    return std::move(out_);
  }

 private:
  template <class Measure>
  Status fill(const char* what, Measurements& table, Measure&& measure) {
    for (const unsigned threads : counts_) {
      tell(fmt::format("{} with {} in flight", what, threads));
      const Result<double> rate = measure(threads);
      if (!rate) return rate.error();
      table.emplace_back(threads, *rate);
    }
    return {};
  }

  void tell(const std::string& what) {
    if (progress_) progress_(what, static_cast<double>(point_++) / static_cast<double>(points_));
  }

  Status measure_source() {
    if (progress_) progress_("scanning " + options_.source, 0);
    auto catalog = scan_catalog(options_.source, ScanOptions(), log_);
    if (!catalog) return catalog.error();
    out_.files = (*catalog)->count(Catalog::Kind::file);
    if (out_.files > 0) {
      out_.mean_mb =
          static_cast<double>((*catalog)->total_bytes()) / (1 << 20) / static_cast<double>(out_.files);
    }
    SourceProbe probe(options_, *catalog, clock_, log_);
    const Status opened = probe.open();
    if (!opened) return opened;
    const auto mean = static_cast<uint64_t>(out_.mean_mb * (1 << 20));
    out_.read_bytes = std::clamp((mean + kPage - 1) / kPage * kPage, kPage, kLargestPiece);
    const Status filled =
        fill("source", out_.pfs, [&](unsigned threads) { return probe.bandwidth(threads); });
    if (!filled) return filled;
    tell("small files of the source");
    const auto latency = probe.small_file_latency(out_.small_bytes);
    if (!latency) return latency.error();
    out_.small_read_ms = *latency * 1000;
    return {};
  }

  Status measure_nvme() {
    if (options_.nvme.empty()) return {};
    NvmeProbe probe(options_, out_.read_bytes, clock_, log_);
    const Status opened = probe.open();
    if (!opened) return opened;
    const Status written = fill("writing NVMe", out_.nvme_write,
                                [&](unsigned threads) { return probe.write_bandwidth(threads); });
    if (!written) return written;
    out_.nvme_cached = probe.cached();
    return fill("reading NVMe", out_.nvme_read,
                [&](unsigned threads) { return probe.read_bandwidth(threads); });
  }

  Status measure_memory() { return fill("memory", out_.memory, copy_bandwidth); }

  const CalibrationOptions& options_;
  Logger& log_;
  const CalibrationProgress& progress_;
  const SteadyClock clock_;
  const std::vector<unsigned> counts_;
  size_t points_ = 0;
  size_t point_ = 0;
  Calibration out_;
};

std::string table_text(const Measurements& table) {
  std::string text;
  for (const auto& [threads, rate] : table)
    text += fmt::format("{}{} = {:.4g}", text.empty() ? "{" : ", ", threads, rate);
  return text + "}";
}

std::string nvme_section(const Calibration& c) {
  if (c.nvme_read.empty()) return "";
  return fmt::format(
      "\n[class.nvme]{}\ncapacity = \"100G\"          # yours to say\nthreads = {}\nread = {}  # MB/s, "
      "pieces of {} KiB\n"
      "write = {}\n",
      c.nvme_cached ? "  # its filesystem takes no O_DIRECT: part of this is memory" : "",
      c.nvme_read.back().first, table_text(c.nvme_read), c.read_bytes >> 10, table_text(c.nvme_write));
}

}  // namespace

Result<Calibration> calibrate(const CalibrationOptions& options, Logger& log,
                              const CalibrationProgress& progress) {
  return Calibrator(options, log, progress).run();
}

std::string calibration_scenario(const Calibration& c, const CalibrationOptions& options) {
  const unsigned threads = c.memory.back().first;
  std::string text = fmt::format(
      "# Measured by 'clairfs calibrate' on one node. What is marked '(not measured)' is yours to say.\n"
      "# {} files of {:.3f} MB on average",
      c.files, c.mean_mb);
  if (c.small_read_ms > 0) {
    text += fmt::format("; one of at most {} KiB is opened, read and closed in {:.3f} ms (median)",
                        (c.small_bytes + 1023) >> 10, c.small_read_ms);
  }
  text += fmt::format(
      ".\n\n[job]\nworkers = 1               # (not measured) nodes\nepochs = 10               # (not "
      "measured)\n"
      "batch = 256               # (not measured) of all workers together\ndrop_last = false\n"
      "sampler = \"torch.distributed\"\nseed = 0\n"
      "\n[samples]\nsize = \"path\"\npath = \"{}\"\n"
      "\n[worker]\ncompute = 100             # (not measured) MB/s that the training of a node consumes\n"
      "preprocess = 1000         # (not measured) MB/s that its loader's workers decode together\n"
      "network = 1000            # (not measured) MB/s between nodes\n"
      "pfs_network = {:.4g}      # MB/s: the most that was read from the source\n",
      options.source, std::max_element(c.pfs.begin(), c.pfs.end(), [](const auto& a, const auto& b) {
                        return a.second < b.second;
                      })->second);
  text += fmt::format(
      "\n[staging]\ncapacity = \"1G\"           # (not measured)\nthreads = {}\nread = {}  # MB/s, copying "
      "memory\n",
      threads, table_text(c.memory));
  text +=
      fmt::format("\n[class.ram]\ncapacity = \"4G\"           # (not measured)\nthreads = {}\nread = {}\n",
                  threads, table_text(c.memory));
  text += nvme_section(c);
  return text + fmt::format(
                    "\n[pfs]\nread = {}  # MB/s by reads in flight, opening and closing included\n"
                    "\n[model]\nreads = \"divided\"\npfs = \"per-reader\"\nfills = \"raw\"\ncomputing = "
                    "\"per-batch\"\norder = \"by-time\"\n",
                    table_text(c.pfs));
}

}  // namespace clairfs
