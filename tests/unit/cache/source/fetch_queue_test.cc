#include "cache/source/fetch_queue.h"

#include <climits>
#include <memory>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint64_t kQueuedBytes = 128 << 10;

/// Fetches by number; number n is bytes [n, n + 1) * kQueuedBytes of its file, unless told otherwise.
struct QueueFixture {
  std::shared_ptr<Demand> add(uint32_t file, uint64_t number, Priority priority,
                              uint64_t bytes = kQueuedBytes, size_t pieces = 1, bool alone = false,
                              bool rest = false) {
    auto demand = std::make_shared<Demand>(priority);
    FetchQueue::Waiting fetch;
    fetch.arrival = arrivals++;
    fetch.request.file = FileId(file);
    fetch.request.offset = number * kQueuedBytes;
    fetch.request.length = bytes;
    fetch.request.memory.resize(pieces);
    fetch.request.demand = demand;
    fetch.request.rest = rest;
    fetch.alone = alone;
    queue.add(std::move(fetch));
    return demand;
  }
  /// The numbers of what is taken next.
  std::vector<uint64_t> take() {
    std::vector<uint64_t> numbers;
    for (const auto& fetch : queue.take_first(along)) numbers.push_back(fetch.request.offset / kQueuedBytes);
    return numbers;
  }

  FetchQueue queue;
  uint64_t arrivals = 0;
  uint64_t along = 0;  // bytes of the rest of a chunk that comes along
};

using Numbers = std::vector<uint64_t>;
constexpr Priority kQueuedFill{Priority::Kind::background, 0};
constexpr Priority prefetch_at(uint64_t deadline) {
  return {Priority::Kind::prefetch, deadline};
}

}  // namespace

TEST_CASE("neighbours are taken with the most urgent fetch, in the order of their bytes") {
  QueueFixture f;
  for (const uint64_t number : {7, 3, 5, 4, 9, 6, 1}) f.add(1, number, {Priority::Kind::background, number});
  f.add(1, 5, {Priority::Kind::background, 0}, kQueuedBytes, 1, true);
  CHECK(f.take() == Numbers{5});  // which is alone
  CHECK(f.take() == Numbers{1});
  CHECK(f.take() == Numbers{3, 4, 5, 6, 7});
  CHECK(f.take() == Numbers{9});
  CHECK(f.queue.empty());
}

TEST_CASE("gaps, overlaps and other files part what is taken together") {
  QueueFixture f;
  f.add(1, 0, kQueuedFill);
  f.add(2, 1, kQueuedFill);
  f.add(1, 1, kQueuedFill, kQueuedBytes - 1);
  f.add(1, 2, kQueuedFill);
  f.add(1, 4, kQueuedFill, 2 * kQueuedBytes);
  f.add(1, 5, kQueuedFill);
  CHECK(f.take() == Numbers{0, 1});
  CHECK(f.take() == Numbers{1});
  CHECK(f.take() == Numbers{2});
  CHECK(f.take() == Numbers{4});
  CHECK(f.take() == Numbers{5});
}

TEST_CASE("of fetches of the same bytes each is taken once") {
  QueueFixture f;
  for (int time = 0; time < 2; ++time) {
    for (uint64_t number = 0; number < 3; ++number) f.add(1, number, kQueuedFill);
  }
  size_t taken = 0;
  while (!f.queue.empty()) taken += f.take().size();
  CHECK(taken == 6);
}

TEST_CASE("fills are taken with fills only, and prefetches with those that are due at about that time") {
  QueueFixture f;
  const uint64_t late = FetchQueue::kMostLater;
  f.add(1, 0, prefetch_at(1000));
  f.add(1, 1, prefetch_at(1000 + late));
  f.add(1, 2, prefetch_at(1001 + late));
  f.add(1, 3, kQueuedFill);
  f.add(1, 4, {Priority::Kind::background, late * 9});
  f.add(1, 5, {});
  CHECK(f.take() == Numbers{5});
  CHECK(f.take() == Numbers{0, 1});
  CHECK(f.take() == Numbers{2});
  CHECK(f.take() == Numbers{3, 4});
}

TEST_CASE("with what a reader waits for come those beside it that are due soon") {
  QueueFixture f;
  const uint64_t late = FetchQueue::kMostLater;
  f.add(1, 1, prefetch_at(1001 + late));
  f.add(1, 2, prefetch_at(1000));
  f.add(1, 3, {});
  f.add(1, 4, prefetch_at(1500));
  f.add(1, 5, {});
  f.add(1, 6, prefetch_at(1000 + late));
  f.add(1, 7, prefetch_at(1001 + late));
  f.add(1, 9, {});
  f.add(1, 10, kQueuedFill);
  CHECK(f.take() == Numbers{2, 3, 4, 5, 6});
  CHECK(f.take() == Numbers{9});
  CHECK(f.take() == Numbers{1});
  CHECK(f.take() == Numbers{7});
  f.add(1, 9, {});
  CHECK(f.take() == Numbers{9});  // no prefetch waits
  CHECK(f.take() == Numbers{10});
}

