// A plain reader for the benchmarks, so that an interpreter's costs do not count.
//
//   bench_reader files ROOT LIST... [--batch N [--compute-us U | --compute-rate B] [--workers W]]
//       [--barrier FILE --readers N] [--sum] [--begin S]
//       open+read+close of the files of each LIST (names below ROOT, one per line; a LIST is an epoch). After
//       every batch it sleeps, in the place of a training step: for a given time, or as long as its bytes
//       take at B bytes/s (without workers only). With workers the batches are read ahead as PyTorch's
//       DataLoader does it: batch b by worker b mod W, two batches in flight for each worker, anew in each
//       epoch. With a barrier no reader begins a batch before all N have ended the one before, as gradients
//       are exchanged; FILE begins with eight bytes 0.
//   bench_reader streams ROOT LIST... [--block B] [--compute-rate B] [--sum] [--begin S]
//       the files of each LIST one after the other, from front to back, 10,240 bytes a read as tarfile does,
//       or B: 262,144 as TensorFlow's TFRecordDataset does (core/kernels/data/tf_record_dataset_op.cc). After
//       every MiB it sleeps as long as its bytes take at B bytes/s; waits are those of a MiB each.
//   bench_reader records FILE HOW LIST... [--ahead N] [as files]
//       the records of one file, "OFFSET LENGTH" a line of each LIST: HOW is pread, mmap, or random (a
//       mapping with MADV_RANDOM), which are copied, or coalesced: 64 MiB a read, of which records are
//       copied until one lies elsewhere (with one worker at most). With --ahead the kernel is advised of the
//       records up to N ahead (WILLNEED).
//   bench_reader seq FILE... [--begin S]             sequential, 1 MiB reads
//   bench_reader mmap FILE PAGES SEED [--begin S]    touches random pages of a mapping
//   bench_reader stat ROOT LIST [--begin S]          stat() of each file
//   bench_reader drop ROOT LIST                      drops the files' pages from the page cache
//
// --begin S: all but drop wait until CLOCK_MONOTONIC is S seconds, so that several readers begin together.
//
// Prints one line of JSON for each epoch or file: begin (CLOCK_MONOTONIC), seconds, files, bytes,
// compute_seconds, sum (if asked for: the same for the same bytes, whatever the order of the files), waits
// and computes (seconds of each batch), and of records the process's major faults and voluntary context
// switches.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
using Names = std::vector<std::string>;

constexpr size_t kBlock = 1 << 20;
constexpr size_t kTarBlock = 10'240;
constexpr size_t kCoalesced = 64 << 20;                // many batches, and little beside the memory of a node
constexpr uint64_t kPrefetchFactor = 2;                // DataLoader's default
constexpr std::chrono::microseconds kBarrierPoll(50);  // little beside a batch, which takes milliseconds

struct Totals;
/// Reads sample i of a list.
using ReadSample =
    std::function<void(const Names& names, size_t i, std::vector<char>& buffer, bool sum, Totals& totals)>;

struct Options {
  ReadSample read;
  size_t batch = 0;
  size_t ahead = 0;
  size_t block = kTarBlock;
  size_t workers = 0;
  std::chrono::microseconds compute{0};
  uint64_t compute_rate = 0;  // bytes/s
  bool sum = false;
  std::string barrier;
  uint64_t readers = 1;
  Clock::time_point begin;
};

struct Totals {
  double begin = 0;
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t sum = 0;
  double seconds = 0;
  double compute_seconds = 0;
  uint64_t faults = 0;
  uint64_t switches = 0;
  std::vector<double> waits;
  std::vector<double> computes;
};

double on_clock(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "bench_reader: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(EXIT_FAILURE);
}

int open_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path);
  return fd;
}

// Position counts, so that exchanged pages change it; the order of files does not.
uint64_t sum_of(const char* data, size_t size, uint64_t offset) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size; ++i) sum += (offset + i + 1) * static_cast<unsigned char>(data[i]);
  return sum;
}

