#include "plan/random/big_integer.h"

#include <cerrno>
#include <limits>
#include <string>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

BigInteger big(const std::string& text) {
  return BigInteger::parse(text).value();
}

using Words = std::vector<uint32_t>;

}  // namespace

TEST_CASE("integers of any size are taken apart into words") {
  CHECK(big("0").magnitude() == Words{0});
  CHECK(big("-0").negative() == false);
  CHECK(big("4294967296").magnitude() == Words{0, 1});
  CHECK(big("18446744073709551616").magnitude() == Words{0, 0, 1});
  CHECK(big("-18446744073709551617").magnitude() == Words{1, 0, 1});
  CHECK(big("-18446744073709551617").negative());
  CHECK(big("+7").magnitude() == Words{7});
  CHECK(big("00042").magnitude() == Words{42});
  CHECK(BigInteger(uint64_t{5} << 32).magnitude() == Words{0, 5});
}

TEST_CASE("epochs are added as Python adds them") {
  CHECK(big("4294967295").plus(1).magnitude() == Words{0, 1});
  CHECK(big("18446744073709551615").plus(1).magnitude() == Words{0, 0, 1});
  CHECK(big("79228162514264337593543950335").plus(1).magnitude() == Words{0, 0, 0, 1});
  CHECK(big("-1").plus(1).magnitude() == Words{0});
  CHECK_FALSE(big("-1").plus(1).negative());
  CHECK(big("-5").plus(2).as_int64() == -3);
  CHECK(big("-5").plus(7).as_int64() == 2);
  CHECK(big("-18446744073709551616").plus(1).magnitude() == Words{0xffffffff, 0xffffffff});
  CHECK(big("-18446744073709551616").plus(1).negative());
}

TEST_CASE("conversions refuse what does not fit") {
  CHECK(big("18446744073709551615").as_uint64() == std::numeric_limits<uint64_t>::max());
  CHECK_FALSE(big("18446744073709551616").as_uint64());
  CHECK_FALSE(big("-1").as_uint64());
  CHECK(big("9223372036854775807").as_int64() == std::numeric_limits<int64_t>::max());
  CHECK_FALSE(big("9223372036854775808").as_int64());
  CHECK(big("-9223372036854775808").as_int64() == std::numeric_limits<int64_t>::min());
  CHECK_FALSE(big("-9223372036854775809").as_int64());
}

TEST_CASE("what is not an integer is refused") {
  for (const std::string& text :
       {std::string(), std::string("-"), std::string("1.0"), std::string("0x10"), std::string(" 1"),
        std::string("1 "), std::string("--1"), std::string(1001, '1')}) {
    const auto parsed = BigInteger::parse(text);
    INFO(text);
    REQUIRE(!parsed);
    CHECK(parsed.error().code == EINVAL);
  }
}
