// Staging's state of a plan. For staging's own sources only.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cache/base/clock.h"
#include "plan/staging/page_ledger.h"
#include "plan/staging/reader_window.h"
#include "plan/staging/staged_unit.h"
#include "plan/staging/staging_parts.h"

namespace clairfs {

/// A plan on its way: a window for each of its readers. Windows, kept_bytes and common_pages are constant
/// once it was added; common_read is for any thread; all else belongs to step().
struct StagedPlan {
  explicit StagedPlan(StagingParts& with) : parts(with) {}

  /// Whether somebody may still read in its order.
  bool goes_on() const;
  /// Whether any reader has a use of the sample beyond what it is done with, as far as is known.
  bool comes_again(uint32_t sample) const;
  /// One use of the sample is over; false if all its pages are still of use.
  bool drop_released(uint32_t sample);
  /// The sample does not stay any more: it goes as soon as no reader has it ahead.
  void let_go(uint32_t sample);
  /// Of at most so many samples; true if others stay.
  bool let_go_of_any(uint64_t most);
  /// Whether the sample's chunks need no place in a tier, since the page cache has it.
  void tell_policy_of_pages(uint32_t sample, bool there) const;

  StagingParts& parts;
  std::vector<std::unique_ptr<ReaderWindow>> windows;  // by rank
  uint64_t kept_bytes = 0;                             // the dataset's size, for good; only if keeps_all
  bool keeps_all = false;                              // it fits the budget, beside those of other such plans
  bool keeps_part = false;                             // samples may stay though not all fit
  uint64_t part_bytes = 0;                             // of those that do; only if not keeps_all
  uint32_t searched = 0;             // no sample before this number stays, while all are dropped
  bool goes_on_unknown = false;      // more may follow its end: that of one epoch of a found plan
  bool of_records = false;           // its samples lie in larger files
  bool fills_in_file_order = false;  // tiers, with its records
  bool admitted = false;             // those that were there first have made room for it; only if keeps_all
  std::optional<PageLedger> ledger;  // set when it was added
  std::vector<PageRange> common_pages;             // what every reader needs, by file and place
  uint64_t common_bytes = 0;                       // of it
  std::deque<std::shared_ptr<StagedUnit>> common;  // those of it that are to be pushed, at first or again
  std::atomic<bool> common_read{false};            // a READ asked for some of it
  size_t common_checked = 0;                       // of common_pages; all of them: losses are not looked for
  bool common_gone = false;                        // some of what was looked at so far
  TimePoint check_common_again{};                  // not sooner
  Duration common_pause{};                         // between the last look and the next
};

}  // namespace clairfs
