// OrderSearch: which order does a reader follow, from its first opens? plan/inference/chance/fit.h says when
// an order is believed.
//
// The folder that holds the samples is the one in which most opens lie; samples are numbered in it as
// ImageFolder does, and by path. Or samples are records of a file, whose numbering is given: then a READ that
// shows one (watched/sighting.h) is what an open is of a file. Orders come from the samplers themselves
// (plan/samplers), the likeliest first (candidates.h). An order that a sampler deals to ranks is compared as
// a whole: how far apart a thread's opens lie tells the size of the job, and which residues they have tells
// the ranks that are here.
//
// First come orders that somebody suggests (suggested.cc): what a reader was seen to follow that has left its
// plan, and what was found before the mount was made.
//
// Then torch's samplers with any seed up to a million (seeds/plausible_orders.h). Last, what
// DataLoader(shuffle=True) may have drawn from torch's default generator (seeds/shuffle_search.h).
//
// A reader that opens the same samples in the same order a second time, whatever it is, is followed by the
// list of them (watched/repeated_order.h). Where that goes by number the order of the numbers themselves is
// compared before.
//
// Of a first epoch it cannot be known what comes after it: whether set_epoch() is called, say. So what is
// found is a plan of that epoch only; follow_on() finds out in the next.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/formats/dataset.h"
#include "plan/inference/chance/fit.h"
#include "plan/inference/readers/process_tree.h"
#include "plan/inference/readers/reader_facts.h"
#include "plan/inference/seeds/shuffle_search.h"
#include "plan/inference/watched/access_recorder.h"
#include "plan/inference/watched/numberings.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// An order that a reader certainly follows.
struct FoundOrder {
  PlanSpec plan;          ///< with the folder, the ranks, workers and batch; one epoch, or all from one on
  uint32_t node = 0;      ///< the ranks that are here are those of this node of the job
  size_t opens = 0;       ///< that it took
  double orders = 0;      ///< that had been compared
  double log_chance = 0;  ///< natural logarithm of the chance that any of them fits as well by accident
  std::optional<NodeId> told_by = std::nullopt;  ///< the node of a job that found it and told this one
  std::vector<uint32_t> threads = {};            ///< that opened its samples, once for each open
  std::string description = {};  ///< "torch.manual_seed(0) after 3736 draws", if there is more to say
  Program program = {};          ///< that these threads are in, if that can be told
};

/// An order that there is reason to expect.
struct Suggestion {
  PlanSpec order;     ///< its root and format tell the samples; `first_epoch`: where its readers were, or are
  double orders = 0;  ///< that were compared with the same readers to come to it, at most
  bool saved = false;  ///< by an earlier mount
};

/// For one thread at a time. Holds the numbering of the folders that it looks at, eight bytes a sample, until
/// look_is_over(), and one order while it compares it. Readers share them, and the number of orders that were
/// compared.
class OrderSearch {
 public:
  /// CPU time for the orders of one reader; each find() takes a fourth at most.
  static constexpr double kCoreSeconds = 20;
  /// All readers together have so many times that: new ones may come all the time, as from xargs.
  static constexpr double kShares = ProcessTree::kMostReaders + 1;
  /// Fewer opens tell nothing of any order.
  static constexpr size_t kFewest = 8;
  /// Orders of more samples take milliseconds each: they are tried once kTelling opens were seen.
  static constexpr uint32_t kSmall = 50000;
  /// Which orders are compared.
  enum class Which : uint8_t {
    likely,    ///< those without a seed, and with one that people like
    others,    ///< those of kQuick samples with any other seed below a thousand, or a year
    seeds,     ///< torch's with any seed up to a million, where the others were compared of late
    shuffles,  ///< then what DataLoader may have drawn
    rest,      ///< then the others of more samples
    any
  };
  /// Nine thousand orders of no more samples take half a second, as the likeliest shuffles do. Those of more
  /// take up to kCoreSeconds / 4.
  static constexpr uint32_t kQuick = 10000;
  /// Readers whose efforts are remembered: those that are looked at, and as many that were.
  static constexpr size_t kMostReaders = 2 * (ProcessTree::kMostReaders + 1);
  /// So many are enough for all seeds that are tried: one look tells them apart.
  static constexpr size_t kTelling = 48;
  /// The number of all readers together.
  static constexpr uint32_t kEverybody = 0;
  /// Opens that are compared at most: the newest.
  static constexpr size_t kMostOpens = 2048;

