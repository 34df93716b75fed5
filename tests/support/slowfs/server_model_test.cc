#include "tests/support/slowfs/server_model.h"

#include "tests/support/catch.h"

namespace clairfs::slowfs {
namespace {

using std::chrono::milliseconds;
const TimePoint start{std::chrono::hours(1)};

TEST_CASE("latency overlaps between requests") {
  ServerModel model(0, 0);
  for (int i = 0; i < 3; ++i) CHECK(model.admit(start, milliseconds(5), 1 << 20) == start + milliseconds(5));
}

TEST_CASE("bandwidth is shared, latency comes on top once") {
  ServerModel model(1000, 0);
  CHECK(model.admit(start, milliseconds(5), 100) == start + milliseconds(105));
  CHECK(model.admit(start, milliseconds(5), 100) == start + milliseconds(205));
  CHECK(model.admit(start, milliseconds(5), 0) == start + milliseconds(5));
}

TEST_CASE("nothing is transferred during a seek, with or without a bandwidth") {
  ServerModel model(1000, 0);
  CHECK(model.admit(start, milliseconds(5), 100, milliseconds(10)) == start + milliseconds(115));
  CHECK(model.admit(start, milliseconds(5), 100) == start + milliseconds(215));
  ServerModel unlimited(0, 0);
  CHECK(unlimited.admit(start, {}, 100, milliseconds(10)) == start + milliseconds(10));
  CHECK(unlimited.admit(start, {}, 100, milliseconds(10)) == start + milliseconds(20));
}

TEST_CASE("an idle wire saves nothing up") {
  ServerModel model(1000, 0);
  model.admit(start, {}, 100);
  CHECK(model.admit(start + milliseconds(900), {}, 100) == start + milliseconds(1000));
}

TEST_CASE("a changed bandwidth holds for later requests") {
  ServerModel model(1000, 0);
  model.admit(start, {}, 100);
  model.set_bandwidth(100);
  CHECK(model.admit(start, {}, 100) == start + milliseconds(1100));
}

TEST_CASE("a limited server answers in rounds") {
  ServerModel model(0, 2);
  CHECK(model.admit(start, milliseconds(5), 0) == start + milliseconds(5));
  CHECK(model.admit(start, milliseconds(5), 0) == start + milliseconds(5));
  CHECK(model.admit(start, milliseconds(5), 0) == start + milliseconds(10));
  CHECK(model.admit(start + milliseconds(7), milliseconds(5), 0) == start + milliseconds(12));
}

}  // namespace
}  // namespace clairfs::slowfs
