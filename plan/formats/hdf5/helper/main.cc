// clairfs-hdf5-index SIZE DATASET...: asks libhdf5 where the rows of an HDF5 file's datasets are. Started by
// hdf5/index_process.cc with a socket for its standard input; protocol.h says what goes over it.
//
// The file is nowhere on this side. libhdf5 gets an empty one of its size to open, and calls pread() for its
// bytes: ours, since the functions of a program come before those of libraries. Ours asks for them.
//
// Where a chunk is stored is asked in a way that takes the time of a lookup. H5Dget_chunk_info_by_coord()
// goes through all chunks up to the one that is wanted (1.10.8: 5 ms at number 99,000), and H5Dchunk_iter()
// is not in 1.10.8. But H5Dread_chunk() looks the chunk up in the file's index and calls pread() for as many
// bytes as are stored, where they are: a pread() into nowhere_to_read is taken down, and reads nothing.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/formats/hdf5/helper/library.h"
#include "plan/formats/hdf5/helper/lockdown.h"
#include "plan/formats/hdf5/protocol.h"

namespace clairfs::hdf5 {
namespace {

constexpr int kSocket = 0;
// From the root on, since libhdf5 2.x crashes where it cannot ask for the working directory.
constexpr char kFileName[] = "/the file";
// libhdf5's caches of a file's index grow to 32 MiB; the rest is for object headers.
constexpr rlim_t kMostMemory = 1 << 30;
constexpr rlim_t kMostSeconds = 300;
// A chunk is smaller before HDF5 2.0, and nobody makes larger ones.
constexpr size_t kMostChunk = size_t{1} << 32;
constexpr int kMostRank = 32;  // H5S_MAX_RANK
constexpr int kDeepestType = 16;

int served_file = -1;
bool was_read = false;
char* nowhere_to_read = nullptr;  // kMostChunk bytes of address space, without memory
StoredChunk noted;                // what was to be read into it; length 0: nothing
bool noted_well = true;           // in pieces that follow one another

void send_all(const void* from, size_t bytes) {
  const char* rest = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(kSocket, rest, bytes, MSG_NOSIGNAL);
    if (sent <= 0) std::_Exit(1);  // nobody listens
    rest += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void receive_all(void* to, size_t bytes) {
  if (bytes != 0 && ::recv(kSocket, to, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) std::_Exit(1);
}

void say(Say what, const void* from, size_t bytes) {
  const FrameHead head{static_cast<uint32_t>(what), static_cast<uint32_t>(bytes)};
  send_all(&head, sizeof head);
  send_all(from, bytes);
}

[[noreturn]] void refuse(const std::string& why) {
  say(Say::refused, why.data(), why.size());
  std::_Exit(0);
}

bool lies_nowhere(const void* to) {
  const char* const place = static_cast<const char*>(to);
  return nowhere_to_read != nullptr && place >= nowhere_to_read && place < nowhere_to_read + kMostChunk;
}

ssize_t read_file(void* to, size_t bytes, uint64_t offset) {
  was_read = true;
  if (lies_nowhere(to)) {
    noted_well = noted_well && (noted.length == 0 || offset == noted.offset + noted.length);
    if (noted.length == 0) noted.offset = offset;
    noted.length += bytes;
    return static_cast<ssize_t>(bytes);
  }
  const ReadRequest request{offset, bytes};
  say(Say::read, &request, sizeof request);
  ReadAnswer answer;
  receive_all(&answer, sizeof answer);
  if (answer.bytes > bytes) std::_Exit(1);
  receive_all(to, answer.bytes);
  return static_cast<ssize_t>(answer.bytes);
}

// Indexes the file's datasets one by one.
class Indexer {
 public:
  Indexer(const Library& library, uint64_t file_bytes) : library_(library), file_bytes_(file_bytes) {}

  void open() {
    library_.print_errors(kDefault, nullptr, nullptr);
    file_ = library_.open_file(kFileName, kReadOnly, kDefault);
    if (file_ >= 0) return;
    if (!was_read) refuse("cannot be read: this libhdf5 reads in a way that is not known");
    refuse("cannot be read: " + cause());
  }

  void add(const char* name) {
    const auto want = [&](bool fine, const std::string& why) {
      if (!fine) refuse("has a dataset " + std::string(name) + " that cannot be planned: " + why);
    };
    const Id dataset = library_.open_dataset(file_, name, kDefault);
    if (dataset < 0) refuse("has no dataset " + std::string(name) + ": " + cause());
    const Id space = library_.space_of(dataset);
    std::vector<Size> sizes(kMostRank);
    const int rank = library_.rank_of(space);
    want(rank >= 1 && rank <= kMostRank, "it is a single value; want one with rows");
    want(library_.sizes_of(space, sizes.data(), nullptr) == rank, cause());
    sizes.resize(static_cast<size_t>(rank));
    const Id type = library_.type_of(dataset);
    want(!lies_elsewhere(type, 0),
         "its values are of variable length, or refer to others, and so lie elsewhere in the file; "
         "want values of fixed size, or format=ranges");
    const Id properties = library_.properties_of(dataset);
    want(library_.external_files_of(properties) == 0,
         "its data is in other files; want format=raw for those");
    const int layout = library_.layout_of(properties);
    want(layout != kVirtual, "it is virtual, a view of other datasets; want the plan of those");
    if (layout == kContiguous) return add_contiguous(dataset, type, sizes);
    if (layout == kChunked)
      return want(add_chunked(dataset, properties, sizes), "its chunks cannot be found");
    want(layout == kCompact, "it is stored in an unknown way");
    // In the dataset's header, which everybody reads.
    say_dataset({static_cast<uint64_t>(Storage::compact), sizes[0]});
  }

 private:
  static void say_dataset(const DatasetHead& head) { say(Say::dataset, &head, sizeof head); }

  // The cause of what failed last, as libhdf5 says it.
  std::string cause() const {
    std::string text;
    library_.walk_errors(
        kDefault, kFromTheFirst,
        [](unsigned, const ErrorRecord* error, void* data) -> Fails {
          auto& found = *static_cast<std::string*>(data);
          if (found.empty() && error->text != nullptr) found = error->text;
          return 0;
        },
        &text);
    return text.empty() ? "libhdf5 does not say why" : text;
  }

  // Variable-length values lie in heaps, and so do what references of regions refer to.
  bool lies_elsewhere(Id type, int depth) const {
    if (type < 0 || depth > kDeepestType) return true;
    switch (library_.class_of(type)) {
      case kVariableLength:
      case kReference:
        return true;
      case kString:
        return library_.is_variable_string(type) != 0;
      case kArray:
        return lies_elsewhere(library_.base_of(type), depth + 1);
      case kCompound:
        break;
      default:
        return false;
    }
    const int members = library_.members_of(type);
    for (int member = 0; member < members; ++member) {
      if (lies_elsewhere(library_.member_of(type, static_cast<unsigned>(member)), depth + 1)) return true;
    }
    return members < 0;
  }

  void add_contiguous(Id dataset, Id type, const std::vector<Size>& sizes) const {
    uint64_t row_bytes = library_.bytes_of(type);
    for (size_t i = 1; i < sizes.size(); ++i) {
      if (__builtin_mul_overflow(row_bytes, sizes[i], &row_bytes)) row_bytes = UINT64_MAX;
    }
    say_dataset(
        {static_cast<uint64_t>(Storage::contiguous), sizes[0], row_bytes, library_.offset_of(dataset)});
  }

  // False when libhdf5 fails, or there would be more chunks than bytes.
  bool add_chunked(Id dataset, Id properties, const std::vector<Size>& sizes) const {
    std::vector<Size> chunk(sizes.size());
    const int rank = static_cast<int>(sizes.size());
    if (library_.chunk_of(properties, rank, chunk.data()) != rank) return false;
    uint64_t chunks = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (chunk[i] == 0) return false;
      const uint64_t count = sizes[i] / chunk[i] + (sizes[i] % chunk[i] == 0 ? 0 : 1);
      if (__builtin_mul_overflow(chunks, count, &chunks)) return false;
    }
    if (chunks > file_bytes_) return false;
    say_dataset({static_cast<uint64_t>(Storage::chunked), sizes[0], 0, 0, chunk[0]});

    std::vector<StoredChunk> batch;
    const auto flush = [&] {
      if (!batch.empty()) say(Say::chunks, batch.data(), batch.size() * sizeof(StoredChunk));
      batch.clear();
    };
    std::vector<Size> at(sizes.size());
    for (uint64_t i = 0; i < chunks; ++i) {
      if (!find(dataset, at)) return false;
      noted.block = at[0] / chunk[0];
      if (noted.length != 0) batch.push_back(noted);
      if (batch.size() == kMostFrame / sizeof(StoredChunk)) flush();
      for (size_t axis = sizes.size(); axis-- > 0;) {  // the last one goes round fastest
        at[axis] += chunk[axis];
        if (at[axis] < sizes[axis]) break;
        at[axis] = 0;
      }
    }
    flush();
    return true;
  }

  // Notes where the chunk at these coordinates is stored; nowhere if it was never written.
  bool find(Id dataset, const std::vector<Size>& at) const {
    noted = {};
    noted_well = true;
    uint32_t filters = 0;
    if (library_.read_stored(dataset, kDefault, at.data(), &filters, nowhere_to_read) >= 0)
      return noted_well && noted.length != 0;
    const std::string why = cause();  // the two as in 1.10 and 1.14: of this chunk, and of all
    return why == "chunk address isn't defined" || why == "storage is not initialized";
  }

  const Library& library_;
  const uint64_t file_bytes_;
  Id file_ = -1;
};

// Of the name under which the file is opened; sets errno.
bool is_file(const char* path) {
  if (std::strcmp(path, kFileName) == 0) return true;
  errno = ENOENT;
  return false;
}

// What libhdf5 finds instead of the system's functions, also under the names that they have where off_t is
// said to have 64 bits; it has in any case.
extern "C" {
int open_here(const char* path, int flags, ...) __asm__("open");
int open64_here(const char* path, int flags, ...) __asm__("open64");
int lstat_here(const char* path, struct stat* status) __asm__("lstat");
int lstat64_here(const char* path, struct stat* status) __asm__("lstat64");
ssize_t pread_here(int fd, void* to, size_t bytes, int64_t offset) __asm__("pread");
ssize_t pread64_here(int fd, void* to, size_t bytes, int64_t offset) __asm__("pread64");

int open_here(const char* path, int, ...) {
  return is_file(path) ? ::dup(served_file) : -1;
}
int open64_here(const char* path, int, ...) {
  return is_file(path) ? ::dup(served_file) : -1;
}
int lstat_here(const char* path, struct stat* status) {
  return is_file(path) ? ::fstat(served_file, status) : -1;
}
int lstat64_here(const char* path, struct stat* status) {
  return is_file(path) ? ::fstat(served_file, status) : -1;
}
ssize_t pread_here(int, void* to, size_t bytes, int64_t offset) {
  return read_file(to, bytes, static_cast<uint64_t>(offset));
}
ssize_t pread64_here(int, void* to, size_t bytes, int64_t offset) {
  return read_file(to, bytes, static_cast<uint64_t>(offset));
}
}

}  // namespace
}  // namespace clairfs::hdf5

int main(int arguments, char** words) {
  using namespace clairfs::hdf5;
  if (arguments < 3) return 1;
  const uint64_t file_bytes = std::strtoull(words[1], nullptr, 10);
  ::clearenv();  // it could name plugins, drivers, and files to write
  ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
  ::setenv("HDF5_PLUGIN_PRELOAD", "::", 1);  // no plugins: a chunk is not decoded

  Library library;
  void* const handle = open_library();
  if (handle == nullptr) {
    refuse(
        "cannot be read without libhdf5, which is not there; install it (Debian: libhdf5-103-1, "
        "libhdf5-310 or libhdf5-320), or say where the samples are by format=ranges");
  }
  if (!library.load(handle)) refuse("cannot be read: libhdf5 is too old; want 1.10.5 or newer");
  served_file = ::memfd_create("hdf5", 0);
  void* const nowhere =
      ::mmap(nullptr, kMostChunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (served_file < 0 || nowhere == MAP_FAILED ||
      ::ftruncate(served_file, static_cast<off_t>(file_bytes)) != 0)
    refuse("cannot be read: the system gives no memory for that");
  nowhere_to_read = static_cast<char*>(nowhere);
  if (!limit(kMostMemory, kMostSeconds) || !lock_down())
    refuse("cannot be read: the system does not let a process give up its rights (seccomp)");

  if (library.open() < 0) refuse("cannot be read: libhdf5 does not start");
  Indexer indexer(library, file_bytes);
  indexer.open();
  for (int dataset = 2; dataset < arguments; ++dataset) indexer.add(words[dataset]);
  say(Say::done, nullptr, 0);
  std::_Exit(0);
}
