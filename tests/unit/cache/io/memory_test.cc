#include "cache/io/memory.h"

#include <climits>
#include <string>

#include <xxhash.h>

#include "cache/base/checksum.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::string text_of(const std::vector<iovec>& memory) {
  std::string text;
  for (const iovec& piece : memory) text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  return text;
}

}  // namespace

TEST_CASE("slices and checksums of scattered memory equal those of the bytes in a row") {
  std::string bytes(1000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  const std::vector<iovec> memory = {
      {bytes.data(), 0}, {bytes.data(), 1}, {bytes.data() + 1, 499}, {bytes.data() + 500, 500}};
  CHECK(total_bytes(memory) == 1000);
  for (const size_t offset : {0, 1, 2, 499, 500, 999, 1000}) {
    for (size_t length = 0; offset + length <= 1000; length += 83) {
      CHECK(text_of(slice_of(memory, offset, length)) == bytes.substr(offset, length));
    }
  }
  for (const size_t length : {1, 500, 501, 1000}) {
    CHECK(xxh3_64(slice_of(memory, 0, length)) == XXH3_64bits(bytes.data(), length));
  }
}

TEST_CASE("copies arrive in the same order whatever the pieces") {
  std::string bytes(1000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  std::string copy(1200, 'x');
  const std::vector<iovec> from = {{bytes.data(), 1}, {bytes.data() + 1, 0}, {bytes.data() + 1, 999}};
  copy_memory(from,
              std::vector<iovec>{
                  {copy.data(), 0}, {copy.data(), 300}, {copy.data() + 300, 700}, {copy.data() + 1000, 200}});
  CHECK(copy == bytes + std::string(200, 'x'));
}

TEST_CASE("the beginning of scattered memory for a message of limited size") {
  std::string bytes(1000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  const std::vector<iovec> memory = {
      {bytes.data(), 150}, {bytes.data() + 150, 30}, {bytes.data() + 180, 820}};
  const auto first = [&](const IoLimits& limits) { return text_of(first_of(memory, limits)); };
  CHECK(first({3, 1000, 100}) == bytes);
  CHECK(first({3, 1000, 512}) == bytes);  // nothing comes after
  CHECK(first({2, 1000, 100}) == bytes.substr(0, 100));
  CHECK(first({2, 1000, 90}) == bytes.substr(0, 180));
  CHECK(first({3, 350, 100}) == bytes.substr(0, 300));
  CHECK(joined(memory) == bytes);
}

TEST_CASE("a cursor passes over empty pieces and never shows more than IOV_MAX") {
  std::string bytes(3000, 'x');
  std::vector<iovec> memory;
  for (size_t i = 0; i < bytes.size(); ++i) {
    memory.push_back({bytes.data() + i, 1});
    memory.push_back({nullptr, 0});
  }
  IoCursor cursor(memory);
  uint64_t seen = 0;
  while (!cursor.finished()) {
    CHECK(cursor.count() <= IOV_MAX);
    const uint64_t step = (cursor.bytes() + 1) / 2;
    cursor.advance(step);
    seen += step;
  }
  CHECK(seen == bytes.size());
  CHECK(IoCursor({}).finished());
  CHECK(IoCursor({{nullptr, 0}}).finished());
}
