// Numbering of the formats in which a sample is one file: four bytes a sample, eight where the numbers do not
// ascend with the catalog's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/catalog/catalog.h"
#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// Built with add_folder() and add() by one thread, from then on immutable and thread-safe.
class FileSamples : public SampleIndex {
 public:
  /// `format` is a literal.
  FileSamples(std::shared_ptr<const Catalog> catalog, std::string_view format)
      : catalog_(std::move(catalog)), format_(format) {}

  /// The samples added from here on are named below `path`, which leads through a symlink and is not what the
  /// catalog would say; nullopt: the catalog's path is the name.
  void begin_folder(std::optional<std::string> path);
  /// The next sample: `entry` as the framework names it, `target` the file it leads to, if the mount serves
  /// it.
  void add(FileId entry, std::optional<FileId> target);
  /// After the last add().
  void finish();

  std::string_view format() const override { return format_; }
  uint32_t size() const override { return static_cast<uint32_t>(files_.size()); }
  uint32_t range_count(uint32_t sample) const override { return files_[sample] == kNoFile ? 0 : 1; }
  ByteRange range(uint32_t sample, uint32_t piece) const override;
  void samples_of(FileId file, uint64_t offset, uint64_t length,
                  const std::function<void(uint32_t sample)>& visit) const override;
  std::string path(uint32_t sample) const override;
  uint64_t memory_bytes() const override;

 private:
  static constexpr uint32_t kNoFile = UINT32_MAX;  // the catalog never has that many entries
  struct Alias {
    uint32_t sample;
    FileId entry;
  };
  struct Folder {
    uint32_t first;  ///< sample
    std::optional<std::string> path;
  };

  const std::shared_ptr<const Catalog> catalog_;
  const std::string_view format_;
  std::vector<uint32_t> files_;    ///< sample -> FileId or kNoFile
  std::vector<uint32_t> by_file_;  ///< samples with a file, by (file, sample); empty: they are so already
  std::vector<Alias> aliases_;     ///< samples whose entry is a symlink, ascending
  std::vector<Folder> folders_;    ///< ascending; only where naming changes
};

}  // namespace clairfs
