// Both io backends on the work that the cache gives them: whole small files from a warm page cache, and
// chunks of the NVMe store with O_DIRECT. Items/s are files or chunks.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spdlog/sinks/null_sink.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/io/backend.h"

namespace clairfs {
namespace {

constexpr size_t kFiles = 2000;
constexpr size_t kFileSize = 110'000;  // a JPEG of ImageNet
constexpr uint64_t kLargeFile = 1ULL << 30;

/// Files below a directory of its own, removed at the end. BENCH_DIR chooses where (default: .).
class Dataset {
 public:
  Dataset() : path_((std::filesystem::path(base()) / ("io_bench." + std::to_string(::getpid()))).string()) {
    std::filesystem::create_directory(path_);
    const std::string content(kFileSize, 'x');
    for (size_t i = 0; i < kFiles; ++i) std::ofstream(path_ + "/" + std::to_string(i)) << content;
    std::ofstream large(path_ + "/large");
    const std::string block(1 << 20, 'y');
    for (uint64_t i = 0; i < kLargeFile; i += block.size()) large << block;
    large.close();
    const Fd synced(::open((path_ + "/large").c_str(), O_RDONLY | O_CLOEXEC));
    ::fdatasync(synced.get());
  }
  ~Dataset() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  static const char* base() {
    const char* chosen = std::getenv("BENCH_DIR");
    return chosen != nullptr ? chosen : ".";
  }
  std::string path_;
};

const Dataset& dataset() {
  static const Dataset set;
  return set;
}

std::unique_ptr<IoBackend> backend(benchmark::State& state, const IoOptions& options) {
  static Logger log("bench", std::make_shared<spdlog::sinks::null_sink_mt>());
  auto made = make_io_backend(options, log);
  if (!made) {
    state.SkipWithError(made.error().message.c_str());
    return nullptr;
  }
  return std::move(*made);
}

IoOptions options_of(benchmark::State& state) {
  IoOptions options;
  options.kind = state.range(0) == 0 ? IoKind::threads : IoKind::uring;
  state.SetLabel(state.range(0) == 0 ? "threads" : "uring");
  return options;
}

/// Keeps `parallel` requests on their way, each in a buffer of its own.
template <class Submit>
void keep_busy(benchmark::State& state, unsigned parallel, size_t buffer_size, Submit submit) {
  auto memory = Mapping::anonymous(parallel * buffer_size);
  std::vector<std::unique_ptr<std::binary_semaphore>> free;
  for (unsigned i = 0; i < parallel; ++i) free.push_back(std::make_unique<std::binary_semaphore>(1));
  size_t n = 0;
  for (auto _ : state) {
    const size_t slot = n % parallel;
    free[slot]->acquire();
    submit(n++, iovec{memory->data() + slot * buffer_size, buffer_size},
           [&free, slot] { free[slot]->release(); });
  }
  for (auto& f : free) f->acquire();
  state.SetItemsProcessed(static_cast<int64_t>(n));
  state.SetBytesProcessed(static_cast<int64_t>(n * buffer_size));
}

void warm_files(benchmark::State& state) {
  const Fd directory(::open(dataset().path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto io = backend(state, options_of(state));
  if (!io) return;
  keep_busy(state, static_cast<unsigned>(state.range(1)), kFileSize,
            [&](size_t n, iovec memory, auto release) {
              FileRead read;
              read.directory_fd = directory.get();
              read.path = std::to_string(n * 997 % kFiles);
              read.memory = {memory};
              read.done = [release](const Result<FileRead::Outcome>& outcome) {
                if (!outcome || outcome->bytes != kFileSize) std::abort();
                release();
              };
              io->submit(std::move(read));
            });
}
BENCHMARK(warm_files)->ArgNames({"uring", "parallel"})->ArgsProduct({{0, 1}, {1, 16}})->UseRealTime();

void direct_chunks(benchmark::State& state) {
  const Fd file(::open((dataset().path() + "/large").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!file) return state.SkipWithError("no O_DIRECT here");
  const auto io = backend(state, options_of(state));
  if (!io) return;
  const auto size = static_cast<size_t>(state.range(2)) << 10;
  const uint64_t chunks = kLargeFile / size;
  keep_busy(state, static_cast<unsigned>(state.range(1)), size, [&](size_t n, iovec memory, auto release) {
    Transfer read;
    read.fd = file.get();
    read.offset = n * 997 % chunks * size;
    read.memory = {memory};
    read.done = [release, size](const Result<uint64_t>& bytes) {
      if (!bytes || *bytes != size) std::abort();
      release();
    };
    io->submit(std::move(read));
  });
}
BENCHMARK(direct_chunks)
    ->ArgNames({"uring", "parallel", "KiB"})
    ->ArgsProduct({{0, 1}, {1, 16}, {112, 4096}})
    ->UseRealTime();

}  // namespace
}  // namespace clairfs

BENCHMARK_MAIN();
