#include "net/meeting/keyed_hash.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("the keyed hash is HMAC-SHA-512") {  // RFC 4231, test cases 1 and 6
  CHECK(keyed_hash(std::string(20, '\x0b'), "Hi There") ==
        "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"
        "daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854");
  CHECK(keyed_hash(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352"
        "6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598");
}

TEST_CASE("random words differ, and are compared whole") {
  const auto one = random_word();
  const auto other = random_word();
  REQUIRE(one);
  REQUIRE(other);
  CHECK(one->size() == 32);
  CHECK(*one != *other);
  CHECK(same_word(*one, std::string(*one)));
  CHECK_FALSE(same_word(*one, *other));
  CHECK_FALSE(same_word(*one, one->substr(1)));
  CHECK_FALSE(same_word(*one, ""));
}
