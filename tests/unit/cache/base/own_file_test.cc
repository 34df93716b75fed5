#include "cache/base/own_file.h"

#include <cerrno>

#include <sys/stat.h>

#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

TEST_CASE("directories that are missing are made for their owner alone") {
  const TempTree tree;
  REQUIRE(make_directories(tree.at("a/b/c")).ok());
  for (const char* made : {"a", "a/b", "a/b/c"}) {
    INFO(made);
    struct stat attributes = {};
    REQUIRE(::stat(tree.at(made).c_str(), &attributes) == 0);
    CHECK((attributes.st_mode & 07777) == 0700);
  }
  CHECK(make_directories(tree.at("a/b")).ok());
  CHECK(make_directories("").ok());
}

TEST_CASE("a file in a directory's way is an error that names the directory") {
  const TempTree tree;
  tree.write("file", 1);
  const Status status = make_directories(tree.at("file/below"));
  REQUIRE(!status.ok());
  CHECK(status.error().code == ENOTDIR);
  CHECK_THAT(status.error().message, Contains("file/below"));
}
