#include "plan/offline/order.h"

#include <cerrno>
#include <utility>
#include <vector>

#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

using Rows = std::vector<std::pair<uint32_t, std::string>>;

Result<Rows> order(const std::string& plan, uint32_t epoch, uint32_t rank, bool paths = false) {
  CapturedLog log;
  Rows rows;
  const Status status = plan_order({plan, Epoch(epoch), TrainingRank(rank),
                                    paths ? PlanOrderRequest::Detail::path : PlanOrderRequest::Detail::none},
                                   log.logger(), [&](uint32_t sample, std::string_view path) {
                                     rows.emplace_back(sample, path);
                                     return rows.size() < 1000;
                                   });
  if (!status) return status.error();
  return rows;
}

}  // namespace

TEST_CASE("the order of a rank without a dataset") {
  // list(DistributedSampler(range(10), 2, 1, seed=42)) after set_epoch(3)
  const auto rows = order("sampler=torch.distributed seed=42 world=2 n=10", 3, 1);
  REQUIRE(rows);
  CHECK(rows->size() == 5);
  CHECK(order("shuffle=false world=2 n=5", 0, 1).value() == Rows{{1, ""}, {3, ""}, {0, ""}});
  CHECK(order("seed=1 n=1000000", 0, 0)->size() == 1000);  // the sink had enough
}

TEST_CASE("the order of a rank over a directory") {
  const TempTree tree;
  for (const char* path : {"x/1.jpg", "y/2.jpg", "y/3.jpg", "top.txt"}) tree.write(path, 1);
  CHECK(order("shuffle=false root=" + tree.path(), 0, 0, true).value() ==
        Rows{{0, "x/1.jpg"}, {1, "y/2.jpg"}, {2, "y/3.jpg"}});
  CHECK(order("shuffle=false format=files world=2 root=" + tree.path(), 0, 1, true).value() ==
        Rows{{1, "x/1.jpg"}, {3, "y/3.jpg"}});
}

TEST_CASE("what cannot be ordered is said") {
  const auto code = [](const std::string& plan, uint32_t epoch = 0, uint32_t rank = 0, bool paths = false) {
    const auto rows = order(plan, epoch, rank, paths);
    return rows ? 0 : rows.error().code;
  };
  CHECK(code("seed=1") == EINVAL);
  CHECK(code("seed=1 n=10", 0, 0, true) == EINVAL);
  CHECK(code("n=10") == EINVAL);
  CHECK(code("seed=1 n=10 world=2", 0, 2) == EINVAL);
  CHECK(code("seed=1 n=10 epochs=2", 2) == ERANGE);
  CHECK(code("seed=1 root=/nonexistent-clairfs") == ENOENT);
}
