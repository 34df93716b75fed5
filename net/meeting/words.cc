#include "net/meeting/words.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cache/base/text.h"
#include "net/meeting/keyed_hash.h"

namespace clairfs {
namespace {

constexpr size_t kMostNamed = 8;  // as many as fit into a line for people

std::string proof(std::string_view secret, std::string_view who, const MeetingNonces& nonces,
                  const JobPlace& place) {
  return keyed_hash(
      secret, fmt::format("{} {} {} {} {}", who, nonces.host, nonces.node, place.self.value, place.size));
}

}  // namespace

std::string node_proof(std::string_view secret, const MeetingNonces& nonces, const JobPlace& place) {
  return proof(secret, "node", nonces, place);
}

std::string host_proof(std::string_view secret, const MeetingNonces& nonces, const JobPlace& place) {
  return proof(secret, "host", nonces, place);
}

std::string missing_line(const std::vector<NodeId>& missing) {
  std::string line = fmt::format("missing {}", missing.size());
  for (size_t i = 0; i < std::min(missing.size(), kMostNamed); ++i)
    line += fmt::format(" {}", missing[i].value);
  return line + "\n";
}

std::string missing_text(std::string_view line, uint32_t nodes, const std::string& where) {
  const auto words = words_of(line);
  if (words.size() < 3 || words[0] != "missing") return "";
  const size_t named = words.size() - 2;
  const auto missing = parse_whole<size_t>(words[1]);
  if (!missing || *missing < named) return "";
  const bool one = *missing == 1;
  return fmt::format("node{} {}{} of {} {} not come to {}", one ? "" : "s",
                     fmt::join(words.begin() + 2, words.end(), ", "),
                     *missing == named ? "" : fmt::format(" and {} more", *missing - named), nodes,
                     one ? "has" : "have", where);
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

}  // namespace clairfs
