#include "plan/inference/seed_diagnosis.h"

#include <numeric>
#include <random>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

constexpr uint32_t kMany = 100'000;

// What a job that reads `real` shows of itself before 30 opens are seen, while a plan is in force.
Diagnosis diagnosis_of(const std::string& planned, const std::string& real, uint32_t epoch = 0,
                       uint32_t opens = 30, uint32_t nodes = 1) {
  const LoaderModel::Loader loader{1, 16, 2};
  AccessSequence plan = plan_over(kMany, planned + " batch=16 workers=2", nodes);
  AccessSequence read = plan_over(kMany, real + " batch=16 workers=2", nodes);
  const Samples order = order_of(read, epoch);
  std::mt19937 random(4);
  std::vector<Sighting> evidence;
  LoaderModel(static_cast<uint32_t>(order.size()), loader, random).run([&](uint32_t position) {
    evidence.push_back({order[position], evidence.size(), 0, true});
    if (evidence.size() % 4 == 0)
      evidence.push_back({order[position], evidence.size(), 0, false});  // its READ
    return evidence.size() < opens;
  });
  return diagnose_seed(evidence, plan.spec(), kMany, {Epoch(epoch), 0}, NodeId(0));
}

// Of a job that reads Subset(dataset, part) as `real` says of so many samples.
Diagnosis diagnosis_of_subset(const Samples& part, const std::string& real) {
  const LoaderModel::Loader loader{1, 16, 2};
  AccessSequence plan = plan_over(kMany, "seed=42 batch=16 workers=2");
  AccessSequence read = plan_over(static_cast<uint32_t>(part.size()), real + " batch=16 workers=2");
  const Samples order = order_of(read, 0);
  std::mt19937 random(4);
  std::vector<Sighting> evidence;
  LoaderModel(static_cast<uint32_t>(order.size()), loader, random).run([&](uint32_t position) {
    evidence.push_back({part[order[position]], evidence.size(), 0, true});
    return evidence.size() < 40;
  });
  return diagnose_seed(evidence, plan.spec(), kMany, {Epoch(0), 0}, NodeId(0));
}

// Of one that reads a part of random_split(dataset, [0.8, 0.2]).
Diagnosis diagnosis_of_part(const std::string& split, bool rest, const std::string& real) {
  AccessSequence dealt = plan_over(kMany, "sampler=torch.random generator=sampler seed=" + split);
  const Samples all = order_of(dealt, 0);
  const auto first = all.begin() + kMany / 5 * 4;
  return diagnosis_of_subset(rest ? Samples(first, all.end()) : Samples(all.begin(), first), real);
}

std::string seed_hint(const std::string& planned, const std::string& real, uint32_t epoch = 0) {
  const Diagnosis found = diagnosis_of(planned, real, epoch);
  CHECK(found.known == (found.hint != Diagnosis().hint));
  return found.hint;
}

}  // namespace

TEST_CASE("any seed up to a million is named, of any epoch") {
  CHECK(seed_hint("seed=42", "seed=7") == "matches seed=7 instead of 42");
  CHECK(seed_hint("seed=42", "seed=999990", 5) == "matches seed=999990 instead of 42");
  CHECK(seed_hint("seed=42 set_epoch=never", "seed=31415 set_epoch=never", 5) ==
        "matches seed=31415 instead of 42");
}

TEST_CASE("the seed of a job of several nodes is named") {
  const Diagnosis found = diagnosis_of("seed=42 world=8", "seed=1337 world=8", 2, 30, 8);
  CHECK(found.hint == "matches seed=1337 instead of 42");
  REQUIRE(found.order);
  CHECK(found.order->seed == "1337");
  CHECK(found.order->first_epoch == 2);
}

TEST_CASE("the seed is named though one worker opened its first batch before the other") {
  AccessSequence plan = plan_over(kMany, "seed=42 batch=16 workers=2");
  AccessSequence read = plan_over(kMany, "seed=7 batch=16 workers=2");
  const Samples order = order_of(read, 0);
  std::vector<Sighting> evidence;
  for (uint32_t at = 16; at < 32; ++at) evidence.push_back({order[at], evidence.size(), 0, true});
  const Diagnosis found = diagnose_seed(evidence, plan.spec(), kMany, {Epoch(0), 0}, NodeId(0));
  CHECK(found.hint == "matches seed=7 instead of 42");
}

