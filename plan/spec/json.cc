// The JSON spelling of a plan.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/text.h"
#include "plan/spec/arguments.h"
#include "plan/spec/keys.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

using Json = nlohmann::json;

// Keys of which null is not the same as none at all: as many as the machine has processors or, to a
// DataLoader, no shuffling. Text says None for it.
constexpr std::array<std::string_view, 2> kNullMatters{"cycle_length", "shuffle"};

bool null_matters(const std::string& key) {
  return is_argument(key) || std::ranges::find(kNullMatters, canonical_plan_key(key)) != kNullMatters.end();
}

Result<std::string> as_text(const std::string& key, const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      if (value.get_ref<const std::string&>().find('\0') != std::string::npos) break;
      return value.get<std::string>();
    case Json::value_t::boolean:
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::array:
      return value.dump();
    case Json::value_t::number_float:
      if (value.dump().ends_with(".0")) return value.dump();
      return plan_error(key, value.dump(), "want a whole number; one of more than 64 bits stands in quotes");
    default:
      break;
  }
  return plan_error(key, value.dump(), "want a number, true, false, a string or an array");
}

// A whole number that JSON's readers take exactly; nothing for lists, strings and what 64 bits do not hold.
std::optional<Json> as_number(const std::string& value) {
  if (const auto number = parse_whole<uint64_t>(value)) return Json(*number);
  if (const auto number = parse_whole<int64_t>(value)) return Json(*number);
  return std::nullopt;
}

}  // namespace

Result<PlanSpec> parse_plan_json(std::string_view text) {
  PlanPairs pairs;
  std::string repeated;
  bool too_deep = false;
  // nlohmann keeps the last of two equal keys without a word: note them as they come.
  std::set<std::string> seen;
  const auto note_keys = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !seen.insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    too_deep = too_deep || depth >= kDeepestJson;
    return !too_deep;
  };
  Json object;
  try {
    object = Json::parse(text, note_keys);
  } catch (const Json::exception& wrong) {
    std::string_view why = wrong.what();  // begins with "[json.exception.parse_error.101] "
    why.remove_prefix(std::min(why.size(), why.find("] ") + 2));
    return plan_error("JSON", "", shortened(std::string(why), 200));
  }
  if (too_deep) return plan_error("JSON", "", "nests deeper than any plan does");
  if (!object.is_object()) return plan_error("JSON", "", "want an object such as {\"seed\": 42}");
  if (!repeated.empty()) return plan_error(repeated, "", "given twice");
  for (const auto& [key, value] : object.items()) {
    if (value.is_null()) {  // Python's None: not given
      if (null_matters(key)) pairs.emplace_back(key, "None");
      continue;
    }
    Result<std::string> shown = as_text(key, value);
    if (!shown) return shown.error();
    pairs.emplace_back(key, std::move(*shown));
  }
  return make_plan(std::move(pairs));
}

std::string format_plan_json(const PlanSpec& spec) {
  using Ordered = nlohmann::ordered_json;
  Ordered object = Ordered::object();
  for (const PlanKey& key : plan_keys()) {
    if (!plan_value_shown(key, spec)) continue;
    if (std::holds_alternative<uint64_t PlanSpec::*>(key.member)) {
      object[std::string(key.name)] = spec.*std::get<uint64_t PlanSpec::*>(key.member);
    } else if (std::holds_alternative<bool PlanSpec::*>(key.member)) {
      object[std::string(key.name)] = spec.*std::get<bool PlanSpec::*>(key.member);
    } else {
      const std::string value = plan_value(key, spec);
      const std::optional<Json> number = key.whole ? as_number(value) : std::nullopt;
      object[std::string(key.name)] = number ? Ordered(*number) : Ordered(value);
    }
  }
  return object.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

}  // namespace clairfs
