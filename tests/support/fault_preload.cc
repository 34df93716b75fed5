// LD_PRELOAD for faults that nothing below a process can be made to have here: I/O errors of the files of the
// NVMe store, a wall clock that jumps, and a node that sends wrong bytes to the others of its job. It reaches
// what goes through libc, so not io_uring.
//
// $CLAIRFS_FAULTS names a file that both sides map; see struct Faults, and tests/faults/preload.py. Where
// $CLAIRFS_FAULTS_HANG is set, only what is open by a path that has it as a part hangs.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/mount.h>
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
  std::atomic<int64_t> node;           ///< the rank that has the faults, counted from 1; 0: all have them
  std::atomic<int64_t> wrong_bulk;  ///< a bit is flipped in every so-manieth transfer of a chunk; 0: in none
  std::atomic<int64_t> wrong_message;  ///< and in every so-manieth message to another node
  std::atomic<int64_t> write_hang;  ///< seconds that a write of a segment takes longer, until it is 0 again
  std::atomic<int64_t> die_unmounting;  ///< the process is killed when it unmounts anything
  std::atomic<int64_t> read_hang;       ///< as write_hang, for reads
};

/// Of this process, as its launcher numbers it; taken when the library is loaded, since clairfs clears it
/// away.
const int64_t rank = [] {
  const char* const text = std::getenv("PMI_RANK");
  return text == nullptr ? -1 : std::atoll(text);
}();

bool has_faults(const Faults& faults) {
  const int64_t node = faults.node.load();
  return node == 0 || node == rank + 1;
}

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

/// A function of MPI under the name that nobody interposes. MPI is loaded later than this library.
template <class Function>
Function* mpi(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
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
  if (error == 0 || !has_faults(*faults()) || !is_open_as(fd, part)) return false;
  faults()->hits.fetch_add(1);
  errno = static_cast<int>(error);
  return true;
}

void hang(const std::atomic<int64_t>& seconds, int fd) {
  static const char* const part = std::getenv("CLAIRFS_FAULTS_HANG");
  int64_t hundredths = 100 * seconds.load();
  if (hundredths == 0 || !has_faults(*faults()) || !is_open_as(fd, "/segment-")) return;
  if (part != nullptr && !is_open_as(fd, part)) return;
  faults()->hits.fetch_add(1);
  for (; hundredths > 0 && seconds.load() != 0; --hundredths) ::usleep(10'000);
}

// Of bulk transfers; messages have small ones (net/mpi/bulk.h).
constexpr int kLeastBulkTag = 1 << 26;

/// Whether it is this send's turn.
bool goes_wrong(int tag) {
  static std::atomic<int64_t> bulk{0};
  static std::atomic<int64_t> messages{0};
  const bool is_bulk = tag >= kLeastBulkTag;
  const int64_t every = (is_bulk ? faults()->wrong_bulk : faults()->wrong_message).load();
  return every != 0 && has_faults(*faults()) && (is_bulk ? bulk : messages).fetch_add(1) % every == 0;
}

}  // namespace

extern "C" {

// A copy is sent with one bit flipped. It is never freed: MPI reads it until the send is over.
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  static auto* const real = mpi<decltype(MPI_Isend)>("PMPI_Isend");
  if (!goes_wrong(tag)) return real(data, count, type, to, tag, comm, request);
  int size = 0;
  mpi<decltype(MPI_Pack_size)>("PMPI_Pack_size")(count, type, comm, &size);
  auto* const copy = new std::vector<char>(static_cast<size_t>(size));
  int packed = 0;
  mpi<decltype(MPI_Pack)>("PMPI_Pack")(data, count, type, copy->data(), size, &packed, comm);
  if (packed > 0) {
    static std::mt19937 random(1);  // one thread speaks MPI
    (*copy)[random() % static_cast<size_t>(packed)] ^= static_cast<char>(1U << random() % 8);
    faults()->hits.fetch_add(1);
  }
  return real(copy->data(), packed, MPI_BYTE, to, tag, comm, request);
}

ssize_t preadv64(int fd, const iovec* pieces, int count, off64_t offset) {
  static auto* const real = next<decltype(preadv64)>("preadv64");
  hang(faults()->read_hang, fd);
  return fails(faults()->read_errno, fd, "/segment-") ? -1 : real(fd, pieces, count, offset);
}

ssize_t pwritev64(int fd, const iovec* pieces, int count, off64_t offset) {
  static auto* const real = next<decltype(pwritev64)>("pwritev64");
  hang(faults()->write_hang, fd);
  return fails(faults()->write_errno, fd, "/segment-") ? -1 : real(fd, pieces, count, offset);
}

int umount2(const char* point, int flags) noexcept {
  static auto* const real = next<decltype(umount2)>("umount2");
  if (faults()->die_unmounting.load() != 0) ::raise(SIGKILL);
  return real(point, flags);
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
