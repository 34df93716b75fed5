#include "plan/inference/search/order_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "cache/base/thread.h"
#include "plan/inference/search/candidates.h"
#include "plan/inference/search/dealing.h"
#include "plan/inference/seeds/default_generator.h"
#include "plan/inference/seeds/plausible_orders.h"
#include "plan/inference/watched/repeated_order.h"
#include "plan/sequence/access_sequence.h"
#include "plan/sequence/plan_sampler.h"

namespace clairfs {
namespace {

// Folders above the one that holds most opens: samples of a few classes may lie in a part of the dataset
// only.
constexpr size_t kFolders = 3;
// Of those above it such are left out that hold more: numbering them takes eight bytes a file.
constexpr uint64_t kMostAbove = 1 << 20;

// Seeds tried beside those that people like, once kTelling opens were seen.
constexpr uint64_t kOtherSeeds = 1000;
// Of torch's samplers those up to here are tried at once, which takes some tenths of a second.
constexpr uint64_t kPlausibleSeeds = 1'000'000;
// All 2^32 seeds of a shuffle take 60 to 260 core-seconds with AVX, 830 without (tests/bench/README.md).
constexpr double kAllSeedsSeconds = 1000;
// Those that follow from usual values take some ten; three times that where samples are few.
constexpr double kUsualSeedsSeconds = 30;
// A program whose order is none of them is searched once for all seeds, twice for the usual ones.
constexpr uint64_t kMostOfAllSeeds = 2 * kAllSeeds;
constexpr uint64_t kMostOfUsualSeeds = uint64_t{1} << 31;
// See evidence_of().
constexpr double kViews = 3;

// Jobs up to that size, and groups of ranks in them: the sum of the divisors of all numbers up to 1024.
constexpr double kJobs = 1 << 20;

double cpu_seconds() {
  return in_seconds(thread_cpu_time());
}

FileId common_folder(const Catalog& catalog, FileId a, FileId b) {
  std::set<FileId> above{a};
  for (FileId at = a; at.value != 0; at = catalog.parent(at)) above.insert(catalog.parent(at));
  while (!above.contains(b)) b = catalog.parent(b);
  return b;
}

}  // namespace

OrderSearch::OrderSearch(DatasetSource source, const std::function<bool()>& stop, Shuffles shuffles,
                         bool when_idle)
    : OrderSearch(std::move(source), stop,
                  {.threads = std::max(std::thread::hardware_concurrency() / 4, 1U),
                   .core_seconds = shuffles == Shuffles::all ? kAllSeedsSeconds : kUsualSeedsSeconds,
                   .all_seeds = shuffles == Shuffles::all,
                   .plausible_seeds = kPlausibleSeeds,
                   .when_idle = when_idle,
                   .stop = stop},
                  shuffles == Shuffles::none    ? 0
                  : shuffles == Shuffles::usual ? kMostOfUsualSeeds
                                                : kMostOfAllSeeds) {}

OrderSearch::OrderSearch(DatasetSource source, std::function<bool()> stop,
                         const ShuffleSearch::Options& shuffles, uint64_t most_in_vain)
    : source_(std::move(source)),
      stop_(std::move(stop)),
      shuffle_options_(shuffles),
      most_in_vain_(most_in_vain),
      numberings_(source_) {
  begin();
}

void OrderSearch::search_all_shuffles() {
  shuffle_options_.all_seeds = true;
  shuffle_options_.core_seconds = kAllSeedsSeconds;
  most_in_vain_ = kMostOfAllSeeds;
  efforts_.clear();
  shuffles_.clear();
}

bool OrderSearch::over() const {
  return stop_() || awaited_ || cpu_seconds() > look_ends_;
}

// The one in which most opens lie, and those above it; before them the one that also holds what was read
// sequentially before: who reads folder after folder reads what holds them all.
std::vector<FileId> OrderSearch::folders_above(std::span<const SeenOpen> opens,
                                               const std::optional<FoundOrder>& before) const {
  const Catalog& catalog = *source_.catalog;
  std::map<FileId, size_t> below;
  for (const SeenOpen& open : opens) {
    for (FileId at = catalog.parent(open.file);; at = catalog.parent(at)) {
      ++below[at];
      if (at.value == 0) break;
    }
  }
  const auto needed = static_cast<size_t>(kMostly * static_cast<double>(opens.size()));
  FileId deepest(0);
  for (bool deeper = true; deeper;) {
    deeper = false;
    for (const auto& [folder, count] : below) {
      if (folder == deepest || catalog.parent(folder) != deepest || count <= needed) continue;
      deepest = folder;
      deeper = true;
      break;
    }
  }
  std::vector<FileId> found;
  if (before && is_sequential_order(before->plan)) {
    const auto last = catalog.find(before->plan.root);
    if (last && *last != deepest) found.push_back(common_folder(catalog, *last, deepest));
  }
  for (FileId at = deepest;; at = catalog.parent(at)) {
    if (at != deepest && holds_more(catalog, at, kMostAbove)) break;
    if (std::find(found.begin(), found.end(), at) == found.end()) found.push_back(at);
    if (at.value == 0 || found.size() > kFolders) break;
  }
  return found;
}

OrderSearch::Evidence OrderSearch::evidence_of(std::span<const SeenOpen> opens, const Numbering& numbering) {
  const OpenedSamples opened = numbering.opened(opens);
  return evidence_of(opened.opens, opened.samples);
}

// Strays are often what came before: another program, or the end of an epoch. So three looks: at all, at the
// threads that still read, at the newest half.
OrderSearch::Evidence OrderSearch::evidence_of(std::span<const SeenOpen> opens,
                                               std::span<const uint32_t> samples) {
  Evidence evidence;
  std::unordered_set<uint32_t> seen;
  for (size_t i = 0; i < opens.size(); ++i) {
    if (!seen.insert(samples[i]).second) continue;
    evidence.samples.push_back(samples[i]);
    evidence.threads.push_back(opens[i].thread.value);
  }
  const size_t count = evidence.samples.size();
  if (count < kFewest) return evidence;
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  const auto at = [&](size_t place) { return all.begin() + static_cast<std::ptrdiff_t>(place); };
  std::unordered_set<uint32_t> reading;
  for (size_t i = count - count / 4; i < count; ++i) reading.insert(evidence.threads[i]);
  std::vector<uint32_t> recent;
  std::copy_if(all.begin(), all.end(), std::back_inserter(recent),
               [&](uint32_t i) { return reading.contains(evidence.threads[i]); });
  evidence.views.push_back(all);
  if (recent.size() >= kFewest && recent.size() < count) evidence.views.push_back(std::move(recent));
  if (count >= 2 * kFewest) evidence.views.emplace_back(at(count / 2), all.end());
  return evidence;
}

std::optional<OrderSearch::Places> OrderSearch::places_of(const Numbering& numbering,
                                                          const Evidence& evidence, const PlanSpec& plan,
                                                          Epoch epoch, NodeId node) const {
  auto sampler = make_plan_sampler(plan, numbering.index->size(), source_, numbering.index.get());
  if (!sampler) return std::nullopt;
  auto made = AccessSequence::make(plan, std::move(*sampler));
  if (!made) return std::nullopt;
  const auto sequence = made->sequence(epoch, node);
  if (!sequence) return std::nullopt;
  Places places{std::vector<uint32_t>(evidence.samples.size(), Placed::kNowhere), sequence->length()};
  std::vector<bool> wanted(numbering.index->size());
  std::unordered_map<uint32_t, uint32_t> at;
  for (uint32_t i = 0; i < evidence.samples.size(); ++i) {
    wanted[evidence.samples[i]] = true;
    at[evidence.samples[i]] = i;
  }
  const auto samples = sequence->samples();
  for (uint32_t position = 0; position < samples.size(); ++position) {
    if (!wanted[samples[position]]) continue;
    wanted[samples[position]] = false;  // the first of several uses
    places.positions[at[samples[position]]] = position;
  }
  return places;
}

// Positions among those ranks: sample by sample, the ranks in turn, as a node's sequence has them.
std::vector<Placed> OrderSearch::placed(const Evidence& evidence, const std::vector<uint32_t>& view,
                                        const Places& places, const Ranks& ranks) {
  std::vector<Placed> placed;
  for (const uint32_t i : view) {
    const uint32_t position = places.positions[i];
    placed.push_back({Placed::kNowhere, evidence.threads[i]});
    const uint64_t rank = position % ranks.world;
    if (position != Placed::kNowhere && rank >= ranks.first && rank < ranks.first + ranks.count)
      placed.back().position =
          static_cast<uint32_t>(position / ranks.world * ranks.count + rank - ranks.first);
  }
  return placed;
}

// The smallest group of ranks of a job of `world` ranks that has most of the opens; nothing if that is all of
// them.
std::optional<OrderSearch::Ranks> OrderSearch::ranks_here(std::span<const Placed> opens, uint64_t world) {
  if (world < 2 || world > kMostDistance) return std::nullopt;
  std::vector<size_t> by_rank(world);
  size_t all = 0;
  for (const Placed& open : opens) {
    if (open.position != Placed::kNowhere) ++by_rank[open.position % world], ++all;
  }
  for (uint64_t count = 1; count < world; ++count) {
    if (world % count != 0) continue;
    for (uint64_t first = 0; first < world; first += count) {
      const auto begin = by_rank.begin() + static_cast<std::ptrdiff_t>(first);
      const size_t here = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), size_t{0});
      if (static_cast<double>(here) >= kMostly * static_cast<double>(all)) return Ranks{world, first, count};
    }
  }
  return std::nullopt;
}

