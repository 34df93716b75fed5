// Prints what a sampler predicts: one sample index per line, a blank line after each epoch.
//
//   sampler_tool sampler=torch.distributed seed=42 n=1000 world=8 [epochs=3] [epoch=0] [rank=0]
//                [list=FILE] [weights=FILE]
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "plan/samplers/sampler.h"

namespace {

using namespace clairfs;

struct Request {
  SamplerSpec spec;
  uint32_t first_epoch = 0;
  uint32_t epochs = 1;
  TrainingRank rank;
};

template <class T>
T value_or_exit(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

uint32_t number(const std::map<std::string, std::string>& own, const std::string& key, uint32_t otherwise) {
  const auto found = own.find(key);
  return found == own.end() ? otherwise
                            : static_cast<uint32_t>(std::strtoul(found->second.c_str(), nullptr, 10));
}

Request parse(int argc, char** argv) {
  Request request;
  std::map<std::string, std::string> own;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string_view::npos)
      value_or_exit<bool>(Error{EINVAL, "not key=value: " + std::string(argument)});
    const std::string_view key = argument.substr(0, equals);
    const std::string_view value = argument.substr(equals + 1);
    if (!value_or_exit(set_sampler_key(request.spec, key, value))) own[std::string(key)] = value;
  }
  request.first_epoch = number(own, "epoch", 0);
  request.epochs = number(own, "epochs", 1);
  request.rank = TrainingRank(number(own, "rank", 0));
  if (own.contains("list")) request.spec.lists = value_or_exit(read_index_list(own["list"], request.spec.n));
  if (own.contains("weights")) request.spec.weights = value_or_exit(read_weights(own["weights"], 1 << 24));
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  const Request request = parse(argc, argv);
  const std::unique_ptr<Sampler> sampler = value_or_exit(make_sampler(request.spec));
  for (uint32_t i = 0; i < request.epochs; ++i) {
    const RankOrder order = value_or_exit(sampler->rank_order(Epoch(request.first_epoch + i), request.rank));
    for (uint64_t k = 0; k < order.size(); ++k) std::printf("%u\n", order[k]);
    std::printf("\n");
  }
  return 0;
}
