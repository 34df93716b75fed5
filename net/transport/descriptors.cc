#include "net/transport/descriptors.h"

#include <algorithm>

#include <fmt/format.h>
#include <sys/resource.h>

namespace clairfs {
namespace {

// UCX connects over TCP from each side, with lanes for messages and for bulk; and one for the meeting.
constexpr uint64_t kOfEachNode = 5;
// Of the mount itself: files of the source and of NVMe that are read, its threads' own, those of strangers at
// the meeting.
constexpr uint64_t kOfTheMount = 1280;
// The mount gets by with so many, if slowly.
constexpr uint64_t kLeastOfTheMount = 64;

}  // namespace

uint64_t descriptors_of(uint32_t nodes) {
  return kOfTheMount + kOfEachNode * nodes;
}

uint64_t allow_descriptors(uint32_t nodes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const auto before = limit.rlim_cur;
  limit.rlim_cur = std::max(before, std::min<rlim_t>(limit.rlim_max, descriptors_of(nodes)));
  if (limit.rlim_cur == before || ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return limit.rlim_cur;
  return before;
}

std::string too_few_descriptors(uint64_t allowed, uint32_t nodes) {
  const uint64_t wanted = kLeastOfTheMount + kOfEachNode * nodes;
  if (allowed >= wanted) return "";
  return fmt::format(
      "a process may have {} descriptors here, and a node of a job of {} may need {}: raise the hard limit "
      "(ulimit -Hn, LimitNOFILE= of a systemd service)",
      allowed, nodes, wanted);
}

}  // namespace clairfs
