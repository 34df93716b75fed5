#include "plan/sequence/shared_chunks.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "plan/retention/next_use_policy.h"
#include "tests/support/catch.h"
#include "tests/support/record_index.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint32_t kSharedChunk = 16 << 10;
const OrderId kRecordsOrder(1);
const OrderId kFilesOrder(2);

/// The shuffled epochs of a plan, all of them, and what of them is known in epoch e: that one and the next.
struct ShuffledPlan {
  ShuffledPlan(std::shared_ptr<const SampleIndex> samples, const Catalog& catalog, uint32_t count,
               uint32_t seed)
      : index(std::move(samples)) {
    std::mt19937 random(seed);
    std::vector<uint32_t> order(index->size());
    std::iota(order.begin(), order.end(), 0U);
    for (uint32_t e = 0; e < count; ++e) {
      std::shuffle(order.begin(), order.end(), random);
      PlannedEpoch epoch = PlannedEpoch::make(std::make_shared<const EpochSequence>(Epoch(e), order, 0),
                                              nullptr, *index, catalog);
      epoch.base = uint64_t{e} * order.size();
      epochs.push_back(std::make_shared<const PlannedEpoch>(std::move(epoch)));
    }
  }
  Timeline timeline(uint32_t e) const {
    Timeline known(index);
    known.append(epochs[e]);
    if (e + 1 < epochs.size()) known.append(epochs[e + 1]);
    known.set_complete(e + 2 >= epochs.size());
    return known;
  }
  uint64_t length() const { return epochs.front()->length(); }

  std::shared_ptr<const SampleIndex> index;
  std::vector<std::shared_ptr<const PlannedEpoch>> epochs;
};

/// A cache that obeys the policy, and reads what that does not keep as ChunkCache::acquire_range() does.
struct SimulatedCache {
  SimulatedCache(const Catalog& all, uint64_t ram, uint64_t nvme) : catalog(all), policy(all) {
    space.ram = ram;
    space.nvme = nvme;
  }

  void use(ChunkId chunk, uint64_t part, const Use& served) {
    if (resident.contains(chunk)) return;
    const uint64_t length = catalog.range(chunk).length;
    if (!policy.would_keep(chunk, length, space, served) && 8 * (length - part) > length) {
      fetched += part;
      return;
    }
    fetched += length;
    const TierChoice choice = policy.choose_tier(chunk, length, space, served);
    for (const ChunkId victim : choice.evict) {
      REQUIRE(resident.erase(victim) == 1);
      room(choice.tier) += footprint(choice.tier, catalog.range(victim).length);
      policy.dropped(victim, choice.tier);
    }
    if (choice.tier == Tier::none) return;
    REQUIRE(room(choice.tier) >= footprint(choice.tier, length));
    room(choice.tier) -= footprint(choice.tier, length);
    resident.insert(chunk);
    policy.kept(chunk, choice.tier);
  }

  /// Reads the plan's sample at `position`.
  void read(OrderId order, const ShuffledPlan& plan, uint64_t position) {
    if (position % plan.length() == 0) {
      const auto e = static_cast<uint32_t>(position / plan.length());
      policy.set_timeline(order, plan.timeline(e), position);
    }
    policy.set_staged(order, position);
    const PlannedEpoch& epoch = *plan.epochs[position / plan.length()];
    const uint32_t sample = epoch.sequence->sample_at(static_cast<uint32_t>(position % plan.length()));
    const ByteRange range = plan.index->range(sample, 0);
    for_each_chunk(*plan.index, catalog, sample, [&](ChunkId chunk) {
      const ChunkRange all = catalog.range(chunk);
      const uint64_t begin = std::max(range.offset, all.offset);
      use(chunk, std::min(range.offset + range.length, all.offset + all.length) - begin, {order, position});
    });
    policy.set_staged(order, position + 1);
  }

  uint64_t& room(Tier tier) { return tier == Tier::ram ? space.ram : space.nvme; }

  const Catalog& catalog;
  NextUsePolicy policy;
  TierSpace space;
  std::set<ChunkId> resident;
  uint64_t fetched = 0;
};

