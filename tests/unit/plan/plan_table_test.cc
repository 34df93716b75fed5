#include "plan/plan_table.h"

#include <cerrno>
#include <chrono>
#include <future>
#include <utility>

#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr auto kForMakings = std::chrono::minutes(4);  // which take milliseconds

/// A table of plans over a few files. A plan that is being made goes on when the test says so.
struct PlanTableFixture {
  PlanTableFixture() {
    deps.dataset.catalog = staged.catalog;
    deps.announce = [this](const PlanChange& change) {
      announced.push_back(change);
      return uint64_t{7};
    };
  }
  ~PlanTableFixture() {
    go_on();
    (void)table.stop();  // and waits for the makings
  }

  void go_on() {
    if (!std::exchange(goes_on, true)) make.set_value();
  }
  static PlanSpec spec(const std::string& name) {
    return *parse_plan("name=" + name + " format=files shuffle=false");
  }
  std::shared_ptr<PlanRun> run(const std::string& name) const {
    return *PlanRun::make(spec(name), deps.dataset, deps.place);
  }
  std::shared_ptr<PlanMaking> begin(const std::string& name) REQUIRES(table.submit_mutex) {
    return table.begin(spec(name), NodeId(0), deps.place,
                       [this, told = made](const PlanMaking& making, const auto&) {
                         told.wait();
                         const MutexLock one_at_a_time(table.submit_mutex);
                         return table.check_listed(making);
                       });
  }

  StagingFixture staged{4, 4096, "name=before format=files shuffle=false", 1 << 20, 1 << 20};
  SteadyClock clock;
  std::vector<PlanChange> announced;
  size_t changes = 0;
  PlanDeps deps{{}, {NodeId(0), 1}, *staged.staging, clock, staged.metrics, staged.log.logger()};
  bool goes_on = false;
  std::promise<void> make;
  const std::shared_future<void> made = make.get_future().share();
  PlanTable table{deps, {[](const PlanRun&) { return true; }, [this] { ++changes; }}};
};

}  // namespace

TEST_CASE("a plan is in force from its listing on, and a list that somebody holds stays as it was") {
  PlanTableFixture f;
  const auto none = f.table.runs();
  const auto first = f.run("one");
  const auto second = f.run("one");
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    f.table.list(first);
    f.table.stage(first);
  }
  CHECK(f.table.run("one") == first);
  CHECK(f.table.any());
  CHECK(none->empty());
  CHECK(f.changes == 1);
  CHECK(f.staged.metrics.plans_active.value() == 1);
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    f.table.list(second);
  }
  CHECK(f.table.run("one") == second);
  CHECK(f.table.runs()->size() == 1);
  CHECK(f.staged.log.has("plan one is replaced"));
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    f.table.drop("one");
  }
  CHECK_FALSE(f.table.run("one"));
  CHECK_FALSE(f.table.any());
  CHECK(f.changes == 3);
  CHECK(f.staged.metrics.plans_active.value() == 0);
  CHECK(f.staged.log.has("plan one is cancelled"));
}

TEST_CASE("of the makings under a name the last one is listed, and the others are told that they are not") {
  PlanTableFixture f;
  std::shared_ptr<PlanMaking> first;
  std::shared_ptr<PlanMaking> second;
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    first = f.begin("one");
    second = f.begin("one");
  }
  CHECK(f.table.making("one") == second);
  CHECK(f.table.makings().size() == 1);
  f.go_on();
  CHECK(first->wait(kForMakings)->error().code == ECANCELED);
  CHECK(second->wait(kForMakings)->ok());
  CHECK(f.table.retire("one"));
  CHECK_FALSE(f.table.retire("one"));
  CHECK_FALSE(f.table.making("one"));
}

TEST_CASE("a plan that cannot go on is listed as failed, but not in place of what is to replace it") {
  PlanTableFixture f;
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    f.table.list_failed(f.spec("one"), NodeId(3), {EIO, "no list"});
  }
  const auto failed = f.table.making("one");
  REQUIRE(failed);
  REQUIRE(failed->outcome());
  CHECK(failed->outcome()->error().message == "no list");
  CHECK(failed->origin() == NodeId(3));
  std::shared_ptr<PlanMaking> next;
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    next = f.begin("one");
    f.table.list_failed(f.spec("one"), NodeId(3), {EIO, "too late"});
  }
  CHECK(f.table.making("one") == next);
  f.go_on();
  (void)f.table.await_makings(kForMakings);
  REQUIRE(next->outcome());
  CHECK(next->outcome()->ok());
  CHECK_FALSE(f.table.await_makings(kForMakings));
}

TEST_CASE("a table that has stopped hands over all makings, given up or not, and begins no other") {
  PlanTableFixture f;
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    REQUIRE(f.begin("one"));
    REQUIRE(f.begin("two"));
  }
  CHECK(f.table.retire("one"));
  const auto all = f.table.stop();
  CHECK(all.size() == 2);
  CHECK(f.table.makings().empty());
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    CHECK_FALSE(f.begin("three"));
    f.table.list_failed(f.spec("four"), NodeId(0), {EIO, "no list"});
  }
  CHECK(f.table.makings().empty());
  f.go_on();
  for (const auto& making : all) CHECK(making->wait(kForMakings)->error().code == ECANCELED);
}

TEST_CASE("the other nodes are told which node says it, and whether it takes its word back") {
  PlanTableFixture f;
  {
    const MutexLock one_at_a_time(f.table.submit_mutex);
    CHECK(f.table.announce("one", "a text") == 7);
    f.table.announce("auto", "another", true);
  }
  REQUIRE(f.announced.size() == 2);
  CHECK(f.announced[0].name == "one");
  CHECK(f.announced[0].text == "a text");
  CHECK(f.announced[0].origin == NodeId(0));
  CHECK_FALSE(f.announced[0].withdrawn);
  CHECK(f.announced[1].withdrawn);
  CHECK(no_such_plan("a\nb").message.find('\n') == std::string::npos);
}
