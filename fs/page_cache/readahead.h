// Readahead sets how much the kernel reads ahead of, and around, what is asked for of the mount's files.
#pragma once

#include <atomic>

#include <sys/types.h>

namespace clairfs {

/// How far the kernel reads ahead in a sequential read: the size of the largest READ. The default of 128 KiB
/// would need eight times as many messages.
inline constexpr unsigned kReadaheadKiB = 1024;

/// Thread-safe. A file keeps the value of when it was opened.
class Readahead {
 public:
  /// Takes over the mount with this device number and sets its value. False if it stays at the kernel's
  /// default: that takes root and a writable sysfs.
  bool begin(dev_t device);
  /// For a registered plan. Of records in large files a missing page is read alone: what lies around it is of
  /// another sample. Reads of several pages still come as one request. Without effect before begin(), or if
  /// that failed.
  void expect_records(bool expected);

 private:
  bool set(unsigned kib) const;

  std::atomic<dev_t> device_{0};  // 0: not to be set
  std::atomic<bool> records_{false};
};

}  // namespace clairfs
