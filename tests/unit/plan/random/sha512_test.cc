#include "plan/random/sha512.h"

#include <string>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::string hex(std::string_view message) {
  std::string text;
  for (const uint8_t byte : sha512(message)) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("the examples of FIPS 180 and the lengths around a block") {
  CHECK(hex("") ==
        "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce"
        "47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e");
  CHECK(hex("abc") ==
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
        "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
  CHECK(hex(std::string(111, 'a')) ==
        "fa9121c7b32b9e01733d034cfc78cbf67f926c7ed83e82200ef8681819692176"
        "0b4beff48404df811b953828274461673c68d04e297b0eb7b2b4d60fc6b566a2");
  CHECK(hex(std::string(112, 'a')) ==
        "c01d080efd492776a1c43bd23dd99d0a2e626d481e16782e75d54c2503b5dc32"
        "bd05f0f1ba33e568b88fd2d970929b719ecbb152f58f130a407c8830604b70ca");
  CHECK(hex(std::string(127, 'a')) ==
        "828613968b501dc00a97e08c73b118aa8876c26b8aac93df128502ab360f91ba"
        "b50a51e088769a5c1eff4782ace147dce3642554199876374291f5d921629502");
  CHECK(hex(std::string(128, 'a')) ==
        "b73d1929aa615934e61a871596b3f3b33359f42b8175602e89f7e06e5f658a24"
        "3667807ed300314b95cacdd579f3e33abdfbe351909519a846d465c59582f321");
  CHECK(hex(std::string(1000, 'a')) ==
        "67ba5535a46e3f86dbfbed8cbbaf0125c76ed549ff8b0b9e03e0c88cf90fa634"
        "fa7b12b47d77b694de488ace8d9a65967dc96df599727d3292a8d9d447709c97");
}
