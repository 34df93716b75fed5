#include "plan/inference/readers/reader_search.h"

#include <algorithm>
#include <iterator>

namespace clairfs {
namespace {

// Threads whose environment is looked at: all ranks of a job have the same.
constexpr size_t kAsked = 8;

bool belongs(const SeenOpen& open, const Readers& readers) {
  return readers.threads.empty() || readers.threads.contains(open.thread.value);
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

std::vector<WatchedReaders> watched_readers(const ProcessTree& tree, std::span<const SeenOpen> opens) {
  if (opens.size() > OrderSearch::kMostOpens) opens = opens.last(OrderSearch::kMostOpens);
  std::vector<WatchedReaders> watched;
  for (Readers& readers : tree.readers(opens, OrderSearch::kFewest)) {
    const ReaderFacts facts = facts_of(opens, readers);
    watched.push_back({std::move(readers), facts});
  }
  return watched;
}

// How an order goes on that was found is asked of all first: it takes nothing, and keeps a reader its plan.
std::optional<FoundOrder> find_among(OrderSearch& search, const std::vector<SeenOpen>& opens,
                                     std::span<const WatchedReaders> readers,
                                     const std::optional<FoundOrder>& before) {
  const bool may_go_on = before && before->plan.epochs != 0;
  for (const bool goes_on : {true, false}) {
    if (goes_on && !may_go_on) continue;
    for (const WatchedReaders& one : readers) {
      const auto theirs = opens_of(opens, one.readers);
      auto found = goes_on ? search.follow_on(theirs, *before)
                           : search.find(theirs, one.facts, before, one.readers.program.pid);
      const bool whole = one.readers.threads.empty();
      if (found && (whole || !search.is_read_in(theirs, opens_of(opens, one.readers, false), *found)))
        return found;
    }
  }
  return std::nullopt;
}

}  // namespace clairfs