void read_file(const std::string& path, std::vector<char>& buffer, bool sum, Totals& totals) {
  const int fd = open_file(path);
  uint64_t offset = 0;
  for (;;) {
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size < 0) fail(path);
    if (size == 0) break;
    if (sum) totals.sum += sum_of(buffer.data(), static_cast<size_t>(size), offset);
    offset += static_cast<uint64_t>(size);
  }
  ::close(fd);
  totals.bytes += offset;
  ++totals.files;
}

void read_batch(const Names& names, size_t index, const Options& options, std::vector<char>& buffer,
                Totals& totals) {
  const size_t end = std::min(names.size(), (index + 1) * options.batch);
  for (size_t i = index * options.batch; i < end; ++i) options.read(names, i, buffer, options.sum, totals);
}

// The workers of one epoch.
class Loader {
 public:
  Loader(const Names& names, const Options& options, size_t batches)
      : names_(names), options_(options), done_(batches) {
    for (size_t w = 0; w < options.workers; ++w) threads_.emplace_back([this, w] { work(w); });
  }
  void wait_for(size_t batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_[batch]; });
    consumed_ = batch + 1;
    changed_.notify_all();
  }
  void finish(Totals& totals) {
    for (std::thread& thread : threads_) thread.join();
    totals.files += totals_.files;
    totals.bytes += totals_.bytes;
    totals.sum += totals_.sum;
  }

 private:
  void work(size_t worker) {
    std::vector<char> buffer(kBlock);
    Totals mine;
    for (size_t b = worker; b < done_.size(); b += options_.workers) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return b < consumed_ + kPrefetchFactor * options_.workers; });
      }
      read_batch(names_, b, options_, buffer, mine);
      const std::lock_guard lock(mutex_);
      done_[b] = true;
      changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    totals_.files += mine.files;
    totals_.bytes += mine.bytes;
    totals_.sum += mine.sum;
  }

  const Names& names_;
  const Options& options_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<bool> done_;
  size_t consumed_ = 0;
  Totals totals_;
  std::vector<std::thread> threads_;
};

// Where the readers of a job wait for each other: a count of arrivals in a file that all of them map.
class Barrier {
 public:
  explicit Barrier(const Options& options) : readers_(options.readers) {
    if (options.barrier.empty()) return;
    const int fd = ::open(options.barrier.c_str(), O_RDWR | O_CLOEXEC);
    void* memory =
        fd < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) fail(options.barrier);
    ::close(fd);
    arrived_ = static_cast<uint64_t*>(memory);  // until the program ends
  }
  void arrive_and_wait() const {
    if (arrived_ == nullptr) return;
    std::atomic_ref<uint64_t> arrived(*arrived_);
    const uint64_t all = (arrived.fetch_add(1) / readers_ + 1) * readers_;
    while (arrived.load() < all) std::this_thread::sleep_for(kBarrierPoll);
  }

 private:
  const uint64_t readers_;
  uint64_t* arrived_ = nullptr;
};

Totals read_epoch(const Names& names, const Options& options, const Barrier& barrier,
                  std::vector<char>& buffer) {
  Totals totals;
  const auto begin = Clock::now();
  const size_t batches = (names.size() + options.batch - 1) / options.batch;
  Loader loader(names, options, batches);
  for (size_t b = 0; b < batches; ++b) {
    const auto asked = Clock::now();
    const uint64_t bytes_before = totals.bytes;
    if (options.workers > 0) {
      loader.wait_for(b);
    } else {
      read_batch(names, b, options, buffer, totals);
    }
    totals.waits.push_back(since(asked));
    std::chrono::duration<double> compute = options.compute;
    if (options.compute_rate > 0) {
      compute = std::chrono::duration<double>(static_cast<double>(totals.bytes - bytes_before) /
                                              static_cast<double>(options.compute_rate));
    }
    if (compute.count() > 0) {
      const auto step = Clock::now();
      std::this_thread::sleep_for(compute);
      totals.compute_seconds += since(step);
      totals.computes.push_back(since(step));
    }
    barrier.arrive_and_wait();
  }
  loader.finish(totals);
  totals.begin = on_clock(begin);
  totals.seconds = since(begin);
  return totals;
}

