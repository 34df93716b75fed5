#include "plan/plan_manager.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/formats/index/index_store.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

/// The dataset t.bin, t.idx of Megatron's: three sequences.
void write_sequences(const TempTree& tree) {
  std::string idx("MMIDIDX\0\0", 9);
  const auto number = [&](uint64_t value, int width) {
    for (int i = 0; i < width; ++i) idx += static_cast<char>(value >> (8 * i));
  };
  number(1, 8);
  number(4, 1);
  number(3, 8);
  number(3, 8);
  for (const uint64_t length : {5, 6, 7}) number(length, 4);
  for (const uint64_t offset : {0, 20, 44}) number(offset, 8);
  tree.write("t.bin", 100);
  std::ofstream(tree.at("t.idx"), std::ios::binary) << idx;
}

constexpr const char* kSlow = "format=megatron file=t.bin shuffle=false";
constexpr auto kPatience = std::chrono::minutes(4);  // for what takes milliseconds

/// A manager whose source answers when the test says so.
struct ManagerFixture {
  /// Node 0 of so many. Where orders are looked for, nobody does: there are no threads for it.
  explicit ManagerFixture(uint32_t nodes = 1, InferMode infer = InferMode::off, const char* mounted_at = "")
      : staged(over(), "name=before format=files shuffle=false") {
    dataset.prefixes.mount = mounted_at;
    PlanManager::Deps deps{dataset, {NodeId(0), nodes}, *staged.staging,
                           clock,   staged.metrics,     staged.log.logger()};
    deps.infer = infer;
    deps.by_hand = infer != InferMode::off;
    deps.dataset.indexes = &indexes;
    deps.dataset.read_bytes = [this, read = deps.dataset.read_bytes](FileId file, uint64_t offset,
                                                                     uint32_t length) {
      MutexLock lock(mutex);
      ++waiting;
      changed.notify_all();
      while (!answers) changed.wait(lock);
      return broken ? Result<std::string>(Error{EIO, "read t.idx: Input/output error"})
                    : read(file, offset, length);
    };
    deps.announce = [this](const PlanChange& change) {
      announced.push_back(change.name + ":" + change.text);
      return ++stamp;
    };
    deps.index_patience = Duration(0);
    plans.emplace(std::move(deps));
  }
  ~ManagerFixture() {
    answer();
    plans.reset();
  }
  void answer() {
    MutexLock lock(mutex);
    answers = true;
    changed.notify_all();
  }
  /// Waits until the source is asked for something.
  bool reads() {
    const TimePoint end = steady_now() + kPatience;
    MutexLock lock(mutex);
    while (waiting == 0) {
      if (changed.wait_until(lock, end) == std::cv_status::timeout) break;
    }
    return waiting > 0;
  }
  /// Waits for what is being made; whether the plan is in force then.
  bool made() {
    plans->await_makings(kPatience);
    return plans->next("default", 1).ok();
  }
  StagingOver over() const {
    StagingOver over;
    over.catalog = dataset.catalog;
    over.budget = over.ram = 1 << 20;
    return over;
  }
  bool shows(const std::string& part) const { return plans->text().find(part) != std::string::npos; }

  TempTree tree;
  DatasetSource dataset = (write_sequences(tree), scanned(tree));
  SteadyClock clock;
  StagingFixture staged;
  IndexStore indexes{"", staged.log.logger()};
  Mutex mutex;
  CondVar changed;
  int waiting GUARDED_BY(mutex) = 0;
  bool answers GUARDED_BY(mutex) = false;
  bool broken GUARDED_BY(mutex) = false;
  std::vector<std::string> announced;
  uint64_t stamp = 0;  // of the last that was announced
  std::optional<PlanManager> plans;
};

}  // namespace

