#include "mount-helper/inspect/joined_metrics.h"

#include <map>
#include <sstream>

#include <fmt/format.h>

#include "fs/control/prometheus.h"

namespace clairfs {
namespace {

struct Family {
  std::string head;  // HELP and TYPE
  std::string series;
};

// Families in the order in which they came first. Comments come before their series, as mounts write them.
class Families {
 public:
  void add(const std::string& text) {
    std::istringstream lines(text);
    Family* family = nullptr;
    bool fresh = false;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string hash, kind, name;
      if (words >> hash >> kind >> name && hash == "#") {
        if (kind == "HELP") {
          fresh = families_.find(name) == families_.end();
          if (fresh) order_.push_back(name);
          family = &families_[name];
        }
        if (family != nullptr && fresh) family->head += line + "\n";
      } else if (family != nullptr) {
        family->series += line + "\n";
      }
    }
  }

  std::string text() const {
    std::string out;
    for (const std::string& name : order_) {
      const Family& family = families_.at(name);
      out += family.head + family.series;
    }
    return out;
  }

 private:
  std::map<std::string, Family> families_;
  std::vector<std::string> order_;
};

}  // namespace

std::string joined_metrics(const std::vector<CollectedMetrics>& mounts) {
  if (mounts.empty()) return "";
  std::string up =
      "# HELP clairfs_up 1: the mount answers; 0: its daemon is gone or hangs\n# TYPE clairfs_up gauge\n";
  for (const CollectedMetrics& mount : mounts)
    up += fmt::format("clairfs_up{{{}}} {}\n", mount_labels(mount.mountpoint, mount.source),
                      mount.answers ? 1 : 0);
  Families families;
  families.add(up);
  for (const CollectedMetrics& mount : mounts) families.add(mount.text);
  return families.text();
}

}  // namespace clairfs
