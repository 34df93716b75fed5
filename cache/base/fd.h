// Owners of a file descriptor and of a memory mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "cache/base/result.h"

namespace clairfs {

/// Owns one descriptor; -1 means none. Move-only.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

/// Reads all of `to` from `offset` on, or up to the end of the file: the bytes read. Errors: those of
/// pread(2); `what` says what was tried, and on which path.
Result<size_t> read_fully(int fd, std::span<std::byte> to, uint64_t offset, const std::string& what);

/// Writes all of `from`. Errors: those of pwrite(2), ENOSPC where it takes nothing more.
Status write_fully(int fd, std::span<const std::byte> from, uint64_t offset, const std::string& what);

/// Owns one mmap()ed range. Move-only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  /// Zeroed private memory of `size` bytes that costs nothing until touched (MAP_NORESERVE).
  /// Errors: ENOMEM.
  static Result<Mapping> anonymous(size_t size);

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }

 private:
  Mapping(void* data, size_t size) : data_(data), size_(size) {}
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace clairfs