TEST_CASE("who registers a plan does not wait for a long index, and others can go on") {
  ManagerFixture f;
  const auto submitted = f.plans->submit(kSlow);
  REQUIRE(submitted);
  CHECK(submitted->find("format=megatron") != std::string::npos);
  REQUIRE(f.reads());
  CHECK(f.shows("state indexing 0 %"));
  const auto json = nlohmann::json::parse(f.plans->json());
  REQUIRE(json.size() == 1);
  CHECK(json[0]["state"] == "indexing");
  CHECK(json[0]["percent"] == 0);
  CHECK(f.plans->texts() == *submitted);
  CHECK(f.plans->text_of_folder("") == *submitted);
  const auto next = f.plans->next("default", 1);
  REQUIRE(!next);
  CHECK(next.error().code == EAGAIN);
  CHECK(next.error().message.find("indexing 0 %") != std::string::npos);
  CHECK(f.announced.empty());

  REQUIRE(f.plans->submit("name=other format=files shuffle=false"));
  CHECK(f.plans->next("other", 1).value() == "t.bin\n");
  REQUIRE(f.plans->submit(kSlow));  // the same: nothing begins anew
  {
    MutexLock lock(f.mutex);
    CHECK(f.waiting == 1);
  }
  f.answer();
  REQUIRE(f.made());
  CHECK(f.plans->next("default", 1).value() == "t.bin[0]\n");
  CHECK(!f.shows("indexing"));
  CHECK(f.plans->text("default").value().find("3 samples") != std::string::npos);
}

TEST_CASE("a plan whose index is being made can be cancelled, and comes not back") {
  ManagerFixture f;
  REQUIRE(f.plans->submit(kSlow));
  REQUIRE(f.reads());
  REQUIRE(f.plans->cancel("default"));
  CHECK(f.plans->text().empty());
  CHECK(f.plans->cancel("default").error().code == ENOENT);
  f.answer();
  f.plans->stop();  // the thread that made it has ended
  CHECK(f.plans->text().empty());
  CHECK(!f.staged.log.has("refused"));
}

TEST_CASE("a plan that was found can be cancelled while it is made, and the nodes of its job are told") {
  const uint32_t nodes = GENERATE(1U, 2U);
  ManagerFixture f(nodes, InferMode::cheap);
  const PlanChange found{"auto", std::string("name=auto epochs=1 ") + kSlow, NodeId(1), false};
  REQUIRE(f.plans->take_over(found));
  REQUIRE(f.reads());
  CHECK(f.shows("state indexing"));
  REQUIRE(f.plans->cancel("auto"));
  CHECK(f.plans->text().empty());
  CHECK(f.announced == std::vector<std::string>(nodes - 1, "auto:"));  // of a job only
  CHECK(f.plans->last_error().empty());
  REQUIRE(f.plans->take_over(found));  // in vain: it is refused from now on
  CHECK(f.plans->text().empty());
  CHECK(f.plans->cancel("auto").error().code == ENOENT);
  CHECK(f.plans->last_error().find("no plan named 'auto'") != std::string::npos);
  f.answer();
  f.plans->stop();  // the thread that made it has ended
  CHECK(f.plans->text().empty());
  CHECK(f.announced.size() == nodes - 1);
}

TEST_CASE("a plan that is refused after its index says why, until it is registered again") {
  ManagerFixture f;
  {
    MutexLock lock(f.mutex);
    f.broken = true;
  }
  REQUIRE(f.plans->submit(kSlow));
  f.answer();
  CHECK(!f.made());
  REQUIRE(f.shows("state failed"));
  CHECK(f.shows("Input/output error"));
  CHECK(f.plans->last_error().find("Input/output error") != std::string::npos);
  const auto json = nlohmann::json::parse(f.plans->json());
  CHECK(json[0]["state"] == "failed");
  CHECK(json[0]["error"].get<std::string>().find("Input/output error") != std::string::npos);
  const auto briefs = f.plans->briefs();
  REQUIRE(briefs.size() == 1);
  CHECK(briefs[0].name == "default");
  CHECK(!briefs[0].in_force);
  CHECK(briefs[0].making == PlanBrief::Making::failed);
  CHECK(briefs[0].error.find("Input/output error") != std::string::npos);
  {
    MutexLock lock(f.mutex);
    f.broken = false;
  }
  REQUIRE(f.plans->submit(kSlow));
  REQUIRE(f.made());
  CHECK(!f.shows("failed"));
  CHECK(f.plans->last_error().empty());
  CHECK(f.plans->briefs().at(0).making == PlanBrief::Making::none);
  CHECK(f.plans->briefs().at(0).in_force);
}

