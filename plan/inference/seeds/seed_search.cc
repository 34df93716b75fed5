#include "plan/inference/seeds/seed_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <deque>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "plan/inference/chance/chance.h"
#include "plan/inference/seeds/first_samples.h"
#include "plan/inference/seeds/seed_fit.h"
#include "plan/random/mt19937.h"

namespace clairfs {
namespace {

// Places of the order that are looked at: 8 MB a thread.
constexpr uint64_t kMostPlaces = 1 << 18;

// Opens among which step 1 looks for the first sample. 16: four workers at random speeds had opened it by
// then. One in 4096 of the samples where that is more: then step 2 costs a hundredth of step 1 still.
constexpr uint64_t kFewestFirstOpens = 16;
constexpr uint64_t kSamplesForEachFirstOpen = 4096;

// Step 2: of so many of the samples that begin with the first of step 1 so many must have been opened by now.
// Two of eight were opened if the loader that opens them in turn did anything beside opening the first.
constexpr size_t kFirstPlaces = 8;
constexpr size_t kOpenedOfThem = 2;
constexpr size_t kFewestPlaces = 4;  // of fewer, in large jobs, that of step 1 may be the only one opened

// Step 2 looks for them among so many times as many opens as step 1.
constexpr uint32_t kOpens = 4;

// The first pass asks for the first sample, the second one for the next three as well. The second one looks
// for the first sample among as many opens as step 2: other workers may have been through two batches before
// the one that has it began.
struct AskedPlaces {
  size_t from, to;
};
constexpr AskedPlaces kPasses[] = {{0, 1}, {0, 4}};

// Workers of a rank of which any may open its whole first batch before the others begin. All but the first
// cost a pass over the streams and the plausible seeds.
constexpr uint64_t kFirstWorkers = 4;

// Seeds that people give, and some more: all passes over them are made before anything else. Two take 0.2 s.
constexpr uint64_t kPlausible = 1 << 21;

// Seeds that a thread takes at a time: some milliseconds, of which it asks whether to stop.
constexpr uint64_t kSeedsAtOnce = 1 << 16;

// How far opens may stray from the order where nobody knows: those of 16 workers with batches of 512.
constexpr uint64_t kFarthest = 1 << 14;

// Share of the opens that must be enough, for what strays leave.
constexpr double kWithoutStrays = 0.85;

Error bad_evidence(const std::string& text) {
  return Error{EINVAL, "evidence of a seed: " + text};
}

Draw draw_of(const SeedEvidence& evidence) {
  return {evidence.n, OwnPlaces(evidence).count(), evidence.first_seen.size()};
}

Status check_consistent(const SeedEvidence& evidence) {
  if (evidence.n == 0 || evidence.n > UINT32_MAX) return bad_evidence("n must be from 1 to 2^32 - 1");
  if (evidence.reach == 0) return bad_evidence("reach must not be 0");
  if (evidence.ranks == 0 || evidence.world < evidence.ranks ||
      evidence.first_rank > evidence.world - evidence.ranks) {
    return bad_evidence(fmt::format("there are no ranks {} to {} of {}", evidence.first_rank,
                                    uint64_t{evidence.first_rank} + evidence.ranks - 1, evidence.world));
  }
  std::vector<uint32_t> samples = evidence.first_seen;
  std::sort(samples.begin(), samples.end());
  if (std::adjacent_find(samples.begin(), samples.end()) != samples.end())
    return bad_evidence("a sample was first seen twice");
  if (!samples.empty() && samples.back() >= evidence.n)
    return bad_evidence(fmt::format("sample {} of {}", samples.back(), evidence.n));
  return {};
}

// Seeds of which some of the order's first samples are asked for: those from `first` on, or with `stream` the
// outputs with these numbers of MT19937(*stream).
struct SeedRange {
  uint64_t first, end;
  AskedPlaces asked;
  std::optional<uint64_t> stream = {};
};

// Outputs of the likeliest streams are tried in steps, each of all of these streams, up to so many times as
// many.
constexpr uint64_t kDeeper = 8;

// What all threads of a search share.
struct SharedSearch {
  SharedSearch(const SeedEvidence& seen, const SeedSearchOptions& how, uint64_t enough,
               std::vector<SeedRange> all)
      : evidence(seen), options(how), arrivals(seen.first_seen), needed(enough), ranges(std::move(all)) {}

