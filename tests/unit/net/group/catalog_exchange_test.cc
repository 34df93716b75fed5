#include "net/group/catalog_exchange.h"

#include <cerrno>

#include "tests/support/catch.h"
#include "tests/support/recorded_transport.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

class MovedClock final : public Clock {
 public:
  TimePoint now() const override { return time; }
  TimePoint time = TimePoint{} + 1000s;
};

}  // namespace

TEST_CASE("a node whose catalog is offered and never comes gives up, and asks for nothing more") {
  RecordedTransport transport(NodeId(1), 2);
  TransferNumbers numbers(2);
  MovedClock clock;
  CatalogExchange exchange(transport, numbers, clock, {});
  const wire::CatalogOffer offer{10 << 20, 1};
  exchange.on_offer(NodeId(0), offer);
  CHECK(transport.take_sent<wire::CatalogRequest>().size() == 3);
  int looks = 0;
  const auto got = exchange.await([&](uint64_t) {
    clock.time += 4min;
    exchange.on_offer(NodeId(0), offer);  // with every hello
    exchange.tick(clock.time);
    if (++looks == 20) exchange.fail(Error{ECANCELED, "it waits for ever"});
  });
  REQUIRE(!got);
  CHECK(got.error().code == ETIMEDOUT);
  transport.end(Error{ECANCELED, "cancelled"});
  CHECK(!transport.take_cancelled().empty());
  (void)transport.take_sent<wire::CatalogRequest>();
  exchange.on_offer(NodeId(0), offer);
  exchange.tick(clock.time + 1h);
  CHECK(transport.take_sent<wire::CatalogRequest>().empty());
  CHECK(transport.memory().empty());
}
