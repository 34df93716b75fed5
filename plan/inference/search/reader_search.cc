#include "plan/inference/search/reader_search.h"

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
  // A reader that cannot be told is among everybody only.
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

// The readers that are due for a look. One reader's opens are copied at a time.
class DueReaders {
 public:
  using Opens = std::vector<SeenOpen>;
  using Find = std::function<std::optional<FoundOrder>(const WatchedReaders& one, const Opens& theirs)>;

  DueReaders(OrderSearch& search, const Opens& opens, std::span<const WatchedReaders> readers)
      : search_(search), opens_(opens), readers_(readers) {
    add(false);
  }

  // The first of the orders that `find` has for them that is believed.
  std::optional<FoundOrder> first_of(const Find& find) {
    for (size_t i = 0; i < due_.size(); ++i) {  // there may come more
      const WatchedReaders& one = *due_[i];
      if (mixed_ && is_whole(one.readers)) continue;
      const Opens theirs = opens_of(opens_, one.readers);
      auto found = find(one, theirs);
      if (found && believe(one, theirs, *found)) return found;
    }
    return std::nullopt;
  }

 private:
  void add(bool all) {
    for (const WatchedReaders& one : readers_) {
      if (!all && one.readers.opens < search_.look_at(number_of(one.readers))) continue;
      if (std::find(due_.begin(), due_.end(), &one) != due_.end()) continue;
      due_.push_back(&one);
      search_.looked(number_of(one.readers), opens_of(opens_, one.readers));
    }
  }

  bool believe(const WatchedReaders& one, const Opens& theirs, const FoundOrder& found) {
    if (!is_whole(one.readers))
      return !search_.is_read_in(theirs, opens_of(opens_, one.readers, false), found);
    if (!is_of_others(search_, opens_, readers_, found)) return true;
    mixed_ = true;
    add(true);  // whose it is will be seen
    return false;
  }

  OrderSearch& search_;
  const Opens& opens_;
  const std::span<const WatchedReaders> readers_;
  std::vector<const WatchedReaders*> due_;
  bool mixed_ = false;  // everybody's opens have the order of one
};

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

// How an order goes on that was found is asked first: it takes nothing, and keeps a reader its plan.
std::optional<FoundOrder> find_among(OrderSearch& search, const std::vector<SeenOpen>& opens,
                                     std::span<const WatchedReaders> readers,
                                     const std::optional<FoundOrder>& before,
                                     const std::function<void()>& all_likely,
                                     std::span<const FoundOrder> earlier) {
  using Opens = DueReaders::Opens;
  DueReaders due(search, opens, readers);
  const bool goes_on = before && before->plan.epochs != 0;
  if (goes_on || !earlier.empty()) {
    auto found = due.first_of([&](const WatchedReaders&, const Opens& theirs) {
      auto next = goes_on ? search.follow_on(theirs, *before) : std::nullopt;
      for (const FoundOrder& one : earlier) {
        const bool again = one.plan.epochs == 0;  // its reader is where it was, or a little further
        if (!next) next = again ? search.resume(theirs, one) : search.follow_on(theirs, one);
        if (!next) next = again ? search.follow_on(theirs, one) : search.resume(theirs, one);
      }
      return next;
    });
    if (found) return found;
  }
  using Which = OrderSearch::Which;
  for (const Which which : {Which::likely, Which::others, Which::seeds, Which::shuffles, Which::rest}) {
    auto found = due.first_of([&](const WatchedReaders& one, const Opens& theirs) {
      return search.find(theirs, one.facts, before, number_of(one.readers), which);
    });
    if (found) return found;
    if (which == Which::likely && all_likely) all_likely();
  }
  return std::nullopt;
}

}  // namespace clairfs
