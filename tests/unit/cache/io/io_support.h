// What the tests of io backends and of the NVMe store share.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <spdlog/sinks/ostream_sink.h>
#include <sys/mount.h>

#include "cache/base/fd.h"
#include "cache/io/backend.h"

namespace clairfs::testing {

/// A directory that goes away with this object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "clairfs-test.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// A small tmpfs on an existing directory, unmounted at the end. Needs root.
class TmpfsMount {
 public:
  TmpfsMount(std::string path, unsigned long flags, const char* options)
      : path_(std::move(path)),
        mounted_(::mount("clairfs-test", path_.c_str(), "tmpfs", flags, options) == 0) {}
  TmpfsMount(const TmpfsMount&) = delete;
  TmpfsMount& operator=(const TmpfsMount&) = delete;
  ~TmpfsMount() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  const std::string path_;
  const bool mounted_;
};

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A logger whose lines can be looked at.
struct CapturedLog {
  std::ostringstream text;
  Logger log{"test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)};
  bool says(const std::string& part) const { return text.str().find(part) != std::string::npos; }
  size_t lines() const {
    const std::string all = text.str();
    return static_cast<size_t>(std::count(all.begin(), all.end(), '\n'));
  }
};

/// Page-aligned memory.
class Buffer {
 public:
  explicit Buffer(size_t size) : mapping_(std::move(Mapping::anonymous(size).value())) {}
  char* data() const { return reinterpret_cast<char*>(mapping_.data()); }
  size_t size() const { return mapping_.size(); }
  iovec whole() const { return {data(), size()}; }
  std::string text(size_t length) const { return {data(), length}; }

 private:
  Mapping mapping_;
};

/// Makes an asynchronous call wait: pass `callback()` and then take `get()`.
template <class T>
class Waiter {
 public:
  std::function<void(T)> callback() {
    return [this](T result) { promise_.set_value(std::move(result)); };
  }
  T get() { return promise_.get_future().get(); }

 private:
  std::promise<T> promise_;
};

inline Result<uint64_t> transfer(IoBackend& io, Transfer::Direction direction, int fd, uint64_t offset,
                                 std::vector<iovec> memory) {
  Waiter<Result<uint64_t>> waiter;
  Transfer request;
  request.direction = direction;
  request.fd = fd;
  request.offset = offset;
  request.memory = std::move(memory);
  request.done = waiter.callback();
  io.submit(std::move(request));
  return waiter.get();
}

inline Result<FileRead::Outcome> read_whole(IoBackend& io, int directory, const std::string& path,
                                            uint64_t offset, std::vector<iovec> memory, bool local = false) {
  Waiter<Result<FileRead::Outcome>> waiter;
  FileRead request;
  request.directory_fd = directory;
  request.path = path;
  request.offset = offset;
  request.memory = std::move(memory);
  request.local = local;
  request.done = waiter.callback();
  io.submit(std::move(request));
  return waiter.get();
}

}  // namespace clairfs::testing
