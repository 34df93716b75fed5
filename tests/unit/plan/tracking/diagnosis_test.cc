#include "plan/tracking/diagnosis.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

using Loader = LoaderModel::Loader;
constexpr uint32_t kDataset = 20000;
constexpr MountModel::Sight kSeesOpens{true, 64, 600};

SequenceMaker maker_over_dataset() {
  return [](const PlanSpec& spec, Epoch epoch, NodeId node) -> Result<EpochSequence> {
    auto sampler = make_plan_sampler(spec, kDataset, DatasetSource(), nullptr);
    if (!sampler) return sampler.error();
    auto sequence = AccessSequence::make(spec, std::move(*sampler));
    if (!sequence) return sequence.error();
    return sequence->sequence(epoch, node);
  };
}

/// A mount with a plan, whose planner answers when the tracker wants to know why the reader left.
struct Watched {
  explicit Watched(const std::string& text, MountModel::Sight sight = kSeesOpens)
      : plan(plan_over(kDataset, text)), mount(plan, kDataset, sight, plan.last_epoch()) {}

  void open(uint32_t sample) {
    mount.open(sample);
    if (!mount.tracker.wants_diagnosis()) return;
    const PlanPosition at = mount.tracker.status().divergence->at;
    const Diagnosis found = diagnose(mount.tracker.evidence(), plan.spec(), at, NodeId(0),
                                     mount.tracker.reorder_window(), maker_over_dataset());
    if (found.epoch) mount.add_epoch(found.epoch->value);
    if (found.reorder_window) mount.tracker.widen(*found.reorder_window);
    mount.tracker.set_hint(found.hint);
    if (hint.empty()) hint = found.hint;
  }

  void read(const std::string& text, uint32_t epoch, Loader loader, uint32_t opens = UINT32_MAX) {
    AccessSequence real = plan_over(kDataset, text);
    const Samples order = order_of(real, epoch);
    LoaderModel model(static_cast<uint32_t>(order.size()), loader, random);
    model.run([&](uint32_t position) {
      open(order[position]);
      return --opens > 0;
    });
  }

  AccessSequence plan;
  MountModel mount;
  std::mt19937 random{11};
  std::string hint;  ///< the first
};

std::string hint_for(const std::string& planned, const std::string& real) {
  Watched watched(planned + " batch=16 workers=2");
  watched.read(real + " batch=16 workers=2", 0, {1, 16, 2}, 300);
  return watched.hint;
}

}  // namespace

TEST_CASE("a reader whose batch and workers the plan leaves out is followed, and told what to give") {
  for (const Loader& loader :
       {Loader{1, 64, 4}, Loader{1, 32, 2}, Loader{1, 100, 8}, Loader{1, 16, 3}, Loader{1, 128, 2}}) {
    const std::string keys = fmt::format("give batch={} workers={}", loader.batch, loader.workers);
    INFO(keys);
    Watched watched("seed=42");
    for (uint32_t epoch = 0; epoch < 2; ++epoch) watched.read("seed=42", epoch, loader);
    INFO(watched.hint);
    CHECK_THAT(watched.hint, Contains("matches the plan, but dealt to several workers: give batch="));
    if (watched.hint.find("give batch= and workers=") == std::string::npos)
      CHECK_THAT(watched.hint, Contains(keys));
    const TrackerStatus status = watched.mount.tracker.status();
    CHECK(status.state == TrackerState::following);
    CHECK(status.suspensions <= 4);
    CHECK(status.out_of_order < kDataset / 20);
    CHECK(status.in_order > 2 * kDataset * 19 / 20);
    CHECK(follows(status));
  }
}

TEST_CASE("workers that the plan leaves out are found where the reader is in the middle") {
  Watched watched("seed=42");
  AccessSequence real = plan_over(kDataset, "seed=42");
  const Samples order = order_of(real, 0);
  LoaderModel model(kDataset, {1, 64, 4}, watched.random);
  uint32_t seen = 0;
  model.run([&](uint32_t position) {
    if (++seen > 5000) watched.open(order[position]);
    return true;
  });
  CHECK(watched.mount.tracker.state() == TrackerState::following);
  CHECK(follows(watched.mount.tracker.status()));
}

