#include "net/transport/descriptors.h"

#include <algorithm>
#include <string>

#include <sys/resource.h>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// Restores the limit of this process.
class KeptLimit {
 public:
  KeptLimit() { REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0); }
  KeptLimit(const KeptLimit&) = delete;
  KeptLimit& operator=(const KeptLimit&) = delete;
  ~KeptLimit() { ::setrlimit(RLIMIT_NOFILE, &before); }

  static rlim_t now() {
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    return limit.rlim_cur;
  }
  /// As a shell does it with ulimit -Sn.
  void lower() const {
    const rlimit low{256, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  }

  rlimit before{};
};

}  // namespace

TEST_CASE("the limit of descriptors is raised to what a job takes, as far as it may be") {
  const KeptLimit kept;
  kept.lower();
  const auto wanted = std::min<rlim_t>(kept.before.rlim_max, descriptors_of(10));
  CHECK(allow_descriptors(10) == wanted);
  CHECK(KeptLimit::now() == wanted);
  CHECK(allow_descriptors(2) == wanted);  // never lowered
  CHECK(KeptLimit::now() == wanted);
}

TEST_CASE("a limit that is too low for a job is told with what it takes") {
  CHECK(too_few_descriptors(descriptors_of(1000), 1000).empty());
  CHECK(too_few_descriptors(1024, 100).empty());
  const std::string told = too_few_descriptors(4096, 1000);
  CHECK(told.find("4096 descriptors") != std::string::npos);
  CHECK(told.find("job of 1000 may need 5064") != std::string::npos);
  CHECK(told.find("LimitNOFILE") != std::string::npos);
}
