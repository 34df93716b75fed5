#include "plan/inference/watched/numberings.h"

namespace clairfs {
namespace {

bool same_numbering(const SampleIndex& a, const SampleIndex& b) {
  if (a.size() != b.size()) return false;
  for (uint32_t sample = 0; sample < a.size(); ++sample) {
    if (a.range_count(sample) != 1 || b.range_count(sample) != 1) return false;
    if (a.range(sample, 0).file != b.range(sample, 0).file) return false;
  }
  return true;
}

}  // namespace

const std::vector<Numbering>& Numberings::of(FileId folder) {
  if (const auto* made = known(folder)) return *made;
  std::vector<Numbering>& made = made_[folder];
  for (const char* format : {"imagefolder", "files"}) {
    PlanSpec plan;
    plan.root = source_.catalog->path(folder);
    plan.format = format;
    const auto index = make_sample_index(plan, source_);
    if (index && (made.empty() || !same_numbering(*made.front().index, **index)))
      made.push_back({plan.root, *index});
  }
  return made;
}

const std::vector<Numbering>* Numberings::known(FileId folder) const {
  const auto made = made_.find(folder);
  return made == made_.end() ? nullptr : &made->second;
}

// Level by level: entries are numbered breadth first, so the children of those of a level lie together.
bool holds_more(const Catalog& catalog, FileId folder, uint64_t most) {
  uint64_t count = 0;
  for (auto [first, number] = catalog.children(folder); number > 0;) {
    count += number;
    if (count > most) return true;
    uint32_t begin = first.value;
    uint32_t end = begin + number;
    const auto is_folder = [&](uint32_t id) { return catalog.kind(FileId(id)) == Catalog::Kind::directory; };
    while (begin < end && !is_folder(begin)) ++begin;
    while (begin < end && !is_folder(end - 1)) --end;
    if (begin == end) return false;
    const Catalog::Children last = catalog.children(FileId(end - 1));
    first = catalog.children(FileId(begin)).first;
    number = last.first.value + last.count - first.value;
  }
  return false;
}

}  // namespace clairfs
