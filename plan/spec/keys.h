// The one table of plan keys: it drives the text parser, the JSON parser and both formatters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "plan/spec/plan_spec.h"

namespace clairfs {

/// One key. `accept` checks a string value and brings it into its one canonical spelling.
struct PlanKey {
  std::string_view name;
  std::variant<std::string PlanSpec::*, uint64_t PlanSpec::*, bool PlanSpec::*> member;
  std::string_view want;  ///< what would be right, for the error message
  bool shown = false;     ///< also shown when at its default
  bool (*accept)(std::string& value) = nullptr;
  uint64_t least = 0;  ///< numbers only; unless it is 0 too, 0 in the member means that none was given
  uint64_t most = 0;
  bool whole = false;  ///< text that is mostly a whole number, maybe too long for 64 bits
};

/// In the order in which they are shown.
std::span<const PlanKey> plan_keys();

/// Whether the text is true, false or another word for one of them, and which.
bool parse_flag(const std::string& text, bool& flag);

/// The name of the key that a framework calls `name` ("batch_size": "batch"); others come back as they are.
std::string canonical_plan_key(std::string name);

/// The key of that name. Errors: EINVAL naming the nearest known key.
Result<const PlanKey*> find_plan_key(std::string_view name);

/// Stores `value`, as text gives it, in the member of `key`. Errors: EINVAL.
Status set_plan_value(const PlanKey& key, std::string value, PlanSpec& spec);

/// The value as text would give it; empty when not given.
std::string plan_value(const PlanKey& key, const PlanSpec& spec);

/// Whether the formatters show the key: it has a value, and that is not the default unless `key.shown`.
bool plan_value_shown(const PlanKey& key, const PlanSpec& spec);

/// EINVAL "plan: KEY=SEEN: WANT", printable and short whatever `seen` holds.
Error plan_error(std::string_view key, std::string_view seen, std::string_view want);

/// escaped(text) of at most the first `most` bytes, "..." for the rest, for one line of an error message.
std::string shortened(std::string_view text, size_t most);

/// Levels of JSON beyond any that a plan has. The parsers' call-backs refuse deeper nesting, since the
/// library shows a value by recursion: 64 KiB of brackets could take all of a thread's stack.
inline constexpr int kDeepestJson = 8;

/// Keys and values as a spelling gave them.
using PlanPairs = std::vector<std::pair<std::string, std::string>>;

/// The checked plan of these pairs: what every spelling ends in. Errors: EINVAL.
Result<PlanSpec> make_plan(PlanPairs pairs);

/// parse_plan() for text that starts with '{'.
Result<PlanSpec> parse_plan_json(std::string_view text);

}  // namespace clairfs
