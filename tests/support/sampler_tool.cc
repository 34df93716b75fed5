// Prints what a sampler predicts: one sample index per line, a blank line after each epoch.
//
//   sampler_tool KEY=VALUE... [epoch=0] [epochs=1] [rank=0]      (the keys of a plan; its first epoch is
//   `epoch`)
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cache/base/text.h"
#include "plan/sequence/plan_sampler.h"
#include "plan/spec/keys.h"

namespace {

using namespace clairfs;

struct Request {
  PlanSpec plan;
  uint32_t epoch = 0;
  uint32_t epochs = 1;
  uint32_t rank = 0;
};

template <class T>
T value_or_exit(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

uint32_t number(std::string_view text) {
  const auto value = parse_whole<uint32_t>(text);
  return value ? *value : value_or_exit<uint32_t>(Error{EINVAL, "not a number: " + std::string(text)});
}

Request parse(int argc, char** argv) {
  Request request;
  PlanPairs pairs;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string_view::npos)
      value_or_exit<bool>(Error{EINVAL, "not key=value: " + std::string(argument)});
    const std::string_view key = argument.substr(0, equals);
    const std::string_view value = argument.substr(equals + 1);
    if (key == "epoch") {
      request.epoch = number(value);
    } else if (key == "epochs") {
      request.epochs = number(value);
    } else if (key == "rank") {
      request.rank = number(value);
    } else {
      pairs.emplace_back(key, value);
    }
  }
  request.plan = value_or_exit(resolve_plan(value_or_exit(make_plan(std::move(pairs))), 1));
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  const Request request = parse(argc, argv);
  const auto n = static_cast<uint32_t>(request.plan.n);
  const std::unique_ptr<Sampler> sampler =
      value_or_exit(make_plan_sampler(request.plan, n, DatasetSource{}, nullptr));
  for (uint32_t i = 0; i < request.epochs; ++i) {
    const RankOrder order =
        value_or_exit(sampler->rank_order(Epoch(request.epoch + i), TrainingRank(request.rank)));
    for (uint64_t k = 0; k < order.size(); ++k) std::printf("%u\n", order[k]);
    std::printf("\n");
  }
  return 0;
}