TEST_CASE("a plan stays in force until what replaces it is made") {
  ManagerFixture f;
  REQUIRE(f.plans->submit("format=files shuffle=false"));
  REQUIRE(f.plans->submit(kSlow));
  REQUIRE(f.reads());
  CHECK(f.plans->next("default", 1).value() == "t.bin\n");
  CHECK(f.shows("indexing"));
  REQUIRE(f.plans->briefs().size() == 1);
  CHECK(f.plans->briefs()[0].in_force);
  CHECK(f.plans->briefs()[0].making == PlanBrief::Making::indexing);
  REQUIRE(f.plans->submit("format=files shuffle=false"));  // back to what is in force
  CHECK(!f.shows("indexing"));
  REQUIRE(f.plans->submit(kSlow));
  f.answer();
  REQUIRE(f.made());
  CHECK(f.plans->next("default", 1).value() == "t.bin[0]\n");
}

TEST_CASE("what the nodes had at the start is no part of the least that is read") {
  ManagerFixture f;
  CHECK(f.plans->least_source_bytes(0, {{{}, 30}}) == 0);
  REQUIRE(f.plans->submit("format=files shuffle=false epochs=3"));
  const uint64_t all = f.plans->least_source_bytes(0, {});
  CHECK(all ==
        std::filesystem::file_size(f.tree.at("t.bin")) + std::filesystem::file_size(f.tree.at("t.idx")));
  CHECK(f.plans->least_source_bytes(0, {{{}, 30}, {{}, 50}}) == all - 80);
  CHECK(f.plans->least_source_bytes(0, {{{}, all}, {{}, 1}}) == 0);
  CHECK(f.plans->least_source_bytes(1000, {{{}, 30}}) == all - 30);  // the first epoch
}

TEST_CASE("plans are announced once they are in force, and their cancellation") {
  ManagerFixture f;
  f.answer();
  REQUIRE(f.plans->submit(kSlow));
  REQUIRE(f.made());
  REQUIRE(f.plans->cancel("default"));
  REQUIRE(f.announced.size() == 2);
  CHECK(f.announced[0].find(" index=") != std::string::npos);
  CHECK(f.announced[1] == "default:");
  CHECK(!f.plans->submit("format=megatron file=none.bin"));
  CHECK(f.announced.size() == 2);
}

TEST_CASE("a node that hears of its own words, or too late of others', goes by what was said last") {
  ManagerFixture f(2);
  REQUIRE(f.plans->submit("format=files shuffle=false"));
  REQUIRE(f.made());
  const std::string told = f.announced.at(0).substr(std::string("default:").size());
  REQUIRE(f.plans->cancel("default"));
  REQUIRE(f.stamp == 2);
  REQUIRE(f.plans->take_over({"default", told, NodeId(0), false, 1}));
  REQUIRE(f.plans->take_over({"default", told, NodeId(1), false, 1}));
  CHECK(f.plans->text().empty());

  REQUIRE(f.plans->submit(kSlow));
  REQUIRE(f.reads());
  REQUIRE(f.plans->take_over({"default", "", NodeId(0), false, 2}));  // while another plan is being made
  CHECK(f.shows("state indexing 0 %"));
  f.answer();
  REQUIRE(f.made());
  REQUIRE(f.stamp == 3);
  REQUIRE(f.plans->take_over({"default", "", NodeId(0), false, 2}));
  CHECK(f.plans->next("default", 1).value() == "t.bin[0]\n");

  REQUIRE(f.plans->take_over({"default", "", NodeId(1), false, 3}));  // the larger node's holds
  CHECK(f.plans->text().empty());
}

TEST_CASE("a node that finds other samples than the one that registered the plan refuses it") {
  ManagerFixture f;
  f.answer();
  REQUIRE(f.plans->submit(kSlow));
  REQUIRE(f.made());
  const std::string told = f.announced.at(0).substr(std::string("default:").size());
  REQUIRE(f.plans->take_over({"default", told, NodeId(0)}));  // what a node hears of its own plan
  CHECK(!f.shows("indexing"));

  REQUIRE(f.plans->cancel("default"));
  REQUIRE(f.plans->take_over({"default", told, NodeId(1)}));
  REQUIRE(f.made());
  REQUIRE(f.plans->submit(kSlow));  // the same plan, as people write it

  std::string other = told;
  const size_t digit = other.find("index=") + 6;
  other[digit] = other[digit] == '0' ? '1' : '0';
  REQUIRE(f.plans->take_over({"default", other, NodeId(1)}));
  CHECK(f.made());  // the other one is in force still
  REQUIRE(f.shows("state failed"));
  CHECK(f.shows("its files are not those of the node that registered the plan"));
}

