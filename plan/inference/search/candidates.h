// The orders that readers are likely to follow, without the dataset: keys of a plan's order and what else
// they may mean from the second epoch on.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/inference/readers/reader_facts.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// Orders of a first epoch, one after the other, the simplest and likeliest first.
class Candidates {
 public:
  /// The seeds in the reader's environment come first. An order is that of all ranks of the job together.
  explicit Candidates(const ReaderFacts& facts);

  /// Sequential, and those that take no seed.
  const std::vector<PlanSpec>& unseeded() const { return unseeded_; }
  /// Seeds: those of the reader's environment, those that people like, then the others up to `all`, and years
  /// if that is not 0.
  std::vector<uint64_t> seeds(uint64_t all) const;
  /// The orders of one seed.
  std::vector<PlanSpec> of_seed(uint64_t seed) const;

 private:
  const ReaderFacts facts_;
  std::vector<PlanSpec> unseeded_;
};

/// Whether an order goes through the samples by number.
bool is_sequential_order(const PlanSpec& plan);
/// The same where it does so but for jumps, as a list in place may. Other orders that go by number are kin to
/// such a list: it explains them, too, and the chance of that is no accident's (chance/fit.h).
bool goes_by_number(const PlanSpec& plan);

/// Plans whose first epoch is that of `plan`, itself among them: they differ from the second one on. The
/// simplest first.
std::vector<PlanSpec> continuations(const PlanSpec& plan);

}  // namespace clairfs
