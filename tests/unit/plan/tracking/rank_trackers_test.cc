#include "plan/tracking/rank_trackers.h"

#include <array>
#include <map>
#include <memory>
#include <set>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

constexpr uint32_t kNodeSamples = 8000;
constexpr uint32_t kEpochs = 4;

// A node whose ranks read a plan at their own pace, every open seen, and no epoch ahead but the next is
// known.
class Node {
 public:
  explicit Node(uint32_t ranks, uint32_t samples = kNodeSamples, const std::string& more = "")
      : plan(plan_over(samples, "seed=42 epochs=" + std::to_string(kEpochs) +
                                    " world=" + std::to_string(ranks) +
                                    " ranks_per_node=" + std::to_string(ranks) + " batch=8 " + more)) {
    std::vector<Tracker*> all;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      trackers_.push_back(std::make_unique<Tracker>(plan.reader_slack(), plan.last_epoch()));
      all.push_back(trackers_.back().get());
      for (uint32_t epoch = 0; epoch < 2; ++epoch) know(rank, epoch);
    }
    followed.emplace(all);
  }

  const Samples& order(uint32_t rank, uint32_t epoch) {
    Samples& samples = orders_[{rank, epoch}];
    if (!samples.empty()) return samples;
    const auto made = plan.reader_sequence(*plan.order(Epoch(epoch)), Epoch(epoch), NodeId(0), rank);
    return samples = {made.samples().begin(), made.samples().end()};
  }

  RankTrackers::Observed open(uint32_t thread, uint32_t sample) {
    now += std::chrono::milliseconds(1);
    const Samples samples{sample};
    const auto seen = followed->observe(ThreadId(thread), samples, Access::open, now);
    const uint32_t epoch = tracker(seen.rank).high_water_epoch().value;
    if (epoch + 1 < kEpochs) know(static_cast<uint32_t>(seen.rank), epoch + 1);
    return seen;
  }

  // The rank's sample at an absolute position.
  uint32_t at(uint32_t rank, uint64_t position) {
    const uint64_t length = order(rank, 0).size();
    return order(rank, static_cast<uint32_t>(position / length))[position % length];
  }
  uint64_t length() { return order(0, 0).size(); }

  Tracker& tracker(size_t rank) { return *trackers_[rank]; }
  TrackerStatus status(size_t rank) { return trackers_[rank]->status(); }

  AccessSequence plan;
  std::optional<RankTrackers> followed;
  TimePoint now{std::chrono::seconds(1)};

 private:
  void know(uint32_t rank, uint32_t epoch) {
    if (!known_.insert({rank, epoch}).second) return;
    auto sequence = std::make_shared<const EpochSequence>(Epoch(epoch), order(rank, epoch), 0);
    const uint64_t begin = uint64_t{epoch} * sequence->length();
    trackers_[rank]->add_epoch(std::make_shared<const SequencePositions>(std::move(sequence)), begin);
  }

  std::vector<std::unique_ptr<Tracker>> trackers_;
  std::map<std::pair<uint32_t, uint32_t>, Samples> orders_;
  std::set<std::pair<uint32_t, uint32_t>> known_;
};

void check_followed(Node& node, uint32_t rank) {
  const TrackerStatus status = node.status(rank);
  INFO("rank " << rank);
  CHECK(status.suspensions == 0);
  CHECK(status.realignments == 0);
}

}  // namespace

TEST_CASE("two ranks drift apart by up to two epochs, and each is followed to its end") {
  const uint32_t drift_percent = GENERATE(0U, 1U, 10U, 50U, 100U, 150U, 200U);
  const uint32_t threads = GENERATE(0U, 100U);  // 0: not known
  Node node(2);
  const uint64_t total = kEpochs * node.length();
  const uint64_t drift = node.length() * drift_percent / 100;
  INFO("drift " << drift << " threads " << threads);
  for (uint64_t step = 0; step < total + drift; ++step) {
    if (step < total) CHECK(node.open(threads, node.at(0, step)).verdict == Tracker::Verdict::in_order);
    if (step >= drift)
      CHECK(node.open(threads == 0 ? 0 : threads + 1, node.at(1, step - drift)).verdict ==
            Tracker::Verdict::in_order);
    if (step < total && step % 100 == 0)
      CHECK(node.status(0).high_water ==
            PlanPosition{Epoch(static_cast<uint32_t>((step + 1) / node.length())),
                         static_cast<uint32_t>((step + 1) % node.length())});
  }
  for (const uint32_t rank : {0U, 1U}) {
    check_followed(node, rank);
    CHECK(node.status(rank).out_of_order == 0);
    CHECK(node.status(rank).in_order == total);
    CHECK(node.status(rank).state == TrackerState::finished);
  }
}

