#include "cache/chunks/chunk_table.h"

#include "cache/memory/ram_arena.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint32_t kTableLength = 256 << 10;  // of every chunk
constexpr ChunkPiece kItsQuarter{0, kTableLength / 4};
constexpr Priority kReads{Priority::Kind::demand, 0};
constexpr Priority kStages{Priority::Kind::prefetch, 9};
constexpr Priority kFills{Priority::Kind::background, 0};

class NotTold final : public MemoryListener {
 public:
  void memory_released() override {}
};

/// A table whose fetches the test carries on.
struct TableFixture {
  ChunkTable::Joined join(uint32_t chunk, Priority priority, const ChunkPiece& piece = {},
                          FetchScope scope = FetchScope::anywhere, bool may_wait = false) {
    return table.join(scope, ChunkId(chunk), piece, may_wait, priority, {}, [](const auto&) {});
  }
  ChunkRef memory() {
    return ChunkRef(new ChunkData(std::move(*arena->allocate(kTableLength, account)), kTableLength, nobody));
  }
  /// A fetch that comes in parts: the quarter that its caller wants, then the rest.
  FetchPtr split() {
    FetchPtr fetch = join(1, kStages, kItsQuarter).fetch;
    fetch->data = memory();
    REQUIRE(table.split(*fetch, kTableLength).size() == 2);
    return fetch;
  }

  NotTold nobody;
  Gauge gauge;
  std::unique_ptr<RamArena> arena = std::move(*RamArena::create(1 << 20));
  MemoryAccount account{1 << 20, gauge};
  ChunkTable table{100};
};

}  // namespace

TEST_CASE("the first caller starts a fetch, and the others join it until it ends") {
  TableFixture f;
  const auto first = f.join(1, kReads);
  REQUIRE(first.fetch);
  CHECK(first.starts);
  const auto second = f.join(1, kReads);
  CHECK(second.fetch == first.fetch);
  CHECK_FALSE(second.starts);
  CHECK(f.join(65, kReads).starts);  // another chunk, with the same lock
  CHECK(f.table.here_or_coming(ChunkId(1)));
  CHECK_FALSE(f.table.resident(ChunkId(1)));

  const auto published = f.table.publish(*first.fetch, f.memory(), false);
  REQUIRE(published.waiters.size() == 2);
  CHECK_FALSE(published.waiters[0].joined);
  CHECK(published.waiters[1].joined);
  const auto late = f.join(1, kReads);
  CHECK(late.data);
  CHECK_FALSE(late.fetch);

  CHECK(f.table.abandon(*f.join(65, kReads).fetch).size() == 2);
  CHECK_FALSE(f.table.here_or_coming(ChunkId(65)));
  CHECK(f.join(65, kReads).starts);
}

TEST_CASE("a caller that joins a fetch makes it as urgent as its own need, and never less") {
  TableFixture f;
  const FetchPtr fetch = f.join(1, kFills).fetch;
  const auto raised = f.join(1, kReads).raised;
  REQUIRE(raised.size() == 1);
  CHECK(raised[0].get() == &fetch->demand);
  CHECK(fetch->demand.now() == kReads);
  CHECK(f.join(1, kFills).raised.empty());
  CHECK(f.table.raise(fetch, {}, kStages).empty());
  CHECK(fetch->demand.now() == kReads);
}

TEST_CASE("no caller joins or starts a fetch that goes further than it may") {
  TableFixture f;
  const FetchPtr waits = f.join(1, kReads, {}, FetchScope::anywhere, true).fetch;
  CHECK_FALSE(f.join(1, kReads, {}, FetchScope::local_or_pfs).fetch);
  f.table.keep_from_others(*waits);
  CHECK(f.join(1, kReads, {}, FetchScope::local_or_pfs).fetch == waits);

  CHECK_FALSE(f.join(2, kReads, {}, FetchScope::local_only).fetch);
  CHECK_FALSE(f.table.here_or_coming(ChunkId(2)));
  CHECK_FALSE(f.table.set_store(ChunkId(2), 3));
  CHECK(f.join(2, kReads, {}, FetchScope::local_only).starts);

  // From NVMe, whatever was thought when it began.
  const FetchPtr stored = f.join(3, kReads, {}, FetchScope::anywhere, true).fetch;
  CHECK_FALSE(f.table.set_store(ChunkId(3), 0));
  CHECK(f.table.settle(*stored).store == 0U);
  CHECK(f.join(3, kReads, {}, FetchScope::local_or_pfs).fetch == stored);
}

