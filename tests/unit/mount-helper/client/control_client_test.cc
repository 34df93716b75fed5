#include "mount-helper/client/control_client.h"

#include <cerrno>

#include "plan/spec/plan_spec.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

Result<std::string> to_register(const std::string& text, const std::string& folder) {
  return plan_to_register(text, {"/mnt/data", folder, "socket", "/pfs/data"}, "/home/me");
}

PlanSpec registered(const std::string& text, const std::string& folder) {
  const auto told = to_register(text, folder);
  REQUIRE(told);
  const auto spec = parse_plan(*told);
  REQUIRE(spec);
  return *spec;
}

PlanSpec of_words(const std::vector<std::string>& words) {
  const auto spec = parse_plan(plan_text_of(words));
  REQUIRE(spec);
  return *spec;
}

}  // namespace

TEST_CASE("several words are pairs whose values are literal, one word is a text") {
  const PlanSpec plain = of_words({"seed=42", "root=my \"own\" \\ 'dir'", "batch=4"});
  CHECK(plain.root == "my \"own\" \\ 'dir'");
  CHECK(plain.seed == "42");
  CHECK(plain.batch == 4);
  CHECK(of_words({"seed=42 batch=4"}) == of_words({"seed=42", "batch=4"}));
  CHECK(of_words({R"({"seed": 42, "batch": 4})"}) == of_words({"seed=42", "batch=4"}));
  CHECK(!parse_plan(plan_text_of({"seed=42", "batch"})));
  CHECK(!parse_plan(plan_text_of({"seed=42", ""})));
  CHECK(!parse_plan(plan_text_of({"seed=42 batch=4", "epochs=1"})));
}

TEST_CASE("files are made absolute, values in place are not") {
  CHECK(registered("sampler=list list=order.txt", "").list == "/home/me/order.txt");
  CHECK(registered("sampler=list=../order.txt", "").list == "/home/order.txt");
  CHECK(registered("sampler=list list=/order.txt", "").list == "/order.txt");
  CHECK(registered("sampler=list list=[3,1,2]", "").list == "[3,1,2]");
  CHECK(registered("sampler=torch.weighted seed=1 weights=w", "").weights == "/home/me/w");
  CHECK(registered("sampler=torch.subset seed=1 indices=sub/i", "").indices == "/home/me/sub/i");
}

TEST_CASE("the root is the folder that was named, or what the plan says at the mountpoint") {
  CHECK(registered("seed=1", "").root.empty());
  CHECK(registered("seed=1", "train").root == "train");
  CHECK(registered("seed=1 root=./val/", "").root == "val");
  CHECK(registered("seed=1 root=.", "").root.empty());
  CHECK(registered("seed=1 root=/mnt/data/val/", "").root == "val");
  CHECK(registered("seed=1 root=/mnt/data", "").root.empty());
  CHECK(registered("seed=1 root=/mnt/database", "").root == "/mnt/database");
}

TEST_CASE("a folder and a root that differ are two roots, one of which would be forgotten") {
  for (const std::string root :
       {"val", ".", "/mnt/data", "/mnt/data/val", "/mnt/data/train/a", "/pfs/data"}) {
    CAPTURE(root);
    const auto told = to_register("seed=1 root=" + root, "train");
    REQUIRE(!told);
    CHECK(told.error().code == EINVAL);
    CHECK_THAT(told.error().message, StartsWith("two roots: train and " + root + ";"));
  }
  for (const std::string root : {"train", "./train/", "/mnt/data/train", "/pfs/data/train"}) {
    CAPTURE(root);
    CHECK(registered("seed=1 root=" + root, "train").root == "train");
  }
}

TEST_CASE("a text that is too long is not sent") {
  const auto told = to_register("seed=1 root=" + std::string(kMaxPlanText, 'x'), "");
  REQUIRE(!told);
  CHECK(told.error().code == EINVAL);
  CHECK_THAT(told.error().message, Contains("put long lists into a file"));

  std::string list = "sampler=list list=[0";
  while (list.size() + 3 <= kMaxPlanText) list += ",0";
  list += "]";
  REQUIRE(parse_plan(list));
  const auto longer = to_register(list, "train");  // by its root
  REQUIRE(!longer);
  CHECK(longer.error().code == EINVAL);
  CHECK_THAT(longer.error().message, Contains("put long lists into a file"));
}

TEST_CASE("what is no plan is left to the daemon to refuse") {
  const ControlledMount mount{"/mnt/data", "train", "socket"};
  for (const std::string text : {"", "sede=1", "seed", "{", "seed=1 root='"}) {
    CHECK(plan_to_register(text, mount, "/").value() == text);
  }
}

TEST_CASE("a path on no clairfs mount is told so") {
  const auto mount = find_controlled_mount("/proc");
  REQUIRE(!mount);
  CHECK(mount.error().message.find("is not on a clairfs mount") != std::string::npos);
}

TEST_CASE("a daemon that is gone is told with the other door") {
  const auto answer = ask_mount({"/mnt/data", "", "clairfs.no-such-socket"}, "show", 1);
  REQUIRE(!answer);
  CHECK(answer.error().message.find("/mnt/data/.clairfs/plan") != std::string::npos);
}