  const SeedEvidence& evidence;
  const SeedSearchOptions& options;
  const Arrivals arrivals;
  const uint64_t needed;                // opens that the seed must explain
  const std::vector<SeedRange> ranges;  // one after the other

  std::atomic<uint64_t> next{0};  // portion
  std::atomic<uint64_t> tested{0};
  std::atomic<bool> end{false};
  std::atomic<int64_t> nanoseconds{0};  // of CPU time
  Mutex mutex;                          // leaf
  std::optional<FoundSeed> found GUARDED_BY(mutex);
  Status failed GUARDED_BY(mutex);
};

uint64_t portions(const SeedRange& range) {
  return (range.end - range.first + kSeedsAtOnce - 1) / kSeedsAtOnce;
}

// As the first pass, for where other workers begin, as far as the kernels tell of what step 2 needs: of fewer
// places it would leave one seed in some hundred to step 3, which takes ten thousand times as long.
std::vector<AskedPlaces> passes_of_workers(const SeedEvidence& evidence) {
  std::vector<AskedPlaces> passes;
  const OwnPlaces places(evidence);
  for (uint64_t worker = 1; worker < std::min(evidence.workers, kFirstWorkers); ++worker) {
    const uint64_t first = worker * evidence.batch * evidence.ranks;
    const uint64_t last = first + kFewestPlaces - 1;
    if (first < kPasses[1].to) continue;
    if (last >= places.count() || evidence.draws + places.of(last) >= kMostFirstOutputs) break;
    passes.push_back({first, first + 1});
  }
  return passes;
}

// The likeliest first, and what takes no time. Models that draw more than is tried of all streams are more
// usual than first samples that nobody saw. The passes of other workers come after both of the usual ones, or
// the time would be up before the second on a slow machine.
std::vector<SeedRange> ranges_of(const SeedEvidence& evidence, const SeedSearchOptions& options) {
  std::vector<SeedRange> ranges;
  const auto& [first_pass, second_pass] = kPasses;
  const std::vector<AskedPlaces> workers = passes_of_workers(evidence);
  const auto add_streams = [&](const AskedPlaces& asked) {
    for (const uint64_t stream : options.streams)
      ranges.push_back({options.first_output, options.first_output + options.stream_outputs, asked, stream});
  };
  const auto add_deep = [&](const AskedPlaces& asked) {
    const size_t count = std::min(options.deep_streams, options.streams.size());
    for (uint64_t from = options.stream_outputs; count > 0 && from < options.deep_outputs;) {
      const uint64_t to = std::min(std::max<uint64_t>(from, 1) * kDeeper, options.deep_outputs);
      for (size_t i = 0; i < count; ++i) ranges.push_back({from, to, asked, options.streams[i]});
      from = to;
    }
  };
  const auto add = [&](uint64_t from, uint64_t to, const AskedPlaces& asked) {
    if (from < to) ranges.push_back({from, to, asked});
  };
  const uint64_t plausible = std::clamp(kPlausible, options.first, options.end);
  add_streams(first_pass);
  for (const AskedPlaces& asked : kPasses) add(options.first, plausible, asked);
  add_deep(first_pass);
  add_streams(second_pass);
  for (const AskedPlaces& asked : workers) add_streams(asked);
  for (const AskedPlaces& asked : workers) add(options.first, plausible, asked);
  add(plausible, options.end, first_pass);
  add_deep(second_pass);
  add(plausible, options.end, second_pass);
  return ranges;
}

class SeedSearcher {
 public:
  SeedSearcher(SharedSearch& shared, FirstOutputs kernel)
      : shared_(shared),
        first_opens_(static_cast<uint32_t>(std::clamp<uint64_t>(shared.evidence.n / kSamplesForEachFirstOpen,
                                                                kFewestFirstOpens, UINT32_MAX / kOpens))),
        first_(shared.evidence.n, shared.evidence.draws, kernel),
        fit_(shared.evidence, shared.arrivals) {
    const OwnPlaces places(shared.evidence);
    while (first_places_.size() < places.count() && places.of(first_places_.size()) < first_.end())
      first_places_.push_back(places.of(first_places_.size()));
    candidates_.reserve(2 * kSeedBlock);
  }

