#include "mount-helper/client/mount_list.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"
#include "cache/base/plural.h"
#include "fs/base/mountinfo.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr auto kListPatience = std::chrono::seconds(3);  // a mount that lives answers at once

std::string plans_in(const nlohmann::json& stats) {
  std::string text;
  for (const auto& plan : stats.value("plan_list", nlohmann::json::array())) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", plan.value("name", "?"), plan.value("state", "?"));
  }
  return text.empty() ? "none" : text;
}

void ask_for_health(ListedMount& mount, const MountEntry& entry) {
  const auto text = read_with_deadline(mount.mountpoint + "/.clairfs/stats.json", kListPatience);
  if (!text) {
    const int code = text.error().code;
    mount.health = code == ENOTCONN                ? "stale"
                   : code == ETIMEDOUT             ? "hangs"
                   : code == EACCES && entry.owner ? fmt::format("of user {}", *entry.owner)
                                                   : text.error().message;
    return;
  }
  const auto stats = nlohmann::json::parse(*text, nullptr, false);
  if (!stats.is_object()) {
    mount.health = "its stats.json is no JSON";
    return;
  }
  // What a mount says may be anybody's: nothing of it has to be as expected.
  const auto troubles = stats.value("troubles", nlohmann::json());
  const size_t count = troubles.is_array() ? troubles.size() : 0;
  mount.health = count == 0 ? "well" : pluralize(count, "trouble", "troubles");
  mount.plans = plans_in(stats);
  const auto pid = stats.find("daemon");
  if (pid != stats.end() && pid->is_object()) mount.pid = pid->value("pid", 0);
}

}  // namespace

Result<std::vector<ListedMount>> list_mounts() {
  const auto mounts = current_mounts();
  if (!mounts) return mounts.error();
  std::vector<ListedMount> list;
  for (const MountEntry& entry : clairfs_mounts(*mounts)) {
    ListedMount mount{entry.mountpoint, entry.source, "", "-", 0};
    try {
      ask_for_health(mount, entry);
    } catch (const nlohmann::json::exception&) {
      mount.health = "its stats.json is not as expected";
    }
    if (mount.health.empty()) mount.health = "?";
    list.push_back(std::move(mount));
  }
  return list;
}

std::string mount_table(const std::vector<ListedMount>& mounts) {
  if (mounts.empty()) return "no clairfs mounts\n";
  size_t widest_point = std::string_view("MOUNTPOINT").size();
  size_t widest_health = std::string_view("HEALTH").size();
  for (const ListedMount& mount : mounts) {
    widest_point = std::max(widest_point, escaped(mount.mountpoint).size());
    widest_health = std::max(widest_health, mount.health.size());
  }
  std::string out = fmt::format("{:<{}}  {:>7}  {:<{}}  {:<20}  {}\n", "MOUNTPOINT", widest_point, "PID",
                                "HEALTH", widest_health, "PLANS", "SOURCE");
  for (const ListedMount& mount : mounts) {
    out += fmt::format("{:<{}}  {:>7}  {:<{}}  {:<20}  {}\n", escaped(mount.mountpoint), widest_point,
                       mount.pid == 0 ? "-" : std::to_string(mount.pid), mount.health, widest_health,
                       escaped(mount.plans), escaped(mount.source));
  }
  return out;
}

std::string mount_list_json(const std::vector<ListedMount>& mounts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ListedMount& mount : mounts) {
    list.push_back({{"mountpoint", mount.mountpoint},
                    {"source", mount.source},
                    {"health", mount.health},
                    {"plans", mount.plans},
                    {"pid", mount.pid}});
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace clairfs
