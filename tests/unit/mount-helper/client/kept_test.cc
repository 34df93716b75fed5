#include "mount-helper/client/kept.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

KeptBytes half_of_ten_mebibytes() {
  KeptBytes kept;
  kept.bytes = uint64_t{10} << 20;
  kept.ram = uint64_t{5} << 20;
  kept.ram_capacity = uint64_t{5} << 20;
  return kept;
}

}  // namespace

TEST_CASE("who kept a part is told which tiers would keep all of it") {
  KeptBytes kept = half_of_ten_mebibytes();
  CHECK(tier_advice(kept) ==
        "the tiers are too small to keep all of it: mount with --ram 11M or with --nvme DIR");
  kept.nvme_capacity = uint64_t{1} << 20;
  CHECK(tier_advice(kept) ==
        "the tiers are too small to keep all of it: mount with --ram 11M, or --nvme DIR:7M");
  kept.nvme = uint64_t{5} << 20;
  CHECK(tier_advice(kept).empty());
}

TEST_CASE("in a job it is told what all nodes together cannot keep") {
  KeptBytes kept = half_of_ten_mebibytes();
  kept.homes = {{"0", uint64_t{5} << 20}, {"1", uint64_t{5} << 20}};
  CHECK(tier_advice(kept).empty());
  kept.homes["1"] = uint64_t{3} << 20;
  kept.homeless = uint64_t{2} << 20;
  CHECK(tier_advice(kept) ==
        "the tiers of all nodes are too small by 2.0 MiB: mount with a larger --ram or --nvme");
}
