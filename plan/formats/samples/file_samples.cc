#include "plan/formats/samples/file_samples.h"

#include <algorithm>

namespace clairfs {

void FileSamples::begin_folder(std::optional<std::string> path) {
  const bool named_by_catalog = folders_.empty() || !folders_.back().path;
  if (!path && named_by_catalog) return;
  folders_.push_back({size(), std::move(path)});
}

void FileSamples::add(FileId entry, std::optional<FileId> target) {
  if (!target || *target != entry) aliases_.push_back({size(), entry});
  files_.push_back(target ? target->value : kNoFile);
}

void FileSamples::finish() {
  files_.shrink_to_fit();
  if (std::is_sorted(files_.begin(), files_.end())) return;
  for (uint32_t sample = 0; sample < size(); ++sample) {
    if (files_[sample] != kNoFile) by_file_.push_back(sample);
  }
  by_file_.shrink_to_fit();
  std::sort(by_file_.begin(), by_file_.end(),
            [&](uint32_t a, uint32_t b) { return files_[a] != files_[b] ? files_[a] < files_[b] : a < b; });
}

void FileSamples::samples_of(FileId file, uint64_t, uint64_t,
                             const std::function<void(uint32_t sample)>& visit) const {
  if (by_file_.empty()) {
    auto at = std::lower_bound(files_.begin(), files_.end(), file.value);
    for (; at != files_.end() && *at == file.value; ++at) visit(static_cast<uint32_t>(at - files_.begin()));
    return;
  }
  auto at = std::lower_bound(by_file_.begin(), by_file_.end(), file.value,
                             [&](uint32_t sample, uint32_t wanted) { return files_[sample] < wanted; });
  for (; at != by_file_.end() && files_[*at] == file.value; ++at) visit(*at);
}

ByteRange FileSamples::range(uint32_t sample, uint32_t) const {
  const FileId file(files_[sample]);
  return {file, 0, catalog_->stamp(file).size};
}

std::string FileSamples::path(uint32_t sample) const {
  const auto alias = std::lower_bound(aliases_.begin(), aliases_.end(), sample,
                                      [](const Alias& a, uint32_t number) { return a.sample < number; });
  const bool aliased = alias != aliases_.end() && alias->sample == sample;
  const FileId entry = aliased ? alias->entry : FileId(files_[sample]);
  const auto after = std::upper_bound(folders_.begin(), folders_.end(), sample,
                                      [](uint32_t number, const Folder& f) { return number < f.first; });
  if (after == folders_.begin() || !std::prev(after)->path) return catalog_->path(entry);
  const std::string& folder = *std::prev(after)->path;
  return folder + (folder.empty() ? "" : "/") + std::string(catalog_->name(entry));
}

uint64_t FileSamples::memory_bytes() const {
  uint64_t bytes = sizeof(*this) + files_.capacity() * sizeof(uint32_t) +
                   by_file_.capacity() * sizeof(uint32_t) + aliases_.capacity() * sizeof(Alias) +
                   folders_.capacity() * sizeof(Folder);
  for (const Folder& folder : folders_) bytes += folder.path ? folder.path->capacity() : 0;
  return bytes;
}

}  // namespace clairfs
