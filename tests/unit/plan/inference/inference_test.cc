// What is searched for readers and when, without the plans that come of it. The tests take the turns of
// `inference`.
#include "plan/inference/inference.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/support/moved_clock.h"
#include "tests/support/seen_opens.h"

namespace clairfs::seen_opens {
namespace {

/// Programs 100 and 200, each with workers that it has forked.
std::optional<ProcessFacts> facts_of_two(uint32_t number) {
  const uint32_t program = number / 100 * 100;
  if (program != 100 && program != 200) return std::nullopt;
  if (number == program) return ProcessFacts{program, 1, program, 1, false};
  return ProcessFacts{number, program, program, 1, true};
}

/// The last parts of a look, which end with 2^32 seeds: those take a core a minute and more.
bool is_searching_seeds() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    if (std::getline(comm, name) && name == "seed-search") return true;
  }
  return false;
}

/// A mount of kShuffled files, whose readers are watched.
struct WatchFixture {
  explicit WatchFixture(InferMode mode)
      : inference(Inference::Deps{.mode = mode,
                                  .dataset = dataset_of(kShuffled),
                                  .clock = clock,
                                  .log = log.logger(),
                                  .follow = [this](const FoundOrder& order) { return follow(order); },
                                  .processes =
                                      [this](uint32_t number) {
                                        ++questions;
                                        if (starved) throw std::bad_alloc();
                                        return facts_of_two(number);
                                      },
                                  .by_hand = true,
                                  .when_idle = false}) {
    inference.begin();
  }
  bool follow(const FoundOrder& order) {
    on_follow(order);
    found = order;
    return true;
  }
  /// Takes turns, in a time that stands still, until nothing is due; false if there is always something.
  bool settle() {
    constexpr int kMany = 1000;
    int turns = 0;
    while (turns < kMany && inference.step(clock.time).busy) ++turns;
    return turns < kMany;
  }
  /// The same, while another thread calls `then` once seeds are searched; false also if none are.
  bool settle_during(const std::function<void()>& then) {
    bool searched = false;
    std::jthread reader([&] {
      searched = eventually(is_searching_seeds);
      if (searched) then();
    });
    const bool settled = settle();
    reader.join();
    return settled && searched;
  }
  void read(uint32_t thread, const Samples& order, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i)
      inference.note(ThreadId(thread), file_of(kShuffled, order[i]), Access::open);
  }
  /// What is told while a plan is listed; by number, 0: none.
  nlohmann::json told(uint32_t listed = 0) const {
    return nlohmann::json::parse(inference.json(OrderId(listed)));
  }
  std::string state(uint32_t listed) const { return told(listed).at("state").get<std::string>(); }
  double compared() const { return told().at("orders").get<double>(); }

  MovedClock clock;
  CapturedLog log;
  std::atomic<uint64_t> questions{0};  // for processes: some at each look
  std::atomic<bool> starved{false};    // of memory, where one is asked
  std::optional<FoundOrder> found;     // the last one
  std::function<void(const FoundOrder&)> on_follow = [](const FoundOrder&) {};  // set before anything is read
  // Last: uses the others.
  Inference inference;
};

Samples order_in(const std::string& text) {
  return node_order(*resolve_plan(*parse_plan(text), 1), kShuffled, 0, 0);
}

Samples of_nobody() {
  std::mt19937 random(41);
  Samples order(kShuffled);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

constexpr double kSeedsOfShuffles = double{1ULL << 32};

}  // namespace

// Together the first opens are enough for all seeds to be tried; of each reader they are too few for any
// order.
TEST_CASE("a search in the opens of all readers ends once those of one are enough for its order") {
  WatchFixture mount(InferMode::full);
  const Samples one = order_in("sampler=torch.distributed seed=42");
  Samples other = of_nobody();
  constexpr uint32_t kOpens = 120;
  std::erase_if(other, [&](uint32_t sample) {
    const auto end = one.begin() + kOpens;
    return std::find(one.begin(), end, sample) != end;
  });
  const auto read_both = [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      mount.read(101, one, i, i + 1);
      mount.read(201, other, i, i + 1);
    }
  };
  read_both(0, 30);
  CHECK(mount.settle_during([&] { read_both(30, kOpens); }));
  REQUIRE(mount.found.has_value());
  CHECK(mount.found->plan.seed == "42");
  CHECK(mount.found->program.pid == 100);
  CHECK(mount.compared() < kSeedsOfShuffles);
}

TEST_CASE("a plan that is cancelled as it comes into force is not told of as found") {
  WatchFixture mount(InferMode::cheap);
  mount.on_follow = [&](const FoundOrder& order) {
    mount.inference.in_force(order, OrderId(1));
    mount.inference.refuse(order.plan);
  };
  mount.read(101, order_in("sampler=torch.distributed seed=42"), 0, 60);
  CHECK(mount.settle());
  REQUIRE(mount.found.has_value());
  CHECK(mount.state(1) == "watching");
}