// The case that samples alone cannot tell: of a small dataset everything lies close ahead.
TEST_CASE("the thread tells ranks apart whose samples are expected by both") {
  Node node(2, 64, "workers=2");
  REQUIRE(node.plan.reader_slack() > node.length());
  const uint64_t total = kEpochs * node.length();
  const uint64_t drift = node.length();
  uint64_t wrong = 0;
  for (uint64_t step = 0; step < total + drift; ++step) {
    if (step < total) wrong += node.open(7, node.at(0, step)).rank != 0 ? 1 : 0;
    if (step >= drift) wrong += node.open(8, node.at(1, step - drift)).rank != 1 ? 1 : 0;
  }
  CHECK(wrong == 0);
  for (const uint32_t rank : {0U, 1U}) {
    check_followed(node, rank);
    CHECK(node.status(rank).out_of_order == 0);
    CHECK(node.status(rank).state == TrackerState::finished);
  }
}

TEST_CASE("workers are threads of their own, new ones in every epoch") {
  constexpr uint32_t kWorkers = 3;
  constexpr uint32_t kBatch = 8;
  Node node(2, kNodeSamples, "workers=3");
  std::mt19937 random(5);
  const uint64_t drift = node.length() / 2;
  std::array<uint64_t, 2> batch{};
  const uint64_t batches = kEpochs * node.length() / kBatch;
  while (batch[0] < batches || batch[1] < batches) {
    const uint32_t rank =
        batch[0] < batches && (batch[1] == batches || batch[0] < batch[1] + drift / kBatch) ? 0 : 1;
    const uint64_t first = batch[rank] * kBatch;
    const auto epoch = static_cast<uint32_t>(first / node.length());
    // Two workers at a time: their samples come mixed.
    std::vector<std::pair<uint32_t, uint64_t>> opens;
    for (uint64_t b = 0; b < 2 && (first + b * kBatch) / node.length() == epoch; ++b, ++batch[rank]) {
      const auto worker = static_cast<uint32_t>((batch[rank]) % kWorkers);
      for (uint64_t k = 0; k < kBatch; ++k)
        opens.emplace_back(1000 + epoch * 100 + rank * 10 + worker, first + b * kBatch + k);
    }
    std::shuffle(opens.begin(), opens.end(), random);
    for (const auto& [thread, position] : opens) {
      const auto seen = node.open(thread, node.at(rank, position));
      CHECK(seen.verdict == Tracker::Verdict::in_order);
      CHECK(seen.rank == rank);
    }
    CHECK(node.followed->rank_of(ThreadId(opens.front().first)) == rank);
  }
  for (const uint32_t rank : {0U, 1U}) {
    check_followed(node, rank);
    CHECK(node.status(rank).out_of_order == 0);
    CHECK(node.status(rank).state == TrackerState::finished);
  }
}

TEST_CASE("strays of 5 % disturb no rank") {
  const uint32_t threads =
      GENERATE(0U, 1U, 2U);  // the stranger: not known, a thread of rank 0, one of its own
  Node node(2);
  std::mt19937 random(3);
  const uint64_t drift = node.length() * 3 / 2;
  const uint64_t total = kEpochs * node.length();
  for (uint64_t step = 0; step < total + drift; ++step) {
    if (step < total) node.open(20, node.at(0, step));
    if (step >= drift) node.open(21, node.at(1, step - drift));
    if (random() % 10 == 0) node.open(threads == 0 ? 0 : threads == 1 ? 20 : 99, random() % kNodeSamples);
  }
  for (const uint32_t rank : {0U, 1U}) {
    check_followed(node, rank);
    CHECK(node.status(rank).in_order + 100 > total);
    CHECK(node.status(rank).state == TrackerState::finished);
  }
  CHECK(node.status(0).out_of_order + node.status(1).out_of_order > 100);
}

