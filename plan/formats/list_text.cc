#include "plan/formats/list_text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace clairfs {

Status for_each_line(std::string_view text, const std::function<Status(const ListLine&)>& visit) {
  for (uint64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool epoch_end = line.empty() || line.starts_with("# epoch");
    if (line.starts_with('#') && !epoch_end) continue;
    const ListLine::Kind kind = epoch_end ? ListLine::Kind::epoch_end : ListLine::Kind::entry;
    if (Status status = visit({kind, line, number}); !status) return status;
  }
  return {};
}

std::string array_to_lines(const std::string& array) {
  std::string lines;
  for (const auto& element : nlohmann::json::parse(array)) {
    lines += (element.is_string() ? element.get<std::string>() : element.dump()) + "\n";
  }
  return lines;
}

bool lists_indices(std::string_view text) {
  bool indices = false;
  const Status stopped = for_each_line(text, [&](const ListLine& line) {
    if (line.kind == ListLine::Kind::epoch_end) return Status();
    indices = std::all_of(line.text.begin(), line.text.end(), [](char c) { return c >= '0' && c <= '9'; });
    return Status(Error{ECANCELED, "one entry is enough"});
  });
  return !stopped.ok() && indices;
}

}  // namespace clairfs
