#include "tests/support/slowfs/server.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cache/base/units.h"

namespace clairfs::slowfs {
namespace {

constexpr std::array<const char*, kOpCount> op_names = {"lookup",  "getattr",  "open",  "read",
                                                        "readdir", "readlink", "statfs"};

/// A whole, non-negative decimal number. Bounded, so that nanoseconds made of it do not overflow.
std::optional<uint64_t> number(const std::string& text) {
  constexpr size_t max_digits = 12;
  const bool digits = std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || text.size() > max_digits || !digits) return std::nullopt;
  return std::stoull(text);
}

int64_t microseconds_of(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

}  // namespace

Server::Server(const ServerOptions& options)
    : options_(options), model_(options.bandwidth, options.max_parallel) {
  if (!options.trace.empty()) trace_.open(options.trace);
}

Duration Server::latency_of(Op op) const {
  if (op == Op::open) return options_.open_latency;
  if (op == Op::read) return options_.read_latency;
  return options_.meta_latency;
}

/// Whether a read goes on elsewhere than where the one before it ended.
bool Server::seeks(const std::string& path, uint64_t bytes, uint64_t offset) {
  const auto [end, first] = ends_.try_emplace(path, offset + bytes);
  return first || std::exchange(end->second, offset + bytes) != offset;
}

Admission Server::admit(Op op, const std::string& path, uint64_t bytes, uint64_t offset) {
  MutexLock lock(mutex_);
  const Verdict verdict = faults_.judge(op, path);
  const bool hung = verdict.hang > Duration::zero();
  counters_.ops[static_cast<size_t>(op)]++;
  if (op == Op::open) counters_.opens[path]++;
  if (!verdict.eio) counters_.bytes += bytes;
  counters_.eio += verdict.eio ? 1 : 0;
  counters_.hung += hung ? 1 : 0;
  counters_.pending_max = std::max(counters_.pending_max, ++pending_);
  const bool seek = op == Op::read && bytes > 0 && seeks(path, bytes, offset);
  counters_.seeks += seek ? 1 : 0;
  const TimePoint now = SteadyClock().now();
  const TimePoint due =
      model_.admit(now, latency_of(op), verdict.eio ? 0 : bytes, seek ? options_.seek : Duration::zero());
  if (trace_.is_open()) {
    trace_ << microseconds_of(now) << ' ' << microseconds_of(due) << ' ' << op_names[static_cast<size_t>(op)]
           << ' ' << bytes << ' ' << path << std::endl;
  }
  return {.due = due + verdict.hang, .eio = verdict.eio, .hung = hung};
}

void Server::finished() {
  MutexLock lock(mutex_);
  --pending_;
}

Status Server::set_latency(const std::string& which, Duration latency) {
  if (which == "open" || which == "all") options_.open_latency = latency;
  if (which == "read" || which == "all") options_.read_latency = latency;
  if (which == "meta" || which == "all") options_.meta_latency = latency;
  const bool known = which == "open" || which == "read" || which == "meta" || which == "all";
  return known ? Status() : Error{EINVAL, "latency of open, read or meta, not of " + which};
}

Status Server::command(const std::string& line) {
  std::istringstream stream(line);
  const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  const Error bad{EINVAL, "not a command of slowfs: " + line};
  if (words.empty()) return {};
  const size_t arguments = words.size() - 1;
  const std::optional<uint64_t> last = number(words.back());

  MutexLock lock(mutex_);
  if (words[0] == "reset" && arguments == 0) {
    counters_ = {};
  } else if (words[0] == "clear" && arguments == 0) {
    faults_.clear();
  } else if (words[0] == "eio" && (arguments == 1 || (arguments == 2 && last))) {
    faults_.add_eio(words[1], arguments == 2 ? last : std::nullopt);
  } else if (words[0] == "eio-all" && (arguments == 0 || (arguments == 1 && last))) {
    faults_.add_eio_all(last);
  } else if (words[0] == "hang" && arguments == 2 && last) {
    faults_.add_hang(words[1], std::chrono::seconds(std::min<uint64_t>(*last, 86400)));
  } else if (words[0] == "latency" && (arguments == 1 || arguments == 2) && last) {
    return set_latency(arguments == 2 ? words[1] : "all", std::chrono::microseconds(*last));
  } else if (const auto size = parse_size(words.back()); words[0] == "bandwidth" && arguments == 1 && size) {
    model_.set_bandwidth(*size);
  } else {
    return bad;
  }
  return {};
}

std::string Server::counters() {
  MutexLock lock(mutex_);
  nlohmann::ordered_json ops;
  for (size_t i = 0; i < kOpCount; ++i) ops[op_names[i]] = counters_.ops[i];
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(counters_.opens.begin(), counters_.opens.end(), fewer);
  const bool opened = most != counters_.opens.end();
  const nlohmann::ordered_json all = {{"ops", ops},
                                      {"bytes", counters_.bytes},
                                      {"seeks", counters_.seeks},
                                      {"opens_per_file_max", opened ? most->second : 0},
                                      {"most_opened", opened ? most->first : ""},
                                      {"eio", counters_.eio},
                                      {"hung", counters_.hung},
                                      {"pending", pending_},
                                      {"pending_max", counters_.pending_max}};
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace clairfs::slowfs