TEST_CASE("the default generator is named with what was drawn from it before") {
  CHECK(seed_hint("seed=42", "sampler=torch.random generator=default seed=1234 draws=3736") ==
        "matches sampler=torch.random generator=default seed=1234 draws=3736, which is "
        "torch.manual_seed(1234) after "
        "3736 draws");
  // The plan's own value, which is none that people like.
  CHECK_THAT(seed_hint("sampler=torch.random generator=default seed=87654321",
                       "sampler=torch.random generator=default seed=87654321 draws=100000"),
             Contains("seed=87654321 draws=100000, which"));
  // A large model.
  CHECK_THAT(seed_hint("sampler=torch.random generator=default seed=87654321",
                       "sampler=torch.random generator=default seed=87654321 draws=5000000"),
             Contains("seed=87654321 draws=5000000, which"));
}

TEST_CASE("the order of the default generator begins with the epoch that was seen") {
  const Diagnosis found =
      diagnosis_of("seed=42", "sampler=torch.random generator=default seed=1234 draws=3736");
  REQUIRE(found.order);
  CHECK(found.order->generator == "default");
  CHECK(found.order->seed == "1234");
  CHECK(found.order->draws == 3736);
  CHECK(found.order->first_epoch == 0);
}

TEST_CASE("a part of random_split() is named with its split and its shuffle") {
  const Diagnosis first = diagnosis_of_part("42", false, "seed=7");
  CHECK(first.known);
  CHECK(!first.order);  // no line says it
  CHECK(
      first.hint ==
      "matches a Subset: the first 80000 of 100000 samples that random_split() draws with seed=42, shuffled "
      "by seed=7; clairfs.register(loader) plans it");
  // With a seed of its own, DataLoader(shuffle=True, generator=...).
  CHECK_THAT(
      diagnosis_of_part("1234", true, "sampler=torch.random seed=42").hint,
      Contains("the last 20000 of 100000 samples that random_split() draws with seed=1234, shuffled by "
               "seed=42;"));
  // torch.manual_seed(42), random_split(), a model, DataLoader(shuffle=True).
  CHECK_THAT(
      diagnosis_of_part("42", false, "sampler=torch.random generator=default seed=42 draws=103735").hint,
      Contains("with seed=42, shuffled by torch.manual_seed(42) after 103735 draws;"));
}

TEST_CASE("a part whose shuffle is not known is named by where its samples lie") {
  const Diagnosis rest = diagnosis_of_part("42", true, "seed=918273646");
  CHECK(rest.known);
  CHECK_THAT(rest.hint, Contains("matches a Subset: about the last "));
  CHECK_THAT(rest.hint, Contains("random_split() draws with seed=42, in an order that is not known"));
  CHECK(!diagnosis_of_part("918273646", true, "seed=918273646").known);  // nor is the split
  // A split with seed 1234 begins with the same samples.
  CHECK(!diagnosis_of("sampler=numpy.default_rng seed=42", "seed=1234").known);
}

TEST_CASE("a Subset that random_split() has not made is not named as a part of it") {
  Samples range(kMany / 5 * 4);
  std::iota(range.begin(), range.end(), kMany / 10);
  CHECK(!diagnosis_of_subset(range, "seed=42").known);
  AccessSequence dealt = plan_over(kMany, "sampler=numpy.legacy seed=42");  // as train_test_split() does it
  const Samples all = order_of(dealt, 0);
  CHECK(!diagnosis_of_subset({all.begin() + kMany / 5, all.end()}, "seed=42").known);
}

TEST_CASE("who reads on in the middle of a shuffle is not taken for a reader of a part") {
  AccessSequence plan = plan_over(kMany, "sampler=numpy.default_rng seed=42 batch=16 workers=2");
  AccessSequence read = plan_over(kMany, "seed=1234 batch=16 workers=2");
  const Samples order = order_of(read, 0);
  for (const uint32_t begun : {20'000U, 80'000U}) {
    std::vector<Sighting> evidence;
    for (uint32_t i = 0; i < 40; ++i) evidence.push_back({order[begun + i], evidence.size(), 0, true});
    CHECK(!diagnose_seed(evidence, plan.spec(), kMany, {Epoch(0), 0}, NodeId(0)).known);
  }
}

TEST_CASE("what no seed explains is not named") {
  CHECK(!diagnosis_of("seed=42", "seed=987654321").known);
  CHECK(!diagnosis_of("seed=42", "sampler=numpy.default_rng seed=7").known);
  CHECK(!diagnosis_of("seed=42", "seed=42 shuffle=false").known);
  CHECK(!diagnosis_of("seed=42", "seed=7", 0, 5).known);  // too little was seen
}
