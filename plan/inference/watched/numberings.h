// How the samples of folders are numbered: eight bytes a sample while a reader is looked for in them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/formats/dataset.h"

namespace clairfs {

struct Numbering {
  std::string root;
  std::shared_ptr<const SampleIndex> index;
};

/// For one thread at a time.
class Numberings {
 public:
  explicit Numberings(DatasetSource source) : source_(std::move(source)) {}

  /// As ImageFolder does it, if it can, and by path, if that is another numbering. Valid until forget().
  const std::vector<Numbering>& of(FileId folder);
  /// The same, if it was asked for before; else null.
  const std::vector<Numbering>* known(FileId folder) const;
  /// Gives back what they take.
  void forget() { made_.clear(); }

 private:
  const DatasetSource source_;
  std::map<FileId, std::vector<Numbering>> made_;
};

/// Whether a folder holds more than `most` entries, at whatever depth. Takes time in the order of `most`.
bool holds_more(const Catalog& catalog, FileId folder, uint64_t most);

}  // namespace clairfs
