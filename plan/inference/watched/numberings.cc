#include "plan/inference/watched/numberings.h"

#include <algorithm>

#include "plan/formats/data_files.h"
#include "plan/inference/watched/sighting.h"

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

std::optional<uint32_t> first_sample_of(const SampleIndex& index, FileId file) {
  std::optional<uint32_t> first;
  index.samples_of(file, 0, 1, [&](uint32_t sample) {
    if (!first) first = sample;
  });
  return first;
}

}  // namespace

void take_record_keys(const PlanSpec& from, PlanSpec& to) {
  to.record = from.record;
  to.header = from.header;
  to.stride = from.stride;
  to.dataset = from.dataset;
  to.lmdb_keys = from.lmdb_keys;
  to.skip = from.skip;
  to.db = from.db;
  to.sequence_length = from.sequence_length;
  to.train_samples = from.train_samples;
  to.split = from.split;
  to.cache = from.cache;
}

void Numbering::name_in(PlanSpec& plan) const {
  plan.root = root;
  plan.format = index->format();
  plan.file = records.file;
  take_record_keys(records, plan);
}

bool Numbering::is_of(const PlanSpec& plan) const {
  PlanSpec named = plan;
  name_in(named);
  named.root = plan.root;
  return named == plan;
}

OpenedSamples Numbering::opened(std::span<const SeenOpen> opens) const {
  OpenedSamples opened;
  Sightings sightings(*index);
  for (const SeenOpen& open : opens) {
    const auto sample = of_records() ? sightings.next(open.file, open.offset(), open.length())
                                     : first_sample_of(*index, open.file);
    if (!sample) continue;
    opened.opens.push_back(open);
    opened.samples.push_back(*sample);
  }
  return opened;
}

std::optional<FileId> place_of(const Catalog& catalog, const PlanSpec& plan) {
  if (plan.file.empty()) return catalog.find(plan.root);
  const std::string path = plan.root.empty() ? plan.file : plan.root + "/" + plan.file;
  if (const auto file = catalog.find(path)) return file;
  if (plan.file.find_first_of("*?") == std::string::npos) return std::nullopt;
  const size_t slash = path.rfind('/');
  const auto folder = catalog.find(slash == std::string::npos ? "" : path.substr(0, slash));
  if (!folder || catalog.kind(*folder) != Catalog::Kind::directory) return std::nullopt;
  const std::string_view pattern = std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
  const Catalog::Children children = catalog.children(*folder);
  for (uint32_t i = 0; i < children.count; ++i) {
    const FileId file(children.first.value + i);
    const std::string_view name = catalog.name(file);
    const bool is_named =
        name.starts_with('.') == pattern.starts_with('.') && matches_wildcards(pattern, name);
    if (is_named && catalog.kind(file) == Catalog::Kind::file) return file;
  }
  return std::nullopt;
}

void Numberings::add(FileId place, std::vector<Numbering> numberings) {
  for (const Numbering& numbering : numberings) {
    const std::vector<FileId> files = numbering.files ? *numbering.files : std::vector{place};
    for (const FileId file : files) {
      std::vector<FileId>& places = places_[file];
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
  }
  made_[place] = std::move(numberings);
}

std::span<const FileId> Numberings::places_of(FileId file) const {
  const auto places = places_.find(file);
  return places == places_.end() ? std::span<const FileId>() : std::span<const FileId>(places->second);
}

void Numberings::forget() {
  made_.clear();
  places_.clear();
}

const std::vector<Numbering>& Numberings::of(FileId place) {
  if (const auto* made = known(place)) return *made;
  std::vector<Numbering>& made = made_[place];
  if (source_.catalog->kind(place) != Catalog::Kind::directory) return made;
  for (const char* format : {"imagefolder", "files"}) {
    PlanSpec plan;
    plan.root = source_.catalog->path(place);
    plan.format = format;
    const auto index = make_sample_index(plan, source_);
    if (index && (made.empty() || !same_numbering(*made.front().index, **index)))
      made.push_back({plan.root, *index, {}});
  }
  return made;
}

const std::vector<Numbering>* Numberings::known(FileId place) const {
  const auto made = made_.find(place);
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
