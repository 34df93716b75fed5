// Which order does one of several readers follow? All opens are looked at together first, as those of one
// reader; then those of each program by itself (process_tree.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/inference/order_search.h"
#include "plan/inference/readers/process_tree.h"

namespace clairfs {

/// Some who read, and what their environment says.
struct WatchedReaders {
  Readers readers;
  ReaderFacts facts;
};

/// The newest OrderSearch::kMostOpens of `opens` show who reads.
std::vector<WatchedReaders> watched_readers(const ProcessTree& tree, std::span<const SeenOpen> opens);

/// The first order that is certain. `before`: the plan that was found last, and may be followed on. What is
/// found of a program is believed if others do not read there in the same order: they may be the rest of the
/// same reader. Takes memory for a copy of the opens.
std::optional<FoundOrder> find_among(OrderSearch& search, const std::vector<SeenOpen>& opens,
                                     std::span<const WatchedReaders> readers,
                                     const std::optional<FoundOrder>& before);

}  // namespace clairfs