TEST_CASE("of a chunk in parts each caller is answered once what it wants is here") {
  TableFixture f;
  const FetchPtr fetch = f.split();
  CHECK(f.join(1, kReads).raised.size() == 2);  // both parts are as urgent as a reader
  CHECK_FALSE(f.table.in_memory(ChunkId(1), kItsQuarter));
  const auto first = f.table.part_ended(*fetch, *fetch->parts[0], true);
  CHECK(first.waiters.size() == 1);
  CHECK_FALSE(first.last);
  CHECK(f.table.in_memory(ChunkId(1), kItsQuarter));
  CHECK_FALSE(f.table.in_memory(ChunkId(1), {}));
  CHECK(f.join(1, kReads, kItsQuarter).data);
  CHECK_FALSE(f.table.resident(ChunkId(1)));

  const auto second = f.table.part_ended(*fetch, *fetch->parts[1], true);
  CHECK(second.last);
  CHECK_FALSE(second.failed);
  CHECK(second.waiters.empty());
  CHECK(f.table.publish(*fetch, fetch->data, true).waiters.size() == 1);
  CHECK(f.table.tier_of(ChunkId(1)) == Tier::ram);
}

TEST_CASE("the first part that fails ends the fetch for all, and the next caller starts another") {
  TableFixture f;
  const FetchPtr fetch = f.split();
  const auto rest = f.table.part_ended(*fetch, *fetch->parts[1], false);
  CHECK(rest.waiters.size() == 1);
  CHECK(rest.failed);
  CHECK_FALSE(rest.last);
  const auto next = f.join(1, kReads);
  CHECK(next.starts);
  CHECK(next.fetch != fetch);
  const auto wanted = f.table.part_ended(*fetch, *fetch->parts[0], true);
  CHECK(wanted.last);
  CHECK(wanted.failed);
  CHECK(wanted.waiters.empty());
  CHECK(f.table.abandon(*next.fetch).size() == 1);
}

TEST_CASE("a chunk comes whole where its parts would save nothing, or a reader waits") {
  TableFixture f;
  const auto parts_of = [&](uint32_t chunk, Priority priority, const ChunkPiece& piece) {
    return f.table.split(*f.join(chunk, priority, piece).fetch, kTableLength).size();
  };
  CHECK(parts_of(1, kReads, kItsQuarter) == 0);
  CHECK(parts_of(2, kFills, kItsQuarter) == 0);
  CHECK(parts_of(3, kStages, {0, 1}) == 0);
  CHECK(parts_of(4, kStages, {0, kTableLength - kPageSize}) == 0);
  CHECK(parts_of(5, kStages, {kTableLength / 2, kTableLength / 2 + kTableLength / 4}) == 3);
}

TEST_CASE("a chunk goes from transit memory to RAM once, and is not dropped while it is used") {
  TableFixture f;
  (void)f.table.publish(*f.join(1, kReads).fetch, f.memory(), false);
  CHECK(f.table.tier_of(ChunkId(1)) == Tier::none);
  bool pinned = false;
  {
    const ChunkRef used = f.table.resident(ChunkId(1));
    CHECK_FALSE(f.table.take_from_transit(ChunkId(1), pinned));
    CHECK(pinned);
  }
  CHECK_FALSE(f.table.take_from_ram(ChunkId(1)));
  CHECK(f.table.move_to_ram(ChunkId(1), f.memory()));
  CHECK_FALSE(f.table.move_to_ram(ChunkId(1), f.memory()));
  CHECK(f.table.only_in_ram(ChunkId(1)));
  CHECK_FALSE(f.table.take_from_transit(ChunkId(1), pinned));
  CHECK_FALSE(pinned);
  CHECK(f.table.take_from_ram(ChunkId(1)));
  CHECK_FALSE(f.table.resident(ChunkId(1)));

  (void)f.table.publish(*f.join(1, kReads).fetch, f.memory(), false);
  CHECK(f.table.take_from_transit(ChunkId(1), pinned));
  CHECK_FALSE(f.table.resident(ChunkId(1)));
}

TEST_CASE("a chunk is in one store, and in none once RAM has it") {
  TableFixture f;
  CHECK_FALSE(f.table.set_store(ChunkId(1), 1));
  CHECK(f.table.set_store(ChunkId(1), 0) == 1U);
  CHECK(f.table.on_nvme(ChunkId(1)));
  CHECK(f.table.publish(*f.join(1, kReads).fetch, f.memory(), true).store == 1U);
  CHECK_FALSE(f.table.on_nvme(ChunkId(1)));
  CHECK_FALSE(f.table.clear_store(ChunkId(1)));
}
