#include "mount-helper/options/man_page.h"

#include <regex>

#include "cache/catalog/record_chunks.h"
#include "fs/base/text_file.h"
#include "mount-helper/commands/cli.h"
#include "mount-helper/options/option_table.h"
#include "plan/samplers/sampler.h"
#include "plan/spec/keys.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::string page(const std::string& name) {
  const auto text = read_text_file(CLAIRFS_SOURCE_DIR "/mount-helper/man/" + name + ".in");
  REQUIRE(text);
  return fill_man_page(*text);
}

std::string escaped(std::string text) {
  for (size_t at = 0; (at = text.find('-', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

/// Checks the flags of a command and of its subcommands; returns how many there are.
size_t check_documented(const CLI::App& command, const std::string& text) {
  size_t flags = 0;
  INFO(command.get_name());
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() || option->check_name("--help")) continue;
    for (const std::string& name : option->get_lnames()) {
      INFO(name);
      CHECK(text.find(escaped("--" + name)) != std::string::npos);
      ++flags;
    }
    for (const std::string& name : option->get_snames()) {
      INFO(name);
      CHECK(text.find("\\-" + name) != std::string::npos);
    }
  }
  for (const CLI::App* inner : command.get_subcommands([](const CLI::App*) { return true; })) {
    INFO(inner->get_name());
    CHECK(text.find(".B " + command.get_name() + " " + inner->get_name() + "\n") != std::string::npos);
    flags += check_documented(*inner, text);
  }
  return flags;
}

}  // namespace

TEST_CASE("the table says everything about each option") {
  for (const OptionSpec& spec : option_table()) {
    INFO(spec.name);
    CHECK(!spec.help.empty());
    CHECK(!spec.default_text.empty());
    CHECK(spec.man.size() > 40);
    CHECK(spec.man.ends_with('.'));
    CHECK(find_option(spec.name) == &spec);
  }
}

TEST_CASE("the table names the endings of files that are cut into small chunks") {
  const std::string text(find_option("record-chunk")->man);
  for (const std::string_view ending : RecordChunks::endings()) {
    INFO(ending);
    CHECK(std::regex_search(text, std::regex("\\" + std::string(ending) + "\\b")));
  }
}

TEST_CASE("clairfs(1) documents every command and every flag that the parser takes") {
  const std::string text = page("clairfs.1");
  CHECK_FALSE(std::regex_search(text, std::regex("@[A-Z]+@")));
  int status = 0;
  const auto app = make_app(status);
  size_t flags = 0;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;
    INFO(command->get_name());
    CHECK(text.find(".B " + command->get_name() + "\n") != std::string::npos);
    flags += check_documented(*command, text);
  }
  CHECK(flags > option_table().size());
}

TEST_CASE("mount.clairfs(8) documents every option of the table") {
  const std::string text = page("mount.clairfs.8");
  CHECK_FALSE(std::regex_search(text, std::regex("@[A-Z]+@")));
  for (const OptionSpec& spec : option_table()) {
    INFO(spec.name);
    const std::string entry = ".B " + escaped(std::string(spec.name));
    CHECK((text.find(entry + "\n") != std::string::npos || text.find(entry + "=") != std::string::npos));
  }
}

TEST_CASE("clairfs(1) names every key of a plan") {
  const std::string text = page("clairfs.1");
  for (const PlanKey& key : plan_keys()) {
    INFO(key.name);
    CHECK(text.find("\\fB" + std::string(key.name) + "\\fR=") != std::string::npos);
  }
}

TEST_CASE("clairfs(1) names every sampler") {
  const std::string text = page("clairfs.1");
  for (const std::string& name : sampler_names()) {
    INFO(name);
    const std::string literal = std::regex_replace(name, std::regex("\\."), "\\.");
    CHECK(std::regex_search(text, std::regex("\n\\.B ([^\n]*, )?" + literal + "[,\n]")));
  }
}

TEST_CASE("clairfs(1) names every format") {
  const std::string text = page("clairfs.1");
  const size_t begin = text.find("\\fBformat\\fR=");
  REQUIRE(begin != std::string::npos);
  const std::string entry = text.substr(begin, text.find("\n.TP\n", begin) - begin);
  for (const std::string_view name : plan_formats()) {
    INFO(name);
    CHECK(std::regex_search(entry, std::regex("\\b" + std::string(name) + "\\b")));
  }
}
