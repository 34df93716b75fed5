#include "plan/formats/samples/fixed_records.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace clairfs {

void FixedRecords::add(FileId file, uint32_t records) {
  parts_.push_back({file, samples_, records});
  samples_ += records;
}

void FixedRecords::finish() {
  by_file_ = parts_;
  std::sort(by_file_.begin(), by_file_.end(), [](const Part& a, const Part& b) {
    return std::tie(a.file, a.first) < std::tie(b.file, b.first);
  });
  for (const Part& part : by_file_) {
    const uint64_t header = std::min(layout_.header, catalog_->stamp(part.file).size);
    if (header != 0 && (headers_.empty() || headers_.back().file != part.file))
      headers_.push_back({part.file, 0, header});
  }
}

const FixedRecords::Part& FixedRecords::part_of(uint32_t sample) const {
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), sample,
                                      [](uint32_t wanted, const Part& part) { return wanted < part.first; });
  return *std::prev(after);
}

ByteRange FixedRecords::range(uint32_t sample, uint32_t) const {
  const Part& part = part_of(sample);
  return {part.file, layout_.header + (sample - part.first) * layout_.stride, layout_.record};
}

void FixedRecords::samples_of(FileId file, uint64_t offset, uint64_t length,
                              const std::function<void(uint32_t sample)>& visit) const {
  if (layout_.record == 0 || length == 0) return;
  const uint64_t end = offset + std::min(length, UINT64_MAX - offset);
  const auto begun_before = [this](uint64_t place) {
    return place <= layout_.header ? 0 : (place - layout_.header - 1) / layout_.stride + 1;
  };
  const uint64_t begun = begun_before(offset);
  const uint64_t likely = begun_before(likely_until(offset, end));
  const bool in_record = begun > 0 && layout_.header + (begun - 1) * layout_.stride + layout_.record > offset;
  const auto [from, to] = std::equal_range(by_file_.begin(), by_file_.end(), Part{file},
                                           [](const Part& a, const Part& b) { return a.file < b.file; });
  // Records [first, past) of each time that the file is named.
  const auto visit_all = [&visit, begin = from, stop = to](uint64_t first, uint64_t past) {
    for (auto part = begin; part != stop; ++part) {
      for (uint64_t i = first; i < std::min<uint64_t>(past, part->records); ++i)
        visit(part->first + static_cast<uint32_t>(i));
    }
  };
  visit_all(begun, likely);
  if (in_record) visit_all(begun - 1, begun);
  visit_all(likely, begun_before(end));
}

std::string FixedRecords::path(uint32_t sample) const {
  return fmt::format("{}[{}]", catalog_->path(part_of(sample).file), sample);
}

uint64_t FixedRecords::memory_bytes() const {
  return sizeof(*this) + (parts_.capacity() + by_file_.capacity()) * sizeof(Part) +
         headers_.capacity() * sizeof(ByteRange);
}

}  // namespace clairfs
