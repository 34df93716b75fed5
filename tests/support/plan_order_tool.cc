// plan_order_tool PLAN EPOCH RANK: the paths of a rank's samples, each ended by a NUL; errors to stderr,
// status 1.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <spdlog/sinks/stdout_sinks.h>

#include "plan/offline/order.h"

using namespace clairfs;

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s PLAN EPOCH RANK\n", argv[0]);
    return 2;
  }
  const auto number = [&](int i) { return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10)); };
  Logger log("plan_order_tool", std::make_shared<spdlog::sinks::stderr_sink_st>());
  const Status status = plan_order({argv[1], Epoch(number(2)), TrainingRank(number(3)), true}, log,
                                   [](uint32_t, std::string_view path) {
                                     return std::fwrite(path.data(), 1, path.size(), stdout) == path.size() &&
                                            std::fputc('\0', stdout) != EOF;
                                   });
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