// The size of the job is what its environment says, with all ranks here if its threads go on by as much; or
// what the samples of a batch are apart, times the workers where a batch is one sample.
std::optional<OrderSearch::Ranks> OrderSearch::ranks_of(std::span<const Placed> opens,
                                                        const ReaderFacts& facts) {
  if (const auto ranks = ranks_here(opens, facts.world.value_or(1))) return ranks;
  const uint32_t distance = usual_distance(opens);
  const uint64_t all = facts.world.value_or(1);
  if (all > 1 && distance > 0 && distance % all == 0) return Ranks{all, 0, all};
  for (uint32_t world = distance; world > 1; --world) {
    if (distance % world != 0) continue;
    if (const auto ranks = ranks_here(opens, world)) return ranks;
  }
  return std::nullopt;
}

std::optional<OrderSearch::Match> OrderSearch::best_match(const Numbering& numbering,
                                                          const Evidence& evidence, const PlanSpec& plan,
                                                          const Places& places, const ReaderFacts& facts,
                                                          bool from_start) const {
  for (const std::vector<uint32_t>& view : evidence.views) {
    const std::vector<Placed> whole = placed(evidence, view, places, {});
    double ways = kViews;
    Match match{{}, {}, whole};
    if (divides_among_ranks(plan)) {
      // Half of what is allowed is for jobs of one rank, or with all ranks here.
      ways *= 2;
      if (const auto ranks = ranks_of(whole, facts)) {
        ways *= kJobs;
        match = {*ranks, {}, placed(evidence, view, places, *ranks)};
      }
    }
    const auto& [world, first, count] = match.ranks;
    const auto has = [](const Placed& open) { return open.position != Placed::kNowhere; };
    const auto here = static_cast<uint64_t>(std::count_if(match.placed.begin(), match.placed.end(), has));
    const auto all = static_cast<uint64_t>(std::count_if(whole.begin(), whole.end(), has));
    // A reader of the whole order opens samples of all ranks.
    const double of_few = static_cast<double>(count) / static_cast<double>(world);
    if (count < world && log_tail(all, of_few, here) > -kClearly) continue;  // more must be seen
    match.fit =
        fit_order(match.placed, {numbering.index->size(), places.length / world * count,
                                 static_cast<uint32_t>(count), is_sequential_order(plan), from_start});
    match.fit.log_chance = std::min(0.0, match.fit.log_chance + std::log(ways));
    if (match.fit.explains()) return match;
  }
  return std::nullopt;
}

