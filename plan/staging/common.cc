// What every reader of a plan needs, whatever it reads: the pages of a database's index, headers.
#include <algorithm>

#include "plan/staging/staged_plan.h"
#include "plan/staging/staging.h"

namespace clairfs {
namespace {

// Of the staging budget at most one part in so many: the index of an LMDB of a million records has 70 MB.
constexpr uint64_t kCommonShare = 4;

// Units that are on their way at a time: as many as keep a source busy.
constexpr size_t kCommonAhead = 64;

// In no order: these pages are for no use of any sample.
constexpr uint64_t kNowhere = UINT64_MAX;

}  // namespace

void Staging::list_common(StagedPlan& plan) const {
  std::vector<std::shared_ptr<StagedUnit>> units;
  for (const PageRange& pages : plan.ledger->common_pages(options_.budget / kCommonShare)) {
    plan.common_bytes += pages.end - pages.begin;
    add_units_of(pages, kNowhere, units);
  }
  plan.common.assign(units.begin(), units.end());
}

// True if there is more to do at once.
bool Staging::push_common(StagedPlan& plan) {
  uint64_t pushed = 0;
  size_t waiting = 0;
  for (auto at = plan.common.begin();
       at != plan.common.end() && waiting < kCommonAhead && pushed < kPushesPerStep;) {
    const auto unit = *at;
    if (!unit->in_flight && !ask(*plan.windows.front(), unit, nullptr, deadline_at(now_))) break;
    if (!unit->arrived) {
      ++waiting;
      ++at;
      continue;
    }
    at = plan.common.erase(at);
    if (unit->failed) continue;  // the reader will get the error itself
    push_pages(*unit);
    ++pushed;
  }
  return pushed == kPushesPerStep;
}

}  // namespace clairfs
