// SavedOrders: what readers of a dataset were found to follow, and what was registered for them, in a file
// that outlives the mount. A job that is started again most likely reads the same, and these orders are the
// first that are compared with its opens (OrderSearch::suggest()): also one that was found after minutes is
// certain again after some tens of opens. They are hypotheses: a file that is outdated, or not ours, costs a
// few of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/base/result.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// For one thread at a time.
class SavedOrders {
 public:
  /// Of orders that go on from epoch to epoch the newest so many are kept; and so many of those of single
  /// epochs, which each epoch of a job adds to: the first ones since the start, as a job begins with them.
  static constexpr size_t kMostOfAKind = 8;

  /// `file`: empty: nothing is read or saved. `source`: of the dataset, noted in the file for people.
  SavedOrders(std::string file, std::string source) : file_(std::move(file)), source_(std::move(source)) {}

  /// The orders in the file, the likeliest last; without orders that this version cannot parse. Errors:
  /// EBADMSG with what is wrong; those of open_own_file() and read_own_file(). Where there is no file there
  /// is nothing in it.
  Result<std::vector<PlanSpec>> load();
  /// Keeps an order, and saves all if it is news, with what another mount has added to the file meanwhile.
  /// Keeps no list that lies in a file, no order by number, and none that is too long for a plan. Errors:
  /// those of save_own_file(); the next add() tries again.
  Status add(PlanSpec order);

 private:
  Result<std::vector<PlanSpec>> read() const;
  void add_those_of_others();
  Status save() const;

  const std::string file_;
  const std::string source_;
  std::vector<PlanSpec> lasting_;    // the newest first
  std::vector<PlanSpec> of_epochs_;  // those of this mount first, as they came; then others
  size_t here_ = 0;                  // of them, of this mount
  bool unsaved_ = false;             // what the last save() should have written
};

/// Where those of `source` (absolute, resolved) are, below the directory of catalogs.
std::string saved_orders_path(const std::string& directory, const std::string& source);
/// The source whose orders such a file holds, by its first bytes, which may be damaged; nothing if they are
/// not of such a file.
std::optional<std::string> source_of_saved_orders(std::string_view bytes);

}  // namespace clairfs
