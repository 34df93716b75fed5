#include "plan/inference/seeds/default_generator.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "plan/inference/seeds/usual_seeds.h"
#include "plan/random/torch_random.h"

namespace clairfs {
namespace {

// The base_seed of DataLoader and the high word of the sampler's own seed come before what seeds the epoch.
constexpr uint64_t kBefore = kDrawsOfRandomInt64 + 1;

// Both seeds are drawn every epoch, or with persistent workers the sampler's alone.
constexpr uint32_t kUsualStride = 2 * kDrawsOfRandomInt64;
constexpr uint32_t kPersistentStride = kDrawsOfRandomInt64;

// The base_seed of a validation loader is drawn as well.
constexpr uint32_t kStrideWithValidation = kUsualStride + kDrawsOfRandomInt64;

// Small values are all tried: days, years, and what else comes to mind.
constexpr uint64_t kSmallValues = 4096;

// Suspects that are kept: each is tested against the next epoch.
constexpr size_t kMostSuspects = 64;

// Outputs searched between two questions whether to stop: some milliseconds.
constexpr uint64_t kOutputsAtOnce = 1 << 22;

// The chance that an output is a given value.
constexpr double kPerOutput = 1.0 / 4294967296.0;

// The likelier a distance, the fewer others are compared before it, so to speak: the chances of all of them
// together are what is said of one.
uint32_t strides_before(uint32_t stride) {
  if (stride == kUsualStride || stride == kPersistentStride) return 2;
  return stride == kStrideWithValidation ? 8 : kMostStride;
}

// The match goes on with the next epoch's seed at this distance.
GeneratorMatch continued(GeneratorMatch match, uint32_t stride) {
  if (match.stride == 0) match.chance *= strides_before(stride);
  match.chance *= kPerOutput;
  match.stride = stride;
  return match;
}

class StreamSearch {
 public:
  StreamSearch(const GeneratorEvidence& evidence, const GeneratorSearchOptions& options)
      : seeds_(evidence.seeds), options_(options) {
    for (const uint64_t value : evidence.likely) add(notable_, value);
    for (const uint64_t value : usual_seeds()) add(notable_, value);
    small_ = notable_;
    for (uint64_t value = 0; value < kSmallValues; ++value) small_.push_back(value);
  }

  std::vector<GeneratorMatch> run() {
    search(small_, options_.outputs);
    search(notable_, options_.notable_outputs);
    return std::move(found_);
  }

 private:
  static void add(std::vector<uint64_t>& values, uint64_t value) {
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }

  bool ended() {
    const bool certain = found_.size() == 1 && found_.front().certain();
    return certain || found_.size() >= kMostSuspects || (options_.stop && options_.stop());
  }

  // The chance is that of all outputs of the streams: no stream is more likely to have a match for coming
  // first.
  void search(const std::vector<uint64_t>& values, uint64_t outputs) {
    outputs_ += static_cast<double>(values.size()) * static_cast<double>(outputs);
    for (const uint64_t value : values) {
      Mt19937 generator(static_cast<uint32_t>(value));
      for (uint64_t at = 0; at < outputs;) {
        if (ended()) return;
        const uint64_t most = std::min(kOutputsAtOnce, outputs - at);
        const std::optional<uint64_t> before = generator.draw_until(seeds_.front(), most);
        if (before) match(value, at + *before);
        at += before ? *before + 1 : most;
      }
    }
  }

  // The first seed is output number `output`.
  void match(uint64_t value, uint64_t output) {
    std::vector<GeneratorMatch> matches{{value, output, 0, outputs_ * kPerOutput}};
    for (uint32_t epoch = 1; epoch < seeds_.size(); ++epoch) matches = narrow(matches, epoch, seeds_[epoch]);
    for (const GeneratorMatch& one : matches) keep(one);
  }

  void keep(const GeneratorMatch& match) {
    const bool known = std::any_of(found_.begin(), found_.end(), [&](const GeneratorMatch& other) {
      return other.output == match.output &&
             static_cast<uint32_t>(other.value) == static_cast<uint32_t>(match.value);
    });
    if (!known) found_.push_back(match);
  }

