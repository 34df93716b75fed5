// torchvision.datasets.ImageFolder's numbering.
//
// Classes are the root's folders, sorted. In each class `sorted(os.walk(folder, followlinks=True))` sorts
// whole path strings, so "sub-1" comes before "sub/deep"; in each folder come the sorted names with a known
// extension. Folders and files are those of formats/images/folder_walk.h.
#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "plan/formats/formats.h"
#include "plan/formats/images/folder_walk.h"
#include "plan/formats/python_order.h"
#include "plan/formats/samples/file_samples.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// torchvision.datasets.folder.IMG_EXTENSIONS
constexpr std::array<std::string_view, 9> kExtensions{".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                                      ".pgm", ".tif",  ".tiff", ".webp"};

// str.lower() of other letters never gives ASCII that would complete an extension.
bool is_image(std::string_view name) {
  std::string tail(name.substr(name.size() - std::min<size_t>(name.size(), 5)));
  for (char& c : tail) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::any_of(kExtensions.begin(), kExtensions.end(),
                     [&](std::string_view e) { return tail.ends_with(e); });
}

class ImageFolderWalk {
 public:
  ImageFolderWalk(const DatasetSource& source, const DatasetRoot& root)
      : catalog_(*source.catalog),
        walk_(source, kName),
        root_(root),
        samples_(std::make_shared<FileSamples>(source.catalog, kName)) {}

  SampleIndexResult run(bool allow_empty) {
    std::vector<WalkedFolder> classes;
    if (Status status = find_classes(classes); !status) return status.error();
    std::string empty;
    for (WalkedFolder& folder : classes) {
      const std::string name = folder.path.substr(folder.path.rfind('/') + 1);
      const uint32_t before = samples_->size();
      if (Status status = number_class(std::move(folder)); !status) return status.error();
      if (samples_->size() == before) empty += (empty.empty() ? "" : ", ") + shortened(name, 64);
    }
    if (!empty.empty() && !allow_empty) {
      return plan_error(
          "format", kName,
          fmt::format("no image in the class folders {}, where torchvision raises FileNotFoundError; "
                      "want allow_empty=true if the script passes it, or another format",
                      empty.size() > 200 ? empty.substr(0, 200) + "..." : empty));
    }
    samples_->finish();
    return SampleIndexResult(samples_);
  }

 private:
  using Kind = WalkedEntry::Kind;
  static constexpr std::string_view kName = "imagefolder";

  // The folders in `folder`, linked ones too, are appended to `found`.
  Status add_folders(const WalkedFolder& folder, bool are_classes, std::vector<WalkedFolder>& found) {
    const Catalog::Children children = catalog_.children(folder.id);
    for (uint32_t i = 0; i < children.count; ++i) {
      const FileId entry(children.first.value + i);
      WalkedEntry here = walk_.look(folder, entry);
      if (here.kind == Kind::folder) found.push_back(std::move(here.folder));
      if (here.kind == Kind::outside) return walk_.leads_outside(folder, entry, here);
      if (here.kind == Kind::loop && are_classes) {
        return plan_error("format", kName,
                          fmt::format("{} is a loop of symlinks, where torchvision raises OSError",
                                      shortened(folder.below(catalog_.name(entry)), 200)));
      }
    }
    return {};
  }

  Status find_classes(std::vector<WalkedFolder>& classes) {
    if (Status status = add_folders(walk_.root(root_), true, classes); !status) return status;
    if (classes.empty()) {
      return plan_error("format", kName, "no class folder in the root; want another root, or format=files");
    }
    sort_by_path(classes);
    return {};
  }

  static void sort_by_path(std::vector<WalkedFolder>& folders) {
    std::vector<std::pair<std::string, size_t>> keys;
    keys.reserve(folders.size());
    for (size_t i = 0; i < folders.size(); ++i) keys.emplace_back(python_sort_key(folders[i].path), i);
    std::sort(keys.begin(), keys.end());
    std::vector<WalkedFolder> sorted;
    sorted.reserve(folders.size());
    for (const auto& [key, i] : keys) sorted.push_back(std::move(folders[i]));
    folders = std::move(sorted);
  }

  Status number_class(WalkedFolder top) {
    std::vector<WalkedFolder> folders;
    folders.push_back(std::move(top));
    for (size_t next = 0; next < folders.size(); ++next) {
      const WalkedFolder folder = folders[next];
      if (Status status = add_folders(folder, false, folders); !status) return status;
      if (++visited_ > walk_.most()) return walk_.too_many();
    }
    sort_by_path(folders);
    for (const WalkedFolder& folder : folders) {
      samples_->begin_folder(folder.linked ? std::optional(folder.path) : std::nullopt);
      number_files(folder);
      if (samples_->size() > walk_.most()) return walk_.too_many();
    }
    return {};
  }

  void number_files(const WalkedFolder& folder) {
    const Catalog::Children children = catalog_.children(folder.id);
    std::vector<FileId> images;
    bool utf8 = true;
    for (uint32_t i = 0; i < children.count; ++i) {
      const FileId entry(children.first.value + i);
      if (!is_image(catalog_.name(entry)) || catalog_.kind(entry) == Catalog::Kind::directory) continue;
      images.push_back(entry);
      utf8 = utf8 && is_utf8(catalog_.name(entry));
    }
    // The catalog sorts bytewise, which is Python's order unless a name is not UTF-8.
    if (!utf8) {
      std::sort(images.begin(), images.end(), [&](FileId a, FileId b) {
        return python_sort_key(catalog_.name(a)) < python_sort_key(catalog_.name(b));
      });
    }
    for (FileId entry : images) {
      const WalkedEntry here = walk_.look(folder, entry);
      if (here.kind != Kind::folder) samples_->add(entry, here.target);
    }
  }

  const Catalog& catalog_;
  const FolderWalk walk_;
  const DatasetRoot root_;
  const std::shared_ptr<FileSamples> samples_;
  uint64_t visited_ = 0;
};

}  // namespace

SampleIndexResult index_imagefolder(const DatasetSource& source, const DatasetRoot& root, bool allow_empty) {
  return ImageFolderWalk(source, root).run(allow_empty);
}

}  // namespace clairfs
