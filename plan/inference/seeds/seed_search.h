// Finds which of torch's 2^32 shuffles a reader follows.
//
// torch's CPU generator is MT19937, of whose seed only 32 bits count, so there are 2^32 different
// randperm(n), whatever the script seeds. This search tries all of them against the first opens of an epoch,
// in three steps, each for those that the one before leaves:
//
// 1. Is the order's first sample among the first opens? It is `output 0 % n`: some 400 steps a seed, in
//    vectors (seed_kernels.h). Leaves 16 of n seeds, or one in 4096 where n is large.
// 2. Are two of the first eight samples from there on among the opens? In the same vectors; leaves few where
//    n is large.
// 3. How many of the opens lie where they should? Takes the shuffle as far as `reach`. A seed is found if a
//    wrong one explains as much with a chance below kMostWrongLocks over all seeds and all other orders that
//    are tried.
//
// Strays, opens that do not belong to the order, need no allowance of their own: they only make what is
// explained less telling.
//
// Step 1 fails if the first sample was not seen, or late. Then a second pass over the seeds asks for the next
// three as well, and for the first one among four times as many opens. Of a loader whose batch is known
// another worker may have opened its whole first batch before: further passes ask where that begins.
// Plausible seeds come first: the outputs of given streams, since epochs' seeds are outputs of the default
// generator; the seeds up to 2^21 (0.2 s); of the likeliest streams as many outputs as the largest models
// draw. Then each pass over the rest. A pass over all seeds takes some hundred core-seconds:
// tests/bench/programs/seed_search_bench.cc prints it.
//
// Source: at::randperm_cpu (ATen/native/TensorFactories.cpp), the same in all versions; but from
// n = 214,748,364 on torch since 2.6 settles the first sample last, so that such orders are not found.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "cache/base/result.h"
#include "plan/inference/seeds/seed_kernels.h"

namespace clairfs {

/// The first opens of an epoch, and whose they are. A plain value.
struct SeedEvidence {
  uint64_t n = 0;  ///< samples of the dataset, below 2^32
  /// Samples in the order of their first opens. 64 are enough where n is over some thousand.
  std::vector<uint32_t> first_seen = {};
  /// The opens lie among this many first samples of each rank's order: for DataLoader, (prefetch_factor *
  /// workers + 1) * batch, and as many again as were seen of the rank. Too much costs certainty and time, too
  /// little the seed.
  uint64_t reach = 0;
  uint32_t world = 1;       ///< ranks that DistributedSampler deals the order to
  uint32_t first_rank = 0;  ///< of those whose opens these are
  uint32_t ranks = 1;       ///< how many of them
  /// Outputs that are drawn between seeding and shuffling: 0 for DistributedSampler and the default
  /// generator's epochs, whose generators are fresh; 2 for the first epoch of DataLoader(generator=).
  uint32_t draws = 0;
  /// How a rank's order is dealt to its workers, where that is known: so many samples to each in turn. Any of
  /// the first four may then have opened its batch before the others began, if that begins among the first
  /// 200 places: such seeds are looked for among the outputs of streams and up to 2^21.
  uint64_t batch = 0;
  uint64_t workers = 0;
};

/// How many there are.
inline constexpr uint64_t kAllSeeds = uint64_t{1} << 32;

/// Written by the search, read by any thread. Thread-safe.
struct SeedSearchProgress {
  std::atomic<uint64_t> tested{0};  ///< seeds, once for each pass
  std::atomic<uint64_t> of{0};
};

struct SeedSearchOptions {
  uint64_t first = 0;        ///< seeds that are tried: from this one
  uint64_t end = kAllSeeds;  ///< to the one before this
  /// Seeds of generators whose outputs are tried as seeds before all others, `stream_outputs` of each.
  std::vector<uint64_t> streams = {};
  uint64_t stream_outputs = 0;
  uint64_t first_output = 0;  ///< of them; REQUIRES that none is deep, if it is not 0
  /// How many of the first streams are the likeliest: of each `deep_outputs` are tried, before the
  /// second pass over the others'.
  size_t deep_streams = 0;
  uint64_t deep_outputs = 0;
  uint32_t threads = 1;
  /// CPU time of all threads together. The check is made once in some milliseconds.
  double core_seconds = std::numeric_limits<double>::infinity();
  bool when_idle = true;            ///< SCHED_IDLE: only while no core has anything else to do
  double other_orders = 0;          ///< tried elsewhere on the same opens
  std::function<bool()> stop = {};  ///< asked by each thread every few milliseconds, may wait; empty: never
  SeedSearchProgress* progress = nullptr;
  const SeedKernel* kernel = nullptr;  ///< null: the fastest
};

struct FoundSeed {
  uint32_t seed = 0;
  uint32_t explained = 0;  ///< of the opens
  double log_chance = 0;   ///< natural logarithm of the chance that any of the orders tried explains as much
  /// Of a generator, where the seed was found among its outputs.
  struct Origin {
    uint64_t stream = 0;  ///< what it was seeded with
    uint64_t output = 0;  ///< which output, from 0
  };
  std::optional<Origin> origin = std::nullopt;
};

struct SeedSearchResult {
  std::optional<FoundSeed> found;
  bool complete = false;    ///< found, or all seeds were tried; else it was stopped, or time was up
  double core_seconds = 0;  ///< used
  uint64_t tested = 0;      ///< seeds, once for each pass
};

/// Blocks until the seed is found, all are tried, time is up or `stop` says so. Works on its own threads,
/// `seed-search`. Memory: 0.2 MB a thread, and some 50 bytes for each place of the order up to `reach`; 8 MB
/// at most. Errors: EINVAL for evidence that contradicts itself; ENODATA when too little was seen to be
/// certain of any seed; ERANGE where the first rank's first sample comes too late in the generator's output
/// (draws + first_rank > 226), or more than 2^18 places are in reach; or of the threads.
Result<SeedSearchResult> search_seeds(const SeedEvidence& evidence, const SeedSearchOptions& options);

/// Whether search_seeds() could be certain of a seed; tells what it would say otherwise. Cheap.
Status check_seed_evidence(const SeedEvidence& evidence, const SeedSearchOptions& options);

/// The seeds among them, and all others that it is compared with.
double orders_tried(const SeedSearchOptions& options);
/// The seeds among those that are outputs of streams.
double outputs_tried(const SeedSearchOptions& options);

/// The reach to search with where it is not known how far opens stray from the order: as far as leaves the
/// seed certain, were 15 % of the opens strays. 0 if that is less than `least`: more must be seen. Ignores
/// the evidence's own; REQUIRES that it is consistent otherwise.
uint64_t widest_reach(SeedEvidence evidence, const SeedSearchOptions& options, uint64_t least);

/// Opens that are enough of any dataset.
inline constexpr size_t kEnoughOpens = 512;
/// For widest_reach(): opens may stray as far as those of four workers with batches of 200, or the search
/// would often be in vain. Of small datasets a quarter.
inline constexpr uint64_t kLeastReach = 1 << 11;

/// The part of the evidence that one seed explains, for a handful of expected seeds. `log_chance` is that of
/// one order; multiply by as many as are tried. REQUIRES: check_seed_evidence().
FoundSeed explain_by_seed(const SeedEvidence& evidence, uint32_t seed);

}  // namespace clairfs
