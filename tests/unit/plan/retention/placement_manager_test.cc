#include "plan/retention/placement_manager.h"

#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/made_up_catalog.h"

using namespace clairfs;

// Sanitizers have their own memory in the address space, and end a process that gets none.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

constexpr uint32_t kJobNodes = 1024;
constexpr uint32_t kPage = 4096;
constexpr uint32_t kChunksPerFile = 160;

/// While it lives this process may have this much more memory than it has.
class FewMoreBytes {
 public:
  explicit FewMoreBytes(uint64_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_AS, &before_) == 0);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit low{pages * static_cast<uint64_t>(::getpagesize()) + bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_AS, &low) == 0);
  }
  ~FewMoreBytes() { ::setrlimit(RLIMIT_AS, &before_); }
  FewMoreBytes(const FewMoreBytes&) = delete;
  FewMoreBytes& operator=(const FewMoreBytes&) = delete;

 private:
  rlimit before_{};
};

/// A file for each node, of chunks of a page, and room for 16 of them on each. A placement's table has 40 MiB
/// for the tiers alone: above what malloc() would keep for later (32 MiB), so it comes from the kernel.
struct LargeJob {
  LargeJob()
      : catalog(made_up_catalog(std::vector<uint64_t>(kJobNodes, kChunksPerFile * kPage), kPage)),
        manager(
            *catalog,
            [] {
              return std::vector<NodeCapacity>(kJobNodes, {16 * kPage, 0});
            },
            PlacementRule::clairfs,
            [this](const std::shared_ptr<const PlacementMap>& now) {
              placement = now;
              ++told;
            },
            log.logger()) {
    DatasetSource source;
    source.catalog = catalog;
    plans.push_back(
        *PlanRun::make(*parse_plan("seed=1 format=files epochs=1"), source, {NodeId(0), kJobNodes}));
  }
  bool keeps_anything(NodeId node) const { return placement->kept_bytes(node) > 0; }

  const std::shared_ptr<const Catalog> catalog;
  CapturedLog log;
  std::shared_ptr<const PlacementMap> placement;
  int told = 0;
  PlacementManager manager;
  PlacementManager::Plans plans;
};

constexpr uint64_t kTooLittle = 28U << 20;  // for a table; enough for all else

}  // namespace

TEST_CASE("a node without memory for a placement goes on without one and says what lacked") {
  LargeJob job;
  job.manager.set_plans(job.plans);
  REQUIRE(job.placement);
  {
    const FewMoreBytes limit(kTooLittle);
    job.manager.set_plans(job.plans);
  }
  CHECK(job.told == 2);
  CHECK(!job.placement);
  CHECK(job.manager.homeless_bytes() == 0);
  CHECK(job.log.lines_with("warning: placement: not enough memory for 163840 chunks on 1024 nodes") == 1);
  job.manager.set_plans(job.plans);
  CHECK(job.placement);
}

TEST_CASE("without memory for new homes the chunks of dead nodes stay theirs until there is some") {
  LargeJob job;
  job.manager.set_plans(job.plans);
  std::vector<bool> dead(kJobNodes);
  dead[1] = true;
  job.manager.set_dead(dead);
  {
    const FewMoreBytes limit(kTooLittle);
    job.manager.begin_epoch();
  }
  CHECK(job.told == 1);
  CHECK(job.keeps_anything(NodeId(1)));
  CHECK(job.log.lines_with("warning: placement: not enough memory to give the chunks of dead nodes") == 1);
  job.manager.begin_epoch();
  CHECK(job.told == 2);
  CHECK(!job.keeps_anything(NodeId(1)));
}

TEST_CASE("new plans are placed as if all nodes lived where memory lacks for more") {
  LargeJob job;
  std::vector<bool> dead(kJobNodes);
  dead[1] = true;
  job.manager.set_dead(dead);
  {
    const FewMoreBytes limit(kTooLittle + (44U << 20));  // and one table
    job.manager.set_plans(job.plans);
  }
  CHECK(job.told == 1);
  REQUIRE(job.placement);
  CHECK(job.keeps_anything(NodeId(1)));
  job.manager.begin_epoch();
  CHECK(!job.keeps_anything(NodeId(1)));
}

#endif
