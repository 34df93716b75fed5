#include "plan/inference/search/candidates.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cache/base/text.h"
#include "plan/inference/seeds/usual_seeds.h"

namespace clairfs {
namespace {

// In which somebody was born who gives a seed, or a project began.
constexpr uint64_t kFirstYear = 1950;
constexpr uint64_t kLastYear = 2049;

PlanSpec order(const char* sampler, uint64_t seed) {
  PlanSpec plan;
  plan.sampler = sampler;
  plan.seed = std::to_string(seed);
  return plan;
}

PlanSpec torch_random(uint64_t seed, const char* generator) {
  PlanSpec plan = order("torch.random", seed);
  plan.generator = generator;
  return plan;
}

// The numbers of "[3,1,2]".
std::vector<int64_t> numbers_in(std::string_view list) {
  std::vector<int64_t> numbers;
  const char* const end = list.data() + list.size();
  for (const char* at = list.data(); at != end;) {
    int64_t number = 0;
    const std::from_chars_result read = std::from_chars(at, end, number);
    const bool is_number = read.ec == std::errc();
    if (is_number) numbers.push_back(number);
    at = is_number ? read.ptr : at + 1;
  }
  return numbers;
}

template <class Key, class Value>
PlanSpec with(PlanSpec plan, Key key, Value value) {
  plan.*key = value;
  return plan;
}

}  // namespace

Candidates::Candidates(const ReaderFacts& facts) : facts_(facts) {
  PlanSpec plan;
  plan.sampler = "torch.distributed";
  plan.shuffle = false;
  unseeded_.push_back(plan);
  plan = PlanSpec();
  plan.sampler = "dali";
  plan.random_shuffle = true;
  unseeded_.push_back(plan);
  plan.random_shuffle = false;
  plan.shuffle_after_epoch = true;
  unseeded_.push_back(plan);
}

std::vector<uint64_t> Candidates::seeds(uint64_t all) const {
  std::vector<uint64_t> seeds = facts_.seeds;
  const auto add = [&](uint64_t seed) {
    if (std::find(seeds.begin(), seeds.end(), seed) == seeds.end()) seeds.push_back(seed);
  };
  for (const uint64_t seed : usual_seeds()) add(seed);
  for (uint64_t seed = 0; seed < all; ++seed) add(seed);
  for (uint64_t year = kFirstYear; all > 0 && year <= kLastYear; ++year) add(year);
  return seeds;
}

std::vector<PlanSpec> Candidates::of_seed(uint64_t seed) const {
  std::vector<PlanSpec> plans{order("torch.distributed", seed), torch_random(seed, "loader"),
                              torch_random(seed, "default"),    order("numpy.default_rng", seed),
                              order("numpy.legacy", seed),      order("python.random", seed)};
  plans.push_back(with(order("python.random", seed), &PlanSpec::method, std::string("sample")));
  plans.push_back(order("nopfs", seed));
  // Each library has a range of its own.
  std::erase_if(plans, [](const PlanSpec& plan) { return !validate_plan(plan); });
  return plans;
}

bool is_sequential_order(const PlanSpec& plan) {
  return plan.sampler == "torch.sequential" || (plan.sampler == "torch.distributed" && !plan.shuffle);
}

// Of a random list one step in eight leads as near.
bool goes_by_number(const PlanSpec& plan) {
  constexpr int64_t kNear = 16;  // steps to go from one end of the numbers to the other
  if (is_sequential_order(plan)) return true;
  if (!plan.list.starts_with('[')) return false;
  const std::vector<int64_t> numbers = numbers_in(plan.list);
  if (numbers.empty()) return false;
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  const int64_t reach = (*most - *least) / kNear;
  size_t near = 0;
  for (size_t i = 1; i < numbers.size(); ++i) near += std::abs(numbers[i] - numbers[i - 1]) <= reach ? 1 : 0;
  return 2 * near > numbers.size();
}

std::vector<PlanSpec> continuations(const PlanSpec& plan) {
  std::vector<PlanSpec> plans{plan};
  const std::string again = "epoch";
  if (plan.sampler == "torch.distributed" && plan.shuffle) {
    PlanSpec never = with(plan, &PlanSpec::set_epoch, std::string("never"));
    // Whose seed is that of the epoch which it reads again and again.
    if (const auto seed = parse_whole<uint64_t>(plan.seed))
      never.seed = std::to_string(*seed + plan.first_epoch);
    plans.push_back(never);
    if (plan.world <= 1 && plan.first_epoch == 0) {
      PlanSpec random = with(plan, &PlanSpec::generator, std::string("sampler"));
      random.sampler = "torch.random";
      plans.push_back(random);
    }
  }
  if (plan.sampler == "torch.random") plans.push_back(with(plan, &PlanSpec::persistent_workers, true));
  if (plan.sampler.starts_with("numpy.") || (plan.sampler == "python.random" && plan.method.empty())) {
    plans.push_back(with(plan, &PlanSpec::reseed, again));
    plans.push_back(with(plan, &PlanSpec::method, std::string("shuffle")));
  } else if (plan.sampler == "python.random") {
    plans.push_back(with(plan, &PlanSpec::reseed, again));
  }
  return plans;
}

}  // namespace clairfs
