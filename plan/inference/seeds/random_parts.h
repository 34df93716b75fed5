// The parts that torch.utils.data.random_split() makes of a dataset, of the shares that people give it.
//
// random_split() shuffles the samples once, by randperm() of the generator that it is given or of the default
// one, and deals them out: the first part, then the others. Source: torch/utils/data/dataset.py; where shares
// do not come out even, the first parts get one sample more (since 1.13; before, people computed sizes).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clairfs {

/// The samples that are dealt out as number `first` to `end`.
struct RandomPart {
  uint64_t first = 0;
  uint64_t end = 0;
};

/// For each usual share the first part of that size, and what is left; the likeliest share first. None is
/// empty.
std::vector<RandomPart> usual_parts(uint64_t n);

/// Where some of n samples come when they are dealt out by a generator of that seed, sample by sample. Takes
/// memory and time of an epoch's order. REQUIRES: n < 2^32, each sample once and below n.
std::vector<uint32_t> places_in_split(std::span<const uint32_t> samples, uint64_t n, uint64_t seed);

}  // namespace clairfs
