#include "fs/control/commands.h"

#include <cerrno>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

// Takes the first word off `text`.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const size_t end = text.find_first_of(kBlank);
  const std::string_view word = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : trimmed(text.substr(end));
  return word;
}

// `which`: what follows the word "cancel". "--all" as the command line has it: people write that here, too.
Status cancel(PlanManager& plans, std::string_view which) {
  if (which == "--all") return plans.cancel_all();
  return plans.cancel(std::string(which.empty() ? "default" : which));
}

Result<std::string> done(const Status& status) {
  if (!status) return status.error();
  return std::string();
}

// What `show` says of it from then on: how the samples were numbered shows mistakes that no error tells of.
Result<std::string> submit(PlanManager& plans, std::string_view text) {
  const auto submitted = plans.submit(text);
  if (!submitted) return submitted;
  const auto spec = parse_plan(*submitted);
  auto shown = spec ? plans.text(spec->name) : spec.error();
  return shown ? shown : submitted;  // somebody may have cancelled it since
}

Result<std::string> detect(PlanManager& plans, std::string_view words) {
  bool json = false;
  bool full = false;
  while (!words.empty()) {
    const std::string_view word = take_word(words);
    if (word != "json" && word != "full")
      return Error{EINVAL, fmt::format("'{}' is neither json nor full", word)};
    (word == "json" ? json : full) = true;
  }
  plans.hurry_search();
  if (full) plans.search_all_shuffles();
  return plans.detect(json);
}

Result<std::string> next_files(const PlanManager& plans, std::string_view arguments) {
  const std::string_view first = take_word(arguments);
  const std::string_view number = arguments.empty() ? first : arguments;
  const auto count = parse_whole<uint64_t>(number);
  if (!count) return Error{EINVAL, fmt::format("'{}' is not a number of files", number)};
  return plans.next(std::string(arguments.empty() ? "" : first), std::min(*count, kMostNextFiles));
}

}  // namespace

Result<std::string> run_control_command(PlanManager& plans, std::string_view command) {
  std::string_view rest = command;
  const std::string_view verb = take_word(rest);
  if (verb == "plan") return submit(plans, rest);
  if (verb == "cancel") return done(cancel(plans, rest));
  if (verb == "cancel-all") return done(plans.cancel_all());
  if (verb == "show") return rest.empty() ? Result<std::string>(plans.text()) : plans.text(std::string(rest));
  if (verb == "json") return plans.json();
  if (verb == "next") return next_files(plans, rest);
  if (verb == "check") return plans.check(std::string(rest));
  if (verb == "detect") return detect(plans, rest);
  if (verb == "index") return plans.index(rest);
  return Error{
      EINVAL,
      fmt::format("'{}' is no command; want plan, cancel, show, json, next, check, detect or index", verb)};
}

Status write_plan_file(PlanManager& plans, std::string_view text, std::string_view before) {
  std::string_view rest = text;
  if (take_word(rest) == "cancel") return cancel(plans, rest);
  const auto submitted = plans.submit(trimmed(text));
  if (const auto part = parse_plan(trimmed(before)); !before.empty() && part) {
    const auto whole = submitted ? parse_plan(*submitted) : submitted.error();
    if (!whole || whole->name != part->name) (void)plans.cancel(part->name);  // gone already is as good
  }
  if (!submitted) return submitted.error();
  return {};
}

}  // namespace clairfs