std::optional<FoundOrder> OrderSearch::try_order(const Numbering& numbering, const Evidence& evidence,
                                                 const PlanSpec& order, const ReaderFacts& facts,
                                                 bool from_start) {
  PlanSpec plan = order;
  numbering.name_in(plan);
  plan.world = plan.ranks_per_node = 1;
  const auto places =
      places_of(numbering, evidence, plan, Epoch(static_cast<uint32_t>(plan.first_epoch)), NodeId(0));
  ++orders_;
  if (!places) return std::nullopt;
  const auto best = best_match(numbering, evidence, plan, *places, facts, from_start);
  if (!best || !is_certain(best->fit, orders_)) return std::nullopt;

  plan.world = best->ranks.world;
  plan.ranks_per_node = best->ranks.count;
  // A reader that goes from folder to folder would else be taken for one of the last folder, a smaller one.
  const bool goes_on = is_sequential_order(order) && !from_start;
  if (!add_dealing(plan, best->placed, best->fit) && !goes_on) {
    awaited_ = FoundOrder{.plan = order};
    numbering.name_in(awaited_->plan);
    return std::nullopt;
  }
  if (plan.world == 1 && !plan.shuffle) {  // the simpler name
    plan.sampler = "torch.sequential";
    plan.shuffle = true;
  }
  plan.epochs = plan.first_epoch + 1;
  plan.start_sample = begun_at(best->fit) / plan.ranks_per_node;
  FoundOrder found{plan, static_cast<uint32_t>(best->ranks.first / best->ranks.count), best->placed.size(),
                   orders_, best->fit.log_chance + std::log(orders_)};
  found.threads = threads_of(best->placed, best->fit);
  return found;
}

