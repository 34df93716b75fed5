// `clairfs plan` and `clairfs top`: arguments. With a real mount: tests/plan/test_plan_cli.py.
#include <algorithm>

#include "mount-helper/commands/cli.h"
#include "mount-helper/commands/commands.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// Parses and runs; the commands below fail before they reach a mount.
int parse(std::vector<std::string> arguments) {
  int status = exit_success;
  const auto app = make_app(status);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  app->parse(std::move(arguments));
  return status;
}

}  // namespace

TEST_CASE("plan takes a mount and pairs, or a subcommand") {
  CHECK(parse({"plan", "/proc", "seed=42", "batch=4"}) == exit_usage);
  CHECK(parse({"plan", "/proc"}) == exit_usage);
  CHECK(parse({"plan", "show", "/proc"}) == exit_usage);
  CHECK(parse({"plan", "show", "/proc", "--name", "val", "--next", "20"}) == exit_usage);
  CHECK(parse({"plan", "cancel", "/proc"}) == exit_usage);
  CHECK(parse({"plan", "check", "/proc"}) == exit_system);  // 1 would mean that the reader differs
  CHECK(parse({"plan", "./show", "seed=1"}) == exit_usage);
  CHECK(parse({"plan", "status", "seed=1"}) == exit_usage);  // a mountpoint called like another command
  CHECK(parse({"top", "/proc", "--once", "--interval", "0.5"}) == exit_usage);
}

TEST_CASE("plan refuses what it cannot mean") {
  CHECK_THROWS_AS(parse({"plan"}), CLI::RequiredError);
  CHECK_THROWS_AS(parse({"plan", "show"}), CLI::RequiredError);
  CHECK_THROWS_AS(parse({"plan", "order"}), CLI::RequiredError);
  CHECK_THROWS_AS(parse({"plan", "/proc", "show", "/proc"}), CLI::ExtrasError);
  CHECK_THROWS_AS(parse({"plan", "/proc", "--seed", "42"}), CLI::ExtrasError);
  CHECK_THROWS_AS(parse({"plan", "show", "/proc", "--next", "0"}), CLI::ValidationError);
  CHECK_THROWS_AS(parse({"plan", "show", "/proc", "--next", "20", "--json"}), CLI::ExcludesError);
  CHECK_THROWS_AS(parse({"plan", "show", "/proc", "--name", "a b"}), CLI::ValidationError);
  CHECK_THROWS_AS(parse({"plan", "cancel", "/proc", "--name", ""}), CLI::ValidationError);
  CHECK_THROWS_AS(parse({"plan", "order", "n=5", "--epoch", "-1"}), CLI::ParseError);
  CHECK_THROWS_AS(parse({"plan", "order", "n=5", "--rank", "4294967296"}), CLI::ValidationError);
  CHECK_THROWS_AS(parse({"top"}), CLI::RequiredError);
  CHECK_THROWS_AS(parse({"top", "/proc", "--interval", "0"}), CLI::ValidationError);
}

TEST_CASE("plan order refuses a plan without a size") {
  CHECK(parse({"plan", "order", "seed=1"}) == exit_usage);
  CHECK(parse({"plan", "order", "seed=1", "n=5", "--paths"}) == exit_usage);
  CHECK(parse({"plan", "order", "seed=1", "n=5", "epochs=2", "--epoch", "2"}) == exit_usage);
}