  /// Orders that are remembered of those that were suggested.
  static constexpr size_t kMostSuggestions = 16;
  /// Which shuffles with torch's default generator are tried: those that follow from usual values of
  /// torch.manual_seed(), which takes tens of core-seconds, or all 2^32, which takes hundreds.
  enum class Shuffles { none, usual, all };
  /// `stop` is asked before each order, from any thread, and may wait. Reads only the source's catalog.
  /// `when_idle`: as in SeedSearchOptions.
  OrderSearch(DatasetSource source, const std::function<bool()>& stop, Shuffles shuffles = Shuffles::usual,
              bool when_idle = true);
  /// With other limits of the search for shuffles. `most_in_vain`: seeds that are tried in vain for one
  /// program, at most; 0: no shuffle is searched for.
  OrderSearch(DatasetSource source, std::function<bool()> stop, const ShuffleSearch::Options& shuffles,
              uint64_t most_in_vain);

  /// An order that find() tries before all others, in its first epoch, in the one where its readers were, and
  /// in the next: a hypothesis as any other. kMostSuggestions are tried, the last one first: half of them are
  /// the newest of those that go on from epoch to epoch, half the first ones of single epochs, since a job
  /// begins with them; those of an earlier mount give way. Without effect where the order needs a file, or
  /// goes by number.
  void suggest(Suggestion suggestion);

  /// Other CPU time than kCoreSeconds from now on.
  void allow(double core_seconds) { core_seconds_ = core_seconds; }

  /// From now on all shuffles are tried, for readers that were looked at in vain as well.
  void search_all_shuffles();

  /// Finds the order of a first epoch; `before`: what was found last, if anything; `reader`: whose opens they
  /// are, by any number. Nothing: more must be seen, or the order is none of those that are known.
  std::optional<FoundOrder> find(std::span<const SeenOpen> opens, const ReaderFacts& facts,
                                 const std::optional<FoundOrder>& before, uint32_t reader = kEverybody,
                                 Which which = Which::any);
  /// Finds out how the order of an epoch goes on in the next. That is the one after before.plan.first_epoch.
  std::optional<FoundOrder> follow_on(std::span<const SeenOpen> opens, const FoundOrder& before);
  /// Whether the readers of an order are in the same epoch of it still, after they read something else.
  std::optional<FoundOrder> resume(std::span<const SeenOpen> opens, const FoundOrder& before);
  /// Whether `others` lie in an order where the opens lie for which it was found, more than by chance.
  bool is_read_in(std::span<const SeenOpen> opens, std::span<const SeenOpen> others,
                  const FoundOrder& found) const;
  /// Whether their threads go forward in the order that was found, as those of its reader do. Of others half
  /// of the steps do.
  bool goes_forward_in(std::span<const SeenOpen> opens, const FoundOrder& found) const;
  /// How many opens should be seen before the next look, if these are not enough: telling_at() at most.
  size_t next_look(std::span<const SeenOpen> opens);
  /// A reader is looked at that has opened these: the next look is when it has opened next_look().
  void looked(uint32_t reader, std::span<const SeenOpen> opens);
  /// So many opens of a reader are enough for a look at it; 0: it was never looked at.
  size_t look_at(uint32_t reader) const;
  /// So many opens of a reader may tell at once what those of the last look could not: kTelling where those
  /// were fewer, and what shows a second pass over all samples. SIZE_MAX: there is no such number.
  size_t telling_at(uint32_t reader) const;
  /// In the next look the READs of a file, or of those of which it is the first, are of records that are
  /// numbered so.
  void number_records(FileId place, std::vector<Numbering> numberings) {
    numberings_.add(place, std::move(numberings));
  }
  /// A look is over: the numbering of its folders and files is given back.
  void look_is_over() { numberings_.forget(); }
  /// Begins with other readers, which have their own time. For known programs no more shuffles are searched
  /// than before; of all readers together half may be others.
  void begin();

