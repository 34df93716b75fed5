#include "cache/base/printable.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("a name that would break a log line is escaped, others are left alone") {
  CHECK(printable("plain name.jpg") == "plain name.jpg");
  CHECK(printable("grün") == "grün");
  CHECK(printable("two\nlines") == "two\\nlines");
  CHECK(printable("\x1b[31m\x7f") == "\\x1b[31m\\x7f");
  CHECK(printable("a\\nb") == "a\\\\nb");
}