std::optional<FoundOrder> OrderSearch::try_folder(FileId folder, std::span<const SeenOpen> opens,
                                                  const ReaderFacts& facts, bool goes_on, Which which,
                                                  bool all_seeds) {
  const Candidates candidates(facts);
  const size_t likely = candidates.seeds(0).size();
  std::vector<uint64_t> seeds = candidates.seeds(all_seeds ? kOtherSeeds : 0);
  const bool unlikely = which == Which::others || which == Which::rest;
  if (unlikely) seeds.erase(seeds.begin(), seeds.begin() + static_cast<std::ptrdiff_t>(likely));
  for (const Numbering& numbering : numberings_.of(folder)) {
    if (unlikely && (numbering.index->size() > kQuick) != (which == Which::rest)) continue;
    const Evidence evidence = evidence_of(opens, numbering);
    if (evidence.views.empty()) continue;
    for (const PlanSpec& order : candidates.unseeded()) {
      if (unlikely || awaited_) break;
      const bool from_start = is_sequential_order(order) && !goes_on;
      if (auto found = try_order(numbering, evidence, order, facts, from_start)) return found;
    }
    if (opens.size() < kTelling && numbering.index->size() > kSmall) continue;
    for (const uint64_t seed : seeds) {
      for (const PlanSpec& order : candidates.of_seed(seed)) {
        if (over()) return std::nullopt;
        if (auto found = try_order(numbering, evidence, order, facts, false)) return found;
      }
    }
  }
  return std::nullopt;
}

std::optional<FoundOrder> OrderSearch::find(std::span<const SeenOpen> opens, const ReaderFacts& facts,
                                            const std::optional<FoundOrder>& before, uint32_t reader,
                                            Which which) {
  if (opens.size() < kFewest) return std::nullopt;
  awaited_.reset();
  Effort& effort = effort_of(reader);
  const double begun = cpu_seconds();
  if (which == Which::likely || which == Which::any) {
    if (auto found = try_repetition(folders(opens, std::nullopt).front(), opens, facts)) return found;
    if (auto found = try_next_shuffles(opens)) return found;
  }
  if (effort.used >= core_seconds_ || used_ >= core_seconds_ * kShares) return std::nullopt;
  const size_t all_seeds_at = effort.all_seeds_at;
  const Look look = begin_look(opens, before, which, effort);
  auto found = try_one_by_one(look, facts, before, begun, effort);
  if (!found) found = try_many_seeds(look, facts, effort);
  if (!found && (stop_() || awaited_)) {  // given up: the next look begins where this one did
    effort.all_seeds_at =
        look.later ? std::min(all_seeds_at, std::max(look.opens.size(), kTelling)) : all_seeds_at;
    effort.suggestions_at = 0;
    effort.awaited = awaited_;
    if (stop_()) effort.look_at = 0;
  }
  return found;
}

std::optional<FoundOrder> OrderSearch::try_one_by_one(const Look& look, const ReaderFacts& facts,
                                                      const std::optional<FoundOrder>& before, double begun,
                                                      Effort& effort) {
  const double most = std::min(core_seconds_ / 4, core_seconds_ - effort.used);
  std::optional<FoundOrder> found;
  const std::vector<FileId> looked_in = folders(look.opens, before);
  look_ends_ = begun + most / 2;  // suggestions leave time for the usual orders
  if (const auto awaited = std::exchange(effort.awaited, std::nullopt))
    found = try_awaited(*awaited, looked_in, look.opens, facts, look.goes_on);
  for (const FileId folder : looked_in) {
    if (!look.suggested || found || over()) break;
    found = try_suggested(folder, look.opens, facts);
  }
  look_ends_ = begun + most;
  for (const FileId folder : looked_in) {
    if (found || over() || look.many_seeds) break;
    found = try_folder(folder, look.opens, facts, look.goes_on, look.which, look.all_seeds);
  }
  const double used = cpu_seconds() - begun;
  effort.used += used;
  used_ += used;
  return found;
}