  /// Orders compared since the start.
  double orders() const { return orders_; }
  /// Seeds of shuffles that were tried for a reader in vain since one was found for it.
  uint64_t tried_in_vain(uint32_t reader) const;

 private:
  /// Opens are those of a few ranks, or of another reader, if that is no accident: e^14 is a million.
  static constexpr double kClearly = 14;

  /// The samples that were opened, each once, by whom; and the looks that are taken at them: all, or those
  /// that strays are not among.
  struct Evidence {
    std::vector<uint32_t> samples;
    std::vector<uint32_t> threads;
    std::vector<std::vector<uint32_t>> views;  ///< places in the two
  };
  /// A job's ranks, and which of them are here.
  struct Ranks {
    uint64_t world = 1;
    uint64_t first = 0;
    uint64_t count = 1;
  };
  /// An order that fits.
  struct Match {
    Ranks ranks;
    Fit fit;
    std::vector<Placed> placed;
  };

  /// The shuffles of whoever reads in a place, from epoch to epoch, whatever is read elsewhere between them.
  struct ShuffledEpochs {
    ShuffleSearch search;
    uint64_t batch = 0;    ///< of the loader in the last one that was found; 0: there is none
    uint64_t workers = 0;  ///< the same
    uint64_t looked = 0;   ///< at them, the last time
  };
  /// The work done for one reader.
  struct Effort {
    double used = 0;                    ///< CPU seconds
    size_t look_at = 0;                 ///< opens
    size_t telling_at = SIZE_MAX;       ///< opens
    size_t all_seeds_at = 0;            ///< opens from which on all seeds are tried
    bool seeds_due = false;             ///< in the last look at others: a million, and the rest
    bool shuffles_due = false;          ///< and shuffles
    size_t suggestions_at = 0;          ///< opens from which on what was suggested is tried
    uint64_t suggestions_seen = 0;      ///< of all that were suggested since the start
    uint64_t in_vain = 0;               ///< seeds of shuffles that were tried since one was found
    uint64_t looked = 0;                ///< at the reader, the last time
    std::optional<FoundOrder> awaited;  ///< as awaited_, of the last look
  };

  /// The scope of one find(): opens, and the orders that it tries.
  struct Look {
    std::span<const SeenOpen> opens;        ///< the newest
    std::span<const SeenOpen> first_opens;  ///< of them all; for those of many seeds
    Which which = Which::any;
    bool later = false;              ///< a pass after the first one of unlikely orders
    bool many_seeds = false;         ///< seeds or shuffles
    bool suggested = false;          ///< what was suggested is due
    bool all_seeds = false;          ///< seeds are due that few people like
    bool goes_on = false;            ///< what was found before goes through files in turn
    bool goes_on_shuffling = false;  ///< it, or what was found in the same place, shuffles each epoch anew
  };

