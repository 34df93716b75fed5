// Shows readers to OrderSearch, as Inference does: for each case on its input what was found, as a line of
// JSON.
//
//   order_search_tool <CASES
//
// A case is a line of KEY=VALUE words, and one line for each epoch with the samples of the node that reads,
// by number, in the order in which its ranks are dealt them:
//
//   n=600 ranks=1 batch=8 workers=2 strays=0.05 chance=17 opens=480 shuffles=none epochs=3
//
// The epochs are read one after the other, up to `opens` of each, until the plan is one of all epochs; the
// last one is only foretold. Answers have "found", a list of what was found in which epoch, with the "order"
// that it has there, and "last", what was foretold of the last. With shuffles=usual those that follow from
// usual values of torch.manual_seed() are searched, too.
#include <cstdio>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include "plan/inference/search/order_search.h"
#include "plan/sequence/access_sequence.h"
#include "plan/sequence/plan_sampler.h"
#include "tests/support/made_up_catalog.h"
#include "tests/support/reader_model.h"

namespace {

using namespace clairfs;

constexpr double kShuffleSeconds = 30;

struct Case {
  uint32_t n = 0;
  LoaderModel::Loader loader;
  double strays = 0;
  size_t opens = 0;
  bool shuffles = false;
  ReaderFacts facts;
  std::mt19937 chance;
  std::vector<Samples> epochs;
};

std::optional<Case> next_case(std::istream& in) {
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  std::map<std::string, std::string> keys;
  std::istringstream words(line);
  for (std::string word; words >> word;)
    keys[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  const auto number = [&](const char* key) { return static_cast<uint32_t>(std::stoul(keys.at(key))); };
  Case made;
  made.n = number("n");
  made.loader = {number("ranks"), number("batch"), number("workers")};
  made.strays = std::stod(keys.at("strays"));
  made.opens = number("opens");
  made.chance.seed(number("chance"));
  made.shuffles = keys.at("shuffles") == "usual";
  if (keys.contains("world")) made.facts.world = number("world");
  for (uint32_t epoch = 0; epoch < number("epochs"); ++epoch) {
    std::getline(in, line);
    std::istringstream samples(line);
    made.epochs.emplace_back();
    for (uint32_t sample = 0; samples >> sample;) made.epochs.back().push_back(sample);
  }
  return made;
}

/// What is seen of an epoch, in the order of time.
std::vector<SeenOpen> opens_of(Case& seen, const Samples& order, FileId first_file) {
  std::vector<SeenOpen> opens;
  const auto open = [&](uint32_t sample, uint32_t thread) {
    opens.push_back({FileId(first_file.value + sample), ThreadId(thread), Access::read});
  };
  // Threads of no process that there is.
  constexpr uint32_t kThreads = 1U << 30;
  LoaderModel(static_cast<uint32_t>(order.size()), seen.loader, seen.chance).run([&](uint32_t position) {
    const auto& [ranks, batch, workers, prefetch] = seen.loader;
    const uint32_t worker = workers == 0 ? 0 : position / ranks / batch % workers;
    if (std::uniform_real_distribution<>()(seen.chance) < seen.strays)
      open(static_cast<uint32_t>(seen.chance() % seen.n), kThreads);
    open(order[position], kThreads + 1 + position % ranks * 100 + worker);
    return opens.size() < seen.opens;
  });
  return opens;
}

/// What its node reads, as many epochs after that in which it was found; empty if it cannot be made.
Samples foretold(const FoundOrder& found, const DatasetSource& source, uint32_t n, uint64_t later) {
  PlanSpec plan = found.plan;
  plan.start_sample = 0;
  auto sampler = make_plan_sampler(plan, n, source, nullptr);
  if (!sampler) return {};
  auto made = AccessSequence::make(plan, std::move(*sampler));
  if (!made) return {};
  const auto sequence =
      made->sequence(Epoch(static_cast<uint32_t>(plan.first_epoch + later)), NodeId(found.node));
  if (!sequence) return {};
  return {sequence->samples().begin(), sequence->samples().end()};
}

/// Looks as Inference does; `before`: what the epoch before has shown.
std::optional<FoundOrder> watch(OrderSearch& search, const Case& seen, std::span<const SeenOpen> opens,
                                const std::optional<FoundOrder>& before) {
  search.begin();
  for (size_t look = AccessRecorder::kFirstLook; look <= opens.size(); look += look / 2) {
    const auto now = opens.first(look);
    std::optional<FoundOrder> found;
    if (before && before->plan.epochs != 0) found = search.follow_on(now, *before);
    if (!found) found = search.find(now, seen.facts, before);
    if (found) return found;
  }
  return std::nullopt;
}

nlohmann::json show(Case& seen) {
  static std::map<uint32_t, DatasetSource> sources;
  DatasetSource& source = sources[seen.n];
  if (!source.catalog) source.catalog = made_up_catalog(std::vector<uint64_t>(seen.n, 1000), 4096);
  const FileId first_file = source.catalog->children(FileId(0)).first;
  // With the limits that a mount has, but not as idle as its search is: somebody waits.
  OrderSearch search(
      source, [] { return false; },
      {.threads = 1,
       .core_seconds = kShuffleSeconds,
       .all_seeds = false,
       .plausible_seeds = 1'000'000,
       .when_idle = false},
      seen.shuffles ? UINT64_MAX : 0);
  nlohmann::json answer;
  std::optional<FoundOrder> found;
  for (uint32_t epoch = 0; epoch + 1 < seen.epochs.size(); ++epoch) {
    const auto opens = opens_of(seen, seen.epochs[epoch], first_file);
    found = watch(search, seen, opens, found);
    answer["orders"] = search.orders();
    if (!found) break;
    answer["found"].push_back({{"epoch", epoch},
                               {"plan", format_plan(found->plan)},
                               {"node", found->node},
                               {"opens", found->opens},
                               {"log10_chance", found->log_chance / std::log(10.0)},
                               {"order", foretold(*found, source, seen.n, 0)}});
    if (found->plan.epochs != 0) continue;
    answer["last"] = foretold(*found, source, seen.n, seen.epochs.size() - 1 - epoch);
    break;
  }
  return answer;
}

}  // namespace

int main() {
  try {
    while (auto seen = next_case(std::cin)) std::cout << show(*seen) << std::endl;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "order_search_tool: %s\n", error.what());
    return 1;
  }
  return 0;
}
