#include "plan/random/philox.h"

#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

TEST_CASE("Philox gives the words of TensorFlow's") {
  size_t checked = 0;
  for (const auto& test : golden::cases("tf_philox")) {
    INFO(test.at("id"));
    const golden::Json& params = test.at("params");
    Philox random(static_cast<uint64_t>(golden::integer(params.at("seed"))),
                  static_cast<uint64_t>(golden::integer(params.at("seed2"))));
    const golden::Json& expected = test.at("result").at("uint32");
    std::vector<uint32_t> words;
    while (words.size() < expected.at("count").get<size_t>()) words.push_back(random.next32());
    CHECK(golden::same_sequence(expected, words));
    for (const uint64_t draw : {0U, 1U, 7U, 32U}) {
      random.seek(draw);
      CHECK(random.next32() == words[draw]);
      CHECK(random.next32() == words[draw + 1]);
    }
    ++checked;
  }
  CHECK(checked == 6);
}