  const std::vector<uint32_t>& seeds_;
  const GeneratorSearchOptions& options_;
  std::vector<uint64_t> notable_, small_;
  double outputs_ = 0;  // of all streams so far
  std::vector<GeneratorMatch> found_;
};

}  // namespace

Result<std::vector<GeneratorMatch>> find_default_generator(const GeneratorEvidence& evidence,
                                                           const GeneratorSearchOptions& options) {
  if (evidence.seeds.empty())
    return Error{EINVAL, "search for torch.manual_seed(): no epoch's seed is known"};
  return StreamSearch(evidence, options).run();
}

std::vector<GeneratorMatch> narrow(const std::vector<GeneratorMatch>& matches, uint32_t epochs,
                                   uint32_t seed) {
  std::vector<GeneratorMatch> found;
  for (const GeneratorMatch& match : matches) {
    Mt19937 generator(static_cast<uint32_t>(match.value));
    generator.discard(match.output + 1);
    if (match.stride != 0) {
      generator.discard(uint64_t{match.stride} * epochs - 1);
      if (generator.next32() == seed) found.push_back(continued(match, match.stride));
      continue;
    }
    if (const auto before = generator.draw_until(seed, kMostStride))
      found.push_back(continued(match, static_cast<uint32_t>(*before) + 1));
  }
  return found;
}

std::vector<uint32_t> later_seeds(const GeneratorMatch& match, uint32_t stride, uint32_t epochs) {
  Mt19937 generator(static_cast<uint32_t>(match.value));
  generator.discard(match.output + 1);
  std::vector<uint32_t> seeds;
  while (stride > 0 && seeds.size() < epochs) {
    generator.discard(stride - 1);
    seeds.push_back(generator.next32());
  }
  return seeds;
}

std::vector<uint32_t> likely_strides() {
  // Others that draw in each epoch: loaders of a validation set, transforms in the main process.
  constexpr uint32_t kMostLikely = 64;
  std::vector<uint32_t> strides = {kUsualStride, kPersistentStride, kStrideWithValidation};
  for (uint32_t stride = kPersistentStride; stride <= kMostLikely; ++stride) {
    if (std::find(strides.begin(), strides.end(), stride) == strides.end()) strides.push_back(stride);
  }
  return strides;
}

Result<PlanSpec> plan_of_generator(const GeneratorMatch& match, PlanSpec dataset) {
  if (match.stride < kPersistentStride)
    return Error{EINVAL, "plan of torch's default generator: the next epoch's seed is not known"};
  if (match.output < kBefore) {
    return Error{EINVAL, "plan of torch's default generator: DataLoader's base_seed does not come from it"};
  }
  dataset.sampler = "torch.random";
  dataset.generator = "default";
  dataset.state.clear();
  dataset.seed = std::to_string(match.value);
  dataset.draws = match.output - kBefore;
  dataset.persistent_workers = match.stride < kUsualStride;
  dataset.other_draws = match.stride - (dataset.persistent_workers ? kPersistentStride : kUsualStride);
  return dataset;
}

PlanSpec plan_of_epoch_seed(uint32_t seed, PlanSpec dataset) {
  dataset.sampler = "torch.random";
  dataset.generator = "sampler";  // as the private one: nothing is drawn from it before
  dataset.state.clear();
  dataset.seed = std::to_string(seed);
  dataset.epochs = 1;
  return dataset;
}

bool is_of_epoch_seed(const PlanSpec& plan) {
  return plan.sampler == "torch.random" && plan.generator == "sampler" && plan.epochs == 1;
}

std::string describe(const GeneratorMatch& match) {
  std::string text = fmt::format("torch.manual_seed({})", match.value);
  if (match.output > kBefore) text += fmt::format(" after {} draws", match.output - kBefore);
  if (match.stride > kUsualStride) text += fmt::format(", and {} in each epoch", match.stride - kUsualStride);
  return text;
}

std::string describe_shuffle(const PlanSpec& plan) {
  if (is_of_epoch_seed(plan)) return fmt::format("a shuffle with seed {}, of this epoch only", plan.seed);
  const auto value = parse_whole<uint64_t>(plan.seed);
  if (plan.sampler != "torch.random" || plan.generator != "default" || !value) return "";
  const uint64_t stride = (plan.persistent_workers ? kPersistentStride : kUsualStride) + plan.other_draws;
  return describe({*value, plan.draws + kBefore, static_cast<uint32_t>(stride)});
}

}  // namespace clairfs
