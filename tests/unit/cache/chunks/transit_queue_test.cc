#include "cache/chunks/transit_queue.h"

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace clairfs {
namespace {

using Kind = Priority::Kind;

/// A queue whose fetches begin when `memory` of their class is left, and tell in which order they did.
struct QueueFixture {
  TransitQueue queue;
  std::map<uint32_t, std::shared_ptr<Demand>> demands;
  std::map<TransitClass, int> memory;
  std::vector<uint32_t> begun;

  void add(uint32_t fetch, Kind kind, TransitClass transit_class) {
    auto& demand = demands.try_emplace(fetch, std::make_shared<Demand>(Priority{kind, 0})).first->second;
    queue.add(transit_class, demand, [this, fetch, transit_class] { return attempt(fetch, transit_class); });
  }
  std::optional<TransitClass> attempt(uint32_t fetch, TransitClass transit_class) {
    if (memory[transit_class] == 0) return transit_class;
    --memory[transit_class];
    begun.push_back(fetch);
    return std::nullopt;
  }
  std::vector<uint32_t> after(TransitClass transit_class, int pieces) {
    memory[transit_class] += pieces;
    begun.clear();
    while (queue.begin_one()) {
    }
    return begun;
  }
};

using Order = std::vector<uint32_t>;

TEST_CASE("fetches get memory by kind, and within one in the order of their arrival", "[transit_queue]") {
  QueueFixture f;
  f.add(1, Kind::background, TransitClass::source);
  f.add(2, Kind::prefetch, TransitClass::source);
  f.add(3, Kind::demand, TransitClass::source);
  f.add(4, Kind::prefetch, TransitClass::source);
  CHECK(f.after(TransitClass::source, 0).empty());
  CHECK(f.after(TransitClass::source, 1) == Order{3});
  CHECK(f.after(TransitClass::source, 2) == Order{2, 4});
  CHECK(!f.queue.empty());
  CHECK(f.after(TransitClass::source, 5) == Order{1});
  CHECK(f.queue.empty());
}

TEST_CASE("a fetch that becomes more urgent while it begins to wait is found", "[transit_queue]") {
  for (int round = 0; round < 2000; ++round) {
    QueueFixture f;
    f.demands[1] = std::make_shared<Demand>(Priority{Kind::background, 0});
    std::thread waits([&] { f.add(1, Kind::background, TransitClass::source); });
    f.demands[1]->raise({Kind::demand, 0});
    f.queue.demand_changed(*f.demands[1]);
    waits.join();
    f.add(2, Kind::prefetch, TransitClass::source);
    REQUIRE(f.after(TransitClass::source, 1) == Order{1});
  }
}

TEST_CASE("no class waits behind another", "[transit_queue]") {
  QueueFixture f;
  f.add(1, Kind::demand, TransitClass::others);
  f.add(2, Kind::demand, TransitClass::others);
  f.add(3, Kind::background, TransitClass::nvme);
  CHECK(f.after(TransitClass::nvme, 1) == Order{3});
  CHECK(f.after(TransitClass::others, 2) == Order{1, 2});
}

TEST_CASE("a fetch that became more urgent overtakes", "[transit_queue]") {
  QueueFixture f;
  f.add(1, Kind::background, TransitClass::source);
  f.add(2, Kind::prefetch, TransitClass::source);
  REQUIRE(f.demands[1]->raise({Kind::demand, 0}));
  f.queue.demand_changed(*f.demands[1]);
  f.queue.demand_changed(Demand({Kind::demand, 0}));  // waits nowhere
  CHECK(f.after(TransitClass::source, 1) == Order{1});
  CHECK(f.after(TransitClass::source, 1) == Order{2});
}

TEST_CASE("a fetch that became more urgent before it waited is known as such", "[transit_queue]") {
  QueueFixture f;
  f.demands[2] = std::make_shared<Demand>(Priority{Kind::background, 0});
  f.demands[2]->raise({Kind::demand, 0});
  f.add(1, Kind::prefetch, TransitClass::source);
  f.add(2, Kind::background, TransitClass::source);
  CHECK(f.after(TransitClass::source, 1) == Order{2});
}

TEST_CASE("a fetch that became more urgent while it was tried keeps that", "[transit_queue]") {
  QueueFixture f;
  f.add(1, Kind::prefetch, TransitClass::source);
  const auto demand = std::make_shared<Demand>(Priority{Kind::background, 0});
  f.queue.add(TransitClass::source, demand, [&] {
    demand->raise({Kind::demand, 0});
    f.queue.demand_changed(*demand);  // it is in no queue now
    return f.attempt(2, TransitClass::source);
  });
  REQUIRE(f.queue.begin_one() == false);
  f.memory[TransitClass::others] = 0;
  f.add(3, Kind::prefetch, TransitClass::source);
  // Nobody tried the fill yet, since a prefetch of its class had no memory; then with memory for two.
  CHECK(f.after(TransitClass::source, 1) == Order{1});
  CHECK(f.after(TransitClass::source, 1) == Order{3});
  CHECK_FALSE(f.queue.begin_one());  // the fill is tried, and becomes a reader's
  f.add(4, Kind::prefetch, TransitClass::source);
  CHECK(f.after(TransitClass::source, 1) == Order{2});
}

TEST_CASE("a fetch that lacks memory of another class by now waits for that", "[transit_queue]") {
  QueueFixture f;
  TransitClass needs = TransitClass::nvme;
  f.queue.add(TransitClass::nvme, std::make_shared<Demand>(Priority{}), [&] { return f.attempt(1, needs); });
  needs = TransitClass::source;
  CHECK(f.after(TransitClass::nvme, 1).empty());
  f.add(2, Kind::demand, TransitClass::nvme);
  CHECK(f.after(TransitClass::nvme, 0) == Order{2});  // not held up
  CHECK(f.after(TransitClass::source, 1) == Order{1});
  CHECK(f.queue.empty());
}

}  // namespace
}  // namespace clairfs
