#include "mount-helper/options/completion.h"

#include <cerrno>
#include <string>

#include <fmt/format.h>

#include "mount-helper/commands/cli.h"
#include "mount-helper/options/option_table.h"
#include "plan/spec/keys.h"
#include "tests/support/catch.h"

using namespace clairfs;

// What the shells make of them: tests/package/test_package.py.

TEST_CASE("completions know every mount option and every key of a plan", "[completion]") {
  int status = 0;
  const auto app = make_app(status);
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto script = completion_script(*app, shell);
    REQUIRE(script.ok());
    const std::string dashes = shell == "fish" ? "-l " : "--";
    for (const OptionSpec& option : option_table()) {
      INFO(shell << " " << option.name);
      CHECK(script->find(fmt::format("{}{}", dashes, option.name)) != std::string::npos);
    }
    for (const PlanKey& key : plan_keys()) {
      INFO(shell << " " << key.name);
      CHECK(script->find(fmt::format("{}=", key.name)) != std::string::npos);
    }
    for (const char* mark : {"@KEYS", "@LIST", "@SECOND"}) CHECK(script->find(mark) == std::string::npos);
  }
}

TEST_CASE("what a help text holds cannot break a script", "[completion]") {
  CLI::App app("a program", "clairfs");
  const std::string text = "it's [so]: \\ $(so) `so`";
  app.add_subcommand("odd", text)->add_flag("--more", text);
  CHECK(completion_script(app, "zsh")->find(R"('odd:it'\''s \[so\]\: \\ $(so) `so`')") != std::string::npos);
  CHECK(completion_script(app, "fish")->find(R"('it\'s [so]: \\ $(so) `so`')") != std::string::npos);
  CHECK(completion_script(app, "bash")->find("$(so)") == std::string::npos);
}

TEST_CASE("another shell is refused by name", "[completion]") {
  int status = 0;
  const auto script = completion_script(*make_app(status), "tcsh");
  REQUIRE_FALSE(script.ok());
  CHECK(script.error().code == EINVAL);
  CHECK_THAT(script.error().message, Contains("'tcsh'"));
}
