// The plan that was found, in a job of two nodes: what a node makes of the other's word. The orders are found
// by the search itself in order_search_test.cc; here by the other node. At the end: several readers of one
// node, that are told apart by their processes.
#include <array>
#include <map>
#include <thread>

#include "plan/plan_manager.h"
#include "tests/support/eventually.h"
#include "tests/support/reader_model.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint32_t kFiles = 400;
constexpr const char* kFound =
    "name=auto format=files sampler=torch.distributed seed=42 world=2 ranks_per_node=1 epochs=1";

/// Node 1 of two.
struct NodeFixture {
  explicit NodeFixture(InferMode infer = InferMode::cheap)
      : staged(kFiles, 5000, "name=unknown format=files shuffle=false", 1 << 20, 1 << 20) {
    PlanManager::Deps deps{{}, {NodeId(1), 2}, *staged.staging, clock, staged.metrics, staged.log.logger()};
    deps.dataset.catalog = staged.catalog;
    deps.announce = [this](const PlanChange& change) {
      const MutexLock lock(mutex);
      announced.push_back(change);
    };
    deps.infer = infer;
    plans.emplace(std::move(deps));
  }

  bool told(const std::string& text, bool withdrawn = false, NodeId origin = NodeId(0)) {
    return plans->take_over({"auto", text, origin, withdrawn}).ok();
  }
  bool follows() {
    const auto briefs = plans->briefs();
    return std::any_of(briefs.begin(), briefs.end(), [](const PlanBrief& plan) {
      return plan.name == kFoundPlan && plan.state == TrackerState::following;
    });
  }
  bool has_plan(const std::string& name = "auto") { return plans->text(name).ok(); }
  bool in_force() { return plans->next("auto", 1).ok(); }
  std::vector<PlanChange> said() {
    const MutexLock lock(mutex);
    return announced;
  }
  /// Node 1's readers open samples [begin, end) of an order.
  void read(const std::string& order, uint32_t begin, uint32_t end) {
    auto sequence = plan_over(kFiles, order, 2);
    const auto samples = sequence.sequence(Epoch(0), NodeId(1));
    REQUIRE(samples);
    for (uint32_t i = begin; i < end; ++i) {
      const FileId file = staged.run->index().range(samples->sample_at(i), 0).file;
      plans->observe(ThreadId(7), file, 0, 0, Access::open);
    }
  }

  SteadyClock clock;
  StagingFixture staged;
  Mutex mutex;
  std::vector<PlanChange> announced GUARDED_BY(mutex);
  std::optional<PlanManager> plans;
};

}  // namespace

TEST_CASE("a node takes over what another found, and its reader follows it") {
  NodeFixture node;
  node.read(kFound, 0, 6);  // too few to find it here
  REQUIRE(node.told(kFound));
  REQUIRE(eventually([&] { return node.in_force(); }));
  node.read(kFound, 6, 60);
  CHECK(node.follows());
  CHECK(node.plans->text("auto")->find("found on node 0") != std::string::npos);
  CHECK(node.plans->detect(true).find("\"told_by\": 0") != std::string::npos);
  CHECK(node.said().empty());
}

TEST_CASE("who follows an order goes on, whatever the other node found") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(eventually([&] { return node.in_force(); }));
  node.read(kFound, 0, 60);
  REQUIRE(node.told("name=auto format=files seed=7 world=2 ranks_per_node=1 epochs=1"));
  node.read(kFound, 60, 100);
  CHECK(node.follows());
  CHECK(node.plans->texts().find("seed=42") != std::string::npos);
}

TEST_CASE("a wrong word is withdrawn everywhere, once") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(eventually([&] { return node.in_force(); }));
  node.read("format=files sampler=torch.distributed seed=987654321987 world=2", 0, 200);
  REQUIRE(eventually([&] { return !node.has_plan(); }));
  REQUIRE(eventually([&] { return node.said().size() == 1; }));
  CHECK(node.said()[0].withdrawn);
  CHECK(node.said()[0].text.find("seed=42") != std::string::npos);
  REQUIRE(node.told(kFound));  // found anew there: it is not this node's
  node.plans->stop();          // nothing is made any more
  CHECK(!node.has_plan());
  CHECK(node.said().size() == 1);
}

