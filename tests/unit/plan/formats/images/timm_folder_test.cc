#include "plan/formats/images/timm_folder.h"

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;

namespace {

using Paths = std::vector<std::string>;

Result<std::shared_ptr<const SampleIndex>> timm(const DatasetSource& source, const std::string& more = "") {
  return make_sample_index(parse_plan("sampler=timm.ordered format=timm " + more).value(), source);
}

Paths numbered(const TempTree& tree, const std::string& more = "") {
  const DatasetSource source = scanned(tree);
  const auto index = timm(source, more);
  if (!index) FAIL(index.error().message);
  CHECK((*index)->format() == "timm");
  return sample_paths(**index);
}

bool less(std::string_view a, std::string_view b) {
  return natural_less({"", a}, {"", b});
}

}  // namespace

TEST_CASE("timm's natural_key: numbers in names are numbers, letters have no case") {
  CHECK(less("x9", "x10"));
  CHECK(less("X2", "x10"));
  CHECK(less("v1.9", "v1.10"));
  CHECK(less("a", "a1"));
  CHECK(less("1", "a"));  // the empty text before a number
  CHECK(less("a1", "a1b"));
  CHECK(less("a1b", "a2"));
  CHECK(less("a99999999999999999998", "a99999999999999999999"));
  CHECK_FALSE(less("x007", "x7"));
  CHECK_FALSE(less("x7", "x007"));
  CHECK_FALSE(less("A", "a"));
  CHECK_FALSE(less("a", "A"));
  CHECK(natural_less({"a2", "z"}, {"a10", "a"}));
  CHECK(natural_less({"", "a!"}, {"a", "x"}));  // '!' comes before '/'
  CHECK(natural_less({"a1", "x"}, {"a1", "x1"}));
}

TEST_CASE("timm's images are those whose extension os.path.splitext() gives") {
  for (const char* name : {"a.png", "a.JPG", "a.b.Jpeg", ".a.jpg", "..a.png"}) CHECK(is_timm_image(name));
  for (const char* name : {".jpg", "..jpg", "a.bmp", "a.webp", "ajpg", "a.jpg.txt", "", "."})
    CHECK_FALSE(is_timm_image(name));
}

TEST_CASE("timm: the whole tree in one order, whatever its classes are called") {
  const TempTree tree;
  for (const char* path : {"b10/x.png", "b9/x.png", "B9/a.png", "top.jpg", "b9/deep/y/z.jpeg", "b9/no.gif"})
    tree.write(path, 1);
  CHECK(numbered(tree) == Paths{"B9/a.png", "b9/deep/y/z.jpeg", "b9/x.png", "b10/x.png", "top.jpg"});
  CHECK(numbered(tree, "root=b9") == Paths{"b9/deep/y/z.jpeg", "b9/x.png"});
  tree.write("b9/caf\xc3\xa9.txt", 1);
  CHECK(numbered(tree).size() == 5);
  tree.write("\xc3\xa9/x.png", 1);
  CHECK(numbered(tree, "root=\xc3\xa9") == Paths{"\xc3\xa9/x.png"});
  const auto refused = timm(scanned(tree));
  REQUIRE(!refused);
  CHECK_THAT(refused.error().message, Contains("ASCII"));
}

TEST_CASE("timm: names of one key come as os.walk(topdown=False) has them on the mount") {
  const TempTree tree;
  for (const char* path : {"a/x1.png", "a/X1.png", "a/x01.png", "A/x1.png", "a1/q.png", "a01/q.png"})
    tree.write(path, 1);
  CHECK(numbered(tree) == Paths{"a01/q.png", "a1/q.png", "A/x1.png", "a/X1.png", "a/x01.png", "a/x1.png"});
  // A folder's own folders come before its files: both of these are a/1 and then a text.
  const TempTree nested;
  nested.write("A/s/x1.png", 1);
  nested.write("a/s/x1.png", 1);
  nested.write("a/S/x1.png", 1);
  CHECK(numbered(nested) == Paths{"A/s/x1.png", "a/S/x1.png", "a/s/x1.png"});
}

TEST_CASE("timm follows links, and counts those that lead nowhere") {
  const TempTree tree;
  tree.write("c/a.jpg", 1);
  tree.symlink("c", "d");
  tree.symlink("nowhere", "c/b.jpg");
  const DatasetSource source = scanned(tree);
  const auto index = timm(source).value();
  CHECK(sample_paths(*index) == Paths{"c/a.jpg", "c/b.jpg", "d/a.jpg", "d/b.jpg"});
  CHECK(index->range_count(1) == 0);
  CHECK(source.catalog->path(index->range(2, 0).file) == "c/a.jpg");
  tree.symlink(".", "c/again");
  tree.symlink(".", "c/again2");
  CHECK_THAT(timm(scanned(tree)).error().message, Contains("over and over"));
  tree.remove("c/again");
  tree.remove("c/again2");
  tree.symlink("/usr", "c/out");
  CHECK_THAT(timm(scanned(tree)).error().message, Contains("outside the dataset"));
}

TEST_CASE("timm without an image is refused, as timm does") {
  const TempTree tree;
  tree.write("c/a.bmp", 1);
  CHECK_THAT(timm(scanned(tree)).error().message, Contains("no sample"));
}
