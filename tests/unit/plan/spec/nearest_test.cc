#include "plan/spec/nearest.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("typing errors are counted, letters that changed places as one") {
  CHECK(typing_errors("mount", "mount") == 0);
  CHECK(typing_errors("moutn", "mount") == 1);
  CHECK(typing_errors("mout", "mount") == 1);
  CHECK(typing_errors("mmount", "mount") == 1);
  CHECK(typing_errors("", "abc") == 3);
  CHECK(typing_errors("abc", "") == 3);
  CHECK(typing_errors("kitten", "sitting") == 3);
}

TEST_CASE("the nearest word is named, and none where all are far") {
  const std::vector<std::string> words = {"mount", "umount", "status", "ram"};
  CHECK(nearest_word("moutn", words) == "mount");
  CHECK(nearest_word("unmount", words) == "umount");
  CHECK(nearest_word("rma", words) == "ram");
  CHECK(nearest_word("statsu", words) == "status");
  CHECK(nearest_word("plan", words).empty());
  CHECK(nearest_word("", words).empty());
  CHECK(nearest_word(std::string(100'000, 'x'), words).empty());
  CHECK(did_you_mean("").empty());
  CHECK(did_you_mean("ram") == "; did you mean ram?");
}
