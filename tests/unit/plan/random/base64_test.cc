#include "plan/random/base64.h"

#include <cerrno>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("the examples of RFC 4648") {
  CHECK(decode_base64("").value().empty());
  CHECK(decode_base64("Zg==").value() == "f");
  CHECK(decode_base64("Zm8=").value() == "fo");
  CHECK(decode_base64("Zm9vYmFy").value() == "foobar");
  CHECK(decode_base64("Zm9vYg").value() == "foob");
  CHECK(decode_base64("+/8=").value() == "\xfb\xff");
}

TEST_CASE("other text is refused") {
  for (const char* text : {"Zm9v!", "Zm9vY", "Zg===", "Z=g=", "Zm 9v", "Zm9v\n"}) {
    const auto decoded = decode_base64(text);
    INFO(text);
    REQUIRE(!decoded);
    CHECK(decoded.error().code == EINVAL);
  }
}
