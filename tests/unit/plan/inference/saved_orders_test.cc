#include "plan/inference/saved_orders.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

#include "plan/inference/seeds/default_generator.h"
#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

struct OrdersFixture {
  std::vector<PlanSpec> load() const {
    auto orders = SavedOrders(file, "/pfs/data").load();
    REQUIRE(orders);
    return *orders;
  }
  std::string bytes() const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }
  int refusal() const {
    const auto orders = SavedOrders(file, "/pfs/data").load();
    return orders ? 0 : orders.error().code;
  }

  TempTree tree;
  std::string file = saved_orders_path(tree.path(), "/pfs/data");
};

PlanSpec order(const std::string& text) {
  auto parsed = parse_plan("name=auto format=files " + text);
  REQUIRE(parsed);
  return *parsed;
}

PlanSpec of_epoch(uint32_t seed) {
  return plan_of_epoch_seed(seed, order("seed=0"));
}

}  // namespace

TEST_CASE("orders are saved as they were found, the likeliest last") {
  const OrdersFixture saved;
  CHECK(saved.load().empty());
  SavedOrders orders(saved.file, "/pfs/data");
  const PlanSpec first = order("root='a\nb' sampler=torch.random generator=default seed=0 draws=1240");
  const PlanSpec second = order("sampler=list list=[2,0,1]");
  for (const PlanSpec& one : {first, of_epoch(7), second}) REQUIRE(orders.add(one));
  CHECK(saved.load() == std::vector{of_epoch(7), first, second});
  struct stat attributes = {};
  REQUIRE(::stat(saved.file.c_str(), &attributes) == 0);
  CHECK((attributes.st_mode & 0777) == 0600);
  CHECK(saved_orders_path(saved.tree.path(), "/pfs/other") != saved.file);
  // What is found again comes first, in the epoch where it was.
  PlanSpec later = first;
  later.first_epoch = 4;
  SavedOrders again(saved.file, "/pfs/data");
  REQUIRE(again.load());
  REQUIRE(again.add(later));
  CHECK(saved.load() == std::vector{of_epoch(7), second, later});
}

TEST_CASE("few orders are kept: the newest ones, and the first epochs of the last mount") {
  const OrdersFixture saved;
  for (const uint32_t mount : {1, 2}) {
    SavedOrders orders(saved.file, "/pfs/data");
    REQUIRE(orders.load());
    for (uint32_t i = 0; i < 12; ++i) {
      REQUIRE(orders.add(order("seed=" + std::to_string(100 * mount + i))));
      REQUIRE(orders.add(of_epoch(100 * mount + i)));
    }
  }
  const auto kept = saved.load();
  CHECK(kept.size() == 2 * SavedOrders::kMostOfAKind);
  CHECK(kept.back() == order("seed=211"));
  CHECK(std::find(kept.begin(), kept.end(), order("seed=203")) == kept.end());
  CHECK(std::find(kept.begin(), kept.end(), of_epoch(200)) != kept.end());
  CHECK(std::find(kept.begin(), kept.end(), of_epoch(207)) != kept.end());
  CHECK(std::find(kept.begin(), kept.end(), of_epoch(208)) == kept.end());
  // The next mount's push out the last ones.
  SavedOrders orders(saved.file, "/pfs/data");
  REQUIRE(orders.load());
  REQUIRE(orders.add(of_epoch(300)));
  const auto then = saved.load();
  CHECK(std::find(then.begin(), then.end(), of_epoch(300)) != then.end());
  CHECK(std::find(then.begin(), then.end(), of_epoch(206)) != then.end());
  CHECK(std::find(then.begin(), then.end(), of_epoch(207)) == then.end());
}

TEST_CASE("a job's first epochs are kept, however often it is started") {
  const OrdersFixture saved;
  for (int mount = 0; mount < 3; ++mount) {
    SavedOrders orders(saved.file, "/pfs/data");
    REQUIRE(orders.load());
    for (uint32_t epoch = 0; epoch < 10; ++epoch) REQUIRE(orders.add(of_epoch(epoch)));
    const auto kept = saved.load();
    REQUIRE(kept.size() == SavedOrders::kMostOfAKind);
    for (uint32_t epoch = 0; epoch < kept.size(); ++epoch)
      CHECK(kept[kept.size() - 1 - epoch] == of_epoch(epoch));
  }
}

TEST_CASE("two mounts of a dataset keep each other's orders") {
  const OrdersFixture saved;
  SavedOrders one(saved.file, "/pfs/data");
  SavedOrders other(saved.file, "/pfs/data");
  REQUIRE(one.add(order("seed=1")));
  REQUIRE(other.add(order("seed=2")));
  REQUIRE(one.add(of_epoch(3)));
  CHECK(saved.load() == std::vector{of_epoch(3), order("seed=2"), order("seed=1")});
}

TEST_CASE("an order that could not be saved is saved with the next") {
  const OrdersFixture saved;
  SavedOrders orders(saved.file, "/pfs/data");
  std::ofstream(saved.tree.at("found")) << "no folder";
  CHECK(!orders.add(order("seed=1")));
  std::filesystem::remove(saved.tree.at("found"));
  CHECK(orders.add(order("seed=1")));
  CHECK(saved.load() == std::vector{order("seed=1")});
}

TEST_CASE("such a file names its source") {
  const OrdersFixture saved;
  SavedOrders orders(saved.file, "/pfs/data");
  REQUIRE(orders.add(order("seed=1")));
  CHECK(source_of_saved_orders(saved.bytes()) == "/pfs/data");
  CHECK(!source_of_saved_orders("clairfs orders 1 "));
  CHECK(!source_of_saved_orders(std::string(100, 'x')));
}

TEST_CASE("a list that lies in a file, or goes by number, is not kept, and without a place nothing is") {
  const OrdersFixture saved;
  SavedOrders orders(saved.file, "/pfs/data");
  CHECK(orders.add(order("sampler=list list=/var/cache/found/1@host.list")));
  CHECK(orders.add(order("sampler=list list=[1,0,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,18,17]")));
  SavedOrders nowhere("", "/pfs/data");
  CHECK(nowhere.add(order("seed=1")));
  CHECK(nowhere.load()->empty());
  CHECK(!std::filesystem::exists(saved.file));
}

TEST_CASE("a file that is damaged, or that others could have written, is refused") {
  const OrdersFixture saved;
  SavedOrders orders(saved.file, "/pfs/data");
  REQUIRE(orders.add(order("seed=1")));
  REQUIRE(orders.add(order("seed=2")));
  const std::string good = saved.bytes();
  for (size_t length = 0; length < good.size(); ++length) {
    saved.write(good.substr(0, length));
    CHECK(saved.refusal() == EBADMSG);
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    saved.write(bad);
    CHECK(saved.refusal() == EBADMSG);
  }
  saved.write(good + '\0');
  CHECK(saved.refusal() == EBADMSG);
  saved.write(std::string(2 << 20, 'x'));
  CHECK(saved.refusal() == EBADMSG);
  saved.write(good);
  CHECK(saved.refusal() == 0);
  REQUIRE(::chmod(saved.file.c_str(), 0666) == 0);
  CHECK(saved.refusal() == EPERM);
}
