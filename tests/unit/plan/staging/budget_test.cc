#include "plan/staging/budget.h"

#include "plan/staging/staging.h"
#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("readers that move share the budget equally") {
  CHECK(reader_budget({800, 0, 1, 0}, false) == 800);
  CHECK(reader_budget({800, 0, 4, 0}, false) == 200);
}

TEST_CASE("readers that are idle keep an eighth together while others move") {
  CHECK(reader_budget({800, 0, 2, 1}, true) == 100);
  CHECK(reader_budget({800, 0, 2, 1}, false) == 350);
  CHECK(reader_budget({800, 0, 2, 4}, true) == 25);
  CHECK(reader_budget({800, 0, 2, 4}, false) == 350);
  CHECK(reader_budget({800, 0, 0, 4}, true) == 200);
}

TEST_CASE("what others hold from better times they keep until it is read") {
  CHECK(reader_budget({800, 700, 2, 0}, false) == 100);
  CHECK(reader_budget({800, 300, 2, 0}, false) == 400);
  CHECK(reader_budget({800, 900, 2, 0}, false) == 0);
}

TEST_CASE("what is due to a reader is its share, also while others hold it") {
  CHECK(reader_share({800, 900, 2, 0}, false) == 400);
  CHECK(reader_share({800, 900, 1, 1}, false) == 700);
  CHECK(reader_share({800, 900, 1, 1}, true) == 100);
  CHECK(reader_share({800, 900, 0, 2}, true) == 400);
}

TEST_CASE("a plan that fits stays in a node's page cache, of another what was kept and pushed ahead") {
  CHECK(kept_between_epochs({10, 100}, 100) == 100);
  CHECK(kept_between_epochs({10, 100}, 101) == 101);
  CHECK(kept_between_epochs({10, 100}, 111) == 110);
  CHECK(kept_between_epochs({100, 0}, 70) == 70);
  CHECK(kept_between_epochs({0, 0}, 5) == 0);
}
