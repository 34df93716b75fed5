// Finds the order that one of several readers follows. All opens are looked at together first, as those of
// one reader; then those of each program by itself (process_tree.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/inference/readers/process_tree.h"
#include "plan/inference/search/order_search.h"

namespace clairfs {

/// Some readers, and the facts from their environment.
struct WatchedReaders {
  Readers readers;
  ReaderFacts facts;
};

/// By which number an OrderSearch knows them.
uint32_t number_of(const Readers& readers);

/// The readers that opened most, of those that still read and are wanted: one that has ended needs no plan.
std::vector<WatchedReaders> watched_readers(const ProcessTree& tree, std::span<const SeenOpen> opens,
                                            const std::function<bool(const Readers&)>& wanted);

/// The first order that is certain. `before`: the plan that was found last, and may be followed on;
/// `earlier`: others that were, with the epochs in which their readers went elsewhere, to which they may be
/// back. An order of a program is believed if others do not read there in the same order: they may be the
/// rest of the same reader. One of everybody is, unless a program opens its files in another order. Each of
/// `readers` is looked at when it has opened OrderSearch::next_look(), whatever others do, and all of them
/// when what seemed to be everybody's order is not. The likely orders are compared for all of them before any
/// other order is for one, and shuffles come last; `all_likely` is called after the likely ones. Takes memory
/// for two copies of the opens.
std::optional<FoundOrder> find_among(OrderSearch& search, const std::vector<SeenOpen>& opens,
                                     std::span<const WatchedReaders> readers,
                                     const std::optional<FoundOrder>& before,
                                     const std::function<void()>& all_likely = {},
                                     std::span<const FoundOrder> earlier = {});

}  // namespace clairfs