TEST_CASE("the last word that is told holds, though this node has said it") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(eventually([&] { return node.in_force(); }));
  // Said here before that came, but later in the job.
  REQUIRE(node.told("name=auto format=files seed=7 world=2 ranks_per_node=1 epochs=1", false, NodeId(1)));
  node.read("format=files sampler=torch.distributed seed=987654321987 world=2", 0, 200);
  REQUIRE(eventually([&] { return node.plans->texts().find("seed=42") == std::string::npos; }));
  node.plans->stop();
  CHECK(node.said().empty());  // what its readers have left was not the word
}

TEST_CASE("what a node found is withdrawn by another") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(eventually([&] { return node.in_force(); }));
  REQUIRE(node.told(kFound, false, NodeId(1)));
  REQUIRE(node.told(kFound, true, NodeId(1)));
  CHECK(!node.has_plan());
}

TEST_CASE("what is withdrawn elsewhere stays where readers follow it, and goes where none does") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(eventually([&] { return node.in_force(); }));
  SECTION("followed") {
    node.read(kFound, 0, 60);
    REQUIRE(node.told(kFound, true));
    node.read(kFound, 60, 100);
    CHECK(node.follows());
  }
  SECTION("not followed") {
    REQUIRE(node.told(kFound, true));
    CHECK(!node.has_plan());
  }
  SECTION("not followed, and the last word was another that was not told") {
    REQUIRE(node.told("name=auto format=files seed=7 world=2 ranks_per_node=1 epochs=1", true));
    CHECK(!node.has_plan());
  }
}

TEST_CASE("a user's cancellation holds on all nodes") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(eventually([&] { return node.in_force(); }));
  SECTION("on another node") {
    REQUIRE(node.told(""));
    CHECK(!node.has_plan());
  }
  SECTION("on this node") {
    REQUIRE(node.plans->cancel("auto"));
    REQUIRE(node.said().size() == 1);
    CHECK(node.said()[0].text.empty());
  }
  REQUIRE(node.told(kFound));
  node.plans->stop();
  CHECK(!node.has_plan());
}

TEST_CASE("a registered plan wins over the word of another node, whichever comes first") {
  NodeFixture node;
  const std::string registered = "format=files seed=1 world=2 ranks_per_node=1";
  SECTION("first") {
    REQUIRE(node.plans->submit(registered));
    REQUIRE(node.told(kFound));
    REQUIRE(eventually([&] { return !node.has_plan(); }));
  }
  SECTION("later") {
    REQUIRE(node.told(kFound));
    REQUIRE(eventually([&] { return node.in_force(); }));
    REQUIRE(node.plans->submit(registered));
    CHECK(!node.has_plan());
  }
  CHECK(node.has_plan("default"));
}

TEST_CASE("a node that looks for nothing takes nothing over") {
  NodeFixture node(InferMode::off);
  REQUIRE(node.told(kFound));
  node.plans->stop();
  CHECK(!node.has_plan());
}

namespace {

/// A single node, and two programs that read there: processes 100 and 200 with a worker each, 101 and 201.
struct ReadersFixture {
  ReadersFixture() : staged(kFiles, 5000, "name=unknown format=files shuffle=false", 1 << 20, 1 << 20) {
    for (const uint32_t program : {100, 200}) {
      processes[program] = {program, 1, program, 1, false};
      processes[program + 1] = {program + 1, program, program, 1, true};
      processes[program + 2] = {program + 2, program, program, 1, true};
    }
    PlanManager::Deps deps{{}, {NodeId(0), 1}, *staged.staging, clock, staged.metrics, staged.log.logger()};
    deps.dataset.catalog = staged.catalog;
    deps.infer = InferMode::cheap;
    deps.processes = [this](uint32_t number) -> std::optional<ProcessFacts> {
      const MutexLock lock(mutex);
      ++asked;
      const auto found = processes.find(number);
      if (found == processes.end()) return std::nullopt;
      return found->second;
    };
    plans.emplace(std::move(deps));
  }
  void read(uint32_t thread, const std::string& order, uint32_t begin, uint32_t end) {
    auto sequence = plan_over(kFiles, order);
    const Samples samples = order_of(sequence, 0);
    for (uint32_t i = begin; i < end; ++i)
      plans->observe(ThreadId(thread), staged.run->index().range(samples[i], 0).file, 0, 0, Access::open);
  }
  bool follows(const std::string& words) {
    return plans->next("auto", 1).ok() && plans->texts().find(words) != std::string::npos;
  }
  uint64_t questions() {
    const MutexLock lock(mutex);
    return asked;
  }
  void end_program(uint32_t program) {
    const MutexLock lock(mutex);
    processes.erase(program);
  }

