#include "plan/simulator/scenario/text.h"

#include <cerrno>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

ScenarioValue value_of(const std::string& text) {
  const auto parsed = parse_scenario_text("key = " + text + "\n", "t");
  INFO(text);
  REQUIRE(parsed);
  REQUIRE(parsed->entries.size() == 1);
  return parsed->entries[0].value;
}

std::string text_error(const std::string& text) {
  const auto parsed = parse_scenario_text(text, "file.toml");
  INFO(text);
  REQUIRE(!parsed);
  CHECK(parsed.error().code == EINVAL);
  return parsed.error().message;
}

}  // namespace

TEST_CASE("scenario text: values of all kinds") {
  CHECK(std::get<double>(value_of("12.5")) == 12.5);
  CHECK(std::get<double>(value_of("-3")) == -3);
  CHECK(std::get<double>(value_of("+1e3")) == 1000);
  CHECK(std::get<double>(value_of("10_000")) == 10000);
  CHECK(std::get<bool>(value_of("true")));
  CHECK_FALSE(std::get<bool>(value_of("false")));
  CHECK(std::get<std::string>(value_of("\"a # b\"")) == "a # b");
  CHECK(std::get<std::string>(value_of("'x'")) == "x");
  CHECK(std::get<NumberTable>(value_of("{1 = 66, 2=86.5 }")) == NumberTable{{1, 66}, {2, 86.5}});
  CHECK(std::get<NumberTable>(value_of("{}")).empty());
}

TEST_CASE("scenario text: sections, comments, lines") {
  const auto parsed = parse_scenario_text("# head\n[a]\n\nx = 1 # one\r\n[class.b]\n y=2", "t");
  REQUIRE(parsed);
  REQUIRE(parsed->sections.size() == 2);
  CHECK(parsed->sections[1].name == "class.b");
  CHECK(parsed->sections[1].line == 5);
  REQUIRE(parsed->entries.size() == 2);
  CHECK(parsed->entries[0].section == "a");
  CHECK(parsed->entries[0].line == 4);
  CHECK(parsed->entries[1].section == "class.b");
  CHECK(parsed->entries[1].line == 6);
}

TEST_CASE("scenario text: errors name the line and the key") {
  CHECK(text_error("\n[a\n") == "file.toml:2: '[a' is no section; want [NAME] or [class.NAME]");
  CHECK(text_error("[a]\n[b]\n[a]\n") == "file.toml:3: [a] comes twice, first in line 1");
  CHECK(text_error("[a]\nx = 1\nx = 2\n") == "file.toml:3: x: comes twice, first in line 2");
  CHECK(text_error("x = \n").find("file.toml:1: x: '' is no value") == 0);
  CHECK(text_error("x = 1 2\n").find("file.toml:1: x: '1 2' is no value") == 0);
  CHECK(text_error("x = {1 = a}\n").find("file.toml:1: x: ") == 0);
  CHECK(text_error("x = \"a\" \"b\"\n").find("file.toml:1: x: ") == 0);
  CHECK(text_error("hello\n") == "file.toml:1: 'hello' is neither KEY = VALUE nor a [section]");
  CHECK(text_error("a b = 1\n").find("file.toml:1: 'a b = 1' is neither") == 0);
}

TEST_CASE("scenario text: a sweep's value may be a plain word") {
  CHECK(std::get<std::string>(*parse_scenario_value("10G")) == "10G");
  CHECK(std::get<double>(*parse_scenario_value(" 0 ")) == 0);
  CHECK(std::get<NumberTable>(*parse_scenario_value("{1 = 2}")) == NumberTable{{1, 2}});
  CHECK(!parse_scenario_value(""));
  CHECK(!parse_scenario_value("{1 = }"));
}
