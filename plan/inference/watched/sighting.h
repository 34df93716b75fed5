// Sightings tells from a READ which record its reader reads.
//
// The kernel asks for whole pages. A reader of a record asks for its first page first: by a READ that ends
// with the record or before it (pread(2); a page at a time where a mapping is advised to be read at random).
// A page fault on a mapping without advice brings the pages around it, as many before the page as behind it:
// 128 KiB, or what the mount has set. The kernel leaves pages out of a READ that are in its page cache.
//
// So a READ that ends with the record of its first page shows that record. A READ that goes on behind that
// record may bring the pages around a fault. If the page beside one of its ends was not asked for before,
// nothing was left out at that end. The fault then lies half of what a fault brings away from that end, and
// shows the record of its page. If pages may have been left out at both ends, the READ shows nothing. Nor
// does a READ of as much as a fault brings, behind a page that is there: that is readahead.
//
// The record of a page is the only one that begins there; if none does, the only one that has bytes there.
// Any other page is ambiguous and shows nothing: small records that begin in one page, headers.
//
// Some sightings are wrong all the same: where a reader got the first page of a record with the record
// before, or where the page cache has other pages than the reader was seen to ask for. Those count as strays.
// No wrong order gains by them: which record is taken for another has to do with its neighbours in the file,
// not with the order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// The records that the READs of a reader show, one after the other. Remembers which pages they asked for:
/// some tens of bytes a READ.
class Sightings {
 public:
  /// `index` outlives it.
  explicit Sightings(const SampleIndex& index) : index_(index) {}

  /// The sample whose reading the next READ shows; nothing if that is not clear. Looks at two pages at most.
  /// REQUIRES: whole pages, but at the file's end.
  std::optional<uint32_t> next(FileId file, uint64_t offset, uint64_t length);

 private:
  /// The pages of a file that READs have asked for.
  struct Asked {
    std::map<uint64_t, uint64_t> runs = {};  ///< the first of each -> the one behind its last
    uint64_t around = 0;                     ///< pages that a fault brings; 0: none was seen yet

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