  void run() {
    const sched_param none{};
    if (shared_.options.when_idle && ::sched_setscheduler(0, SCHED_IDLE, &none) != 0) {
      const MutexLock lock(shared_.mutex);
      shared_.failed = system_error(errno, "search for a seed: sched_setscheduler");
      shared_.end = true;
    }
    Duration last = thread_cpu_time();
    while (!shared_.end && !stopped() && search(shared_.next++)) {
      const Duration now = thread_cpu_time();
      const int64_t used = shared_.nanoseconds += std::chrono::nanoseconds(now - last).count();
      last = now;
      if (static_cast<double>(used) * 1e-9 >= shared_.options.core_seconds) shared_.end = true;
    }
  }

 private:
  bool stopped() {
    if (shared_.options.stop && shared_.options.stop()) shared_.end = true;
    return shared_.end;
  }

  // False if there is no such portion.
  bool search(uint64_t portion) {
    for (const SeedRange& range : shared_.ranges) {
      if (portion >= portions(range)) {
        portion -= portions(range);
        continue;
      }
      const uint64_t first = range.first + portion * kSeedsAtOnce;
      const uint64_t end = std::min(first + kSeedsAtOnce, range.end);
      portion_ = {first, end, range.asked, range.stream};
      if (range.stream) go_on_with(*range.stream, first);
      for (uint64_t at = first; at < end; at += kSeedBlock) {
        const size_t count = std::min(end - at, uint64_t{kSeedBlock});
        for (size_t lane = 0; lane < count; ++lane)
          seeds_[lane] = range.stream ? generator_.next32() : static_cast<uint32_t>(at + lane);
        step_1(count, range.asked);
      }
      if (range.stream) drawn_ = end;
      step_2();
      shared_.tested += end - first;
      if (shared_.options.progress != nullptr) shared_.options.progress->tested += end - first;
      return true;
    }
    return false;
  }

  // The next output of generator_ is that one of the stream. The portions of a thread go forward in it.
  void go_on_with(uint64_t stream, uint64_t output) {
    if (stream != stream_ || output < drawn_) {
      generator_ = Mt19937(static_cast<uint32_t>(stream));
      stream_ = stream;
      drawn_ = 0;
    }
    generator_.discard(output - drawn_);
    drawn_ = output;
  }

  // Where the seed is among those of the portion; nothing if they are of no stream.
  std::optional<FoundSeed::Origin> origin_of(uint32_t seed) const {
    if (!portion_.stream) return std::nullopt;
    Mt19937 generator(static_cast<uint32_t>(*portion_.stream));
    generator.discard(portion_.first);
    const auto before = generator.draw_until(seed, portion_.end - portion_.first);
    if (!before) return std::nullopt;
    return FoundSeed::Origin{*portion_.stream, portion_.first + *before};
  }

