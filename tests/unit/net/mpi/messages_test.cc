#include "net/mpi/messages.h"

#include <climits>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("of a message that is longer than any, or of no known length, nothing is taken") {
  constexpr int kMost = static_cast<int>(kMaxMessage);
  for (const int size : {0, 1, 1000, kMost}) CHECK(bytes_taken(size) == size);
  for (const int size : {kMost + 1, INT_MAX, -1, MPI_UNDEFINED}) CHECK(bytes_taken(size) == 0);
}
