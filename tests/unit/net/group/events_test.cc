#include "net/group/events.h"

#include <semaphore>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// Waits for all that was posted before.
void pass(JobEvents& events) {
  std::binary_semaphore passed{0};
  events.post([&] { passed.release(); });
  passed.acquire();
}

wire::PlanEntry entry_of(const std::string& name, const std::string& text, uint64_t stamp, uint32_t origin) {
  wire::PlanEntry entry;
  entry.name = name;
  entry.text = text;
  entry.stamp = stamp;
  entry.origin = NodeId(origin);
  entry.cancelled = text.empty();
  return entry;
}

}  // namespace

TEST_CASE("who follows plans hears those in force, then each change once, as it holds by then") {
  PlanRegister plans(NodeId(0));
  JobEvents events(plans);
  REQUIRE(plans.merge(entry_of("before", "seed=1", 1, 1)));
  REQUIRE(plans.merge(entry_of("gone", "", 2, 1)));
  events.plan_changed("before");  // nobody hears of it yet
  pass(events);
  std::vector<std::string> heard;
  const auto note = [&](const PlanChange& change) { heard.push_back(change.name + ":" + change.text); };
  events.follow_plans(note);
  pass(events);
  CHECK(heard == std::vector<std::string>{"before:seed=1"});

  REQUIRE(plans.merge(entry_of("a", "seed=2", 3, 2)));
  REQUIRE(plans.merge(entry_of("a", "seed=3", 4, 2)));
  events.plan_changed("a");
  events.plan_changed("a");
  events.plan_changed("before");
  events.plan_changed("unknown");
  pass(events);
  CHECK(heard == std::vector<std::string>{"before:seed=1", "a:seed=3"});
  REQUIRE(plans.merge(entry_of("a", "", 5, 1)));
  events.plan_changed("a");
  pass(events);
  CHECK(heard.back() == "a:");
}

TEST_CASE("each follower hears of nodes, of those before it once, and of nothing after the end") {
  PlanRegister plans(NodeId(0));
  JobEvents events(plans);
  events.nodes_changed();
  pass(events);
  int first = 0;
  int second = 0;
  events.follow_nodes([&] { ++first; });
  pass(events);
  CHECK(first == 1);
  events.follow_nodes([&] { ++second; });
  pass(events);
  events.nodes_changed();
  pass(events);
  CHECK(first == 3);
  CHECK(second == 2);
  events.end();
  const int delivered = first;
  events.nodes_changed();
  events.end();
  CHECK(first == delivered);
}

TEST_CASE("changes of nodes that come while the thread is busy are heard of together") {
  PlanRegister plans(NodeId(0));
  JobEvents events(plans);
  int heard = 0;
  events.follow_nodes([&] { ++heard; });
  pass(events);
  std::binary_semaphore go_on{0};
  events.post([&] { go_on.acquire(); });
  for (int i = 0; i < 1000; ++i) events.nodes_changed();
  go_on.release();
  pass(events);
  CHECK(heard == 2);
  events.nodes_changed();
  pass(events);
  CHECK(heard == 3);
}
