// The key=value spelling of a plan.
#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "plan/spec/keys.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

struct Token {
  std::string text;  // quotes taken off
  size_t end = 0;    // where the next one may start
};

// Reads what stands before the next white space that is not in quotes.
Result<Token> next_token(std::string_view text, size_t start) {
  Token token;
  char quote = 0;
  size_t at = start;
  for (; at < text.size() && (quote != 0 || !is_space(text[at])); ++at) {
    const char c = text[at];
    if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else if (quote == '"' && c == '\\' && at + 1 < text.size() &&
               (text[at + 1] == '"' || text[at + 1] == '\\')) {
      token.text += text[++at];
    } else {
      token.text += c;
    }
  }
  if (quote != 0) return plan_error(token.text, "", fmt::format("want a closing {}", quote));
  token.end = at;
  return token;
}

std::string quoted(const std::string& value) {
  const auto special = [](char c) { return is_space(c) || c == '"' || c == '\''; };
  if (std::none_of(value.begin(), value.end(), special)) return value;
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

}  // namespace

Status check_plan_size(std::string_view text) {
  if (text.size() <= kMaxPlanText) return {};
  return Error{EINVAL, fmt::format("plan: {} bytes are too many; want at most {}: put long lists into a file",
                                   text.size(), kMaxPlanText)};
}

Result<PlanSpec> parse_plan(std::string_view text) {
  // A C program writes its string with the final NUL.
  while (!text.empty() && (is_space(text.back()) || text.back() == '\0')) text.remove_suffix(1);
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  if (const Status fits = check_plan_size(text); !fits) return fits.error();
  if (text.empty()) return Error{EINVAL, "plan: empty; want at least seed=NUMBER"};
  if (text.find('\0') != std::string_view::npos)
    return Error{EINVAL, "plan: a NUL byte in it; want plain text"};
  if (text.front() == '{') return parse_plan_json(text);

  PlanPairs pairs;
  for (size_t at = 0; at < text.size();) {
    if (is_space(text[at])) {
      ++at;
      continue;
    }
    Result<Token> token = next_token(text, at);
    if (!token) return token.error();
    at = token->end;
    const size_t equals = token->text.find('=');
    if (equals == std::string::npos) return plan_error(token->text, "", "want KEY=VALUE, such as seed=42");
    pairs.emplace_back(token->text.substr(0, equals), token->text.substr(equals + 1));
  }
  return make_plan(std::move(pairs));
}

std::string format_plan(const PlanSpec& spec) {
  std::string text;
  for (const PlanKey& key : plan_keys()) {
    if (!plan_value_shown(key, spec)) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key.name, quoted(plan_value(key, spec)));
  }
  return text;
}

std::string describe_plan(const PlanSpec& spec) {
  constexpr size_t kMost = 40;  // as much of it as tells two of them apart, on a line with other keys
  PlanSpec shown = spec;
  const auto shorten = [](std::string& value) {
    if (value.size() > kMost)
      value = fmt::format("{}...({} characters)", value.substr(0, kMost), value.size());
  };
  shorten(shown.state);
  for_each_file(shown, [&](const char*, std::string& value) {
    if (value.starts_with('[')) shorten(value);
  });
  return format_plan(shown);
}

}  // namespace clairfs
