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

// Whether an order that was found for everybody is not that of everybody, or not of the program that opened
// most of its files. Opens of others lie in the window of an order by chance, where that is wide beside the
// dataset.
bool is_of_others(const OrderSearch& search, const std::vector<SeenOpen>& opens,
                  std::span<const WatchedReaders> readers, const FoundOrder& found) {
  // Who cannot be told is among everybody only.
  const auto untold = std::count(found.threads.begin(), found.threads.end(), 0U);
  if (2 * static_cast<size_t>(untold) >= found.threads.size()) return false;
  const auto has_most = [&](const WatchedReaders& one) {
    const auto theirs = std::count_if(found.threads.begin(), found.threads.end(),
                                      [&](uint32_t thread) { return one.readers.threads.contains(thread); });
    return !is_whole(one.readers) &&
           static_cast<double>(theirs) >= kMostly * static_cast<double>(found.threads.size());
  };
  const auto is_another = [&](const WatchedReaders& one) {
    if (is_whole(one.readers)) return false;
    const auto theirs = opens_of(opens, one.readers);
    return !search.goes_forward_in(theirs, found) &&
           !search.is_read_in(opens_of(opens, one.readers, false), theirs, found);
  };
  const auto most = std::find_if(readers.begin(), readers.end(), has_most);
  return most != readers.end() ? is_another(*most) : std::any_of(readers.begin(), readers.end(), is_another);
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
  const auto add_due = [&](bool all) {
    for (const WatchedReaders& one : readers) {
      if (!all && one.readers.opens < search.look_at(number_of(one.readers))) continue;
      if (std::find(due.begin(), due.end(), &one) != due.end()) continue;
      due.push_back(&one);
      search.looked(number_of(one.readers), opens_of(opens, one.readers));
    }
  };
  add_due(false);
  bool mixed = false;  // everybody's opens have the order of one
  const auto first_of = [&](const auto& find) -> std::optional<FoundOrder> {
    for (size_t i = 0; i < due.size(); ++i) {  // there may come more
      const WatchedReaders& one = *due[i];
      if (mixed && is_whole(one.readers)) continue;
      const auto theirs = opens_of(opens, one.readers);
      auto found = find(one, theirs);
      if (!found) continue;
      if (!is_whole(one.readers)) {
        if (!search.is_read_in(theirs, opens_of(opens, one.readers, false), *found)) return found;
      } else if (is_of_others(search, opens, readers, *found)) {
        mixed = true;
        add_due(true);  // whose it is will be seen
      } else {
        return found;
      }
    }
    return std::nullopt;
  };
  using Opens = std::vector<SeenOpen>;
  if (before && before->plan.epochs != 0) {
    auto found =
        first_of([&](const auto&, const Opens& theirs) { return search.follow_on(theirs, *before); });
    if (found) return found;
  }
  using Which = OrderSearch::Which;
  for (const Which which : {Which::likely, Which::others, Which::seeds, Which::shuffles}) {
    auto found = first_of([&](const WatchedReaders& one, const Opens& theirs) {
      return search.find(theirs, one.facts, before, number_of(one.readers), which);
    });
    if (found) return found;
    if (which == Which::likely && all_likely) all_likely();
  }
  return std::nullopt;
}

}  // namespace clairfs
