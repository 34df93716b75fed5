// torchvision.datasets.ImageFolder's numbering.
//
// Classes are the root's folders, sorted. In each class `sorted(os.walk(folder, followlinks=True))` sorts
// whole path strings, so "sub-1" comes before "sub/deep"; in each folder come the sorted names with a known
// extension. os.walk takes everything that stat() does not call a directory for a file: a dangling link and,
// at the depth where the kernel gives up with ELOOP or ENAMETOOLONG, a link to a folder.
#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "plan/formats/file_samples.h"
#include "plan/formats/formats.h"
#include "plan/formats/link_resolver.h"
#include "plan/formats/python_order.h"
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

struct Folder {
  std::string path;  ///< below the catalog's root, as os.walk names it
  FileId id;
  uint32_t links = 0;   ///< symlinks in `path`
  bool linked = false;  ///< the catalog knows it by another path
};

class Walk {
 public:
  using Kind = Resolved::Kind;

  Walk(const DatasetSource& source, const DatasetRoot& root)
      : catalog_(*source.catalog),
        resolver_(*source.catalog, source.prefixes),
        root_(root),
        most_(uint64_t{64} * source.catalog->size() + (1 << 20)),
        samples_(std::make_shared<FileSamples>(source.catalog, "imagefolder")) {}

  SampleIndexResult run(bool allow_empty) {
    std::vector<Folder> classes;
    const Folder root{catalog_.path(root_.folder), root_.folder, root_.links, false};
    if (Status status = find_classes(root, classes); !status) return status.error();
    std::string empty;
    for (Folder& folder : classes) {
      const std::string name = folder.path.substr(folder.path.rfind('/') + 1);
      const uint32_t before = samples_->size();
      if (Status status = number_class(std::move(folder)); !status) return status.error();
      if (samples_->size() == before) empty += (empty.empty() ? "" : ", ") + shortened(name, 64);
    }
    if (!empty.empty() && !allow_empty) {
      return plan_error(
          "format", "imagefolder",
          fmt::format("no image in the class folders {}, where torchvision raises FileNotFoundError; "
                      "want allow_empty=true if the script passes it, or another format",
                      empty.size() > 200 ? empty.substr(0, 200) + "..." : empty));
    }
    samples_->finish();
    return SampleIndexResult(samples_);
  }

 private:
  Resolved resolve(const Folder& folder, FileId entry) const {
    return resolver_.resolve(folder.id, catalog_.name(entry), folder.links);
  }

  static std::string below(const Folder& folder, std::string_view name) {
    return folder.path + (folder.path.empty() ? "" : "/") + std::string(name);
  }

  // The folder that `entry` of `folder` is or leads to, if any, is appended to `found`.
  Status add_folder(const Folder& folder, FileId entry, bool is_class, std::vector<Folder>& found) {
    const Catalog::Kind kind = catalog_.kind(entry);
    if (kind == Catalog::Kind::file) return {};
    std::string path = below(folder, catalog_.name(entry));
    const bool too_long = path.size() > resolver_.longest_path();
    if (kind == Catalog::Kind::directory) {
      if (!too_long) found.push_back({std::move(path), entry, folder.links, folder.linked});
      return {};
    }
    if (too_long) return {};
    const Resolved target = resolve(folder, entry);
    if (target.kind == Kind::directory) {
      found.push_back({std::move(path), target.id, target.links, true});
    } else if (target.kind == Kind::outside_directory) {
      return plan_error(
          "format", "imagefolder",
          fmt::format("{} leads to the folder {} outside the dataset, whose samples cannot be numbered; "
                      "want a dataset that holds it, or format=list list=FILE",
                      shortened(path, 200), shortened(target.path, 200)));
    } else if (target.kind == Kind::loop && is_class) {
      return plan_error(
          "format", "imagefolder",
          fmt::format("{} is a loop of symlinks, where torchvision raises OSError", shortened(path, 200)));
    }
    return {};
  }

  Status find_classes(const Folder& root, std::vector<Folder>& classes) {
    const Catalog::Children children = catalog_.children(root.id);
    for (uint32_t i = 0; i < children.count; ++i) {
      if (Status status = add_folder(root, FileId(children.first.value + i), true, classes); !status)
        return status;
    }
    if (classes.empty()) {
      return plan_error("format", "imagefolder",
                        "no class folder in the root; want another root, or format=files");
    }
    sort_by_path(classes);
    return {};
  }

  static void sort_by_path(std::vector<Folder>& folders) {
    std::vector<std::pair<std::string, size_t>> keys;
    keys.reserve(folders.size());
    for (size_t i = 0; i < folders.size(); ++i) keys.emplace_back(python_sort_key(folders[i].path), i);
    std::sort(keys.begin(), keys.end());
    std::vector<Folder> sorted;
    sorted.reserve(folders.size());
    for (const auto& [key, i] : keys) sorted.push_back(std::move(folders[i]));
    folders = std::move(sorted);
  }

  Status number_class(Folder top) {
    std::vector<Folder> folders;
    folders.push_back(std::move(top));
    for (size_t next = 0; next < folders.size(); ++next) {
      const Folder folder = folders[next];
      const Catalog::Children children = catalog_.children(folder.id);
      for (uint32_t i = 0; i < children.count; ++i) {
        if (Status status = add_folder(folder, FileId(children.first.value + i), false, folders); !status)
          return status;
      }
      if (++visited_ > most_) return too_many();
    }
    sort_by_path(folders);
    for (const Folder& folder : folders) {
      samples_->begin_folder(folder.linked ? std::optional(folder.path) : std::nullopt);
      number_files(folder);
      if (samples_->size() > most_) return too_many();
    }
    return {};
  }

  void number_files(const Folder& folder) {
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
    for (FileId entry : images) number_file(folder, entry);
  }

  void number_file(const Folder& folder, FileId entry) {
    if (catalog_.kind(entry) == Catalog::Kind::file) return samples_->add(entry, entry);
    const bool too_long = below(folder, catalog_.name(entry)).size() > resolver_.longest_path();
    const Resolved target = too_long ? Resolved() : resolve(folder, entry);
    if (target.kind == Kind::directory) return;
    samples_->add(entry, target.kind == Kind::file ? std::optional(target.id) : std::nullopt);
  }

  static Error too_many() {
    return plan_error(
        "format", "imagefolder",
        "symlinks lead to the same folders over and over, as torchvision would follow them too; want "
        "fewer links, or format=files");
  }

  const Catalog& catalog_;
  const LinkResolver resolver_;
  const DatasetRoot root_;
  // One link to a folder above it repeats the tree 40 times before the kernel stops; two such links would do
  // so 2^40 times. The first must work, the second must not take all memory.
  const uint64_t most_;
  const std::shared_ptr<FileSamples> samples_;
  uint64_t visited_ = 0;
};

}  // namespace

SampleIndexResult index_imagefolder(const DatasetSource& source, const DatasetRoot& root, bool allow_empty) {
  return Walk(source, root).run(allow_empty);
}

}  // namespace clairfs
