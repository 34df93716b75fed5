#include "fs/control/files.h"

#include <cerrno>

#include <unistd.h>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint64_t kMost = 64ULL << 20;

struct ControlFixture {
  ControlFixture() {
    files.add(
        {"status", 0444, [this] { return "state " + std::to_string(++made); }, {}, [] { return "less"; }});
    files.add(
        {"plan", 0600, [] { return "secret"; }, [](std::string_view, std::string_view) { return Status(); }});
    files.add({"large", 0444, [] { return std::string(kMost / 2 - 4096, 'x'); }});
  }
  std::string content(Inode inode) const { return *files.content(inode); }

  int made = 0;
  ControlFiles files{1234567};
};

}  // namespace

TEST_CASE("each lookup of a control file makes a text that stays as it is") {
  ControlFixture f;
  const auto first = f.files.lookup("status", true);
  const auto second = f.files.lookup("status", true);
  REQUIRE((first && second));
  CHECK(*first != *second);
  CHECK(f.content(*first) == "state 1");
  CHECK(f.content(*second) == "state 2");
  CHECK(f.content(*first) == "state 1");
  CHECK(f.files.attributes(*first)->st_size == 7);
  CHECK(f.files.file(*first)->name == "status");
  CHECK(f.files.lookup("statu", true).error().code == ENOENT);
  CHECK(f.files.lookup("", true).error().code == ENOENT);
}

TEST_CASE("who may not control the mount sees what is meant for others") {
  ControlFixture f;
  CHECK(f.content(*f.files.lookup("status", false)) == "less");
  CHECK(f.made == 0);
  CHECK(f.content(*f.files.lookup("plan", false)).empty());  // its mode refuses the reading
  CHECK(f.content(*f.files.lookup("plan", true)) == "secret");
}

TEST_CASE("control files look like files of the mount's user") {
  ControlFixture f;
  const auto folder = f.files.attributes(kControlInode);
  REQUIRE(folder);
  CHECK(folder->st_mode == (S_IFDIR | 0555));
  const Inode plan = *f.files.lookup("plan", true);
  const auto attributes = f.files.attributes(plan);
  REQUIRE(attributes);
  CHECK(attributes->st_ino == ControlFiles::number(1));
  CHECK(f.files.attributes(*f.files.lookup("plan", true))->st_ino == attributes->st_ino);
  CHECK(attributes->st_mode == (S_IFREG | 0600));
  CHECK(attributes->st_uid == ::geteuid());
  CHECK(attributes->st_mtim.tv_sec == 1234567);
  CHECK(!f.files.attributes(plan + 100));
  CHECK(f.files.content(kControlInode) == nullptr);
  CHECK(f.files.file(kControlInode) == nullptr);
}

TEST_CASE("a link is what it leads to") {
  ControlFixture f;
  const Inode link = *f.files.lookup_link("/proc/7/fd/3/plan");
  CHECK(f.content(link) == "/proc/7/fd/3/plan");
  CHECK(f.files.file(link) == nullptr);
  CHECK(f.files.attributes(link)->st_mode == (S_IFLNK | 0777));
  CHECK(f.files.attributes(link)->st_size == 17);
  CHECK(f.files.attributes(link)->st_ino == kControlInode + 1);
}

TEST_CASE("writes to one snapshot add up to one text, until one of them fails") {
  ControlFixture f;
  const Inode plan = *f.files.lookup("plan", true);
  CHECK(*f.files.append(plan, "seed=4", 0) == "seed=4");
  CHECK(*f.files.append(plan, "2\n", 6) == "seed=42\n");
  CHECK(f.files.append(plan, "x", 6).error().code == EINVAL);  // over what is there
  CHECK(f.files.append(plan, "x", 9).error().code == EINVAL);  // a hole
  CHECK(*f.files.append(plan, "seed=1", 0) == "seed=1");
  f.files.spoil(plan, {EPERM, "refused"});
  CHECK(f.files.append(plan, "2", 6).error().code == EPERM);
  CHECK(f.files.append(plan, "seed=2", 0).error().message == "refused");
  f.files.truncate(plan);
  CHECK(*f.files.append(plan, "seed=3", 0) == "seed=3");
  CHECK(*f.files.append(*f.files.lookup("plan", true), "seed=5", 0) == "seed=5");  // another one's
  CHECK(f.files.append(plan, std::string(1 << 20, 'x'), 6).error().code == EFBIG);
  CHECK(f.files.append(plan + 100, "x", 0).error().code == ENOENT);
}

TEST_CASE("a snapshot goes with its last lookup, and its number does not come again") {
  ControlFixture f;
  const Inode inode = *f.files.lookup("status", true);
  const auto text = f.files.content(inode);
  f.files.forget(inode, 0);
  CHECK(f.files.content(inode) != nullptr);
  f.files.forget(inode, 5);  // more than there were
  CHECK(f.files.content(inode) == nullptr);
  CHECK(!f.files.attributes(inode));
  CHECK(*text == "state 1");  // for the READ that is being answered
  f.files.forget(inode, 1);
  CHECK(*f.files.lookup("status", true) != inode);
}

TEST_CASE("open snapshots take no more memory than they may, of others no more than half") {
  ControlFixture f;
  const auto first = f.files.lookup("large", false);
  REQUIRE(first);
  CHECK(f.files.lookup("large", false).error().code == ENFILE);
  const auto second = f.files.lookup("large", true);
  REQUIRE(second);
  CHECK(f.files.lookup("large", true).error().code == ENFILE);
  CHECK(f.files.lookup("status", true));
  f.files.forget(*second, 1);
  CHECK(f.files.lookup("large", false).error().code == ENFILE);
  f.files.forget(*first, 1);
  CHECK(f.files.lookup("large", false));
}