TEST_CASE("a plan is told of as found while it is listed, and no other one is") {
  WatchFixture mount(InferMode::cheap);
  const FoundOrder order{.plan = *parse_plan("name=auto format=files seed=1"), .opens = 48};
  mount.inference.in_force(order, OrderId(2));
  for (const uint32_t listed : {0, 1}) {  // not yet, or the one before
    CHECK(mount.state(listed) == "watching");
    CHECK(mount.inference.text(OrderId(listed)).find("nothing certain yet") != std::string::npos);
  }
  CHECK(mount.state(2) == "found");
  CHECK(mount.told(2).at("opens").get<uint64_t>() == 48);
  CHECK(mount.inference.text(OrderId(2)).find("found after 48 opens") != std::string::npos);
  mount.inference.displaced();
  CHECK(mount.state(2) == "watching");
}

TEST_CASE("nobody looks again and again for an order that is suggested while all wait for another's plan") {
  WatchFixture mount(InferMode::cheap);
  mount.on_follow = [&](const FoundOrder& order) {
    mount.inference.follow(order.program);
    mount.inference.in_force(order, OrderId(1));
    mount.inference.forget(order.program);
  };
  mount.read(101, order_in("sampler=torch.distributed seed=42"), 0, 60);
  CHECK(mount.settle());
  REQUIRE(mount.found.has_value());
  const uint64_t before = mount.questions.load();
  mount.inference.suggest({*parse_plan("format=files seed=918273646")}, true);
  CHECK(mount.settle());
  const uint64_t then = mount.questions.load();
  CHECK(then > before);  // looked, and there was nobody
  mount.clock.time += std::chrono::minutes(1);
  CHECK(mount.settle());
  CHECK(mount.questions.load() == then);
}

TEST_CASE("a look comes two seconds after an open, and at once when enough were seen") {
  WatchFixture mount(InferMode::cheap);
  const Samples order = of_nobody();
  CHECK(mount.settle());
  mount.read(101, order, 0, 5);
  const Turn soon = mount.inference.step(mount.clock.time);
  CHECK(!soon.busy);
  REQUIRE(soon.look_again);
  const Duration after = std::chrono::seconds(2);
  CHECK(*soon.look_again == after);
  mount.clock.time += after / 2;
  CHECK(mount.inference.step(mount.clock.time).look_again == after / 2);
  mount.clock.time += after / 2;
  CHECK(mount.inference.step(mount.clock.time).busy);
  const Turn none = mount.inference.step(mount.clock.time);
  CHECK(!none.busy);
  CHECK(!none.look_again);
  mount.read(101, order, 5, 12);
  CHECK(mount.inference.step(mount.clock.time).busy);
}

TEST_CASE("a look for which there is no memory is given up, and readers are looked at again after a rest") {
  WatchFixture mount(InferMode::cheap);
  const Samples order = order_in("sampler=torch.distributed seed=42");
  mount.read(101, order, 0, 30);
  mount.read(201, of_nobody(), 0, 30);
  mount.starved = true;
  CHECK(mount.settle());
  CHECK(mount.log.lines_with("not enough memory") == 1);
  mount.starved = false;
  mount.read(101, order, 30, 100);  // nobody looks
  const Turn rest = mount.inference.step(mount.clock.time);
  CHECK(!rest.busy);
  REQUIRE(rest.look_again);
  CHECK(!mount.found.has_value());
  mount.clock.time += *rest.look_again;
  CHECK(mount.settle());
  mount.read(101, order, 0, 60);
  CHECK(mount.settle());
  REQUIRE(mount.found.has_value());
  CHECK(mount.found->plan.seed == "42");
}

TEST_CASE("the end of a plan that was found is not that of the next one") {
  WatchFixture mount(InferMode::cheap);
  const FoundOrder order{.plan = *parse_plan("name=auto format=files seed=1")};
  for (const uint32_t number : {1, 2}) mount.inference.in_force(order, OrderId(number));
  mount.read(101, of_nobody(), 0, 5);
  mount.inference.epoch_over(OrderId(1));
  CHECK(mount.inference.opens_of(Program()).size() == 5);
  mount.inference.epoch_over(OrderId(2));  // what comes now is of the next epoch
  CHECK(mount.inference.opens_of(Program()).empty());
}

TEST_CASE("a search for a shuffle ends once its reader repeats a list") {
  WatchFixture mount(InferMode::full);
  const Samples list = of_nobody();
  mount.read(101, list, 0, 60);
  CHECK(mount.settle_during([&] {
    mount.read(101, list, 60, kShuffled);
    mount.read(101, list, 0, 100);
  }));
  REQUIRE(mount.found.has_value());
  CHECK(mount.found->plan.sampler == "list");
  CHECK(mount.compared() < kSeedsOfShuffles);
}

}  // namespace clairfs::seen_opens