  SteadyClock clock;
  StagingFixture staged;
  Mutex mutex;
  std::map<uint32_t, ProcessFacts> processes GUARDED_BY(mutex);
  uint64_t asked GUARDED_BY(mutex) = 0;  // for processes, at each look as well
  std::optional<PlanManager> plans;
};

constexpr const char* kShuffled = "sampler=torch.distributed seed=42";
constexpr const char* kOther = "sampler=numpy.default_rng seed=7";

}  // namespace

TEST_CASE("another reader neither moves nor suspends the plan that was found, and is followed after it") {
  ReadersFixture node;
  node.read(101, kShuffled, 0, 60);
  REQUIRE(eventually([&] { return node.follows("seed=42"); }));
  const std::string before = *node.plans->next("auto", 1);
  node.read(201, kOther, 0, 150);
  CHECK(*node.plans->next("auto", 1) == before);
  CHECK(node.staged.metrics.plan_observations_out_of_order.value() == 0);
  node.read(101, kShuffled, 60, 100);
  node.read(201, kOther, 150, 200);
  CHECK(node.follows("seed=42"));
  CHECK(*node.plans->next("auto", 1) != before);
  // It has ended: what others open counts, and the plan goes.
  node.end_program(100);
  node.read(202, kOther, 200, 300);
  CHECK(eventually([&] { return node.follows("seed=7"); }));
}

TEST_CASE("nobody looks again and again at readers that wait for another's plan") {
  ReadersFixture node;
  node.read(101, kShuffled, 0, 60);
  REQUIRE(eventually([&] { return node.follows("seed=42"); }));
  node.read(201, kOther, 0, 150);
  const uint64_t before = node.questions();
  REQUIRE(eventually([&] { return node.questions() > before; }));  // looked at, and left alone
  const uint64_t then = node.questions();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(node.questions() < then + 50);
}

TEST_CASE("a plan that was found is refused by who names it, not by who cancels all or those of a folder") {
  ReadersFixture node;
  node.read(101, kShuffled, 0, 60);
  REQUIRE(eventually([&] { return node.follows("seed=42"); }));
  SECTION("all") {
    REQUIRE(node.plans->cancel_all());
  }
  SECTION("of its folder") {
    REQUIRE(node.plans->cancel_folder(""));
  }
  CHECK(!node.follows("seed=42"));
  node.read(101, kShuffled, 60, 160);
  CHECK(eventually([&] { return node.follows("seed=42"); }));
}

TEST_CASE("who waited for another's plan is followed as soon as that one has left it or ended") {
  ReadersFixture node;
  node.read(101, kShuffled, 0, 60);
  REQUIRE(eventually([&] { return node.follows("seed=42"); }));
  for (uint32_t i = 0; i < 300; i += 10) {  // each time a look could be due
    node.read(201, kOther, i, i + 10);
    node.read(101, kShuffled, 60 + i / 10, 61 + i / 10);
  }
  CHECK(node.follows("seed=42"));
  SECTION("left") {
    // An order that nobody can know; the other opens nothing more.
    node.read(101, "sampler=numpy.default_rng seed=987654321987", 0, 300);
  }
  SECTION("ended") {
    node.end_program(100);
    node.read(201, kOther, 300, 301);  // not half as many again
  }
  CHECK(eventually([&] { return node.follows("seed=7"); }));
}

TEST_CASE("of two readers at once one is found, and the other left alone") {
  ReadersFixture node;
  for (uint32_t i = 0; i < 120; ++i) {
    node.read(101, kShuffled, i, i + 1);
    node.read(201, kOther, i, i + 1);
  }
  REQUIRE(eventually([&] { return node.follows("seed=42") || node.follows("seed=7"); }));
  const bool first = node.follows("seed=42");
  for (uint32_t i = 120; i < 300; ++i) {
    node.read(101, kShuffled, i, i + 1);
    node.read(201, kOther, i, i + 1);
  }
  CHECK(node.follows(first ? "seed=42" : "seed=7"));
  CHECK(node.staged.metrics.plan_observations_out_of_order.value() == 0);
}

TEST_CASE("a registered plan is not displaced by a reader that another one has") {
  ReadersFixture node;
  REQUIRE(node.plans->submit(std::string("format=files ") + kShuffled));
  for (uint32_t i = 0; i < 200; ++i) {
    node.read(101, kShuffled, i, i + 1);
    if (i % 20 == 0) node.read(201, kOther, i, i + 1);
  }
  node.plans->stop();
  CHECK(!node.plans->text("auto").ok());
  CHECK(node.plans->text("default")->find("following") != std::string::npos);
}
