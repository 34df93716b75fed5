// The plan that was found, in a job of two nodes: what a node makes of the other's word. The orders are found
// by the search itself in order_search_test.cc; here by the other node. At the end: several readers of one
// node, that are told apart by their processes. The tests take the turns of `planner` and `inference`.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include <spdlog/sinks/sink.h>

#include "tests/support/eventually.h"
#include "tests/support/temp_tree.h"
#include "tests/unit/plan/found_plan_fixtures.h"

using namespace clairfs;

namespace {

constexpr const char* kFound =
    "name=auto format=files sampler=torch.distributed seed=42 world=2 ranks_per_node=1 epochs=1";

}  // namespace

TEST_CASE("a node takes over what another found, and its reader follows it") {
  NodeFixture node;
  node.read(kFound, 0, 6);  // too few to find it here
  REQUIRE(node.told(kFound));
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  node.read(kFound, 6, 60);
  CHECK(node.follows());
  CHECK(node.plans->text("auto")->find("found on node 0") != std::string::npos);
  CHECK(node.plans->detect(true).find("\"told_by\": 0") != std::string::npos);
  CHECK(node.said().empty());
}

TEST_CASE("who follows an order goes on, whatever the other node found") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  node.read(kFound, 0, 60);
  REQUIRE(node.told("name=auto format=files seed=7 world=2 ranks_per_node=1 epochs=1"));
  node.read(kFound, 60, 100);
  CHECK(node.follows());
  CHECK(node.plans->texts().find("seed=42") != std::string::npos);
}

TEST_CASE("a wrong word is withdrawn everywhere, once") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  node.read("format=files sampler=torch.distributed seed=987654321987 world=2", 0, 200);
  REQUIRE(node.settle_until([&] { return !node.has_plan(); }));
  REQUIRE(node.said().size() == 1);
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
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  // Said here before that came, but later in the job.
  REQUIRE(node.told("name=auto format=files seed=7 world=2 ranks_per_node=1 epochs=1", false, NodeId(1)));
  const auto left = [&] { return node.plans->texts().find("seed=42") == std::string::npos; };
  for (uint32_t i = 0; i < 200 && !left(); ++i) {  // no more: it would leave the word as well
    node.read("format=files sampler=torch.distributed seed=987654321987 world=2", i, i + 1);
    while (node.plans->step_planner()) {
    }
  }
  REQUIRE(left());
  node.plans->stop();
  CHECK(node.said().empty());  // what its readers have left was not the word
}

TEST_CASE("what this node has said and begins with again is not told of as what was found last") {
  NodeFixture node;
  REQUIRE(node.told("name=auto format=files seed=7 world=2 ranks_per_node=1 epochs=1", false, NodeId(1)));
  auto whole = plan_over(NodeFixture::kFiles, "sampler=torch.distributed seed=42");
  const Samples samples = order_of(whole, 0);  // this node's alone: no word for the others
  for (uint32_t i = 0; i < 48; ++i)
    node.plans->observe(ThreadId(7), node.staged.run->index().range(samples[i], 0).file, 0, 0, Access::open);
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  REQUIRE(node.plans->text("auto")->find("found after") != std::string::npos);
  for (uint32_t i = 0; i < 200 && node.follows(); ++i)  // no more: it would leave the word as well
    node.read("format=files sampler=torch.distributed seed=987654321987 world=2", i, i + 1);
  REQUIRE(node.settle_until(
      [&] { return node.in_force() && node.plans->texts().find("seed=7") != std::string::npos; }));
  CHECK(node.plans->text("auto")->find("found on node 1") != std::string::npos);
  CHECK(node.plans->detect(true).find("\"told_by\": 1") != std::string::npos);
}

