#include "net/mpi/pieces.h"

#include <algorithm>
#include <random>
#include <vector>

#include "cache/io/memory.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// The addresses of all bytes, one after the other.
std::vector<std::byte*> addresses(const std::vector<iovec>& memory) {
  std::vector<std::byte*> all;
  for (const auto& part : memory) {
    for (size_t i = 0; i < part.iov_len; ++i) all.push_back(static_cast<std::byte*>(part.iov_base) + i);
  }
  return all;
}

}  // namespace

TEST_CASE("nothing is one empty piece") {
  CHECK(cut_into_pieces({}, 10).size() == 1);
  CHECK(cut_into_pieces({}, 10).front().empty());
  std::byte byte{};
  const std::vector<iovec> hollow = {{&byte, 0}, {&byte, 0}};
  REQUIRE(cut_into_pieces(hollow, 10).size() == 1);
  CHECK(cut_into_pieces(hollow, 10).front().empty());
}

TEST_CASE("pieces are full but the last one, wherever the memory is cut") {
  std::vector<std::byte> bytes(1000);
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<iovec> memory;
    const size_t size = random() % bytes.size();
    for (size_t at = 0; at < size;) {
      const size_t length = std::min<size_t>(random() % 60, size - at);  // 0 as well
      memory.push_back({&bytes[at], length});
      at += length;
    }
    const size_t piece_size = 1 + random() % 100;
    const auto pieces = cut_into_pieces(memory, piece_size);
    std::vector<iovec> joined;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const size_t expected = i + 1 < pieces.size() ? piece_size : size - i * piece_size;
      REQUIRE(total_bytes(pieces[i]) == expected);
      for (const auto& part : pieces[i]) REQUIRE(part.iov_len > 0);
      joined.insert(joined.end(), pieces[i].begin(), pieces[i].end());
    }
    if (size > 0) REQUIRE(total_bytes(pieces.back()) > 0);
    REQUIRE(addresses(joined) == addresses(memory));
  }
}
