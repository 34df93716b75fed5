// How the samples of folders, and of files of records, are numbered: eight bytes a file of a folder while a
// reader is looked for in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/formats/dataset.h"
#include "plan/inference/watched/access_recorder.h"

namespace clairfs {

/// Opens of which it is clear what was opened, or of records read.
struct OpenedSamples {
  std::vector<SeenOpen> opens;
  std::vector<uint32_t> samples;  ///< of each
};

/// Copies the keys that say, beside `root`, `format` and `file`, which records are samples.
void take_record_keys(const PlanSpec& from, PlanSpec& to);

struct Numbering {
  std::string root;
  std::shared_ptr<const SampleIndex> index;
  /// Of records: the plan's keys that say what they are, `file` among them. Else nothing is set.
  PlanSpec records = {};
  /// Of records: the files that hold them; null: the one that the plan's keys say.
  std::shared_ptr<const std::vector<FileId>> files = {};

  bool of_records() const { return !records.file.empty(); }
  /// Says in a plan which samples it orders: these.
  void name_in(PlanSpec& plan) const;
  /// Whether a plan, whose root is known to be this one, orders these.
  bool is_of(const PlanSpec& plan) const;
  /// Those of a reader's opens that are of a sample, or of records show one. REQUIRES: the order of time.
  OpenedSamples opened(std::span<const SeenOpen> opens) const;
};

/// Where a plan's samples are: a folder, or the file that holds them; of several, as a pattern of names in
/// one folder says them, the first. Nothing if that is not there.
std::optional<FileId> place_of(const Catalog& catalog, const PlanSpec& plan);

/// For one thread at a time.
class Numberings {
 public:
  explicit Numberings(DatasetSource source) : source_(std::move(source)) {}

  /// Of a folder: as ImageFolder does it, if it can, and by path, if that is another numbering. Of a file:
  /// what was added. Valid until forget().
  const std::vector<Numbering>& of(FileId place);
  /// The same, if it was asked for before, or added; else null.
  const std::vector<Numbering>* known(FileId place) const;
  /// How the records of a file are numbered, or of those of which it is the first.
  void add(FileId place, std::vector<Numbering> numberings);
  /// The places of the records that were added which a file has.
  std::span<const FileId> places_of(FileId file) const;
  /// Gives back what they take.
  void forget();

 private:
  const DatasetSource source_;
  std::map<FileId, std::vector<Numbering>> made_;
  std::map<FileId, std::vector<FileId>> places_;  // of records, by file
};

/// Whether a folder holds more than `most` entries, at whatever depth. Takes time in the order of `most`.
bool holds_more(const Catalog& catalog, FileId folder, uint64_t most);

}  // namespace clairfs