TEST_CASE(
    "what this node has said and begins with again is not told as failed where a registered plan wins") {
  constexpr uint32_t kHalf = NodeFixture::kFiles / 2;
  const bool registered = GENERATE(true, false);
  const auto plan_of = [](uint32_t from, uint32_t end) {
    std::string files;
    for (uint32_t i = from; i < end; ++i)
      files += (files.empty() ? "\"f" : ",\"f") + std::to_string(10000 + i) + '"';
    return "format=list list='[" + files + "]' world=2 ranks_per_node=1";
  };
  NodeFixture node;
  REQUIRE(node.told("name=auto " + plan_of(0, kHalf) + " seed=3 epochs=1"));
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  REQUIRE(node.told(kFound, false, NodeId(1)));
  if (registered)
    REQUIRE(node.plans->submit("name=others " + plan_of(kHalf, NodeFixture::kFiles) + " seed=4"));
  REQUIRE(node.in_force());
  auto unknown = plan_over(kHalf, "sampler=numpy.default_rng seed=987654321987");
  for (const uint32_t sample : order_of(unknown, 0))
    node.plans->observe(ThreadId(7), node.staged.file(sample), 0, 0, Access::open);
  CHECK(node.settle_until([&] {
    if (registered) return !node.has_plan();
    return node.in_force() && node.plans->texts().find("seed=42") != std::string::npos;
  }));
}

TEST_CASE("what a node found is withdrawn by another") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  REQUIRE(node.told(kFound, false, NodeId(1)));
  REQUIRE(node.told(kFound, true, NodeId(1)));
  CHECK(!node.has_plan());
}

TEST_CASE("what is withdrawn elsewhere stays where readers follow it, and goes where none does") {
  NodeFixture node;
  REQUIRE(node.told(kFound));
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
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
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
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
    REQUIRE(node.settle_until([&] { return !node.has_plan(); }));
  }
  SECTION("later") {
    REQUIRE(node.told(kFound));
    REQUIRE(node.settle_until([&] { return node.in_force(); }));
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

constexpr const char* kShuffled = "sampler=torch.distributed seed=42";
constexpr const char* kOther = "sampler=numpy.default_rng seed=7";

}  // namespace

TEST_CASE("another reader neither moves nor suspends the plan that was found, and is followed after it") {
  ReadersFixture node;
  node.read(101, kShuffled, 0, 60);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
  const std::string before = *node.plans->next("auto", 1);
  node.read(201, kOther, 0, 150);
  CHECK(node.settle());
  CHECK(*node.plans->next("auto", 1) == before);
  CHECK(node.staged.metrics.plan_observations_out_of_order.value() == 0);
  node.read(101, kShuffled, 60, 100);
  node.read(201, kOther, 150, 200);
  CHECK(node.follows("seed=42"));
  CHECK(*node.plans->next("auto", 1) != before);
  // It has ended: what others open counts, and the plan goes.
  node.end_program(100);
  node.read(202, kOther, 200, 300);
  CHECK(node.settle_until([&] { return node.follows("seed=7"); }));
}

TEST_CASE("nobody looks again and again at readers that wait for another's plan") {
  ReadersFixture node;
  node.read(101, kShuffled, 0, 60);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
  node.read(201, kOther, 0, 150);
  const uint64_t before = node.questions();
  CHECK(node.settle());
  const uint64_t then = node.questions();
  CHECK(then > before);  // looked at, and left alone
  node.clock.time += std::chrono::minutes(1);
  CHECK(node.settle());
  CHECK(node.questions() == then);
}

TEST_CASE("a plan that was found is refused by who names it, not by who cancels all or those of a folder") {
  ReadersFixture node;
  node.read(101, kShuffled, 0, 60);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
  SECTION("all") {
    REQUIRE(node.plans->cancel_all());
  }
  SECTION("of its folder") {
    REQUIRE(node.plans->cancel_folder(""));
  }
  CHECK(!node.follows("seed=42"));
  node.read(101, kShuffled, 60, 160);
  CHECK(node.settle_until([&] { return node.follows("seed=42"); }));
}

