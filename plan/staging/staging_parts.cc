#include "plan/staging/staging_parts.h"

#include <algorithm>
#include <utility>

#include "plan/staging/staged_unit.h"
#include "plan/staging/staging.h"

namespace clairfs {

void StagingParts::add_units_of(const PageRange& pages, uint64_t position,
                                std::vector<std::shared_ptr<StagedUnit>>& units) const {
  const uint64_t size = catalog.chunk_size(pages.file);
  for (uint64_t begin = pages.begin; begin < pages.end;) {
    auto unit = std::make_shared<StagedUnit>(position, shared);
    unit->chunk = catalog.chunk_at(pages.file, begin);
    unit->file = pages.file;
    unit->begin = unit->needs_from = begin;
    unit->end = std::min(pages.end, (begin / size + 1) * size);
    unit->last = false;
    begin = unit->end;
    units.push_back(std::move(unit));
  }
}

std::vector<iovec> StagingParts::bytes_of(const StagedUnit& unit, const PageRange& pages) const {
  const uint64_t begin = catalog.range(*unit.chunk).offset + unit.start;  // of the file
  return unit.data->block.slices(pages.begin - begin, pages.end - pages.begin);
}

bool StagingParts::push_pages(const StagedUnit& unit) {
  for (const PageRange& pages : sentinel_pages.without_open({unit.file, unit.begin, unit.end})) {
    const Status pushed = page_cache.push(pages.file, pages.begin, bytes_of(unit, pages));
    (pushed ? metrics.staging_pushed_bytes : metrics.staging_push_failures)
        .add(pushed ? pages.end - pages.begin : 1);
    if (!pushed) return false;
  }
  return true;
}

}  // namespace clairfs
