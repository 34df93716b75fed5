#include "mount-helper/inspect/joined_metrics.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("series of one name stand together, under one head") {
  const auto text_of = [](const std::string& mount) {
    return "# HELP a first\n# TYPE a counter\na{mount=\"" + mount +
           "\"} 1\n# HELP b second\n# TYPE b histogram\n" + "b_bucket{mount=\"" + mount +
           "\",le=\"1\"} 2\nb_count{mount=\"" + mount + "\"} 3\n";
  };
  CHECK(joined_metrics({{"/x", "/s", true, text_of("/x")},
                        {"/y \"", "/s", false, ""},
                        {"/z", "/s", true, text_of("/z")}}) ==
        "# HELP clairfs_up 1: the mount answers; 0: its daemon is gone or hangs\n# TYPE clairfs_up gauge\n"
        "clairfs_up{mount=\"/x\",dataset=\"/s\"} 1\n"
        "clairfs_up{mount=\"/y \\\"\",dataset=\"/s\"} 0\n"
        "clairfs_up{mount=\"/z\",dataset=\"/s\"} 1\n"
        "# HELP a first\n# TYPE a counter\na{mount=\"/x\"} 1\na{mount=\"/z\"} 1\n"
        "# HELP b second\n# TYPE b histogram\n"
        "b_bucket{mount=\"/x\",le=\"1\"} 2\nb_count{mount=\"/x\"} 3\n"
        "b_bucket{mount=\"/z\",le=\"1\"} 2\nb_count{mount=\"/z\"} 3\n");
}

TEST_CASE("of no mounts there is nothing, and what is no exposition is left out") {
  CHECK(joined_metrics({}).empty());
  CHECK(joined_metrics({{"/x", "/s", true, "anything\n#\n# HELP\n\n"}}).find("anything") ==
        std::string::npos);
}
