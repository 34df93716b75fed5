// StagingParts: the parts that staging connects, and the state of the step under way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <sys/uio.h>

#include "cache/base/clock.h"
#include "cache/base/metrics.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_cache.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/retention/next_use_policy.h"
#include "plan/staging/page_ledger.h"
#include "plan/staging/sentinel_pages.h"

namespace clairfs {

class PageCache;
struct StagedUnit;
struct StagingShared;

/// Samples pushed, or dropped, in one go before everything else gets its turn: some milliseconds.
inline constexpr uint64_t kPushesPerStep = 32;

/// Belongs to Staging::step(), but for members that are thread-safe by themselves. The referenced objects
/// outlive it.
struct StagingParts {
  ChunkCache& cache;
  NextUsePolicy& policy;
  const Catalog& catalog;
  PageCache& page_cache;
  Metrics& metrics;
  const uint64_t most_in_flight;  // bytes
  const std::shared_ptr<StagingShared> shared;
  SentinelPages sentinel_pages{};

  // Of the step under way.
  TimePoint now{};
  uint64_t room_to_keep = 0;  // bytes of page cache for samples that do not stay yet
  std::optional<Duration> look_again{};
  bool behind = false;                      // NVMe is, for some window
  std::optional<TimePoint> behind_since{};  // of the first of such steps in a row

  void look_again_within(Duration pause) { look_again = std::min(look_again.value_or(pause), pause); }
  /// Adds a unit for each chunk of these pages, none of them the last of its sample.
  void add_units_of(const PageRange& pages, uint64_t position,
                    std::vector<std::shared_ptr<StagedUnit>>& units) const;
  /// REQUIRES: the unit has arrived and has not failed, and the pages lie in it.
  std::vector<iovec> bytes_of(const StagedUnit& unit, const PageRange& pages) const;
  /// Pushes the unit but for the pages that sentinels lack; false if the kernel refused.
  bool push_pages(const StagedUnit& unit);
  /// Whether tiers have most of the sample's chunks, or have room for them.
  bool in_tiers(const SampleIndex& index, uint32_t sample) const;
};

}  // namespace clairfs
