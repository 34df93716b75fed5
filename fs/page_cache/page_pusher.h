// Puts bytes into the kernel's page cache for files of our own mount, and takes them out again.
//
// Pushing is FUSE_NOTIFY_STORE, written to the FUSE device by hand: libfuse would copy scattered memory
// first. The kernel must know the inode, so on ENOENT the file is looked up through our own mount and the
// push is tried once more. Both may wait for our own FUSE threads, so never call this from one, nor with a
// lock that they need; and end it before the session's threads end.
//
// Pages that a READ has asked for are left out: it brings them, and a push would sleep until it does
// (asked_pages.h).
//
// A daemon that is killed meanwhile must still close the device. Lookups are made on a thread that does not
// have it (own_files_thread.h). A push may wait for the page of a READ with the device in hand; that is left
// to the guard (mount-helper/serve/guard.h).
//
// No descriptor into the mount is kept open: it would make an unmount "busy".
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "cache/base/metrics.h"
#include "cache/catalog/catalog.h"
#include "fs/page_cache/asked_pages.h"
#include "fs/page_cache/own_files_thread.h"
#include "fs/page_cache/readahead.h"
#include "plan/staging/staging.h"

namespace clairfs {

/// Used by one thread (staging's), but for expect_records(). References outlive it.
class PagePusher final : public PageCache {
 public:
  /// `device`: the session's FUSE device, which stays open while this is used. `asked`: null where READs are
  /// to be waited for.
  PagePusher(const Catalog& catalog, std::string mountpoint, int device, const AskedPages* asked,
             Metrics& metrics)
      : catalog_(catalog),
        mountpoint_(std::move(mountpoint)),
        device_(device),
        asked_(asked),
        metrics_(metrics) {}

  Status push(FileId file, uint64_t offset, const std::vector<iovec>& memory) override;
  /// Also pages that a process has mapped.
  void drop(FileId file, uint64_t offset, uint64_t length) override;
  /// Asks cachestat(2), Linux 6.5, as root or of one's own files: of others newer kernels do not tell.
  std::optional<uint64_t> pages_of(FileId file, uint64_t offset, uint64_t length) override;
  void expect_records(RecordPlans followed) override {
    records_ = followed != RecordPlans::none;
    readahead_.expect_records(followed == RecordPlans::registered);
  }
  Readahead& readahead() { return readahead_; }

 private:
  std::vector<PageRange> without_asked(const PageRange& pages) const;
  Status push_part(const PageRange& part, const std::vector<iovec>& memory);
  int store(FileId file, uint64_t offset, const std::vector<iovec>& memory) const;
  std::string path(FileId file) const { return mountpoint_ + "/" + catalog_.path(file); }
  void make_known(FileId file);
  void advise_away(FileId file, uint64_t offset, uint64_t length);
  void invalidate(FileId file, uint64_t offset, uint64_t length) const;

  const Catalog& catalog_;
  const std::string mountpoint_;
  const int device_;
  const AskedPages* const asked_;
  Metrics& metrics_;
  Readahead readahead_;                // self-synchronised
  std::atomic<bool> records_{false};   // a plan of records is followed
  std::unordered_set<FileId> mapped_;  // files of which a page stayed when it was to go
  bool may_ask_ = true;                // until the kernel refuses
  bool opens_ask_nothing_ = false;     // the first of a mount, and its close, are requests
  OwnFilesThread lookups_{"push-lookup"};
};

}  // namespace clairfs