  // Of the first `count` of seeds_.
  void step_1(size_t count, AskedPlaces asked) {
    const size_t to = std::min(asked.to, first_places_.size());
    if (asked.from >= to) return;
    std::array<bool, kSeedBlock> hit{};
    first_.begin(seeds_.data(), first_places_[to - 1]);
    for (size_t i = asked.from; i < to; ++i) {
      const bool late = i == 0 && asked.to > kPasses[0].to;
      const uint32_t opens = late ? kOpens * first_opens_ : first_opens_;
      first_.at(first_places_[i], samples_);
      for (size_t lane = 0; lane < kSeedBlock; ++lane)
        hit[lane] = hit[lane] || shared_.arrivals.of(samples_[lane]) < opens;
    }
    for (size_t lane = 0; lane < count; ++lane) {
      if (hit[lane]) candidates_.push_back(seeds_[lane]);
    }
    if (candidates_.size() >= kSeedBlock) step_2();
  }

  // Tests all candidates, of which there may be two blocks.
  void step_2() {
    const size_t from = portion_.asked.from;
    const size_t to = std::min(from + kFirstPlaces, first_places_.size());
    for (size_t at = 0; at < candidates_.size(); at += kSeedBlock) {
      const size_t count = std::min(candidates_.size() - at, kSeedBlock);
      std::copy_n(candidates_.begin() + static_cast<ptrdiff_t>(at), count, seeds_.begin());
      std::array<uint32_t, kSeedBlock> opened{};
      first_.begin(seeds_.data(), first_places_[to - 1]);
      for (size_t i = from; i < to; ++i) {
        first_.at(first_places_[i], samples_);
        for (size_t lane = 0; lane < count; ++lane)
          opened[lane] += shared_.arrivals.of(samples_[lane]) < kOpens * first_opens_ ? 1 : 0;
      }
      const size_t enough = to - from < kFewestPlaces ? 1 : kOpenedOfThem;
      for (size_t lane = 0; lane < count; ++lane) {
        if (opened[lane] >= enough) step_3(seeds_[lane]);
      }
    }
    candidates_.clear();
  }

  void step_3(uint32_t seed) {
    const uint32_t explained = fit_.explained(seed);
    if (explained < shared_.needed) return;
    const double chance =
        log_chance(draw_of(shared_.evidence), explained) + std::log(orders_tried(shared_.options));
    const std::optional<FoundSeed::Origin> origin = origin_of(seed);
    const MutexLock lock(shared_.mutex);
    shared_.found = FoundSeed{seed, explained, chance, origin};
    shared_.end = true;
  }

