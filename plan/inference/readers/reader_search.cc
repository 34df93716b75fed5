#include "plan/inference/readers/reader_search.h"

#include <algorithm>
#include <iterator>

namespace clairfs {
namespace {

// Threads whose environment is looked at: all ranks of a job have the same.
constexpr size_t kAsked = 8;

bool is_whole(const Readers& readers) {
  return readers.threads.empty();
}

bool belongs(const SeenOpen& open, const Readers& readers) {
  return is_whole(readers) || readers.threads.contains(open.thread.value);
}

std::vector<SeenOpen> opens_of(std::span<const SeenOpen> opens, const Readers& readers, bool theirs = true) {
  std::vector<SeenOpen> some;
  std::copy_if(opens.begin(), opens.end(), std::back_inserter(some),
               [&](const SeenOpen& open) { return belongs(open, readers) == theirs; });
  return some;
}

ReaderFacts facts_of(std::span<const SeenOpen> opens, const Readers& readers) {
  std::vector<ThreadId> asked;
  ReaderFacts facts;
  for (auto open = opens.rbegin(); open != opens.rend() && asked.size() < kAsked; ++open) {
    if (!belongs(*open, readers) || std::find(asked.begin(), asked.end(), open->thread) != asked.end())
      continue;
    asked.push_back(open->thread);
    const ReaderFacts one = facts_of_reader(open->thread);
    if (!facts.world) facts.world = one.world;
    for (const uint64_t seed : one.seeds) {
      if (std::find(facts.seeds.begin(), facts.seeds.end(), seed) == facts.seeds.end())
        facts.seeds.push_back(seed);
    }
  }
  return facts;
}

}  // namespace

uint32_t number_of(const Readers& readers) {
  return is_whole(readers) ? OrderSearch::kEverybody : readers.program.pid;
}

std::vector<WatchedReaders> watched_readers(const ProcessTree& tree, std::span<const SeenOpen> opens,
                                            const std::function<bool(const Readers&)>& wanted) {
  std::vector<WatchedReaders> watched;
  for (Readers& readers : tree.readers(opens, OrderSearch::kFewest)) {
    if (!wanted(readers)) continue;
    const ReaderFacts facts = facts_of(opens, readers);
    watched.push_back({std::move(readers), facts});
  }
  return watched;
}

// How an order goes on that was found is asked first: it takes nothing, and keeps a reader its plan. One
// reader's opens are copied at a time.
std::optional<FoundOrder> find_among(OrderSearch& search, const std::vector<SeenOpen>& opens,
                                     std::span<const WatchedReaders> readers,
                                     const std::optional<FoundOrder>& before,
                                     const std::function<void()>& all_likely) {
  std::vector<const WatchedReaders*> due;
  for (const WatchedReaders& one : readers) {
    if (one.readers.opens < search.look_at(number_of(one.readers))) continue;
    due.push_back(&one);
    search.looked(number_of(one.readers), opens_of(opens, one.readers));
  }
  const auto first_of = [&](const auto& find) -> std::optional<FoundOrder> {
    for (const WatchedReaders* one : due) {
      const auto theirs = opens_of(opens, one->readers);
      auto found = find(*one, theirs);
      const bool whole = is_whole(one->readers);
      if (found && (whole || !search.is_read_in(theirs, opens_of(opens, one->readers, false), *found)))
        return found;
    }
    return std::nullopt;
  };
  using Opens = std::vector<SeenOpen>;
  if (before && before->plan.epochs != 0) {
    auto found =
        first_of([&](const auto&, const Opens& theirs) { return search.follow_on(theirs, *before); });
    if (found) return found;
  }
  for (const auto which : {OrderSearch::Which::likely, OrderSearch::Which::others}) {
    auto found = first_of([&](const WatchedReaders& one, const Opens& theirs) {
      return search.find(theirs, one.facts, before, number_of(one.readers), which);
    });
    if (found) return found;
    if (which == OrderSearch::Which::likely && all_likely) all_likely();
  }
  return std::nullopt;
}

}  // namespace clairfs