TEST_CASE("who waited for another's plan is followed as soon as that one has left it or ended") {
  ReadersFixture node;
  node.read(101, kShuffled, 0, 60);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
  for (uint32_t i = 0; i < 300; i += 10) {  // each time a look could be due
    node.read(201, kOther, i, i + 10);
    node.read(101, kShuffled, 60 + i / 10, 61 + i / 10);
    CHECK(node.settle());
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
  CHECK(node.settle_until([&] { return node.follows("seed=7"); }));
}

// By the threads of the manager, as in a mount.
TEST_CASE("of two readers at once one is found, and the other left alone") {
  ReadersFixture node(InferMode::cheap, "", false);
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

namespace {

/// Does something, which may log, when a line with these words is logged for the first time, on the thread
/// that logs it.
class LogHook final : public spdlog::sinks::sink {
 public:
  LogHook(std::string words, std::function<void()> then) : words_(std::move(words)), then_(std::move(then)) {}

  void log(const spdlog::details::log_msg& line) override {
    const std::string_view text(line.payload.data(), line.payload.size());
    if (text.find(words_) != std::string_view::npos && !done_.exchange(true)) then_();
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

 private:
  const std::string words_;
  const std::function<void()> then_;
  std::atomic<bool> done_{false};
};

}  // namespace

TEST_CASE("what is opened while a plan that was found comes into force is not lost") {
  ReadersFixture node;
  const auto high_water = [&] {
    const auto text = node.plans->text("auto");
    return text ? text->substr(std::min(text->find("high water"), text->size())) : "";
  };
  // That is logged when the plan knows what was seen until then, and before it is offered what comes.
  node.staged.log.logger().sinks().push_back(
      std::make_shared<LogHook>("plan auto: 400 samples", [&] { node.read(101, kShuffled, 48, 100); }));
  node.read(101, kShuffled, 0, 48);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
  CHECK(high_water().starts_with("high water 100 "));
  node.read(101, kShuffled, 100, 150);
  CHECK(high_water().starts_with("high water 150 "));
  CHECK(node.staged.metrics.plan_observations_out_of_order.value() == 0);
}

TEST_CASE("what this node has said and begins with again is not taken for what it has found meanwhile") {
  constexpr uint32_t kHalf = NodeFixture::kFiles / 2;
  const bool registered = GENERATE(true, false);
  auto whole = plan_over(NodeFixture::kFiles, kShuffled);
  const Samples samples = order_of(whole, 0);  // this node's alone
  std::string unread;
  for (uint32_t i = kHalf; i < NodeFixture::kFiles; ++i)
    unread += (unread.empty() ? "\"f" : ",\"f") + std::to_string(10000 + samples[i]) + '"';
  NodeFixture node;
  REQUIRE(node.told("name=auto format=files seed=7 world=2 ranks_per_node=1 epochs=1", false, NodeId(1)));
  REQUIRE(node.plans->submit("name=left format=files shuffle=false world=2 ranks_per_node=1"));
  REQUIRE(
      node.plans->submit("name=others format=list list='[" + unread + "]' seed=4 world=2 ranks_per_node=1"));
  bool looked = false;
  // That is logged of what was found, which `others` has files of, and before its maker is told of.
  node.staged.log.logger().sinks().push_back(std::make_shared<LogHook>("plan auto is not followed", [&] {
    if (!registered) CHECK(node.plans->cancel("others"));
    looked = node.plans->step_planner();  // `left` is left: the word is begun with
    node.plans->await_makings(std::chrono::minutes(1));
  }));
  for (uint32_t i = 0; i < kHalf; ++i)
    node.plans->observe(ThreadId(7), node.staged.file(samples[i]), 0, 0, Access::open);
  for (int turns = 0; turns < kManyTurns && !looked; ++turns) node.plans->step_inference(node.clock.time);
  REQUIRE(looked);
  if (registered) {
    CHECK(!node.has_plan());
  } else {
    REQUIRE(node.in_force());
    CHECK(node.plans->text("auto")->find("found on node 1") != std::string::npos);
  }
}

// As on a busy machine. Taken for the next epoch's these opens are those of a job that forgets set_epoch():
// the same order again, from near its end.
TEST_CASE("what a worker opens that is behind at the end of an epoch is not of the next one") {
  ReadersFixture node;
  constexpr uint32_t kBatch = 8;
  const auto read_batch = [&](uint32_t batch) {
    node.read(101 + batch % 2, kShuffled, batch * kBatch, (batch + 1) * kBatch);
  };
  for (uint32_t batch = 0; batch < 6; ++batch) read_batch(batch);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
  for (uint32_t batch = 6; batch < 46; ++batch) read_batch(batch);
  for (const uint32_t batch : {47, 49, 46, 48}) read_batch(batch);
  CHECK(node.plans->text("auto")->find("seen 400 in order, 0 out of order") != std::string::npos);
  node.read(101, kShuffled, 0, 100, 1);
  CHECK(node.settle_until([&] { return node.follows("first_epoch=1"); }));
  CHECK(!node.follows("set_epoch=never"));
}

TEST_CASE("a registered plan is not displaced by a reader that another one has") {
  ReadersFixture node;
  REQUIRE(node.plans->submit(std::string("format=files ") + kShuffled));
  for (uint32_t i = 0; i < 200; ++i) {
    node.read(101, kShuffled, i, i + 1);
    if (i % 20 == 0) node.read(201, kOther, i, i + 1);
    CHECK(node.settle());
  }
  node.plans->stop();
  CHECK(!node.plans->text("auto").ok());
  CHECK(node.plans->text("default")->find("following") != std::string::npos);
}

namespace {

constexpr const char* kLeft = "format=files seed=1";

/// The reader of the registered plan `default` follows kShuffled, and so does the plan that was found.
void leave_registered(ReadersFixture& node) {
  REQUIRE(node.plans->submit(kLeft));
  node.read(101, kShuffled, 0, 150);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
}

}  // namespace

TEST_CASE("what the reader of a suspended plan follows is followed instead, and both are told of") {
  ReadersFixture node;
  leave_registered(node);
  node.read(101, kShuffled, 150, 250);
  CHECK(node.brief("auto").state == TrackerState::following);
  const PlanBrief left = node.brief("default");
  CHECK(left.state == TrackerState::suspended);
  CHECK(!left.divergence.empty());
  CHECK(left.followed_instead.find("seed=42") != std::string::npos);
  CHECK(node.plans->text("default")->find("followed instead: name=auto") != std::string::npos);
  CHECK(node.plans->json().find("\"followed_instead\"") != std::string::npos);
  CHECK(node.plans->check("")->find("fail") == 0);  // of the registered one
}

TEST_CASE("a registered plan wins again when its readers are back") {
  ReadersFixture node;
  SECTION("while another is followed instead") {
    leave_registered(node);
    node.read(201, "seed=1", 0, 150);
    REQUIRE(node.settle_until([&] { return !node.plans->text("auto").ok(); }));
  }
  SECTION("before any other was found") {
    REQUIRE(node.plans->submit(kLeft));
    node.read(101, "sampler=numpy.default_rng seed=987654321987", 0, 100);
    REQUIRE(node.settle_until([&] { return node.brief("default").state == TrackerState::suspended; }));
    node.read(201, "seed=1", 0, 150);
  }
  // What was recorded of its readers is forgotten.
  CHECK(node.settle_until([&] {
    const std::string told = node.plans->detect(true);
    return told.find("\"opens\": 0") != std::string::npos && told.find("\"watching\"") != std::string::npos;
  }));
  CHECK(node.brief("default").state == TrackerState::following);
  CHECK(node.brief("default").followed_instead.empty());
  node.read(201, "seed=1", 150, 200);
  CHECK(node.plans->detect(true).find("\"opens\": 0") != std::string::npos);
  node.plans->stop();
  CHECK(!node.plans->text("auto").ok());
}

TEST_CASE("a plan that is registered ends what was followed instead of another") {
  ReadersFixture node;
  leave_registered(node);
  REQUIRE(node.plans->submit("name=other format=files seed=5"));
  CHECK(!node.plans->text("auto").ok());
  CHECK(node.brief("default").followed_instead.empty());
}

TEST_CASE("a found plan outlives the registered one that was left, unless the user cancels it") {
  ReadersFixture node;
  leave_registered(node);
  SECTION("the registered one is cancelled") {
    REQUIRE(node.plans->cancel("default"));
    node.read(101, kShuffled, 150, 200);
    CHECK(node.brief("auto").state == TrackerState::following);
  }
  SECTION("the found one is cancelled") {
    REQUIRE(node.plans->cancel("auto"));
    CHECK(node.brief("default").followed_instead.empty());
    node.read(101, kShuffled, 150, 350);
    CHECK(node.settle());
    CHECK(!node.plans->text("auto").ok());
    CHECK(node.brief("default").state == TrackerState::suspended);
  }
}

TEST_CASE("what a diagnosis finds is followed where the search would not come to it") {
  ReadersFixture node;
  REQUIRE(node.plans->submit(kLeft));
  node.read(101, "sampler=torch.distributed seed=31415", 0, 250);
  CHECK(node.settle_until([&] { return node.follows("seed=31415"); }));
}

TEST_CASE("nothing is followed instead of a plan where nothing is looked for") {
  ReadersFixture node(InferMode::off);
  REQUIRE(node.plans->submit(kLeft));
  node.read(101, kShuffled, 0, 300);
  CHECK(node.settle());
  REQUIRE(node.brief("default").state == TrackerState::suspended);
  CHECK(!node.plans->text("auto").ok());
}

TEST_CASE("the word of another node is taken over when the registered plan is left") {
  constexpr const char* kWord =
      "name=auto format=files sampler=torch.distributed seed=4242424242 world=2 ranks_per_node=1 epochs=1";
  NodeFixture node;
  REQUIRE(node.plans->submit("format=files seed=1 world=2 ranks_per_node=1"));
  REQUIRE(node.told(kWord));
  REQUIRE(node.settle_until([&] { return !node.has_plan(); }));
  node.read(kWord, 0, 120);
  REQUIRE(node.settle_until([&] { return node.in_force(); }));
  node.read(kWord, 120, 160);
  CHECK(node.follows());
  // Its readers are back: the word is withdrawn.
  node.read("format=files seed=1 world=2 ranks_per_node=1", 0, 150);
  REQUIRE(node.settle_until([&] { return !node.has_plan(); }));
  REQUIRE(node.said().size() == 2);
  CHECK(node.said()[1].withdrawn);
}

namespace {

constexpr const char* kUnlikely = "sampler=torch.random generator=loader seed=918273645";

}  // namespace

TEST_CASE(
    "what was found is the first that is looked for after the next mount, and with the same job again") {
  const TempTree tree;
  const std::string file = tree.at("found/orders");
  REQUIRE(SavedOrders(file, "").add(*parse_plan(std::string("name=auto format=files ") + kUnlikely)));
  {
    ReadersFixture node(InferMode::cheap, file);
    node.read(101, kUnlikely, 0, 150);
    REQUIRE(node.settle_until([&] { return node.follows("seed=918273645"); }));
    node.end_program(100);
    node.read(201, kShuffled, 0, 150);
    REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
    node.end_program(200);
    node.read(301, kUnlikely, 0, 150);
    REQUIRE(node.settle_until([&] { return node.follows("seed=918273645"); }));
    CHECK(node.staged.log.text().find("not known") == std::string::npos);
    node.plans->stop();
  }
  const auto saved = SavedOrders(file, "").load();
  REQUIRE(saved);
  REQUIRE(saved->size() == 2);
  CHECK((*saved)[1].seed == "918273645");
  CHECK((*saved)[0].seed == "42");
}

// Also where the daemon is killed, or the job has cancelled its plan at its end.
TEST_CASE("a registered plan is looked for after the next mount, with the epoch that its reader came to") {
  const TempTree tree;
  const std::string file = tree.at("found/orders");
  const auto saved = [&] { return SavedOrders(file, "").load().value(); };
  {
    ReadersFixture node(InferMode::cheap, file);
    REQUIRE(node.plans->submit(std::string("name=training format=files epochs=9 ") + kUnlikely));
    REQUIRE(saved().size() == 1);
    CHECK(saved()[0].first_epoch == 0);
    SECTION("read into its second epoch") {
      node.read(101, kUnlikely, 0, ReadersFixture::kFiles);
      CHECK(node.settle());
      node.read(101, kUnlikely, 0, 100, 1);
      node.plans->stop();
      CHECK(saved()[0].first_epoch == 1);
    }
    SECTION("read to its end") {
      for (uint32_t epoch = 0; epoch < 9; ++epoch) {
        node.read(101, kUnlikely, 0, ReadersFixture::kFiles, epoch);
        CHECK(node.settle());
      }
    }
    SECTION("cancelled") {
      REQUIRE(node.plans->cancel("training"));
    }
    node.plans->stop();
  }
  CHECK(saved().size() == 1);
  ReadersFixture node(InferMode::cheap, file);
  node.read(101, kUnlikely, 0, 150);
  CHECK(node.settle_until([&] { return node.follows("seed=918273645"); }));
}

TEST_CASE("saved orders that cannot be read cost a line in the log") {
  const TempTree tree;
  tree.write("orders", 100);
  ReadersFixture node(InferMode::cheap, tree.at("orders"));
  CHECK(node.staged.log.text().find("orders that were found before are not known") != std::string::npos);
  node.read(101, kShuffled, 0, 60);
  REQUIRE(node.settle_until([&] { return node.follows("seed=42"); }));
  node.plans->stop();
  CHECK(SavedOrders(tree.at("orders"), "").load()->size() == 1);
}
