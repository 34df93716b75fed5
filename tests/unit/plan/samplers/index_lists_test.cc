#include "plan/samplers/index_lists.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <sys/stat.h>

#include "tests/support/catch.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

/// A directory that goes with the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "clairfs-lists-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
  }
  ~Scratch() { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name = "list") const { return directory_ + "/" + name; }
  std::string write(const std::string& text) const {
    std::ofstream(path()) << text;
    return path();
  }

 private:
  std::string directory_;
};

using Lists = std::vector<std::vector<uint32_t>>;

Lists all_of(const IndexLists& lists) {
  Lists all;
  for (size_t i = 0; i < lists.count(); ++i) {
    all.push_back(lists.read(i).value());
    CHECK(lists.size(i) == all.back().size());
  }
  return all;
}

}  // namespace

TEST_CASE("one order, or one per epoch, from a file") {
  const Scratch scratch;
  const auto read = [&](const std::string& text) {
    return all_of(**read_index_list(scratch.write(text), 100));
  };
  CHECK(read("3\n1\n2\n") == Lists{{3, 1, 2}});
  CHECK(read("3\n1\n2") == Lists{{3, 1, 2}});
  CHECK(read("# made by hand\n3\r\n# in the middle\n 1\t\n\n") == Lists{{3, 1}});
  CHECK(read("3\n1\n\n\n2\n1\n\n") == Lists{{3, 1}, {2, 1}});
  CHECK(read("# epoch 0\n3\n# epoch 1\n2\n99\n# epoch 2\n0\n") == Lists{{3}, {2, 99}, {0}});
}

TEST_CASE("a list longer than the reader's buffer") {
  const Scratch scratch;
  std::string text;
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < 200000; ++i) {
    expected.push_back((i * 7919U) % 1000003U);
    text += std::to_string(expected.back()) + "\n";
  }
  const auto lists = read_index_list(scratch.write("5\n\n" + text), 1000003);
  REQUIRE(lists);
  CHECK(all_of(**lists) == Lists{{5}, expected});
}

TEST_CASE("a bad list is refused with its line") {
  const Scratch scratch;
  for (const auto& [text, where] :
       std::vector<std::pair<std::string, std::string>>{{"1\n2\n100\n", ":3:"},
                                                        {"1\n-2\n", ":2:"},
                                                        {"a.jpg\n", ":1:"},
                                                        {"1 2\n", ":1:"},
                                                        {"18446744073709551616\n", ":1:"}}) {
    const auto lists = read_index_list(scratch.write(text), 100);
    INFO(text);
    REQUIRE(!lists);
    CHECK(lists.error().code == EINVAL);
    CHECK(lists.error().message.starts_with("list:"));
    CHECK(lists.error().message.find(where) != std::string::npos);
  }
  for (const std::string& text :
       {std::string(), std::string("\n\n"), std::string("# none\n"), std::string(100000, '7')}) {
    CHECK_FALSE(read_index_list(scratch.write(text), 100));
  }
  CHECK(read_index_list(scratch.path("absent"), 100).error().code == ENOENT);
  REQUIRE(::mkfifo(scratch.path("fifo").c_str(), 0600) == 0);
  CHECK(read_index_list(scratch.path("fifo"), 100).error().code == EINVAL);
}

TEST_CASE("a list that changes under a plan is noticed") {
  const Scratch scratch;
  const auto lists = read_index_list(scratch.write("1\n2\n3\n"), 100);
  REQUIRE(lists);
  scratch.write("1\n2\n");
  const auto shorter = (*lists)->read(0);
  REQUIRE(!shorter);
  CHECK(shorter.error().code == ESTALE);
  scratch.write("3\n2\n1\n7\n");
  CHECK((*lists)->read(0).error().code == ESTALE);
}

TEST_CASE("lists in memory are checked against the dataset") {
  CHECK_FALSE(make_index_lists({}, 10));
  CHECK_FALSE(make_index_lists({{1, 2}, {10}}, 10));
  CHECK(all_of(**make_index_lists({{1, 2}, {9}}, 10)) == Lists{{1, 2}, {9}});
}

TEST_CASE("weights, in decimal or hexadecimal") {
  const Scratch scratch;
  CHECK(read_weights(scratch.write("# classes\n1\n0.5\n\n0x1.8p+1\n0\n1e-3\n"), 10).value() ==
        std::vector<double>{1, 0.5, 3, 0, 1e-3});
  for (const char* text : {"-1\n", "nan\n", "inf\n", "1 2\n", "x\n"}) {
    INFO(text);
    CHECK_FALSE(read_weights(scratch.write(text), 10));
  }
  CHECK_FALSE(read_weights(scratch.write("1\n2\n3\n"), 2));
}

TEST_CASE("sampler=list deals the order out to the ranks, position by position") {
  SamplerSpec spec{.sampler = "list", .n = 10, .world = 2};
  spec.lists = make_index_lists({{9, 8, 7, 6, 5}, {1, 2}}, 10).value();
  const auto sampler = sampler_of(spec);
  CHECK(indices_of(*sampler, 0, 0) == std::vector<uint32_t>{9, 7, 5});
  CHECK(indices_of(*sampler, 0, 1) == std::vector<uint32_t>{8, 6});
  CHECK(indices_of(*sampler, 1, 1) == std::vector<uint32_t>{2});
  CHECK(sampler->epoch_count() == 2);
  const auto past = sampler->order(Epoch(2));
  REQUIRE(!past);
  CHECK(past.error().code == ERANGE);

  spec.lists = make_index_lists({{4, 4, 4}}, 10).value();
  const auto same = sampler_of(spec);
  CHECK_FALSE(same->epoch_count());
  CHECK(indices_of(*same, 77, 0) == std::vector<uint32_t>{4, 4});
  CHECK(refusal_of({.sampler = "list", .n = 10}).starts_with("list:"));
}