Totals read_streams(const Names& names, const Options& options) {
  Totals totals;
  std::vector<char> buffer(options.block);
  const auto begin = Clock::now();
  auto asked = begin;
  uint64_t since_pause = 0;
  const auto pause = [&] {
    totals.waits.push_back(since(asked));
    if (options.compute_rate > 0) {
      const auto step = Clock::now();
      std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(since_pause) /
                                                                static_cast<double>(options.compute_rate)));
      totals.compute_seconds += since(step);
    }
    since_pause = 0;
    asked = Clock::now();
  };
  for (const std::string& name : names) {
    const int fd = open_file(name);
    uint64_t offset = 0;
    for (;;) {
      const ssize_t size = ::read(fd, buffer.data(), buffer.size());
      if (size < 0) fail(name);
      if (size == 0) break;
      if (options.sum) totals.sum += sum_of(buffer.data(), static_cast<size_t>(size), offset);
      offset += static_cast<uint64_t>(size);
      since_pause += static_cast<uint64_t>(size);
      if (since_pause >= kBlock) pause();
    }
    ::close(fd);
    totals.bytes += offset;
    ++totals.files;
  }
  pause();
  totals.begin = on_clock(begin);
  totals.seconds = since(begin);
  return totals;
}

Totals read_sequentially(const std::string& path, const Options& options) {
  Totals totals;
  std::vector<char> buffer(kBlock);
  std::this_thread::sleep_until(options.begin);
  const auto begin = Clock::now();
  read_file(path, buffer, false, totals);
  totals.begin = on_clock(begin);
  totals.seconds = since(begin);
  return totals;
}

