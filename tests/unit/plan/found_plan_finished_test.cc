// A registered plan that has finished, and who reads its files afterwards.
#include "tests/unit/plan/found_plan_fixtures.h"

using namespace clairfs;

namespace {

constexpr const char* kOfOneEpoch = "format=files seed=1 epochs=1";
constexpr const char* kItsOrder = "seed=1";
constexpr const char* kAnotherOrder = "sampler=torch.distributed seed=42";

/// The registered plan `default` has finished.
void read_to_the_end(ReadersFixture& node, const std::string& loader = "") {
  REQUIRE(node.plans->submit(kOfOneEpoch + loader));
  node.read(101, kItsOrder, 0, ReadersFixture::kFiles);
  REQUIRE(node.brief("default").state == TrackerState::finished);
}

/// What another program reads afterwards is followed.
void follow_another(ReadersFixture& node) {
  node.read(201, kAnotherOrder, 0, 150);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
}

bool watches_nothing(const ReadersFixture& node) {
  return node.plans->detect(true).find("\"opens\": 0") != std::string::npos;
}

}  // namespace

TEST_CASE(
    "who reads the files of a finished plan in another order is followed, and the plan stays finished") {
  const std::string loader = GENERATE("", " batch=64 workers=8");  // who may open all in any order
  ReadersFixture node;
  read_to_the_end(node, loader);
  follow_another(node);
  node.read(201, kAnotherOrder, 150, 250);
  CHECK(node.brief("auto").state == TrackerState::following);
  const PlanBrief over = node.brief("default");
  CHECK(over.state == TrackerState::finished);
  CHECK(over.divergence.empty());
  CHECK(over.followed_instead.find("seed=42") != std::string::npos);
  CHECK(node.plans->text("default")->find("state finished") != std::string::npos);
  CHECK(node.plans->text("default")->find("suspended 0 times") != std::string::npos);
  CHECK(node.plans->text("default")->find("followed instead: name=auto") != std::string::npos);
  CHECK(node.staged.log.text().find("is suspended") == std::string::npos);
}

TEST_CASE("whoever comes after a plan's end is not told of as one that has left it, and not advised") {
  ReadersFixture node;
  read_to_the_end(node);
  node.read(201, "sampler=numpy.default_rng seed=987654321987", 0, 100);
  while (node.plans->step_planner()) {
  }
  const std::string shown = *node.plans->text("default");
  CHECK(shown.find("left the plan") == std::string::npos);
  CHECK(shown.find("read in another order after its end: epoch 0 position 400: saw ") != std::string::npos);
  CHECK(shown.find(": matches no known order\n") != std::string::npos);
  CHECK(node.staged.log.has("plan default is read in another order after its end: epoch 0"));
  const std::string checked = *node.plans->check("default");
  CHECK(checked.starts_with("pass\n"));
  CHECK(checked.find("left the plan") == std::string::npos);
}

TEST_CASE("a finished plan that is registered again begins anew, and wins over what was followed instead") {
  ReadersFixture node;
  read_to_the_end(node);
  follow_another(node);
  REQUIRE(node.plans->submit(kOfOneEpoch));
  CHECK(!node.plans->text("auto").ok());
  CHECK(node.brief("default").state == TrackerState::waiting);
  CHECK(node.brief("default").followed_instead.empty());
}

TEST_CASE("the job of a finished plan is followed when it is started again without registering") {
  ReadersFixture node;
  read_to_the_end(node);
  SECTION("after its end") {
    node.read(301, kItsOrder, 0, 150);
  }
  SECTION("while another is followed") {
    follow_another(node);
    node.read(301, kItsOrder, 0, 150);
    REQUIRE(node.settle_until([&] { return !node.plans->text("auto").ok(); }));
  }
  CHECK(node.brief("default").state == TrackerState::following);
  CHECK(node.brief("default").followed_instead.empty());
  CHECK(node.settle());
  CHECK(watches_nothing(node));
  node.plans->stop();
  CHECK(!node.plans->text("auto").ok());
}

TEST_CASE("a few files of a finished plan tell nothing, however long one looks at them") {
  ReadersFixture node;
  read_to_the_end(node);
  node.read(201, kAnotherOrder, 0, 8);
  CHECK(!node.settle_until([&] { return node.plans->text("auto").ok(); }));
  CHECK(node.brief("default").state == TrackerState::finished);
  CHECK(node.plans->text("default")->find("after its end") == std::string::npos);
}

// An order by number is only believed of who begins with its first files.
TEST_CASE("who goes through the files of a finished plan by number is followed the first time") {
  ReadersFixture node;
  read_to_the_end(node);
  node.read(201, "sampler=torch.sequential", 0, 150);
  CHECK(node.settle_until([&] { return node.follows("sampler=torch.sequential"); }));
  CHECK(node.brief("default").state == TrackerState::finished);
}

TEST_CASE("the word of another node is taken over when a finished plan's files are read in another order") {
  constexpr const char* kWord =
      "name=auto format=files sampler=torch.distributed seed=4242424242 world=2 ranks_per_node=1 epochs=1";
  constexpr const char* kOfJob = "format=files seed=1 world=2 ranks_per_node=1 epochs=1";
  NodeFixture node;
  REQUIRE(node.plans->submit(kOfJob));
  node.read(kOfJob, 0, NodeFixture::kFiles / 2);
  REQUIRE(node.plans->text("default")->find("state finished") != std::string::npos);
  REQUIRE(node.told(kWord));
  REQUIRE(node.settle_until([&] { return !node.has_plan(); }));  // nobody here reads so
  node.read(kWord, 0, 120);
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  node.read(kWord, 120, 160);
  CHECK(node.follows());
  CHECK(node.plans->text("default")->find("state finished") != std::string::npos);
}
