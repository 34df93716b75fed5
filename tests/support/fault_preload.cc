// LD_PRELOAD for faults that nothing below a process can be made to have here: I/O errors of the files of the
// NVMe store, and a wall clock that jumps. It reaches what goes through libc, so not io_uring.
//
// $CLAIRFS_FAULTS names a file that both sides map; see struct Faults, and tests/faults/preload.py.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

struct Faults {
  std::atomic<int64_t> read_errno;     ///< what reads of a segment fail with; 0: they do not
  std::atomic<int64_t> write_errno;    ///< the same for writes
  std::atomic<int64_t> index_errno;    ///< and for writes of the index
  std::atomic<int64_t> clock_seconds;  ///< added to the wall clock
  std::atomic<int64_t> hits;           ///< calls that failed
};

Faults* faults() {
  static Faults* const mapped = [] {
    static Faults none{};
    const char* path = std::getenv("CLAIRFS_FAULTS");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return &none;
    void* memory = ::mmap(nullptr, sizeof(Faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    return memory == MAP_FAILED ? &none : static_cast<Faults*>(memory);
  }();
  return mapped;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool is_open_as(int fd, const char* part) {
  char path[4096];
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = 0;
  return std::strstr(path, part) != nullptr;
}

bool fails(const std::atomic<int64_t>& code, int fd, const char* part) {
  const int64_t error = code.load();
  if (error == 0 || !is_open_as(fd, part)) return false;
  faults()->hits.fetch_add(1);
  errno = static_cast<int>(error);
  return true;
}

}  // namespace

extern "C" {

ssize_t preadv64(int fd, const iovec* pieces, int count, off64_t offset) {
  static auto* const real = next<decltype(preadv64)>("preadv64");
  return fails(faults()->read_errno, fd, "/segment-") ? -1 : real(fd, pieces, count, offset);
}

ssize_t pwritev64(int fd, const iovec* pieces, int count, off64_t offset) {
  static auto* const real = next<decltype(pwritev64)>("pwritev64");
  return fails(faults()->write_errno, fd, "/segment-") ? -1 : real(fd, pieces, count, offset);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  static auto* const real = next<decltype(pwrite64)>("pwrite64");
  return fails(faults()->index_errno, fd, "/index") ? -1 : real(fd, data, size, offset);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += faults()->clock_seconds.load();
  return result;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *out = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

}  // extern "C"