  SharedSearch& shared_;
  const uint32_t first_opens_;
  FirstSamples first_;
  SeedFit fit_;
  std::vector<size_t> first_places_;  // all that the kernels tell of
  std::array<uint32_t, kSeedBlock> seeds_{};
  std::array<uint32_t, kSeedBlock> samples_{};
  std::vector<uint32_t> candidates_;
  SeedRange portion_{};  // that they are of
  Mt19937 generator_{0};
  uint64_t stream_ = 0;  // that it is of
  uint64_t drawn_ = 0;   // its outputs so far
};

// Fewer threads than wanted are no error, as long as there is one.
Status run_threads(SharedSearch& shared, FirstOutputs kernel) try {
  std::deque<SeedSearcher> searchers;
  std::vector<NamedThread> threads;
  for (uint32_t i = 0; i < std::max(shared.options.threads, 1U); ++i) {
    SeedSearcher& searcher = searchers.emplace_back(shared, kernel);
    if (!add_thread(threads, "seed-search", [&searcher] { searcher.run(); })) break;
  }
  for (NamedThread& thread : threads) thread.join();
  return {};
} catch (const std::system_error& refused) {
  return no_thread(refused);
}

}  // namespace

double outputs_tried(const SeedSearchOptions& options) {
  const size_t deep = std::min(options.deep_streams, options.streams.size());
  const uint64_t deeper = std::max(options.deep_outputs, options.stream_outputs) - options.stream_outputs;
  return static_cast<double>(options.streams.size()) * static_cast<double>(options.stream_outputs) +
         static_cast<double>(deep) * static_cast<double>(deeper);
}

double orders_tried(const SeedSearchOptions& options) {
  return static_cast<double>(options.end - options.first) + outputs_tried(options) + options.other_orders;
}

uint64_t widest_reach(SeedEvidence evidence, const SeedSearchOptions& options, uint64_t least) {
  const auto enough = [&](uint64_t reach) {
    evidence.reach = reach;
    const OwnPlaces places(evidence);
    if (reach > kFarthest || reach > evidence.n || places.count() == 0 || places.length() > kMostPlaces)
      return false;
    const std::optional<uint64_t> needed = explained_needed(draw_of(evidence), orders_tried(options));
    return needed &&
           static_cast<double>(*needed) <= kWithoutStrays * static_cast<double>(evidence.first_seen.size());
  };
  uint64_t reach = 0;
  for (uint64_t step = kFarthest; step > 0; step /= 2) {
    if (enough(reach + step)) reach += step;
  }
  return reach < std::max(least, evidence.first_seen.size() / evidence.ranks) ? 0 : reach;
}

Status check_seed_evidence(const SeedEvidence& evidence, const SeedSearchOptions& options) {
  if (const Status consistent = check_consistent(evidence); !consistent) return consistent;
  if (options.first > options.end || options.end > kAllSeeds)
    return Error{EINVAL,
                 fmt::format("search for a seed: there are none from {} to {}", options.first, options.end)};
  const OwnPlaces places(evidence);
  if (places.count() == 0) {
    return bad_evidence(
        fmt::format("rank {} of {} has none of {} samples", evidence.first_rank, evidence.world, evidence.n));
  }
  if (uint64_t{evidence.draws} + evidence.first_rank >= kMostFirstOutputs) {
    return Error{ERANGE, fmt::format("search for a seed: the first sample of rank {} comes after {} outputs, "
                                     "and only the first {} are made quickly",
                                     evidence.first_rank, uint64_t{evidence.draws} + evidence.first_rank,
                                     kMostFirstOutputs)};
  }
  if (places.length() > kMostPlaces) {
    return Error{ERANGE,
                 fmt::format("search for a seed: the opens may lie among the first {} samples, and {} "
                             "are looked at",
                             places.length(), kMostPlaces)};
  }
  if (!explained_needed(draw_of(evidence), orders_tried(options))) {
    return Error{ENODATA,
                 fmt::format("search for a seed: {} opens of {} samples, which may lie in {} places, "
                             "are too few to be certain of one",
                             evidence.first_seen.size(), evidence.n, places.count())};
  }
  return {};
}

FoundSeed explain_by_seed(const SeedEvidence& evidence, uint32_t seed) {
  const Arrivals arrivals(evidence.first_seen);
  const uint32_t explained = SeedFit(evidence, arrivals).explained(seed);
  return {seed, explained, log_chance(draw_of(evidence), explained)};
}

Result<SeedSearchResult> search_seeds(const SeedEvidence& evidence, const SeedSearchOptions& options) {
  if (const Status possible = check_seed_evidence(evidence, options); !possible) return possible.error();
  const uint64_t needed = *explained_needed(draw_of(evidence), orders_tried(options));
  SharedSearch shared(evidence, options, needed, ranges_of(evidence, options));
  uint64_t all = 0;
  for (const SeedRange& range : shared.ranges) all += range.end - range.first;
  if (options.progress != nullptr) options.progress->of = all;
  const SeedKernel& kernel = options.kernel != nullptr ? *options.kernel : seed_kernels().front();
  if (const Status ran = run_threads(shared, kernel.first_outputs); !ran) return ran.error();

  const MutexLock lock(shared.mutex);
  if (!shared.failed) return shared.failed.error();
  SeedSearchResult result;
  result.found = shared.found;
  result.complete = shared.found.has_value() || shared.tested == all;
  result.core_seconds = static_cast<double>(shared.nanoseconds) * 1e-9;
  result.tested = shared.tested;
  return result;
}

}  // namespace clairfs
