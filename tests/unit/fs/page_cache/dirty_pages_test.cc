#include "fs/page_cache/dirty_pages.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr size_t kSize = 4096;

/// What writable_mapper() says while this process maps a file in such a way.
pid_t found_with(int protection, int flags) {
  const Fd file(::memfd_create("mapped", MFD_CLOEXEC));
  REQUIRE(file);
  REQUIRE(::ftruncate(file.get(), kSize) == 0);
  struct stat st {};
  REQUIRE(::fstat(file.get(), &st) == 0);
  void* memory = ::mmap(nullptr, kSize, protection, flags, file.get(), 0);
  REQUIRE(memory != MAP_FAILED);
  const pid_t found = writable_mapper(st.st_dev, st.st_ino);
  ::munmap(memory, kSize);
  CHECK(writable_mapper(st.st_dev, st.st_ino) == 0);
  return found;
}

}  // namespace

TEST_CASE("who maps a file shared and writable is found") {
  CHECK(found_with(PROT_READ | PROT_WRITE, MAP_SHARED) == ::getpid());
}

TEST_CASE("who can only read a file, or changes a copy, is not taken for its writer") {
  CHECK(found_with(PROT_READ, MAP_SHARED) == 0);
  CHECK(found_with(PROT_READ | PROT_WRITE, MAP_PRIVATE) == 0);
}