// The next epoch's shuffle is foretold: that takes nothing, so it comes first.
std::optional<FoundOrder> OrderSearch::try_many_seeds(const Look& look, const ReaderFacts& facts,
                                                      Effort& effort) {
  if (!effort.shuffles_due || effort.in_vain >= most_in_vain_) return std::nullopt;
  std::optional<FoundOrder> found;
  for (const bool seeds : {!look.goes_on_shuffling, look.goes_on_shuffling}) {
    if (found || stop_() || awaited_) break;
    const Which pass = seeds && !look.goes_on_shuffling ? Which::seeds : Which::shuffles;
    if ((look.which != pass && look.which != Which::any) || (seeds && !effort.seeds_due)) continue;
    const FileId folder = folders(look.first_opens, std::nullopt).front();
    found = seeds ? try_plausible(folder, look.first_opens, facts, effort)
                  : try_shuffles(folder, look.first_opens, facts, effort);
  }
  return found;
}

// The seeds that are left when the likely ones were compared one by one.
std::optional<FoundOrder> OrderSearch::try_plausible(FileId folder, std::span<const SeenOpen> opens,
                                                     const ReaderFacts& facts, Effort& effort) {
  if (shuffle_options_.plausible_seeds == 0) return std::nullopt;
  for (const Numbering& numbering : numberings_.of(folder)) {
    const Evidence evidence = evidence_of(opens, numbering);
    const uint32_t n = numbering.index->size();
    if (evidence.views.empty() || evidence.samples.size() < enough_opens(1, n)) continue;
    const PlausibleOrders plausible = plausible_orders(n, evidence.samples,
                                                       {.end = shuffle_options_.plausible_seeds,
                                                        .threads = shuffle_options_.threads,
                                                        .core_seconds = core_seconds_ / 4,
                                                        .when_idle = shuffle_options_.when_idle,
                                                        .other_orders = orders_,
                                                        .stop = stop_});
    orders_ += static_cast<double>(plausible.tested);
    if (!stop_()) effort.in_vain += plausible.tested;
    effort.used += plausible.core_seconds;
    used_ += plausible.core_seconds;
    for (const PlanSpec& order : plausible.orders) {
      auto found = try_order(numbering, evidence, order, facts, false);
      if (awaited_) return std::nullopt;
      if (!found) continue;
      effort.in_vain = 0;
      return found;
    }
  }
  return std::nullopt;
}

std::vector<OrderSearch::SecondPass> OrderSearch::second_passes(FileId folder,
                                                                std::span<const SeenOpen> opens) {
  std::vector<SecondPass> passes;
  for (const Numbering& numbering : numberings_.of(folder)) {
    const OpenedSamples opened = numbering.opened(opens);
    const std::optional<FirstPass> first = find_first_pass(opened.samples);
    if (!first) continue;
    SecondPass& pass = passes.emplace_back();
    pass.numbering = &numbering;
    const size_t count = std::min(opened.opens.size() - first->repeated_from, kMostOpens);
    pass.evidence = evidence_of(std::span(opened.opens).last(count), std::span(opened.samples).last(count));
    std::unordered_map<uint32_t, uint32_t> at;
    for (uint32_t i = 0; i < first->order.size(); ++i) at.emplace(first->order[i], i);
    pass.places.length = first->order.size();
    for (const uint32_t sample : pass.evidence.samples) {
      const auto found = at.find(sample);
      pass.places.positions.push_back(found == at.end() ? Placed::kNowhere : found->second);
    }
    numbering.name_in(pass.list);
    pass.list.sampler = "list";
    pass.list.list = list_in_place(first->order);
    pass.list.world = pass.list.ranks_per_node = 1;
  }
  return passes;
}

