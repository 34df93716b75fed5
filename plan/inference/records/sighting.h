// Tells from a READ which record its reader reads.
//
// The kernel asks for whole pages. A reader of a record asks for its first page first: by a READ that ends
// with the record or before it (pread(2); a page at a time where a mapping is advised to be read at random).
// A page fault on a mapping without advice brings what lies around it, as much before the page as after it:
// 128 KiB, or what the mount has set. A READ leaves out what is in the page cache already, so it may begin
// within the record, and of what lies around a fault it may be any part.
//
// So a READ that ends with the record of its first page shows that record. A READ that goes on behind it
// shows the record of its middle page if it is as long as what the kernel takes around a fault. The record of
// a page is the only one that begins there; if none does, the only one that has bytes there. Everything else
// is ambiguous and shows nothing: small records that begin in one page, pieces of what lies around a fault,
// headers.
//
// Some sightings are wrong all the same, as where the first page of a record was read with the record before.
// Those count as strays. No wrong order gains by them: which record is taken for another has to do with its
// neighbours in the file, not with the order.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/formats/sample_index.h"

namespace clairfs {

/// The sample whose reading a READ of these bytes shows; nothing if that is not clear. Looks at two pages at
/// most. REQUIRES: whole pages, but at the file's end.
std::optional<uint32_t> record_shown(const SampleIndex& index, FileId file, uint64_t offset, uint64_t length);

}  // namespace clairfs
