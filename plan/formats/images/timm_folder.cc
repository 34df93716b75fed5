// The numbering of timm's ImageFolder reader: all images of the whole tree, sorted by natural_key of the
// path. Source: huggingface/pytorch-image-models, timm/data/readers/{reader_image_folder,img_extensions}.py,
// timm/utils/misc.py (natural_key).
//
// Paths of one key (x1.png, X1.png, x01.png) keep the order of os.walk(topdown=False), which has a folder's
// own folders before it and everything else as the mount lists it: by bytes.
#include "plan/formats/images/timm_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "plan/formats/formats.h"
#include "plan/formats/images/folder_walk.h"
#include "plan/formats/samples/file_samples.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

constexpr std::array<std::string_view, 3> kTimmExtensions{".png", ".jpg", ".jpeg"};

char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Goes through a path as natural_key() takes it apart.
class NaturalKey {
 public:
  static constexpr int kNone = -1;

  explicit NaturalKey(const NaturalPath& path)
      : path_(path), name_at_(path.folder.empty() ? 0 : path.folder.size() + 1) {}

  // The next character of a text, kNone at a digit or the path's end.
  int take_text() {
    const int c = peek();
    if (c == kNone || is_number(c)) return kNone;
    ++at_;
    return c;
  }
  bool ended() const { return peek() == kNone; }
  // The next number's digits, without zeros before them. REQUIRES: it comes now.
  std::string take_number() {
    std::string digits;
    for (; is_number(peek()); ++at_) {
      if (!digits.empty() || peek() != '0') digits += static_cast<char>(peek());
    }
    return digits;
  }

 private:
  static bool is_number(int c) { return c >= '0' && c <= '9'; }
  int peek() const {
    if (at_ < path_.folder.size()) return ascii_lower(path_.folder[at_]);
    if (at_ < name_at_) return '/';
    return at_ - name_at_ < path_.name.size() ? ascii_lower(path_.name[at_ - name_at_]) : kNone;
  }

  const NaturalPath path_;
  const size_t name_at_;
  size_t at_ = 0;
};

class TimmWalk {
 public:
  TimmWalk(const DatasetSource& source, const DatasetRoot& root)
      : catalog_(*source.catalog),
        walk_(source, kName),
        root_(walk_.root(root)),
        samples_(std::make_shared<FileSamples>(source.catalog, kName)) {}

  SampleIndexResult run() {
    if (Status status = find_folders(); !status) return status.error();
    for (uint32_t i = 0; i < folders_.size(); ++i) {
      if (Status status = find_images(i); !status) return status.error();
    }
    std::stable_sort(images_.begin(), images_.end(),
                     [&](const Image& a, const Image& b) { return natural_less(path_of(a), path_of(b)); });
    for (const Image& image : images_) {
      const WalkedFolder& folder = folders_[image.folder];
      samples_->begin_folder(folder.linked ? std::optional(folder.path) : std::nullopt);
      samples_->add(image.entry, image.target);
    }
    samples_->finish();
    return SampleIndexResult(samples_);
  }

 private:
  using Kind = WalkedEntry::Kind;
  static constexpr std::string_view kName = "timm";

  struct Image {
    uint32_t folder;  // in folders_
    FileId entry;
    std::optional<FileId> target;
  };

  NaturalPath path_of(const Image& image) const {
    return {folders_[image.folder].path, catalog_.name(image.entry)};
  }

  // As os.walk(topdown=False) gives them. That is backwards what a stack gives that takes up a folder's
  // folders when it gives the folder.
  Status find_folders() {
    std::vector<WalkedFolder> pending{root_};
    uint64_t path_bytes = 0;  // of a stack that goes down to the 40th link at once the paths are long
    while (!pending.empty()) {
      folders_.push_back(std::move(pending.back()));
      pending.pop_back();
      path_bytes += folders_.back().path.size();
      if (folders_.size() > walk_.most() || path_bytes / 64 > walk_.most()) return walk_.too_many();
      const WalkedFolder& folder = folders_.back();
      const Catalog::Children children = catalog_.children(folder.id);
      for (uint32_t i = 0; i < children.count; ++i) {
        const FileId entry(children.first.value + i);
        WalkedEntry here = walk_.look(folder, entry);
        if (here.kind == Kind::folder) pending.push_back(std::move(here.folder));
        if (here.kind == Kind::outside) return walk_.leads_outside(folder, entry, here);
      }
    }
    std::reverse(folders_.begin(), folders_.end());
    return {};
  }

  Status find_images(uint32_t number) {
    const WalkedFolder& folder = folders_[number];
    const Catalog::Children children = catalog_.children(folder.id);
    for (uint32_t i = 0; i < children.count; ++i) {
      const FileId entry(children.first.value + i);
      if (!is_timm_image(catalog_.name(entry))) continue;
      const WalkedEntry here = walk_.look(folder, entry);
      if (here.kind == Kind::folder || here.kind == Kind::too_deep) continue;
      if (Status status = check_ascii(folder.below(catalog_.name(entry))); !status) return status;
      images_.push_back({number, entry, here.target});
      if (images_.size() > walk_.most()) return walk_.too_many();
    }
    return {};
  }

  // What is above the root is the same in all paths.
  Status check_ascii(const std::string& path) const {
    const auto below_root = path.begin() + static_cast<std::ptrdiff_t>(root_.path.size());
    if (std::all_of(below_root, path.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
      return {};
    }
    return plan_error("format", kName,
                      fmt::format("{}: timm sorts names by Python's own lower case, which is known here for "
                                  "ASCII only; want format=list list=FILE",
                                  shortened(path, 200)));
  }

  const Catalog& catalog_;
  const FolderWalk walk_;
  const WalkedFolder root_;
  const std::shared_ptr<FileSamples> samples_;
  std::vector<WalkedFolder> folders_;
  std::vector<Image> images_;
};

}  // namespace

bool natural_less(const NaturalPath& a, const NaturalPath& b) {
  NaturalKey left(a);
  NaturalKey right(b);
  for (;;) {
    const int from_left = left.take_text();
    const int from_right = right.take_text();
    if (from_left != from_right) return from_left < from_right;  // a text that has ended is the smaller one
    if (from_left != NaturalKey::kNone) continue;
    if (left.ended() || right.ended()) return !right.ended();
    const std::string first = left.take_number();
    const std::string second = right.take_number();
    if (first.size() != second.size()) return first.size() < second.size();
    if (first != second) return first < second;
  }
}

bool is_timm_image(std::string_view name) {
  const size_t dot = name.rfind('.');
  const size_t text = name.find_first_not_of('.');
  if (dot == std::string_view::npos || text == std::string_view::npos || text > dot) return false;
  std::string extension(name.substr(dot));
  std::transform(extension.begin(), extension.end(), extension.begin(), ascii_lower);
  return std::ranges::find(kTimmExtensions, extension) != kTimmExtensions.end();
}

SampleIndexResult index_timm_folder(const DatasetSource& source, const DatasetRoot& root) {
  return TimmWalk(source, root).run();
}

}  // namespace clairfs
