#include "net/meeting/pmi_relay.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace clairfs {
namespace {

// What MPI may put; the lines of the meeting are bounded accordingly (kLongestLine of net/meeting/host.h).
constexpr int kKvsNameMax = 256;
constexpr int kKeyMax = 64;
constexpr int kValueMax = 1024;

// The value of "KEY=VALUE" among words, or nothing.
std::string_view word(std::string_view line, std::string_view key) {
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    const std::string_view item = line.substr(0, end);
    if (item.size() > key.size() && item.starts_with(key) && item[key.size()] == '=')
      return item.substr(key.size() + 1);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return {};
}

}  // namespace

PmiRelay::Outcome PmiRelay::from_mpi(const std::string& line) {
  const std::string_view command = word(line, "cmd");
  if (command == "init") return {"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n", ""};
  if (command == "get_maxes") {
    return {fmt::format("cmd=maxes kvsname_max={} keylen_max={} vallen_max={} rc=0\n", kKvsNameMax, kKeyMax,
                        kValueMax),
            ""};
  }
  if (command == "get_appnum") return {"cmd=appnum appnum=0 rc=0\n", ""};
  if (command == "get_my_kvsname") return {"cmd=my_kvsname kvsname=clairfs rc=0\n", ""};
  if (command == "get_universe_size")
    return {fmt::format("cmd=universe_size size={} rc=0\n", place_.size), ""};
  if (command == "put") return {put(line), ""};
  if (command == "get") return {get(word(line, "key")), ""};
  if (command == "barrier_in") {
    in_barrier_ = true;
    return {"", std::exchange(new_puts_, {}) + "barrier\n"};
  }
  if (command == "finalize") return {"cmd=finalize_ack rc=0\n", ""};
  return {fmt::format("cmd={}_result rc=-1 msg=unsupported\n", command), ""};
}

PmiRelay::Outcome PmiRelay::from_host(const std::string& line) {
  if (line == "barrier") {
    if (!std::exchange(in_barrier_, false)) return {};
    return {"cmd=barrier_out rc=0\n", ""};
  }
  constexpr std::string_view kPut = "put ";
  const size_t space = line.find(' ', kPut.size());
  if (line.starts_with(kPut) && space != std::string::npos)
    values_.insert_or_assign(line.substr(kPut.size(), space - kPut.size()), line.substr(space + 1));
  return {};
}

std::string PmiRelay::put(const std::string& line) {
  const std::string_view key = word(line, "key");
  constexpr std::string_view kValue = " value=";
  const size_t at = line.find(kValue);  // the rest of the line, whatever is in it
  if (key.empty() || at == std::string::npos) return "cmd=put_result rc=-1 msg=no_key_or_value\n";
  const std::string value = line.substr(at + kValue.size());
  new_puts_ += fmt::format("put {} {}\n", key, value);
  values_.insert_or_assign(std::string(key), value);
  return "cmd=put_result rc=0 msg=success\n";
}

std::string PmiRelay::get(std::string_view key) const {
  // Each rank a machine of its own: what is really on one machine, UCX finds out itself.
  if (key == "PMI_process_mapping")
    return fmt::format("cmd=get_result rc=0 msg=success value=(vector,(0,{},1))\n", place_.size);
  const auto found = values_.find(key);
  if (found == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
  return fmt::format("cmd=get_result rc=0 msg=success value={}\n", found->second);
}

}  // namespace clairfs
