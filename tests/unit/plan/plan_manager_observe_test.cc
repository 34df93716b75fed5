#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "plan/plan_manager.h"
#include "plan/run/plan_reader.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

TEST_CASE("an access is given the use that it is for, of the first plan that expects it") {
  StagingFixture staged(20, 5000, "name=unknown format=files shuffle=false", 1 << 20, 1 << 20);
  const SteadyClock clock;
  DatasetSource dataset;
  dataset.catalog = staged.catalog;
  PlanManager plans(
      {std::move(dataset), {NodeId(0), 1}, *staged.staging, clock, staged.metrics, staged.log.logger()});
  const auto read = [&](uint32_t sample, uint64_t offset) {
    const FileId file = staged.run->index().range(sample, 0).file;
    return plans.observe(ThreadId(1), file, offset, 100, Access::read);
  };
  CHECK(read(0, 0).order == OrderId());  // nobody has a plan
  REQUIRE(plans.submit("name=a format=files shuffle=false epochs=2"));
  const Use first = read(0, 0);
  CHECK(first.order != OrderId());
  CHECK(first.position == 0);
  const Use second = read(1, 0);
  CHECK(second.order == first.order);
  CHECK(second.position == 1);
  CHECK(read(1, 4096).position == 1);  // the rest of the file
  // Another plan over the same files has an order of its own, and does not answer for the first.
  REQUIRE(plans.submit("name=b format=files shuffle=false epochs=2"));
  CHECK(read(2, 0).order == first.order);
  REQUIRE(plans.cancel("a"));
  const Use others = read(3, 0);
  CHECK(others.order != first.order);
  CHECK(others.order != OrderId());
  CHECK(others.position == 3);
}

TEST_CASE("who leaves the plan of one half of a folder says nothing against that of the other half") {
  constexpr uint32_t kHalf = 200;
  StagingFixture staged(2 * kHalf, 5000, "name=unknown format=files shuffle=false", 1 << 20, 1 << 20);
  const SteadyClock clock;
  PlanManager::Deps deps{{}, {NodeId(0), 1}, *staged.staging, clock, staged.metrics, staged.log.logger()};
  deps.dataset.catalog = staged.catalog;
  deps.by_hand = true;
  PlanManager plans(std::move(deps));
  const TempTree tree;
  for (const uint32_t first : {0U, kHalf}) {
    const std::string name = first == 0 ? "train" : "val";
    std::ofstream list(tree.at(name));
    for (uint32_t sample = first; sample < first + kHalf; ++sample) list << sample << '\n';
    list.close();
    REQUIRE(plans.submit("format=files sampler=list name=" + name + " list=" + tree.at(name)));
  }
  const auto status_of = [&](size_t at) { return nlohmann::json::parse(plans.json())[at]; };
  for (uint32_t i = 0; i < kHalf / 2; ++i) {
    const FileId file = staged.run->index().range(i * 77 % kHalf, 0).file;
    plans.observe(ThreadId(1), file, 0, 100, Access::read);
  }
  REQUIRE(status_of(0)["name"] == "train");
  CHECK(status_of(0)["state"] == "suspended");
  CHECK(status_of(1)["state"] == "waiting");
  CHECK(status_of(1)["out_of_order"] == 0);
}

TEST_CASE("the rest of a record that is being read is pushed if its reader asks for single pages") {
  const uint64_t pages = GENERATE(1ULL, 2ULL);
  const uint32_t reads = PlanReader::kManyPages - GENERATE(0U, 1U);
  const bool whole = GENERATE(true, false);  // or its part of the chunk alone
  constexpr uint64_t kBytes = 20000;
  StagingFixture staged({.sizes = {64 * kBytes, 5000},
                         .budget = 1 << 20,
                         .ram = 2 << 20,
                         .chunk_size = 64 << 10,
                         .immediate = false},
                        "name=unknown format=raw file=f10001 record=1000 shuffle=false");
  const SteadyClock clock;
  DatasetSource dataset;
  dataset.catalog = staged.catalog;
  PlanManager plans(
      {std::move(dataset), {NodeId(0), 1}, *staged.staging, clock, staged.metrics, staged.log.logger()});
  REQUIRE(plans.submit("name=a format=raw file=f10000 record=20000 shuffle=false"));
  staged.settle();
  REQUIRE(staged.source.pending() > 0);
  const FileId file = *staged.catalog->find("f10000");
  for (uint32_t i = 0; i < reads; ++i)  // before staging has it
    plans.observe(ThreadId(1), file, i % 2 * pages * kPageSize, pages * kPageSize, Access::read);
  staged.settle();
  if (whole) {
    while (staged.source.complete_all()) staged.settle();
    CHECK(staged.staging->ahead("a") > 10);
  } else {
    const std::vector<FileId> files = staged.source.files();
    const auto first = std::find(files.begin(), files.end(), file);
    REQUIRE(staged.source.complete_at(static_cast<size_t>(first - files.begin())));
    REQUIRE(!staged.cache->resident(staged.catalog->chunk_at(file, 0)));
    staged.settle();
  }
  const bool by_pages = pages == 1 && reads == PlanReader::kManyPages;
  CHECK(staged.pages.missing(file, 0, kBytes).empty() == by_pages);
}

TEST_CASE("a plan of which a later epoch cannot be made is told as failed, until it is cancelled") {
  constexpr uint32_t kSamples = 20;
  constexpr int kEpochs = 8;
  StagingFixture staged(kSamples, 5000, "name=unknown format=files shuffle=false", 1 << 20, 1 << 20);
  const SteadyClock clock;
  PlanManager::Deps deps{{}, {NodeId(0), 1}, *staged.staging, clock, staged.metrics, staged.log.logger()};
  deps.dataset.catalog = staged.catalog;
  deps.by_hand = true;
  PlanManager plans(std::move(deps));
  const TempTree tree;
  std::ofstream list(tree.at("orders"));
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (uint32_t sample = 0; sample < kSamples; ++sample) list << sample << '\n';
    list << '\n';
  }
  list.flush();
  REQUIRE(plans.submit("format=files sampler=list list=" + tree.at("orders")));
  list << "# changed\n" << std::flush;
  const auto failed = [&] {
    const auto briefs = plans.briefs();
    return briefs.size() == 1 && briefs[0].making == PlanBrief::Making::failed;
  };
  for (int epoch = 0; epoch < kEpochs && !failed(); ++epoch) {
    for (uint32_t sample = 0; sample < kSamples; ++sample) {
      const FileId file = staged.run->index().range(sample, 0).file;
      plans.observe(ThreadId(1), file, 0, 100, Access::read);
    }
    while (plans.step_planner()) {
    }
  }
  REQUIRE(failed());
  const PlanBrief brief = plans.briefs()[0];
  CHECK(brief.name == "default");
  CHECK(!brief.in_force);
  CHECK(brief.error.starts_with("epoch "));
  CHECK(brief.error.find(" could not be made: ") != std::string::npos);
  CHECK(brief.error.find(tree.at("orders") + " changed since") != std::string::npos);
  CHECK(plans.text().find("state failed  epoch ") != std::string::npos);
  CHECK(plans.last_error() == brief.error + "\n");
  CHECK(plans.check("default").error().message == "plan default has failed: " + brief.error);
  REQUIRE(plans.cancel("default"));
  CHECK(plans.briefs().empty());
}
