// What readers open of a made-up dataset, as the search for their order gets to see it.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "plan/inference/search/order_search.h"
#include "tests/support/catch.h"
#include "tests/support/made_up_catalog.h"
#include "tests/support/reader_model.h"

// A namespace of its own: the names are short, and sources of unit tests are compiled together.
namespace clairfs::seen_opens {

/// `n` files in one folder. Kept: thousands of cases use a few.
inline const DatasetSource& dataset_of(uint32_t n) {
  static std::map<uint32_t, DatasetSource> made;
  DatasetSource& source = made[n];
  if (!source.catalog) source.catalog = made_up_catalog(std::vector<uint64_t>(n, 1000), 4096);
  return source;
}

/// The file of a sample among `n`.
inline FileId file_of(uint32_t n, uint32_t sample) {
  return FileId(dataset_of(n).catalog->children(FileId(0)).first.value + sample);
}

/// Samples of which a shuffle's seed is certain after forty opens.
inline constexpr uint32_t kShuffled = 12'000;

/// One reader of an order: a node's ranks, or somebody whose order nobody knows.
struct Reader {
  uint32_t n = 0;
  LoaderModel::Loader loader;
  double strays = 0;
};

/// What is seen of an epoch, in the order of time, up to `most` opens.
inline std::vector<SeenOpen> opens_of(const Reader& reader, const Samples& order, size_t most,
                                      std::mt19937& random) {
  std::vector<SeenOpen> opens;
  LoaderModel(static_cast<uint32_t>(order.size()), reader.loader, random).run([&](uint32_t position) {
    const auto& [ranks, batch, workers, prefetch] = reader.loader;
    const uint32_t rank = position % ranks;
    const uint32_t worker = workers == 0 ? 0 : position / ranks / batch % workers;
    if (std::uniform_real_distribution<>()(random) < reader.strays)
      opens.push_back(
          {file_of(reader.n, static_cast<uint32_t>(random() % reader.n)), ThreadId(9999), Access::read});
    opens.push_back({file_of(reader.n, order[position]), ThreadId(100 + rank * 100 + worker), Access::read});
    return opens.size() < most;
  });
  return opens;
}

/// Looks as Inference does, but for shuffles with the default generator (shuffle_search_test.cc): those take
/// core-seconds for each reader whose order nobody knows. It takes its time: what is found must not depend on
/// the machine.
inline std::optional<FoundOrder> watch(const Reader& reader, const std::vector<SeenOpen>& opens,
                                       const ReaderFacts& facts = {}) {
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
  search.allow(std::numeric_limits<double>::infinity());
  for (size_t seen = AccessRecorder::kFirstLook; seen <= opens.size(); seen += seen / 2) {
    auto found = search.find(std::span(opens).first(seen), facts, std::nullopt);
    if (found) return found;
  }
  return std::nullopt;
}

/// What a node reads in an epoch of a plan over `n` samples.
inline Samples node_order(const PlanSpec& plan, uint32_t n, uint32_t epoch, uint32_t node) {
  auto sampler = make_plan_sampler(plan, n, DatasetSource(), nullptr);
  REQUIRE(sampler);
  auto made = AccessSequence::make(plan, std::move(*sampler));
  REQUIRE(made);
  const auto sequence = made->sequence(Epoch(epoch), NodeId(node));
  REQUIRE(sequence);
  return {sequence->samples().begin(), sequence->samples().end()};
}

}  // namespace clairfs::seen_opens