double bound(double all, double kept, uint32_t epochs) {
  return all + (epochs - 1) * std::max(0.0, all - kept);
}

}  // namespace

TEST_CASE("a chunk is shared when parts of several samples are in it") {
  const auto catalog = made_up_catalog({10 * kSharedChunk, 5000, 3 * kSharedChunk}, kSharedChunk);
  CHECK(!SharedChunks::make(RecordIndex(catalog, 0, 0, 0, 2), *catalog));
  CHECK(!SharedChunks::make(RecordIndex(catalog, 0, kSharedChunk, 10), *catalog));
  // Three records of two chunks and a half, after a header of one.
  const auto shared =
      SharedChunks::make(RecordIndex(catalog, kSharedChunk, 5 * kSharedChunk / 2, 3, 2), *catalog);
  REQUIRE(shared);
  std::vector<uint32_t> numbers;
  for (uint32_t c = 0; c < catalog->chunk_count(); ++c) {
    if (shared->contains(ChunkId(c))) numbers.push_back(c);
  }
  CHECK(numbers == std::vector<uint32_t>{3});
}

TEST_CASE("of records in shared chunks no more is read than the bound says") {
  constexpr uint32_t kChunks = 400;
  constexpr uint32_t kEpochs = 4;
  const uint32_t per_chunk = GENERATE(2, 9, 38);
  const double share = GENERATE(0.0, 0.25, 0.5, 0.75, 0.9, 1.1);
  const double in_ram = GENERATE(1.0, 0.5);
  const bool aligned = GENERATE(true, false);
  const uint64_t size = uint64_t{kChunks} * kSharedChunk;
  const auto catalog = made_up_catalog({size}, kSharedChunk);
  // Of unaligned ones some lie in two chunks.
  const uint64_t bytes = aligned ? kSharedChunk / per_chunk : kSharedChunk / per_chunk - 7;
  const auto records = static_cast<uint32_t>((size - 100) / bytes);
  const auto index = std::make_shared<const RecordIndex>(catalog, aligned ? 0 : 100, bytes, records);
  const ShuffledPlan plan(index, *catalog, kEpochs, per_chunk);
  const double kept = share * static_cast<double>(size);
  SimulatedCache cache(*catalog, static_cast<uint64_t>(kept * in_ram),
                       static_cast<uint64_t>(kept * (1 - in_ram)));
  for (uint64_t position = 0; position < kEpochs * plan.length(); ++position)
    cache.read(kRecordsOrder, plan, position);
  const double most = bound(static_cast<double>(size), kept, kEpochs);
  const double ratio = static_cast<double>(cache.fetched) / most;
  INFO(per_chunk << " samples a chunk, D = " << share << " S: " << ratio << " of the bound");
  CHECK(ratio <= 1.01);
}

TEST_CASE("records and files together are read no more than the bound says") {
  constexpr uint32_t kEpochs = 4;
  constexpr uint32_t kFiles = 800;
  const uint32_t per_chunk = GENERATE(2, 9, 38);
  const double share = GENERATE(0.25, 0.5, 0.75, 0.9);
  const bool one_plan = GENERATE(true, false);
  std::vector<uint64_t> sizes(1 + kFiles, kSharedChunk / 2);
  sizes[0] = uint64_t{kFiles} / 2 * kSharedChunk;
  const auto catalog = made_up_catalog(sizes, kSharedChunk);
  const double all = 2.0 * static_cast<double>(sizes[0]);
  const auto records = static_cast<uint32_t>(sizes[0] / (kSharedChunk / per_chunk));
  const auto plan_of = [&](uint32_t some_records, uint32_t some_files, uint32_t seed) {
    const auto index =
        std::make_shared<const RecordIndex>(catalog, 0, kSharedChunk / per_chunk, some_records, some_files);
    return ShuffledPlan(index, *catalog, kEpochs, seed);
  };
  SimulatedCache cache(*catalog, static_cast<uint64_t>(share * all), 0);
  if (one_plan) {
    const ShuffledPlan plan = plan_of(records, kFiles, 1);
    for (uint64_t position = 0; position < kEpochs * plan.length(); ++position)
      cache.read(kRecordsOrder, plan, position);
  } else {
    const auto files_index = std::make_shared<const RecordIndex>(catalog, 0, 0, 0, kFiles);
    const ShuffledPlan files(files_index, *catalog, kEpochs, 2);
    const ShuffledPlan parts = plan_of(records, 0, 3);
    uint64_t next_file = 0;
    for (uint64_t position = 0; position < kEpochs * parts.length(); ++position) {
      cache.read(kRecordsOrder, parts, position);
      for (; next_file * parts.length() < (position + 1) * files.length(); ++next_file)
        cache.read(kFilesOrder, files, next_file);
    }
  }
  const double ratio = static_cast<double>(cache.fetched) / bound(all, share * all, kEpochs);
  INFO(per_chunk << " samples a chunk, D = " << share << " S: " << ratio << " of the bound");
  CHECK(ratio <= 1.01);
}

