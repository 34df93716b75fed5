#include "cache/base/escaped.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("a name that would break a log line is escaped, others are left alone") {
  CHECK(escaped("plain name.jpg") == "plain name.jpg");
  CHECK(escaped("grün") == "grün");
  CHECK(escaped("two\nlines") == "two\\nlines");
  CHECK(escaped("\x1b[31m\x7f") == "\\x1b[31m\\x7f");
  CHECK(escaped("a\\nb") == "a\\\\nb");
}