TEST_CASE("a number that another rank's thread gets is bound anew") {
  Node node(2);
  for (uint64_t position = 0; position < 1000; ++position) {
    node.open(5, node.at(0, position));
    node.open(6, node.at(1, position));
  }
  CHECK(node.followed->rank_of(ThreadId(5)) == 0U);
  // Both have ended, and their numbers are given to others.
  for (uint64_t position = 1000; position < 1020; ++position) {
    CHECK(node.open(6, node.at(0, position)).rank == 0);
    CHECK(node.open(5, node.at(1, position)).rank == 1);
  }
  CHECK(node.followed->rank_of(ThreadId(5)) == 1U);
  CHECK(node.followed->rank_of(ThreadId(6)) == 0U);
  CHECK(node.status(0).out_of_order + node.status(1).out_of_order == 0);
}

TEST_CASE("a rank that begins anew in another process is found again, and the other is left alone") {
  Node node(2);
  const uint64_t half = node.length() / 2;
  for (uint64_t position = 0; position < half; ++position) {
    node.open(5, node.at(0, position));
    node.open(6, node.at(1, position));
  }
  for (uint64_t step = 0; step < half - 10; ++step) {
    node.open(5, node.at(0, half + step));
    node.open(7, node.at(1, step));
  }
  check_followed(node, 0);
  CHECK(node.status(0).out_of_order <= 16);  // until it is clear that this is no stranger
  const TrackerStatus again = node.status(1);
  CHECK(again.realignments == 1);
  CHECK(again.suspensions == 0);
  CHECK(again.out_of_order < 20);
  CHECK(again.high_water == PlanPosition{Epoch(0), static_cast<uint32_t>(half - 10)});
  REQUIRE(again.divergence);
  CHECK(again.divergence->hint == "epoch 0 was restarted");
  CHECK(node.followed->rank_of(ThreadId(7)) == 1U);
}

TEST_CASE("a rank that leaves its plan is suspended by itself") {
  Node node(2);
  AccessSequence other = plan_over(kNodeSamples, "seed=1000 world=2 ranks_per_node=2 batch=8");
  const auto wrong = other.reader_sequence(*other.order(Epoch(0)), Epoch(0), NodeId(0), 1);
  for (uint64_t position = 0; position < 1000; ++position) {
    node.open(5, node.at(0, position));
    node.open(6, position < 500 ? node.at(1, position) : wrong.sample_at(position));
  }
  check_followed(node, 0);
  CHECK(node.status(0).high_water.position == 1000);
  CHECK(node.status(1).state == TrackerState::suspended);
  CHECK(combined(node.status(0), node.status(1)).state == TrackerState::suspended);
}

TEST_CASE("of three ranks one never reads") {
  Node node(3);
  const uint64_t total = kEpochs * node.length();
  for (uint64_t position = 0; position < total; ++position) {
    node.open(5, node.at(0, position));
    if (position % 3 != 0) node.open(7, node.at(2, position - position / 3 - 1));
  }
  for (const uint32_t rank : {0U, 2U}) {
    check_followed(node, rank);
    CHECK(node.status(rank).out_of_order == 0);
  }
  CHECK(node.status(0).state == TrackerState::finished);
  CHECK(node.status(1).state == TrackerState::waiting);
  CHECK(node.status(1).in_order == 0);
  CHECK(node.status(2).state == TrackerState::following);
}

TEST_CASE("ranks together are where the furthest is, and have read what all have") {
  TrackerStatus ahead;
  ahead.state = TrackerState::following;
  ahead.position = {Epoch(2), 10};
  ahead.high_water = {Epoch(2), 20};
  ahead.in_order = 100;
  TrackerStatus behind = ahead;
  behind.position = {Epoch(1), 500};
  behind.high_water = {Epoch(2), 3};
  behind.longest_stray = 7;
  const TrackerStatus both = combined(behind, ahead);
  CHECK(both.position == PlanPosition{Epoch(2), 10});
  CHECK(both.high_water == PlanPosition{Epoch(2), 23});
  CHECK(both.in_order == 200);
  CHECK(both.longest_stray == 7);
  behind.state = TrackerState::waiting;
  ahead.state = TrackerState::finished;
  CHECK(combined(behind, ahead).state == TrackerState::following);
  behind.state = TrackerState::finished;
  CHECK(combined(behind, ahead).state == TrackerState::finished);
}