Totals touch_pages(const std::string& path, uint64_t pages, uint64_t seed, const Options& options) {
  constexpr size_t kPage = 4096;
  const int fd = open_file(path);
  struct stat st {};
  if (::fstat(fd, &st) != 0) fail(path);
  const auto size = static_cast<size_t>(st.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail(path);
  std::mt19937_64 random(seed);
  Totals totals;
  std::this_thread::sleep_until(options.begin);
  const auto begin = Clock::now();
  for (uint64_t i = 0; i < pages; ++i) {
    totals.sum += static_cast<const volatile unsigned char*>(memory)[random() % (size / kPage) * kPage];
  }
  totals.begin = on_clock(begin);
  totals.seconds = since(begin);
  totals.files = pages;
  totals.bytes = pages * kPage;
  ::munmap(memory, size);
  ::close(fd);
  return totals;
}

Totals stat_files(const Names& names, const Options& options) {
  Totals totals;
  std::this_thread::sleep_until(options.begin);
  const auto begin = Clock::now();
  for (const std::string& name : names) {
    struct stat st {};
    if (::stat(name.c_str(), &st) != 0) fail(name);
    totals.bytes += static_cast<uint64_t>(st.st_size);
    ++totals.files;
  }
  totals.begin = on_clock(begin);
  totals.seconds = since(begin);
  return totals;
}

Totals drop_pages(const Names& names) {
  Totals totals;
  for (const std::string& name : names) {
    const int fd = open_file(name);
    ::fdatasync(fd);  // dirty pages would stay; a filesystem without it has none
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    ++totals.files;
  }
  return totals;
}

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

void print(const Totals& totals) {
  std::printf(
      R"({"begin": %.6f, "seconds": %.6f, "files": %llu, "bytes": %llu, "compute_seconds": %.6f, "sum": "%llx", )"
      "\"faults\": %llu, \"switches\": %llu, \"waits\": %s, \"computes\": %s}\n",
      totals.begin, totals.seconds, static_cast<unsigned long long>(totals.files),
      static_cast<unsigned long long>(totals.bytes), totals.compute_seconds,
      static_cast<unsigned long long>(totals.sum), static_cast<unsigned long long>(totals.faults),
      static_cast<unsigned long long>(totals.switches), list(totals.waits).c_str(),
      list(totals.computes).c_str());
  std::fflush(stdout);
}

Names names_of(const std::string& root, const std::string& list) {
  std::ifstream in(list);
  if (!in) fail(list);
  Names names;
  for (std::string line; std::getline(in, line);) names.push_back(std::string(root).append("/").append(line));
  return names;
}

int read_files(const Names& arguments, Options options) {
  options.read = [](const Names& names, size_t i, std::vector<char>& buffer, bool sum, Totals& totals) {
    read_file(names[i], buffer, sum, totals);
  };
  std::vector<Names> epochs;
  for (size_t i = 1; i < arguments.size(); ++i) epochs.push_back(names_of(arguments[0], arguments[i]));
  std::vector<char> buffer(kBlock);
  const Barrier barrier(options);
  std::this_thread::sleep_until(options.begin);
  for (const Names& names : epochs) {
    Options epoch = options;
    if (epoch.batch == 0) epoch.batch = std::max<size_t>(names.size(), 1);
    print(read_epoch(names, epoch, barrier, buffer));
  }
  return EXIT_SUCCESS;
}

/// Of one file, read in one of several ways.
class Records {
 public:
  Records(const std::string& path, std::string how, size_t ahead)
      : path_(path), how_(std::move(how)), ahead_(ahead), fd_(open_file(path)) {
    struct stat st {};
    if (::fstat(fd_, &st) != 0) fail(path);
    if (how_ == "pread" || how_ == "coalesced") return;
    const auto size = static_cast<size_t>(st.st_size);
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_, 0);  // until the program ends
    if (memory == MAP_FAILED) fail(path);
    if (how_ == "random") ::madvise(memory, size, MADV_RANDOM);
    mapped_ = static_cast<const char*>(memory);
  }

  void read(const Names& lines, size_t i, std::vector<char>& buffer, bool sum, Totals& totals) {
    if (ahead_ > 0) advise(lines, i);
    const auto [offset, length] = range_of(lines[i]);
    buffer.resize(std::max(buffer.size(), length));
    if (mapped_ != nullptr) {
      std::memcpy(buffer.data(), mapped_ + offset, length);
    } else if (how_ == "coalesced") {
      std::memcpy(buffer.data(), coalesced(offset, length), length);
    } else if (::pread(fd_, buffer.data(), length, static_cast<off_t>(offset)) !=
               static_cast<ssize_t>(length)) {
      fail(path_);
    }
    if (sum) totals.sum += sum_of(buffer.data(), length, offset);
    totals.bytes += length;
    ++totals.files;
  }

 private:
  static std::pair<size_t, size_t> range_of(const std::string& line) {
    char* rest = nullptr;
    const size_t offset = std::strtoull(line.c_str(), &rest, 10);
    return {offset, std::strtoull(rest, nullptr, 10)};
  }
  // In the piece that was read last, or in one that begins with it.
  const char* coalesced(size_t offset, size_t length) {
    if (offset < piece_at_ || offset + length > piece_at_ + piece_.size()) {
      piece_.resize(std::max(kCoalesced, length));
      piece_at_ = offset;
      size_t filled = 0;
      ssize_t size = 1;
      for (; size > 0 && filled < piece_.size(); filled += static_cast<size_t>(size)) {
        const auto at = static_cast<off_t>(offset + filled);
        size = ::pread(fd_, piece_.data() + filled, piece_.size() - filled, at);
        if (size < 0) fail(path_);
      }
      piece_.resize(filled);
      if (filled < length) fail(path_);
    }
    return piece_.data() + (offset - piece_at_);
  }
  // At the first the whole window, then what comes into it.
  void advise(const Names& lines, size_t i) const {
    for (size_t next = i == 0 ? 0 : i + ahead_; next <= i + ahead_ && next < lines.size(); ++next) {
      const auto [offset, length] = range_of(lines[next]);
      ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_WILLNEED);
    }
  }

  const std::string path_;
  const std::string how_;
  const size_t ahead_;
  const int fd_;
  const char* mapped_ = nullptr;
  std::vector<char> piece_;
  size_t piece_at_ = 0;
};