TEST_CASE("another sampler with the plan's seed is named") {
  CHECK_THAT(hint_for("seed=5", "sampler=torch.random generator=default seed=5"),
             Contains("sampler=torch.random generator=default, which is DataLoader(shuffle=True) after "
                      "torch.manual_seed()"));
  CHECK_THAT(hint_for("seed=5", "sampler=torch.random seed=5"),
             Contains("matches sampler=torch.random generator=loader, which is"));
  CHECK_THAT(hint_for("sampler=torch.random seed=5", "seed=5"),
             Contains("matches sampler=torch.distributed, which is DistributedSampler"));
  CHECK_THAT(hint_for("sampler=torch.random seed=5", "sampler=torch.random generator=default seed=5"),
             Contains("generator=default"));
  CHECK_THAT(hint_for("seed=5", "sampler=numpy.default_rng seed=5"), Contains("sampler=numpy.default_rng, "));
  CHECK_THAT(hint_for("seed=5", "sampler=numpy.legacy seed=5"), Contains("sampler=numpy.legacy, "));
  CHECK_THAT(hint_for("seed=5", "sampler=python.random seed=5"), Contains("sampler=python.random, "));
}

TEST_CASE("a wrong seed is named although batch and workers are left out, and so is another sampler") {
  Watched seed("seed=42");
  seed.read("seed=1", 0, {1, 64, 4}, 300);
  CHECK_THAT(seed.hint, Contains("matches seed=1 instead of 42"));
  Watched sampler("seed=0");
  sampler.read("sampler=torch.random generator=default seed=0", 0, {1, 64, 4}, 300);
  CHECK_THAT(sampler.hint, Contains("generator=default"));
}

TEST_CASE("an order that nobody could know is no order of ours, and the advice is to ask the script") {
  const std::string hint = hint_for("seed=42", "seed=987654321");
  CHECK_THAT(hint, Contains("matches no known order: "));
  CHECK_THAT(hint, Contains("clairfs.register(loader)"));
  Watched subset("seed=42 batch=16 workers=2");
  subset.read(
      "sampler=torch.subset seed=42 indices=[" +
          [] {
            std::string indices = "0";
            for (uint32_t i = 2; i < 8000; i += 2) indices += "," + std::to_string(i);
            return indices;
          }() +
          "]",
      0, {1, 16, 2}, 300);
  CHECK_THAT(subset.hint, Contains("a Subset"));
}

TEST_CASE("records that the script numbers otherwise are named, or that they may be") {
  const auto hint_of = [](const std::string& keys, const std::vector<uint32_t>& plans_number) {
    Watched watched(
        fmt::format("format=lmdb file=x.lmdb keys={} n={} seed=5 batch=16 workers=2", keys, kDataset));
    AccessSequence real = plan_over(kDataset, "seed=5 batch=16 workers=2");
    const Samples order = order_of(real, 0);
    for (uint32_t position = 0; position < 300; ++position) watched.open(plans_number[order[position]]);
    return watched.hint;
  };
  std::vector<std::string> keys;
  for (uint32_t i = 0; i < kDataset; ++i) keys.push_back(std::to_string(i));
  std::sort(keys.begin(), keys.end());
  std::vector<uint32_t> number_at;  // by the cursor's number
  for (const std::string& key : keys) number_at.push_back(static_cast<uint32_t>(std::stoul(key)));
  std::vector<uint32_t> place_of(kDataset);  // by the key's number
  for (uint32_t place = 0; place < kDataset; ++place) place_of[number_at[place]] = place;

  CHECK(hint_of("cursor", place_of) == "matches keys=decimal instead of cursor");
  CHECK(hint_of("decimal", number_at) == "matches keys=cursor instead of decimal");
  std::vector<uint32_t> shuffled = place_of;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(7));
  CHECK_THAT(hint_of("image-%09d", shuffled), Contains("otherwise than keys=image-%09d says"));
  CHECK_THAT(hint_of("cursor", shuffled), Contains("otherwise than keys=cursor says"));
}

