#include "mount-helper/client/kept.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/units.h"
#include "fs/base/text_file.h"

namespace clairfs {
namespace {

using Json = nlohmann::json;

constexpr int kAnswerSeconds = 60;  // 10^8 files are looked at in some seconds
constexpr auto kAskAgain = std::chrono::milliseconds(100);
constexpr uint64_t kMebibyte = 1 << 20;

uint64_t number_in(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) && json[at].is_number_unsigned() ? json[at].get<uint64_t>() : 0;
}

Status add(KeptBytes& sum, const std::string& answer) {
  const Json json = Json::parse(answer, nullptr, false);
  if (!json.is_object()) return Error{EPROTO, "the daemon's answer is no JSON"};
  sum.files += number_in(json, "/files");
  sum.bytes += number_in(json, "/bytes");
  sum.ram += number_in(json, "/ram");
  sum.nvme += number_in(json, "/nvme");
  sum.homeless += number_in(json, "/homeless");
  const auto homes = json.find("homes");
  if (homes == json.end() || !homes->is_object()) return {};
  for (const auto& [node, bytes] : homes->items()) {
    if (bytes.is_number_unsigned()) sum.homes[node] += bytes.get<uint64_t>();
  }
  return {};
}

// A mount that has just answered its socket answers this, too.
void add_capacities(KeptBytes& sum, const ControlledMount& mount) {
  const auto text = read_text_file(mount.mountpoint + "/.clairfs/stats.json");
  const Json stats = text ? Json::parse(*text, nullptr, false) : Json();
  if (!stats.is_object()) return;
  sum.ram_capacity = number_in(stats, "/tiers/ram/capacity");
  sum.nvme_capacity = number_in(stats, "/tiers/nvme/capacity");
  sum.moving = sum.nvme_capacity > 0 && number_in(stats, "/tiers/transit/bytes") > 0;
}

}  // namespace

Result<KeptBytes> residency_of_paths(const ControlledMount& mount, const std::vector<std::string>& paths,
                                     const char* command) {
  KeptBytes sum;
  for (const std::string& path : paths) {
    const std::string inside = path.substr(std::min(mount.mountpoint.size() + 1, path.size()));
    const auto answer = ask_mount(mount, fmt::format("{} {}", command, inside), kAnswerSeconds);
    if (!answer) return answer.error();
    if (const Status added = add(sum, *answer); !added) return added.error();
  }
  add_capacities(sum, mount);
  return sum;
}

Result<KeptBytes> settled_residency(const ControlledMount& mount, const std::vector<std::string>& paths,
                                    std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    auto sum = residency_of_paths(mount, paths, "where");
    if (!sum || !sum->moving || std::chrono::steady_clock::now() > deadline) return sum;
    std::this_thread::sleep_for(kAskAgain);
  }
}

std::string kept_text(const KeptBytes& kept) {
  const double share =
      kept.bytes == 0 ? 100 : 100 * static_cast<double>(kept.kept()) / static_cast<double>(kept.bytes);
  std::string text =
      fmt::format("kept {} of {} ({:.1f} %): RAM {}, NVMe {}", format_size(kept.kept()),
                  format_size(kept.bytes), share, format_size(kept.ram), format_size(kept.nvme));
  for (const auto& [node, bytes] : kept.homes)
    text += fmt::format("{}node {} {}", node == kept.homes.begin()->first ? "; at home: " : ", ", node,
                        format_size(bytes));
  if (kept.homeless > 0) text += fmt::format("; at home nowhere: {}", format_size(kept.homeless));
  return text;
}

std::string tier_advice(const KeptBytes& kept) {
  if (kept.kept() >= kept.bytes) return "";
  if (!kept.homes.empty() && kept.homeless == 0) return "";
  if (!kept.homes.empty())
    return fmt::format("the tiers of all nodes are too small by {}: mount with a larger --ram or --nvme",
                       format_size(kept.homeless));
  // Chunks are padded, and the tier may hold other files: a sixteenth more than what is missing.
  const uint64_t missing = kept.bytes - kept.kept();
  const auto with = [&](uint64_t capacity) {
    return (capacity + missing + missing / 16 + kMebibyte - 1) / kMebibyte;
  };
  std::string text =
      fmt::format("the tiers are too small to keep all of it: mount with --ram {}M", with(kept.ram_capacity));
  text += kept.nvme_capacity > 0 ? fmt::format(", or --nvme DIR:{}M", with(kept.nvme_capacity))
                                 : " or with --nvme DIR";
  return text;
}

}  // namespace clairfs
