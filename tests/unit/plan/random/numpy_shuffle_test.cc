#include "plan/random/numpy_shuffle.h"

#include <algorithm>
#include <numeric>

#include "plan/random/mt19937.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

TEST_CASE("np.random.seed, shuffle of a list, then permutation of an array") {
  size_t checked = 0;
  for (const auto& test : golden::cases("numpy_randomstate")) {
    if (test.at("params").at("kind") == "permutation") continue;
    Mt19937 generator(static_cast<uint32_t>(golden::integer(test.at("params").at("seed"))));
    std::vector<uint32_t> list(30);
    std::iota(list.begin(), list.end(), 0);
    numpy_shuffle(generator, list);
    CHECK(golden::same_sequence(test.at("result").at("list"), list));
    std::vector<uint32_t> array(30);
    std::iota(array.begin(), array.end(), 100);
    numpy_shuffle(generator, array);
    CHECK(golden::same_sequence(test.at("result").at("perm_of_array"), array));
    ++checked;
  }
  CHECK(checked == 1);
}

TEST_CASE("nothing and one element take no draw") {
  Mt19937 used(1);
  Mt19937 fresh(1);
  std::vector<uint32_t> none;
  std::vector<uint32_t> one = {5};
  numpy_shuffle(used, none);
  numpy_shuffle(used, one);
  CHECK(one == std::vector<uint32_t>{5});
  CHECK(used.next32() == fresh.next32());
}
