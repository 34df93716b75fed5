// Pieces that are lost, late, refused, or given up while the network has their memory.
#include "net/group/image_fetch.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "tests/support/catch.h"
#include "tests/support/moved_clock.h"
#include "tests/support/network/recorded_transport.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kPiece = 1 << 20;

/// Node 1, that fetches an image of four pieces from node 0.
struct Fetching {
  Fetching() {
    ImageFetchOptions options;
    options.piece = kPiece;
    fetch = *ImageFetch::make({transport, numbers, clock, NodeId(0),
                               [](uint64_t offset, uint32_t length, TransferNumber transfer) {
                                 return wire::CatalogRequest{offset, length, transfer};
                               },
                               [] {}},
                              options, 4 * kPiece);
    fetch->ask_for_more();
    asked = transport.take_sent<wire::CatalogRequest>();
    REQUIRE(asked.size() == options.window);
  }
  std::vector<wire::CatalogRequest> asked_after(Duration duration) {
    clock.time += duration;
    fetch->tick(clock.time);
    return transport.take_sent<wire::CatalogRequest>();
  }

  RecordedTransport transport{NodeId(1), 2};
  TransferNumbers numbers{2};
  MovedClock clock;
  std::shared_ptr<ImageFetch> fetch;
  std::vector<wire::CatalogRequest> asked;
};

bool is_mapped(const iovec& memory) {
  unsigned char resident = 0;
  return ::mincore(memory.iov_base, 1, &resident) == 0 || errno != ENOMEM;
}

}  // namespace

TEST_CASE("a request that may have been lost is repeated each second, for the same transfer") {
  Fetching node;
  CHECK(node.asked_after(900ms).empty());
  CHECK(node.asked_after(200ms) == node.asked);
  CHECK(node.asked_after(200ms).empty());
  CHECK(node.asked_after(1s) == node.asked);
  CHECK(node.transport.take_cancelled().empty());  // what is slow goes on
  node.transport.end({});
  CHECK(node.transport.take_sent<wire::CatalogRequest>().size() == 1);  // the last piece
  node.transport.end({});
  CHECK(node.fetch->state().complete);
  CHECK(node.asked_after(1min).empty());
}

TEST_CASE("a piece that does not come is asked for anew after a while") {
  Fetching node;
  node.asked_after(20s);
  CHECK(node.transport.take_cancelled().size() == node.asked.size());
  node.transport.end(Error{ECANCELED, "cancelled"});
  const auto anew = node.asked_after(20ms);
  REQUIRE(anew.size() == node.asked.size());
  for (const auto& request : anew) CHECK(request.transfer >= node.asked.size());
}

TEST_CASE("what the network refuses to receive is asked for with each tick only") {
  Fetching node;
  node.transport.end(Error{ECANCELED, "the network cannot receive"});
  CHECK(node.transport.take_sent<wire::CatalogRequest>().empty());
  CHECK(node.asked_after(20ms).size() == node.asked.size());
}

TEST_CASE("bytes that have come are copied, also of the image that was taken, until it is given up") {
  Fetching node;
  CHECK(!node.fetch->copy(0, 1));
  std::memset(node.transport.memory()[1].iov_base, 'x', kPiece);
  node.transport.end({});  // three of the four pieces
  CHECK(node.fetch->copy(kPiece, 10) == std::vector<std::byte>(10, std::byte{'x'}));
  CHECK(node.fetch->copy(kPiece - 1, 2) == std::vector<std::byte>{std::byte{0}, std::byte{'x'}});
  CHECK(node.fetch->copy(0, 3 * kPiece));
  CHECK(!node.fetch->copy(0, 3 * kPiece + 1));
  node.transport.end({});
  const Mapping image = node.fetch->take();
  CHECK(node.fetch->copy(0, 4 * kPiece));
  CHECK(!node.fetch->copy(1, 4 * kPiece));
  CHECK(!node.fetch->copy(UINT64_MAX, 1));
  node.fetch->give_up();
  CHECK(!node.fetch->copy(0, 1));
}

TEST_CASE("a repeated request is answered once") {
  AnsweredRequests answered;
  CHECK(answered.note(NodeId(1), 7));
  CHECK(answered.note(NodeId(2), 7));
  CHECK(answered.note(NodeId(1), 8));
  CHECK(!answered.note(NodeId(1), 7));
  CHECK(!answered.note(NodeId(1), 8));
  for (TransferNumber transfer = 9; transfer < 1000; ++transfer) CHECK(answered.note(NodeId(1), transfer));
  CHECK(!answered.note(NodeId(1), 999));
}

TEST_CASE("a fetch that was given up stays until the network has let go of its memory, or for good") {
  Fetching node;
  node.fetch->give_up();
  CHECK(node.transport.take_cancelled().size() == node.asked.size());
  const auto memory = node.transport.memory();
  REQUIRE(memory.size() == node.asked.size());
  node.fetch = nullptr;
  CHECK(is_mapped(memory[0]));
  const bool lets_go = GENERATE(true, false);
  node.transport.end(Error{lets_go ? ECANCELED : EBUSY, "cancelled"});
  CHECK(is_mapped(memory[0]) == !lets_go);
  CHECK(node.transport.take_sent<wire::CatalogRequest>().empty());
}
