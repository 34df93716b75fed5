#include "net/group/plan_register.h"

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "cache/base/checksum.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

static_assert(kMaxPlanText <= wire::kMaxText);

// Names in use and cancelled; a job has a handful.
constexpr size_t kMostEntries = 1000;
// No number of registrations gets there; what goes beyond comes from a faulty node and is ignored by all.
constexpr uint64_t kLastStamp = 1ULL << 60;

bool newer(const wire::PlanEntry& a, const wire::PlanEntry& b) {
  return std::tie(a.stamp, a.origin, a.cancelled) > std::tie(b.stamp, b.origin, b.cancelled);
}

}  // namespace

Result<wire::PlanEntry> PlanRegister::enter(const std::string& name, const std::optional<std::string>& text) {
  if (name.size() > wire::kMaxName || (text && text->size() > wire::kMaxText)) {
    return Error{E2BIG,
                 fmt::format("plan {:.40}: a plan for several nodes must not exceed {} bytes of text and {} "
                             "of name; put long lists into a file",
                             name, wire::kMaxText, wire::kMaxName)};
  }
  MutexLock lock(mutex_);
  if (!entries_.contains(name) && entries_.size() >= kMostEntries)
    return Error{E2BIG,
                 fmt::format("plan {}: {} other plans have been registered already", name, kMostEntries)};
  if (last_stamp_ >= kLastStamp) {  // the others would ignore it
    return Error{EOVERFLOW,
                 fmt::format("plan {}: a faulty node has used up the stamps of plans; end the job", name)};
  }
  wire::PlanEntry entry{++last_stamp_, self_, !text, name, text.value_or("")};
  entries_[name] = entry;
  return entry;
}

std::optional<wire::PlanEntry> PlanRegister::withdraw(const std::string& name, const std::string& text) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.cancelled || found->second.text != text) return std::nullopt;
  found->second.cancelled = true;
  return found->second;
}

bool PlanRegister::merge(const wire::PlanEntry& entry) {
  MutexLock lock(mutex_);
  if (entry.stamp > kLastStamp) return false;
  const auto found = entries_.find(entry.name);
  if (found == entries_.end() ? entries_.size() >= kMostEntries : !newer(entry, found->second)) return false;
  last_stamp_ = std::max(last_stamp_, entry.stamp);
  entries_[entry.name] = entry;
  return true;
}

std::optional<wire::PlanEntry> PlanRegister::entry(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<wire::PlanEntry> PlanRegister::entries() const {
  MutexLock lock(mutex_);
  std::vector<wire::PlanEntry> all;
  for (const auto& [name, entry] : entries_) all.push_back(entry);
  return all;
}

// The winner of a name is told by what decides that it wins.
uint64_t PlanRegister::digest() const {
  Xxh3Stream stream;
  MutexLock lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    std::string line = fmt::format("{} {} {} {}\n", entry.stamp, entry.origin.value, entry.cancelled, name);
    stream.add(std::vector<iovec>{{line.data(), line.size()}});
  }
  return stream.digest();
}

}  // namespace clairfs
