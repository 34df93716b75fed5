// The torch.manual_seed() behind the seeds of a DataLoader's epochs.
//
// DataLoader(shuffle=True) without generator= shuffles each epoch with a fresh generator. Its seed is drawn
// from torch's default generator: the low word of two outputs, which come after the two of DataLoader's
// base_seed. So once an epoch's seed is known (seed_search.h), the stream of the default generator can be
// looked for: that of MT19937(v), for the values v that people give to torch.manual_seed(). Between seeding
// and the first epoch lies what the model's initialisation drew, up to some 10^8 outputs. From one epoch's
// seed to the next it is a fixed number of outputs: 4; 2 with persistent workers; more where others draw too
// (a validation loader: 2 more).
//
// Being certain: among E outputs a given 32-bit value occurs E / 2^32 times by chance: once in four if 10^9
// are searched. One epoch's seed therefore only makes suspects, each of which foretells the next epoch's
// seed. Two epochs' seeds, at a distance of 2 or 4, occur by chance E * 2 / 2^64 times: 10^-10 for E = 10^9.
// At a distance of 6, which a validation loader makes, it is counted as four times that. At any other up to
// kMostStride it is 2^15 times that, so then three epochs' seeds are needed where E is large. `chance` below
// says it; certain() compares it with kMostWrongLocks, for each job by itself: the orders of the epochs that
// were seen are certain without it.
//
// Source: torch/utils/data/dataloader.py and sampler.py (1.9 to 2.14).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/result.h"
#include "plan/inference/chance/chance.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// Outputs from one epoch's seed to the next that are searched.
inline constexpr uint32_t kMostStride = 1 << 16;

struct GeneratorEvidence {
  std::vector<uint32_t> seeds;  ///< of consecutive epochs, the first one first; at least one
  std::vector<uint64_t>
      likely;  ///< values that the job's environment or the user's plan suggests; tried first
};

struct GeneratorSearchOptions {
  uint64_t outputs = 1 << 18;          ///< of each stream of small values: the initialisation of small models
  uint64_t notable_outputs = 1 << 27;  ///< of `likely` values and those that people like: that of large ones
  std::function<bool()> stop = {};     ///< asked every few milliseconds; empty: never
};

/// A stream in which the seeds occur.
struct GeneratorMatch {
  uint64_t value = 0;   ///< torch.manual_seed(value)
  uint64_t output = 0;  ///< where the first seed is, from 0
  uint32_t stride = 0;  ///< outputs from one epoch's seed to the next; 0: one epoch is known
  double chance = 1;    ///< matches by accident to be expected among all outputs searched

  bool certain() const { return chance < kMostWrongLocks; }
  bool operator==(const GeneratorMatch&) const = default;
};

/// The streams in which the seeds occur, the most plausible first; empty if there is none, or `stop` came
/// first. A single one that is certain ends the search. Takes about a nanosecond an output, on the calling
/// thread: a second for the small values, fifteen for all. Errors: EINVAL without a seed.
Result<std::vector<GeneratorMatch>> find_default_generator(const GeneratorEvidence& evidence,
                                                           const GeneratorSearchOptions& options = {});

/// Of the matches of `epochs` epochs those in which the next epoch's seed occurs, too.
std::vector<GeneratorMatch> narrow(const std::vector<GeneratorMatch>& matches, uint32_t epochs,
                                   uint32_t seed);

/// The next epoch's seed, where it is `stride` outputs after the last one that is known, and all later ones.
std::vector<uint32_t> later_seeds(const GeneratorMatch& match, uint32_t stride, uint32_t epochs);

/// Distances that the next epoch's seed is likely to have from a suspect's.
std::vector<uint32_t> likely_strides();

/// `dataset` (its samples, batch, workers) with the order that a match foretells, its first seed being that
/// of epoch 0. Errors: EINVAL where no plan says it: a stride that is unknown or below 2, or DataLoader's
/// base_seed lying before the stream.
Result<PlanSpec> plan_of_generator(const GeneratorMatch& match, PlanSpec dataset);

/// The same where nothing but one epoch's seed is known: a plan of that epoch.
PlanSpec plan_of_epoch_seed(uint32_t seed, PlanSpec dataset);

/// Whether it is such a plan: the next epoch's seed is another one.
bool is_of_epoch_seed(const PlanSpec& plan);

/// "torch.manual_seed(0) after 3736 draws", with the other draws an epoch if there are any.
std::string describe(const GeneratorMatch& match);

/// The same of a plan of plan_of_generator(), and "a shuffle with seed 7, of this epoch only" of one of
/// plan_of_epoch_seed(); empty of any other.
std::string describe_shuffle(const PlanSpec& plan);

}  // namespace clairfs
