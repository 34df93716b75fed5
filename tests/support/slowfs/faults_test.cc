#include "tests/support/slowfs/faults.h"

#include "tests/support/catch.h"

namespace clairfs::slowfs {
namespace {

TEST_CASE("eio hits so many reads of matching files") {
  Faults faults;
  faults.add_eio("a/*.png", 2);
  CHECK_FALSE(faults.judge(Op::read, "b/1.png").eio);
  CHECK_FALSE(faults.judge(Op::open, "a/1.png").eio);
  CHECK(faults.judge(Op::read, "a/1.png").eio);
  CHECK(faults.judge(Op::read, "a/deep/2.png").eio);
  CHECK_FALSE(faults.judge(Op::read, "a/1.png").eio);
}

TEST_CASE("eio-all hits every operation until cleared") {
  Faults faults;
  faults.add_eio_all(std::nullopt);
  CHECK(faults.judge(Op::lookup, "x").eio);
  CHECK(faults.judge(Op::readdir, "").eio);
  faults.clear();
  CHECK_FALSE(faults.judge(Op::lookup, "x").eio);
}

TEST_CASE("the longest hang counts") {
  Faults faults;
  faults.add_hang("*", std::chrono::seconds(1));
  faults.add_hang("slow/*", std::chrono::seconds(9));
  CHECK(faults.judge(Op::getattr, "slow/x").hang == std::chrono::seconds(9));
  CHECK(faults.judge(Op::read, "x").hang == std::chrono::seconds(1));
}

}  // namespace
}  // namespace clairfs::slowfs