  Effort& effort_of(uint32_t reader);
  Look begin_look(std::span<const SeenOpen> opens, const std::optional<FoundOrder>& before, Which which,
                  Effort& effort);
  /// The two ways to look: at orders one by one, within a fourth of the reader's time since `begun`; at many
  /// seeds at once.
  std::optional<FoundOrder> try_one_by_one(const Look& look, const ReaderFacts& facts,
                                           const std::optional<FoundOrder>& before, double begun,
                                           Effort& effort);
  std::optional<FoundOrder> try_many_seeds(const Look& look, const ReaderFacts& facts, Effort& effort);
  size_t telling_after(std::span<const SeenOpen> opens);
  static Evidence evidence_of(std::span<const SeenOpen> opens, const Numbering& numbering);
  /// `samples`: of each of the opens.
  static Evidence evidence_of(std::span<const SeenOpen> opens, std::span<const uint32_t> samples);
  /// Where samples are looked for: folders, and files of records. Never empty.
  std::vector<FileId> folders(std::span<const SeenOpen> opens, const std::optional<FoundOrder>& before) const;
  std::vector<FileId> folders_above(std::span<const SeenOpen> opens,
                                    const std::optional<FoundOrder>& before) const;
  std::optional<FoundOrder> try_folder(FileId folder, std::span<const SeenOpen> opens,
                                       const ReaderFacts& facts, bool goes_on, Which which, bool all_seeds);
  std::optional<FoundOrder> try_suggested(FileId folder, std::span<const SeenOpen> opens,
                                          const ReaderFacts& facts);
  std::optional<FoundOrder> try_awaited(const FoundOrder& awaited, std::span<const FileId> looked_in,
                                        std::span<const SeenOpen> opens, const ReaderFacts& facts,
                                        bool goes_on);
  std::optional<FoundOrder> try_order(const Numbering& numbering, const Evidence& evidence,
                                      const PlanSpec& order, const ReaderFacts& facts, bool from_start);
  /// Where a node's sequence has the samples, and its length; nothing if it cannot be made.
  struct Places {
    std::vector<uint32_t> positions;
    uint64_t length = 0;
  };
  std::optional<Places> places_of(const Numbering& numbering, const Evidence& evidence, const PlanSpec& plan,
                                  Epoch epoch, NodeId node) const;
  const Numbering* numbering_of(const FoundOrder& found) const;
  std::vector<Placed> placed_in(std::span<const SeenOpen> opens, const FoundOrder& found) const;
  static std::vector<Placed> placed(const Evidence& evidence, const std::vector<uint32_t>& view,
                                    const Places& places, const Ranks& ranks);
  static std::optional<Ranks> ranks_here(std::span<const Placed> opens, uint64_t world);
  static std::optional<Ranks> ranks_of(std::span<const Placed> opens, const ReaderFacts& facts);
  std::optional<Match> best_match(const Numbering& numbering, const Evidence& evidence, const PlanSpec& plan,
                                  const Places& places, const ReaderFacts& facts, bool from_start) const;
  std::optional<FoundOrder> try_plausible(FileId folder, std::span<const SeenOpen> opens,
                                          const ReaderFacts& facts, Effort& effort);
  std::optional<FoundOrder> try_shuffles(FileId folder, std::span<const SeenOpen> opens,
                                         const ReaderFacts& facts, Effort& effort);
  /// The next epochs of those that were found, in whatever place.
  std::optional<FoundOrder> try_next_shuffles(std::span<const SeenOpen> opens);
  /// `goes_on`: its loader is that of the last epoch. Nothing: more must be seen.
  std::optional<FoundOrder> plan_shuffle(const Numbering& numbering, const Evidence& evidence,
                                         const ShuffleSearch::Found& shuffle, ShuffledEpochs& shuffles,
                                         bool goes_on);
  ShuffledEpochs& shuffles_in(FileId place);
  /// Whether so many opens are of a place that they may tell something.
  bool is_read(FileId place, std::span<const SeenOpen> opens) const;
  /// The order of an epoch, if that is certainly what is read.
  std::optional<FoundOrder> try_epoch(const Numbering& numbering, const Evidence& evidence, PlanSpec plan,
                                      const FoundOrder& before);
  /// Opens of samples that were opened before, and the order in which those were.
  struct SecondPass {
    const Numbering* numbering = nullptr;
    PlanSpec list;
    Evidence evidence;
    Places places;  ///< of its samples in the list
  };
  /// By any numbering of the folder.
  std::vector<SecondPass> second_passes(FileId folder, std::span<const SeenOpen> opens);
  std::optional<FoundOrder> try_repetition(FileId folder, std::span<const SeenOpen> opens,
                                           const ReaderFacts& facts);
  bool over() const;

  const DatasetSource source_;
  const std::function<bool()> stop_;
  ShuffleSearch::Options shuffle_options_;
  uint64_t most_in_vain_;
  Numberings numberings_;
  std::vector<Suggestion> suggested_;  // the last one first
  uint64_t suggestions_ = 0;           // since the start
  double orders_ = 0;
  double follow_ons_ = 0;
  double used_ = 0;                            // CPU seconds, since begin()
  std::map<uint32_t, Effort> efforts_;         // by reader
  std::map<FileId, ShuffledEpochs> shuffles_;  // by place
  uint64_t looks_ = 0;
  double core_seconds_ = kCoreSeconds;
  double look_ends_ = 0;  // CPU time of the thread
  // An order that is certain, of which more must be seen to tell who reads it. So no other one is looked for.
  std::optional<FoundOrder> awaited_;
};

}  // namespace clairfs
