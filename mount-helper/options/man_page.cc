#include "mount-helper/options/man_page.h"

#include <string_view>

#include <fmt/format.h>

#include "mount-helper/options/option_table.h"

namespace clairfs {
namespace {

// Plain text as roff: a bare '-' would become a hyphen, '~' an accent, and a leading '.' a request.
std::string escaped(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    switch (c) {
      case '-':
        roff += "\\-";
        break;
      case '~':
        roff += "\\(ti";
        break;
      case '\\':
        roff += "\\e";
        break;
      default:
        roff += c;
    }
  }
  return roff.starts_with('.') || roff.starts_with('\'') ? "\\&" + roff : roff;
}

std::string list(std::string_view prefix, std::string_view separator) {
  std::string roff;
  for (const OptionSpec& option : option_table()) {
    roff += fmt::format(".TP\n.B {}", escaped(fmt::format("{}{}", prefix, option.name)));
    if (!option.is_switch()) roff += fmt::format("{}\\fI{}\\fR", separator, escaped(option.argument));
    roff += fmt::format("\n{}\nDefault: {}.\n", escaped(option.man), escaped(option.default_text));
  }
  return roff;
}

void replace(std::string& text, std::string_view mark, const std::string& by) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + by.size())) {
    text.replace(at, mark.size(), by);
  }
}

}  // namespace

std::string fill_man_page(std::string page) {
  replace(page, "@FLAGS@\n", list("--", " "));
  replace(page, "@OPTIONS@\n", list("", "="));
  replace(page, "@VERSION@", CLAIRFS_VERSION);
  return page;
}

}  // namespace clairfs
