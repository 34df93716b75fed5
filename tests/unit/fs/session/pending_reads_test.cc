#include "fs/session/pending_reads.h"

#include <cerrno>
#include <map>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::map<fuse_req_t, int> replies;

/// Only its address is used.
fuse_req_t request(uintptr_t number) {
  return reinterpret_cast<fuse_req_t>(number);
}

/// Of a READ of that number.
PageRange pages(uint64_t number) {
  return {FileId(1), number * kPageSize, (number + 1) * kPageSize};
}

}  // namespace

// Instead of libfuse's: there is no session here.
extern "C" int fuse_reply_err(fuse_req_t req, int error) {
  replies[req] = error;
  return 0;
}

TEST_CASE("a READ that waits is answered by whoever takes it, once") {
  replies.clear();
  PendingReads reads;
  CHECK(reads.add(request(1), pages(1)));
  CHECK(reads.asked().without(pages(1)).empty());
  CHECK(reads.take(request(1)));
  CHECK(reads.asked().without(pages(1)).size() == 1);
  CHECK(!reads.take(request(1)));
  CHECK(!reads.take(request(2)));
  CHECK(replies.empty());
}

TEST_CASE("READs that are given up are answered, and later ones refused") {
  replies.clear();
  PendingReads reads;
  for (uintptr_t i = 1; i <= 3; ++i) REQUIRE(reads.add(request(i), pages(i)));
  REQUIRE(reads.take(request(2)));
  reads.give_up();
  CHECK(replies == std::map<fuse_req_t, int>{{request(1), ENOTCONN}, {request(3), ENOTCONN}});
  CHECK(!reads.take(request(1)));
  CHECK(!reads.add(request(4), pages(4)));
  for (uintptr_t i = 1; i <= 4; ++i) CHECK(reads.asked().without(pages(i)).size() == 1);
  reads.give_up();
  CHECK(replies.size() == 2);
}
