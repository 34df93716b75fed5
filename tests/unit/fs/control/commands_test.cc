#include "fs/control/commands.h"

#include <cerrno>

#include <nlohmann/json.hpp>

#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

struct CommandsFixture {
  CommandsFixture() : staged(20, 5000, "name=before format=files shuffle=false", 1 << 20, 1 << 20) {
    DatasetSource dataset;
    dataset.catalog = staged.catalog;
    plans.emplace(PlanManager::Deps{
        std::move(dataset), {NodeId(0), 1}, *staged.staging, clock, staged.metrics, staged.log.logger()});
  }
  Result<std::string> run(std::string_view command) { return run_control_command(*plans, command); }
  int error_of(std::string_view command) {
    const auto answer = run(command);
    return answer ? 0 : answer.error().code;
  }

  SteadyClock clock;
  StagingFixture staged;
  std::optional<PlanManager> plans;
};

}  // namespace

TEST_CASE("a plan is registered, shown and cancelled by commands") {
  CommandsFixture f;
  const auto shown = f.run("  plan   seed=7 format=files epochs=1 ");
  REQUIRE(shown);
  CHECK(shown->find("seed=7") != std::string::npos);
  CHECK(shown->find("20 samples") != std::string::npos);
  CHECK(f.run("show")->find("seed=7") != std::string::npos);
  CHECK(f.run("show default").value() == f.run("show").value());
  const auto json = nlohmann::json::parse(*f.run("json"));
  REQUIRE(json.size() == 1);
  CHECK(json[0]["name"] == "default");
  CHECK(f.run("check").ok());
  CHECK(f.run("cancel").ok());
  CHECK(nlohmann::json::parse(*f.run("json")).empty());
  CHECK(f.error_of("cancel") == ENOENT);
}

TEST_CASE("the next files of a plan are listed, as many as there are") {
  CommandsFixture f;
  REQUIRE(f.run("plan name=val shuffle=false format=files epochs=1").ok());
  const auto count = [&](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  CHECK(count(*f.run("next val 3")) == 3);
  CHECK(count(*f.run("next val 99999999")) == 20);
  CHECK(f.error_of("next val x") == EINVAL);
  CHECK(f.error_of("next val -1") == EINVAL);
  CHECK(f.error_of("next val") == EINVAL);
  CHECK(count(*f.run("next 3")) == 3);  // of the only plan
  CHECK(f.run("check").value() == f.run("check val").value());
  REQUIRE(f.run("plan name=train shuffle=false format=files epochs=1").ok());
  CHECK(f.error_of("next 3") == ENOENT);  // there are several, and none is "default"
  CHECK(f.error_of("check") == ENOENT);
  CHECK(f.error_of("next other 3") == ENOENT);
}

TEST_CASE("what readers follow is told as text and as JSON, and searched for in full on request") {
  CommandsFixture f;
  for (const char* command : {"detect json", "detect json full", "detect full json"}) {
    CAPTURE(command);
    const auto told = f.run(command);
    REQUIRE(told);
    CHECK(nlohmann::json::parse(*told)["state"] == "off");
  }
  CHECK(f.run("detect").value() == f.run("detect full").value());
}

TEST_CASE("what is no command is refused with the commands that there are") {
  CommandsFixture f;
  for (const char* command : {"", "   ", "plans", "PLAN seed=1", "\n", "seed=1"}) {
    CAPTURE(command);
    const auto answer = f.run(command);
    REQUIRE(!answer);
    CHECK(answer.error().code == EINVAL);
    CHECK(answer.error().message.find("want plan, cancel, show, json, next, check, detect or index") !=
          std::string::npos);
  }
  CHECK(f.error_of("plan sed=1") == EINVAL);
  CHECK(f.error_of("plan") == EINVAL);
  CHECK(f.error_of("detect xml") == EINVAL);
  CHECK(f.error_of("detect json all") == EINVAL);
  CHECK(f.error_of("show other") == ENOENT);
  CHECK(f.error_of("check other") == ENOENT);
}

TEST_CASE("the plan file takes a plan's text or a cancellation") {
  CommandsFixture f;
  CHECK(write_plan_file(*f.plans, "seed=7 format=files\n").ok());
  CHECK(f.plans->any());
  CHECK(write_plan_file(*f.plans, "cancel other").error().code == ENOENT);
  CHECK(write_plan_file(*f.plans, "cancel\n").ok());
  CHECK(!f.plans->any());
  CHECK(write_plan_file(*f.plans, "cancel --all").error().code == ENODATA);
  CHECK(f.plans->last_error().find("no plan is in force") != std::string::npos);
  for (const char* command : {"cancel --all\n", "cancel   --all"}) {
    CHECK(write_plan_file(*f.plans, "name=one seed=7 format=files").ok());
    CHECK(write_plan_file(*f.plans, "name=two seed=8 format=files").ok());
    CHECK(write_plan_file(*f.plans, command).ok());
    CHECK(!f.plans->any());
  }
  CHECK(write_plan_file(*f.plans, "seed=7 format=files").ok());
  CHECK(f.run("cancel --all").ok());
  CHECK(f.error_of("cancel-all") == ENODATA);
  CHECK(write_plan_file(*f.plans, "").error().code == EINVAL);
  CHECK(write_plan_file(*f.plans, "seed=seven").error().code == EINVAL);
  CHECK(f.plans->last_error().find("seed") != std::string::npos);
}