Names lines_of(const std::string& list) {
  std::ifstream in(list);
  if (!in) fail(list);
  Names lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

int read_records(const Names& arguments, Options options) {
  Records records(arguments[0], arguments[1], options.ahead);
  options.read = [&records](const Names& lines, size_t i, std::vector<char>& buffer, bool sum,
                            Totals& totals) { records.read(lines, i, buffer, sum, totals); };
  std::vector<Names> epochs;
  for (size_t i = 2; i < arguments.size(); ++i) epochs.push_back(lines_of(arguments[i]));
  std::vector<char> buffer(kBlock);
  const Barrier barrier(options);
  std::this_thread::sleep_until(options.begin);
  for (const Names& lines : epochs) {
    Options epoch = options;
    if (epoch.batch == 0) epoch.batch = std::max<size_t>(lines.size(), 1);
    rusage before{};
    rusage after{};
    ::getrusage(RUSAGE_SELF, &before);
    Totals totals = read_epoch(lines, epoch, barrier, buffer);
    ::getrusage(RUSAGE_SELF, &after);
    totals.faults = static_cast<uint64_t>(after.ru_majflt - before.ru_majflt);
    totals.switches = static_cast<uint64_t>(after.ru_nvcsw - before.ru_nvcsw);
    print(totals);
  }
  return EXIT_SUCCESS;
}

int read_epochs_of_streams(const Names& arguments, const Options& options) {
  std::this_thread::sleep_until(options.begin);
  for (size_t i = 1; i < arguments.size(); ++i)
    print(read_streams(names_of(arguments[0], arguments[i]), options));
  return EXIT_SUCCESS;
}

int usage() {
  std::cerr << "usage: bench_reader files ROOT LIST... [--batch N] [--compute-us U | --compute-rate B] "
               "[--workers W]\n"
               "                    [--barrier FILE --readers N] [--sum] [--begin S]\n"
               "       bench_reader records FILE pread|mmap|random|coalesced LIST... [--ahead N] [as files]\n"
               "       bench_reader streams ROOT LIST... [--block B] [--compute-rate B] [--sum] [--begin S]\n"
               "       bench_reader seq FILE... [--begin S] | mmap FILE PAGES SEED [--begin S]\n"
               "       bench_reader stat ROOT LIST [--begin S] | drop ROOT LIST\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Names words;
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&]() -> uint64_t {
      return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0;
    };
    if (word == "--batch") {
      options.batch = number();
    } else if (word == "--ahead") {
      options.ahead = number();
    } else if (word == "--block") {
      options.block = std::max<uint64_t>(number(), 1);
    } else if (word == "--workers") {
      options.workers = number();
    } else if (word == "--compute-us") {
      options.compute = std::chrono::microseconds(number());
    } else if (word == "--compute-rate") {
      options.compute_rate = number();
    } else if (word == "--barrier") {
      options.barrier = i + 1 < argc ? argv[++i] : "";
    } else if (word == "--readers") {
      options.readers = std::max<uint64_t>(number(), 1);
    } else if (word == "--begin") {
      const double seconds = i + 1 < argc ? std::strtod(argv[++i], nullptr) : 0;
      options.begin = Clock::time_point(
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
    } else if (word == "--sum") {
      options.sum = true;
    } else {
      words.push_back(word);
    }
  }
  if (words.size() < 2) return usage();
  const std::string mode = words[0];
  words.erase(words.begin());
  if (mode == "files" && words.size() > 1) return read_files(words, options);
  if (mode == "records" && words.size() > 2) return read_records(words, options);
  if (mode == "streams" && words.size() > 1) return read_epochs_of_streams(words, options);
  if (mode == "seq") {
    for (const std::string& file : words) print(read_sequentially(file, options));
  } else if (mode == "mmap" && words.size() == 3) {
    const auto number = [&](size_t i) { return std::strtoull(words[i].c_str(), nullptr, 10); };
    print(touch_pages(words[0], number(1), number(2), options));
  } else if (mode == "stat" && words.size() == 2) {
    print(stat_files(names_of(words[0], words[1]), options));
  } else if (mode == "drop" && words.size() == 2) {
    print(drop_pages(names_of(words[0], words[1])));
  } else {
    return usage();
  }
  return EXIT_SUCCESS;
}
