// Tells from a READ which record its reader reads.
//
// The kernel asks for whole pages. A reader of a record asks for its first page first: by a READ that ends
// with the record or before it (pread(2); a page at a time where a mapping is advised to be read at random).
// A page fault on a mapping without advice brings what lies around it, as much before the page as after it:
// 128 KiB, or what the mount has set. What is in the page cache already is left out of a READ.
//
// So a READ that ends with the record of its first page shows that record. A READ that goes on behind it may
// be what lies around a fault. Where the page beside its end, or its beginning, was not asked for before,
// nothing was left out there: half of what is taken around faults lies between that and the fault. The fault
// shows the record of its page. Of what may have been cut off at both ends nothing is known. As much as is
// taken around a fault, behind a page that is there, is readahead.
//
// The record of a page is the only one that begins there; if none does, the only one that has bytes there.
// Everything else is ambiguous and shows nothing: small records that begin in one page, headers.
//
// Some sightings are wrong all the same, as where the first page of a record was read with the record before,
// or where the page cache has more or less than what the reader was seen to ask for. Those count as strays.
// No wrong order gains by them: which record is taken for another has to do with its neighbours in the file,
// not with the order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// What the READs of a reader show, one after the other. Remembers which pages they asked for: some tens of
/// bytes a READ.
class Sightings {
 public:
  /// `index` outlives it.
  explicit Sightings(const SampleIndex& index) : index_(index) {}

  /// The sample whose reading the next READ shows; nothing if that is not clear. Looks at two pages at most.
  /// REQUIRES: whole pages, but at the file's end.
  std::optional<uint32_t> next(FileId file, uint64_t offset, uint64_t length);

 private:
  /// What was asked for of a file, in pages.
  struct Asked {
    std::map<uint64_t, uint64_t> runs = {};  ///< the first of each -> the one behind its last
    uint64_t around = 0;                     ///< what is taken around a fault; 0: none was seen yet

    bool has_any(uint64_t first, uint64_t end) const;
    /// REQUIRES: !has_any().
    void add(uint64_t first, uint64_t end);
    /// The page whose fault asks for these, if a fault does.
    std::optional<uint64_t> fault_in(uint64_t first, uint64_t end);
  };

  const SampleIndex& index_;
  std::map<FileId, Asked> asked_;
};

}  // namespace clairfs