// The order is one of those that are tried, though it comes from the reader itself: of a reader that goes
// another way the second time each open is that of any sample, as of any other order. But who goes by number
// then is near a list that does so as well, and may be another reader.
std::optional<FoundOrder> OrderSearch::try_repetition(FileId folder, std::span<const SeenOpen> opens,
                                                      const ReaderFacts& facts) {
  const std::vector<SecondPass> passes = second_passes(folder, opens);
  const PlanSpec by_number = Candidates(facts).unseeded().front();
  for (const SecondPass& pass : passes) {
    if (!goes_by_number(pass.list)) continue;
    auto found = try_order(*pass.numbering, pass.evidence, by_number, facts, true);
    if (found || awaited_) return found;
  }
  for (const SecondPass& pass : passes) {
    const uint64_t length = pass.places.length;
    PlanSpec plan = pass.list;
    ++orders_;
    for (const std::vector<uint32_t>& view : pass.evidence.views) {
      const std::vector<Placed> opened = placed(pass.evidence, view, pass.places, {});
      Fit fit = fit_order(opened, {length, length, 1, false, false});
      fit.log_chance += std::log(kViews);
      if (!is_certain(fit, orders_) || !add_dealing(plan, opened, fit)) continue;
      plan.start_sample = begun_at(fit);
      FoundOrder found{plan, 0, view.size(), orders_, fit.log_chance + std::log(orders_)};
      found.threads = threads_of(opened, fit);
      return found;
    }
  }
  return std::nullopt;
}

std::optional<FoundOrder> OrderSearch::try_epoch(const Numbering& numbering, const Evidence& evidence,
                                                 PlanSpec plan, const FoundOrder& before) {
  const Epoch epoch(static_cast<uint32_t>(plan.first_epoch));
  plan.start_sample = 0;
  const auto places = places_of(numbering, evidence, plan, epoch, NodeId(before.node));
  ++follow_ons_;
  if (!places) return std::nullopt;
  for (const std::vector<uint32_t>& view : evidence.views) {
    const std::vector<Placed> opened = placed(evidence, view, *places, {});
    Fit fit =
        fit_order(opened, {numbering.index->size(), places->length,
                           static_cast<uint32_t>(plan.ranks_per_node), is_sequential_order(plan), false});
    fit.log_chance += std::log(kViews);
    if (!is_certain(fit, follow_ons_)) continue;
    // The loader is the same: a wait for its workers would find the first epoch's order anew.
    if (!add_dealing(plan, opened, fit)) {
      plan.batch = before.plan.batch;
      plan.workers = before.plan.workers;
    }
    plan.start_sample = begun_at(fit) / plan.ranks_per_node;
    FoundOrder found{plan, before.node, view.size(), follow_ons_, fit.log_chance + std::log(follow_ons_)};
    found.threads = threads_of(opened, fit);
    found.description = describe_shuffle(plan);
    return found;
  }
  return std::nullopt;
}

std::optional<FoundOrder> OrderSearch::follow_on(std::span<const SeenOpen> opens, const FoundOrder& before) {
  const auto folder = place_of(*source_.catalog, before.plan);
  if (!folder || !is_read(*folder, opens)) return std::nullopt;
  if (opens.size() > kMostOpens) opens = opens.last(kMostOpens);
  for (const Numbering& numbering : numberings_.of(*folder)) {
    if (!numbering.is_of(before.plan)) continue;
    const Evidence evidence = evidence_of(opens, numbering);
    const bool goes_on = before.plan.epochs == 0;  // it is known how
    for (PlanSpec plan : goes_on ? std::vector{before.plan} : continuations(before.plan)) {
      if (stop_()) return std::nullopt;
      plan.epochs = 0;
      plan.move_to(before.plan.first_epoch + 1);
      if (auto found = try_epoch(numbering, evidence, std::move(plan), before)) return found;
    }
  }
  return std::nullopt;
}

std::optional<FoundOrder> OrderSearch::resume(std::span<const SeenOpen> opens, const FoundOrder& before) {
  const auto folder = place_of(*source_.catalog, before.plan);
  if (!folder || !is_read(*folder, opens)) return std::nullopt;
  if (opens.size() > kMostOpens) opens = opens.last(kMostOpens);
  for (const Numbering& numbering : numberings_.of(*folder)) {
    if (!numbering.is_of(before.plan) || stop_()) continue;
    if (auto found = try_epoch(numbering, evidence_of(opens, numbering), before.plan, before)) return found;
  }
  return std::nullopt;
}

}  // namespace clairfs
