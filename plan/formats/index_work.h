// An index while it is being made: how far it is, and whether it is still wanted.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cache/base/clock.h"

namespace clairfs {

/// Thread-safe: one thread makes the index, others look.
class IndexWork {
 public:
  /// Begins one of `parts` of the whole, `before` of which are done.
  void begin_part(uint64_t before, uint64_t parts) {
    before_ = before;
    parts_ = parts;
    note(0, 1);
  }
  /// `done` of `all` of the part. Wrong numbers, of a damaged file, do no harm.
  void note(uint64_t done, uint64_t all) {
    if (all == 0 || done > all) return;
    const double part = static_cast<double>(done) / static_cast<double>(all);
    percent_ =
        static_cast<unsigned>(100 * (static_cast<double>(before_) + part) / static_cast<double>(parts_));
  }
  unsigned percent() const { return percent_; }

  /// An index is needed that is not in memory: that may take long.
  void begin() { begun_ = true; }
  bool begun() const { return begun_; }

  void note_read(uint64_t bytes) { bytes_read_ += bytes; }
  uint64_t bytes_read() const { return bytes_read_; }  ///< of the dataset's files

  /// Where the index came from in the end, and where it is saved, if it is.
  enum class Origin { made, node, file, memory };
  void note_origin(Origin origin, std::string file) {
    origin_ = origin;
    file_ = std::move(file);
  }
  Origin origin() const { return origin_; }          ///< for the thread that made it
  const std::string& file() const { return file_; }  ///< as above
  /// How long the maker waited for the index; nothing where samples are found without one.
  void note_took(Duration took) { took_ = took; }
  std::optional<Duration> took() const { return took_; }  ///< as above

  /// The maker's next read fails.
  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

 private:
  // Of the thread that makes the index.
  uint64_t before_ = 0;
  uint64_t parts_ = 1;
  Origin origin_ = Origin::made;
  std::string file_;
  std::optional<Duration> took_;
  std::atomic<unsigned> percent_{0};
  std::atomic<uint64_t> bytes_read_{0};
  std::atomic<bool> begun_{false};
  std::atomic<bool> cancelled_{false};
};

}  // namespace clairfs
