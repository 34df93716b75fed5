#include "fs/page_cache/readahead.h"

#include <fstream>

#include <fmt/format.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace clairfs {
namespace {

// The smallest value that is not "none": one page.
constexpr unsigned kOnePage = 4;

}  // namespace

// The INIT answer can only lower the readahead; raising it takes root and the device's sysfs entry.
bool Readahead::begin(dev_t device) {
  if (::geteuid() != 0) return false;
  device_ = device;
  if (set(records_ ? kOnePage : kReadaheadKiB)) return true;
  device_ = 0;
  return false;
}

void Readahead::expect_records(bool expected) {
  if (records_.exchange(expected) != expected && device_ != 0) set(expected ? kOnePage : kReadaheadKiB);
}

bool Readahead::set(unsigned kib) const {
  std::ofstream file(fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", major(device_), minor(device_)));
  file << kib;
  return static_cast<bool>(file.flush());
}

}  // namespace clairfs