TEST_CASE("a node makes a plan anew when the node that registered it says it again") {
  ManagerFixture f(3);
  const TempTree lists;
  const auto say = [&](const char* first, NodeId origin, uint64_t stamp) {
    std::ofstream(lists.at("list")) << first << "\nt.bin\nt.idx\n";
    const std::string told = "format=list shuffle=false list=" + lists.at("list");
    REQUIRE(f.plans->take_over({"default", told, origin, false, stamp}));
    REQUIRE(f.made());
    return f.plans->next("default", 1).value();
  };
  CHECK(say("t.bin", NodeId(1), 1) == "t.bin\n");
  CHECK(say("t.idx", NodeId(1), 1) == "t.bin\n");
  CHECK(say("t.idx", NodeId(2), 2) == "t.bin\n");  // which was told of the same plan at the same time
  CHECK(say("t.idx", NodeId(2), 3) == "t.idx\n");
}

TEST_CASE("a plan whose list was edited is another plan, or is refused for what the list says now") {
  ManagerFixture f;
  const TempTree lists;
  const auto write = [&](const char* lines) { std::ofstream(lists.at("list")) << lines; };
  // A plan reads its list for each epoch: one with more of them would end where the list is bad by then.
  const auto submit = [&](const char* way) {
    return f.plans->submit(fmt::format("format=files epochs=1 {}={}", way, lists.at("list")));
  };
  const auto next = [&] { return f.plans->next("default", 1).value(); };
  write("0\n1\n");
  REQUIRE(submit("sampler=list list"));
  CHECK(next() == "t.bin\n");
  write("0\n1\n");
  REQUIRE(submit("sampler=list list"));
  CHECK(f.announced.size() == 1);  // the same
  write("1\n0\n0\n");
  REQUIRE(submit("sampler=list list"));
  CHECK(next() == "t.idx\n");
  CHECK(f.announced.size() == 2);

  for (const bool removed : {false, true}) {
    write("7\n");
    if (removed) std::filesystem::remove(lists.at("list"));
    CHECK(!submit("sampler=list list"));
    CHECK(!submit("sampler=list list"));  // as bad as before
    CHECK(next() == "t.idx\n");
  }
  write("1\n");
  REQUIRE(submit("seed=1 sampler=torch.subset indices"));
  CHECK(next() == "t.idx\n");
  write("0\n");
  REQUIRE(submit("seed=1 sampler=torch.subset indices"));
  CHECK(next() == "t.bin\n");
}

TEST_CASE("a list in the mount that was edited is looked at in the source") {
  ManagerFixture f(1, InferMode::off, "/mnt/data");
  const auto submit = [&] { return f.plans->submit("format=files sampler=list list=/mnt/data/order"); };
  std::ofstream(f.tree.at("order")) << "0\n1\n";
  REQUIRE(submit());
  std::ofstream(f.tree.at("order")) << "1\n0\n0\n";
  REQUIRE(submit());
  CHECK(f.plans->next("default", 1).value() == "t.idx\n");
}

TEST_CASE("a READ of what every reader needs brings it back") {
  ManagerFixture f;
  f.staged.staging->remove("before");  // its sentinels stay open
  f.answer();
  REQUIRE(f.plans->submit(kSlow));
  const FileId index = *f.dataset.catalog->find("t.idx");
  const auto is_there = [&] {
    f.staged.settle();
    return f.staged.pages.missing(index, 0, 1).empty();
  };
  REQUIRE(eventually(is_there));
  f.staged.pages.drop(index, 0, kPageSize);
  f.plans->observe(ThreadId(1), index, 0, kPageSize, Access::read);
  CHECK(is_there());
}

TEST_CASE("a plan that is set on a folder and names another root is refused with both") {
  ManagerFixture f;
  const auto refused = f.plans->submit("seed=1 format=files root=val", "train set");
  REQUIRE(!refused);
  CHECK(refused.error().code == EINVAL);
  CHECK(refused.error().message ==
        "plan: two roots: root=val, and train set whose attribute was set; give no root=, or set the plan on "
        ".clairfs/plan");
  CHECK(f.plans->last_error() == refused.error().message + "\n");
  CHECK(f.plans->text().empty());
}