TEST_CASE("one rank is not sixteen") {
  Watched watched("seed=42 world=2 ranks_per_node=1 batch=16 workers=2");
  watched.read("seed=42 batch=16 workers=2", 0, {1, 16, 2}, 300);
  CHECK(watched.hint == "matches world=1 instead of 2 (rank 0 here)");
}

TEST_CASE("a job that ran to its end and is run again does not forget set_epoch") {
  Watched watched("seed=42 epochs=2 batch=16 workers=2");
  for (const uint32_t epoch : {0U, 1U}) watched.read("seed=42", epoch, {1, 16, 2});
  CHECK(watched.mount.tracker.state() == TrackerState::finished);
  watched.read("seed=42", 0, {1, 16, 2}, 1000);
  const TrackerStatus status = watched.mount.tracker.status();
  CHECK(status.divergence->hint == "epoch 0 was read again after the plan's end");
  CHECK(follows(status));
}

TEST_CASE("a job that is started again in the middle of an epoch is told from set_epoch that is not called") {
  Watched watched("seed=42 batch=16 workers=2");
  watched.read("seed=42", 0, {1, 16, 2});
  watched.read("seed=42", 1, {1, 16, 2}, 8000);
  watched.read("seed=42", 0, {1, 16, 2}, 1000);
  const std::string hint = watched.mount.tracker.status().divergence->hint;
  CHECK(hint == "the job was started again, at epoch 0");
  CHECK(follows(watched.mount.tracker.status()));
}

TEST_CASE("strays and a restart are no failure, another order is one") {
  TrackerStatus status;
  CHECK(!follows(status));
  status.state = TrackerState::following;
  status.in_order = status.in_order_since = 1000;
  status.out_of_order = status.out_of_order_since = 50;
  CHECK(follows(status));
  status.out_of_order = status.out_of_order_since = 51;
  CHECK(!follows(status));
  status.in_order_since = 512;  // found again since
  status.out_of_order_since = 25;
  CHECK(follows(status));
  status.in_order_since = 511;
  CHECK(!follows(status));
  status.in_order_since = 600;
  status.out_of_order_since = 31;
  CHECK(!follows(status));
  status.out_of_order = status.out_of_order_since = 0;
  status.state = TrackerState::suspended;
  CHECK(!follows(status));
}

TEST_CASE("another order than the plan's is told as a plan, and the plan's own is not") {
  const auto order_of_reader = [](const std::string& planned, const std::string& real, uint32_t epoch) {
    AccessSequence plan = plan_over(kDataset, planned);
    AccessSequence read = plan_over(kDataset, real);
    const Samples order = order_of(read, epoch);
    std::vector<Sighting> evidence;
    for (uint32_t i = 0; i < 40; ++i) evidence.push_back({order[i], i, 0, true});
    return diagnose(evidence, plan.spec(), {Epoch(epoch), 0}, NodeId(0), 16, maker_over_dataset()).order;
  };
  const auto seed = order_of_reader("seed=42", "seed=1", 3);
  REQUIRE(seed);
  CHECK(seed->seed == "1");
  CHECK(seed->first_epoch == 3);
  const auto sampler = order_of_reader("seed=42", "sampler=numpy.default_rng seed=42", 0);
  REQUIRE(sampler);
  CHECK(sampler->sampler == "numpy.default_rng");
  const auto world = order_of_reader("seed=42 world=2 ranks_per_node=1", "seed=42", 0);
  REQUIRE(world);
  CHECK(world->world == 1);
  CHECK(!order_of_reader("seed=42", "seed=42", 1));
  CHECK(!order_of_reader("seed=42", "seed=4242424242", 0));
}
