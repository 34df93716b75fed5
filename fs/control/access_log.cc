#include "fs/control/access_log.h"

#include <cstring>
#include <iterator>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/units.h"

namespace clairfs {

const char* origin_name(Origin origin) {
  constexpr const char* kNames[] = {"ram", "nvme", "peer", "pfs"};
  static_assert(std::size(kNames) == kOrigins, "one for each origin");
  return kNames[static_cast<size_t>(origin)];
}

void AccessLog::record(const Entry& entry) {
  MutexLock lock(mutex_);
  if (entries_.size() < kCapacity) {
    entries_.push_back(entry);
  } else {
    entries_[next_] = entry;
  }
  next_ = (next_ + 1) % kCapacity;
}

std::string AccessLog::text() const {
  std::vector<Entry> entries;
  {
    MutexLock lock(mutex_);
    const size_t oldest = entries_.size() < kCapacity ? 0 : next_;
    for (size_t i = 0; i < entries_.size(); ++i) entries.push_back(entries_[(oldest + i) % entries_.size()]);
  }
  std::string out;
  for (const Entry& e : entries) {
    const auto second = std::chrono::floor<std::chrono::seconds>(e.time);
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(e.time - second);
    out += fmt::format("{:%FT%T}.{:06}Z read {} offset={} length={} from={}{} waited={} pid={}{}\n", second,
                       us.count(), escaped(catalog_.path(e.file)), e.offset, e.length, origin_name(e.origin),
                       e.joined ? " joined" : "", format_duration(e.waited), e.thread,
                       e.error != 0 ? fmt::format(" error={}", std::strerror(e.error)) : "");
  }
  return out;
}

}  // namespace clairfs