TEST_CASE("beside what a reader waits for that of other readers comes before prefetches") {
  QueueFixture f;
  for (uint64_t number = 0; number < 8; ++number) f.add(1, number, prefetch_at(1000));
  f.add(1, 8, {});
  f.add(1, 9, {});
  CHECK(f.take() == Numbers{2, 3, 4, 5, 6, 7, 8, 9});  // all for which there is room
  CHECK(f.take() == Numbers{0, 1});
}

TEST_CASE("a prefetch where the last operation ended comes before one further on that is due at that time") {
  QueueFixture f;
  const uint64_t late = FetchQueue::kMostLater;
  f.add(1, 0, prefetch_at(1000));
  CHECK(f.take() == Numbers{0});
  f.add(1, 2, prefetch_at(1001 + late));
  f.add(1, 5, prefetch_at(1000));
  f.add(1, 1, prefetch_at(1000 + late));
  CHECK(f.take() == Numbers{1});
  CHECK(f.take() == Numbers{5});
  CHECK(f.take() == Numbers{2});
}

TEST_CASE("readers, fills, whole files, other files and what was left out wait for no prefetch elsewhere") {
  const auto taken = [](uint32_t file, uint64_t number, Priority priority, bool alone = false) {
    QueueFixture f;
    f.add(1, 3, prefetch_at(0));
    f.take();
    f.add(file, number, priority, kQueuedBytes, 1, alone);
    f.add(1, 4, priority.is_background() ? Priority{Priority::Kind::background, 9} : prefetch_at(9));
    return f.take();
  };
  CHECK(taken(1, 6, prefetch_at(0)) == Numbers{4});
  CHECK(taken(1, 6, {}) == Numbers{6});
  CHECK(taken(1, 6, kQueuedFill) == Numbers{6});
  CHECK(taken(1, 6, prefetch_at(0), true) == Numbers{6});
  CHECK(taken(2, 6, prefetch_at(0)) == Numbers{6});
  CHECK(taken(1, 2, prefetch_at(0)) == Numbers{2});
}

TEST_CASE("no more is taken together than one request to a server has and what one system call takes") {
  QueueFixture f;
  constexpr uint64_t kAsOfServer = 1 << 20;
  const uint64_t most = kAsOfServer / kQueuedBytes;
  for (uint64_t number = 0; number <= most; ++number) f.add(1, number, kQueuedFill);
  f.add(2, 0, kQueuedFill, kQueuedBytes, IOV_MAX - 1);
  f.add(2, 1, kQueuedFill);
  f.add(2, 2, kQueuedFill);
  f.add(3, 0, kQueuedFill, 2 * kAsOfServer);
  f.add(3, 2 * most, kQueuedFill);
  CHECK(f.take().size() == most);
  CHECK(f.take() == Numbers{most});
  CHECK(f.take() == Numbers{0, 1});
  CHECK(f.take() == Numbers{2});
  CHECK(f.take() == Numbers{0});
  CHECK(f.take() == Numbers{2 * most});
}

TEST_CASE("a fetch whose priority rises is taken with those of its new kind") {
  QueueFixture f;
  std::vector<std::shared_ptr<Demand>> demands;
  for (uint64_t number = 0; number < 6; ++number) demands.push_back(f.add(1, number, kQueuedFill));
  for (const size_t number : {2, 4, 3}) {
    demands[number]->raise(prefetch_at(10 - number));
    f.queue.demand_changed(*demands[number]);
  }
  f.queue.demand_changed(Demand(kQueuedFill));  // of none that waits
  CHECK(f.queue.first() == prefetch_at(6));
  CHECK(f.take() == Numbers{2, 3, 4});
  f.queue.demand_changed(*demands[3]);
  CHECK(f.take() == Numbers{0, 1});
  CHECK(f.queue.take_all().size() == 1);
  CHECK(f.queue.empty());
  f.add(1, 5, kQueuedFill);
  CHECK(f.take() == Numbers{5});
}

TEST_CASE("the rest of a chunk comes along with its part where an operation costs as much as its bytes") {
  const bool costly = GENERATE(true, false);
  const auto add_rest = [](QueueFixture& f, uint64_t number) {
    f.add(1, number, kQueuedFill, kQueuedBytes, 1, false, true);
  };
  QueueFixture f;
  f.along = costly ? kQueuedBytes : kQueuedBytes - 1;
  f.add(1, 1, kQueuedFill);
  add_rest(f, 2);
  f.add(1, 3, prefetch_at(1000));
  add_rest(f, 4);
  f.add(1, 5, prefetch_at(1000));
  if (costly) {
    CHECK(f.take() == Numbers{2, 3, 4, 5});
    CHECK(f.take() == Numbers{1});
  } else {
    CHECK(f.take() == Numbers{3});
    CHECK(f.take() == Numbers{5});
    CHECK(f.take() == Numbers{1, 2});
    CHECK(f.take() == Numbers{4});
  }
  CHECK(f.queue.empty());
}

TEST_CASE("what is as urgent is not left out for the rest of a chunk") {
  QueueFixture f;
  f.along = kQueuedBytes;
  f.add(1, 0, kQueuedFill, kQueuedBytes, 1, false, true);
  for (uint64_t number = 1; number <= FetchQueue::kMostBytes / kQueuedBytes; ++number)
    f.add(1, number, prefetch_at(1000));
  CHECK(f.take() == Numbers{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(f.take() == Numbers{0});
}