TEST_CASE("a shared chunk is not brought in for room that is too small for it") {
  const auto catalog = made_up_catalog({2 * kSharedChunk, kSharedChunk / 2}, kSharedChunk);
  const auto index = std::make_shared<const RecordIndex>(catalog, 0, kSharedChunk / 4, 8);
  const ShuffledPlan plan(index, *catalog, 2, 5);
  NextUsePolicy policy(*catalog);
  policy.kept(catalog->chunks(FileId(2)).first, Tier::ram);  // of no plan
  policy.set_timeline(kRecordsOrder, plan.timeline(0), 0);
  const ChunkId chunk = catalog->chunks(RecordIndex::kFile).first;
  for (int time = 0; time < 2; ++time) {
    CHECK(!policy.would_keep(chunk, kSharedChunk, {}, {}));
    CHECK(policy.would_keep(chunk, kSharedChunk, {kSharedChunk / 2, 0}, {}));
  }
  CHECK(policy.choose_tier(chunk, kSharedChunk, {kSharedChunk / 2, 0}, {}).evict.size() == 1);
}

TEST_CASE("a shared chunk is kept until its last use, and not brought in for the rest of an epoch") {
  const auto catalog = made_up_catalog({4 * kSharedChunk}, kSharedChunk);
  const auto index = std::make_shared<const RecordIndex>(catalog, 0, kSharedChunk / 4, 16);
  const ShuffledPlan plan(index, *catalog, 1, 5);
  NextUsePolicy policy(*catalog);
  policy.set_timeline(kRecordsOrder, plan.timeline(0), 0);
  const auto first_chunk = catalog->chunks(RecordIndex::kFile).first;
  const auto uses = plan.epochs[0]->uses->uses(first_chunk);
  REQUIRE(uses.size() == 4);
  const TierSpace room{kSharedChunk, 0};
  CHECK(policy.would_keep(first_chunk, kSharedChunk, room, {}));
  policy.set_staged(kRecordsOrder, uses[0]);
  CHECK(policy.choose_tier(first_chunk, kSharedChunk, room, {}).tier == Tier::ram);
  policy.set_staged(kRecordsOrder, uses[0] + 1);
  CHECK(!policy.would_keep(first_chunk, kSharedChunk, room, {}));
  policy.kept(first_chunk, Tier::ram);
  const auto another = [&] {  // one that is yet to be used as often as ever, for a new plan
    const ShuffledPlan later(index, *catalog, 2, 6);
    policy.set_timeline(kFilesOrder, later.timeline(0), 0);
    const bool keeps = policy.would_keep(ChunkId(first_chunk.value + 1), kSharedChunk, {}, {});
    policy.remove(kFilesOrder);
    return keeps;
  };
  policy.set_staged(kRecordsOrder, uses[3]);
  CHECK(!another());
  policy.set_staged(kRecordsOrder, plan.length());
  CHECK(!policy.would_keep(first_chunk, kSharedChunk, room, {}));
}
