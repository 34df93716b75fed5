// format=ranges and format=raw: records whose places somebody says.
#include <algorithm>
#include <cerrno>
#include <fstream>

#include "plan/formats/data_files.h"
#include "plan/formats/dataset.h"
#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;

namespace {

using Samples = std::vector<uint32_t>;

SampleIndex const& indexed(const DatasetSource& source, const char* plan) {
  static std::shared_ptr<const SampleIndex> latest;
  const auto spec = parse_plan(std::string("seed=1 ") + plan);
  if (!spec) FAIL(spec.error().message);
  const auto index = make_sample_index(*spec, source);
  if (!index) FAIL(index.error().message);
  latest = *index;
  return *latest;
}

std::string reason_against(const DatasetSource& source, const std::string& plan) {
  INFO(plan);
  const auto index = make_sample_index(parse_plan("seed=1 " + plan).value(), source);
  REQUIRE(!index);
  CHECK(index.error().code == EINVAL);
  return index.error().message;
}

/// "path offset+length", ranges of a sample parted by a blank.
std::vector<std::string> places(const DatasetSource& source, const SampleIndex& index) {
  std::vector<std::string> all(index.size());
  for (uint32_t sample = 0; sample < index.size(); ++sample) {
    for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
      const ByteRange range = index.range(sample, piece);
      all[sample] += (piece == 0 ? "" : " ") + source.catalog->path(range.file) + ":" +
                     std::to_string(range.offset) + "+" + std::to_string(range.length);
    }
  }
  return all;
}

Samples found_at(const DatasetSource& source, const SampleIndex& index, const std::string& path,
                 uint64_t offset, uint64_t length) {
  Samples found;
  index.samples_of(*source.catalog->find(path), offset, length, [&](uint32_t s) { found.push_back(s); });
  return found;
}

}  // namespace

TEST_CASE("ranges: several a sample, several files, names with blanks") {
  const TempTree tree;
  tree.write("d/a b.bin", 1000);
  tree.write("d/c", 50);
  tree.symlink("c", "d/link");
  tree.write("e", 9);
  const DatasetSource source = scanned(tree);
  std::ofstream(tree.at("list")) << "# offset length path\n"
                                    "0\t100\ta b.bin\n"
                                    "200 100\n"
                                    "+0\t50\tc\n"
                                    "\n"
                                    "50 0 link\r\n"
                                    "+0 7\n"
                                    "900\t100\ta b.bin\n";
  const SampleIndex& index = indexed(source, "root=d format=ranges list=list");
  CHECK(places(source, index) == std::vector<std::string>{"d/a b.bin:0+100", "d/a b.bin:200+100 d/c:0+50",
                                                          "d/c:50+0 d/c:0+7", "d/a b.bin:900+100"});
  CHECK(index.format() == "ranges");
  CHECK(index.read_block() == kBufferedBlock);
  CHECK(index.path(3) == "d/a b.bin[3]");
  CHECK(index.shares_files());
  CHECK(found_at(source, index, "d/a b.bin", 50, 200) == Samples{0, 1});
  CHECK(found_at(source, index, "d/a b.bin", 100, 200) == Samples{1});
  CHECK(found_at(source, index, "d/c", 6, 2) == Samples{1, 2});
  CHECK(found_at(source, index, "e", 0, 9).empty());
  CHECK(places(source, indexed(source, R"(format=ranges list='["1 2 e", "+0 1"]')")) ==
        std::vector<std::string>{"e:1+2 e:0+1"});
}

TEST_CASE("ranges: windows may overlap and come more than once") {
  const TempTree tree;
  tree.write("tokens", 1000);
  std::ofstream(tree.at("list")) << "100 50 tokens\n80 50\n100 50\n";
  const DatasetSource source = scanned(tree);
  const SampleIndex& index = indexed(source, "format=ranges list=list");
  CHECK(places(source, index) == std::vector<std::string>{"tokens:100+50", "tokens:80+50", "tokens:100+50"});
  CHECK(index.shares_bytes());
  Samples found = found_at(source, index, "tokens", 110, 1);
  std::sort(found.begin(), found.end());
  CHECK(found == Samples{0, 1, 2});
}

TEST_CASE("ranges: a line that is wrong is named with its reason") {
  const TempTree tree;
  tree.write("a", 10);
  tree.make_directory("d");
  tree.symlink("/etc/passwd", "out");
  const DatasetSource source = scanned(tree);
  const auto reason = [&](const std::string& text) {
    std::ofstream(tree.at("list")) << text;
    return reason_against(source, "format=ranges list=list");
  };
  CHECK_THAT(reason("0 10 a\n5 6 a\n"), Contains("line 2: 5 6 a: 6 bytes at 5 lie outside a, which has 10"));
  CHECK_THAT(reason("0 18446744073709551615 a\n"), Contains("outside a"));
  CHECK_THAT(reason("0 18446744073709551616 a\n"), Contains("line 1") && Contains("want OFFSET LENGTH PATH"));
  CHECK_THAT(reason("a 0 10\n"), Contains("want OFFSET LENGTH PATH"));
  CHECK_THAT(reason("0\n"), Contains("want OFFSET LENGTH PATH"));
  CHECK_THAT(reason("-1 1 a\n"), Contains("want OFFSET LENGTH PATH"));
  CHECK_THAT(reason("0 1\n"), Contains("no line before it"));
  CHECK_THAT(reason("+0 1 a\n"), Contains("there is none"));
  CHECK_THAT(reason("0 1 /etc/passwd\n"), Contains("relative"));
  CHECK_THAT(reason("0 1 ../a\n"), Contains("no such file"));
  CHECK_THAT(reason("0 1 d\n"), Contains("no such file"));
  CHECK_THAT(reason("0 1 out\n"), Contains("no such file"));
  CHECK_THAT(reason("# nothing\n"), Contains("names no range"));
}

TEST_CASE("raw: records of one size, counted on from file to file") {
  const TempTree tree;
  tree.write("p/b.bin", 4 + 3 * 10);
  tree.write("p/a.bin", 4 + 2 * 10 - 3);
  tree.write("p/empty.bin", 0);
  tree.write("q/c.bin", 4 + 10);
  tree.write("p/.hidden.bin", 5);
  const DatasetSource source = scanned(tree);
  const SampleIndex& index = indexed(source, "file=?/*.bin record=7 header=4 stride=10");
  CHECK(places(source, index) == std::vector<std::string>{"p/a.bin:4+7", "p/a.bin:14+7", "p/b.bin:4+7",
                                                          "p/b.bin:14+7", "p/b.bin:24+7", "q/c.bin:4+7"});
  CHECK(index.format() == "raw");
  CHECK(index.read_block() == kBufferedBlock);
  CHECK(index.path(5) == "q/c.bin[5]");
  CHECK(index.memory_bytes() < 1000);
  REQUIRE(index.shared_ranges().size() == 3);
  CHECK(index.shared_ranges()[0].length == 4);
  CHECK(found_at(source, index, "p/b.bin", 0, 4).empty());
  CHECK(found_at(source, index, "p/b.bin", 0, 5) == Samples{2});
  CHECK(found_at(source, index, "p/b.bin", 11, 3).empty());
  CHECK(found_at(source, index, "p/b.bin", 11, 4) == Samples{3});
  CHECK(found_at(source, index, "p/b.bin", 20, 5) == Samples{3, 4});
  CHECK(found_at(source, index, "p/b.bin", 30, 100) == Samples{4});
  CHECK(found_at(source, index, "p/b.bin", 0, UINT64_MAX) == Samples{2, 3, 4});
  CHECK(found_at(source, index, "p/.hidden.bin", 0, 5).empty());
  CHECK(indexed(source, "file=q/c.bin record=2").size() == 7);

  CHECK_THAT(reason_against(source, "file=p/b.bin record=7"),
             Contains("record=7") && Contains("p/b.bin has 34 bytes"));
  CHECK_THAT(reason_against(source, "file=p/b.bin"),
             Contains("no .idx") && Contains("want record=BYTES or format=npy"));
  CHECK_THAT(reason_against(source, "file=none/* record=7"), Contains("no such file"));
  CHECK_THAT(reason_against(source, "file=p record=7"), Contains("no such file"));
  CHECK_THAT(reason_against(source, "file=p/empty.bin record=7"), Contains("no sample"));
}

TEST_CASE("raw: a file that is named twice has its records twice") {
  const TempTree tree;
  tree.write("a.bin", 30);
  tree.symlink("a.bin", "b.bin");
  const DatasetSource source = scanned(tree);
  const SampleIndex& index = indexed(source, "file=*.bin record=10");
  CHECK(index.size() == 6);
  CHECK(found_at(source, index, "a.bin", 5, 10) == Samples{0, 3, 1, 4});
}

TEST_CASE("raw: the likeliest record of a READ of whole pages begins in the first") {
  const TempTree tree;
  tree.write("a.bin", 77 + 3000 * 6);
  tree.symlink("a.bin", "b.bin");
  const DatasetSource source = scanned(tree);
  const SampleIndex& index = indexed(source, "file=a.bin record=3000 header=77");
  CHECK(found_at(source, index, "a.bin", 0, 4096) == Samples{0, 1});
  CHECK(found_at(source, index, "a.bin", 4096, 4096) == Samples{2, 1});
  CHECK(found_at(source, index, "a.bin", 8192, 4096) == Samples{3, 4, 2});
  CHECK(found_at(source, index, "a.bin", 8192, 8192) == Samples{3, 4, 2, 5});
  CHECK(found_at(source, index, "a.bin", 8193, 4096) == Samples{2, 3, 4});  // O_DIRECT
  CHECK(found_at(source, index, "a.bin", 9077, 4096) == Samples{3, 4});
  const SampleIndex& twice = indexed(source, "file=*.bin record=3000 header=77");
  CHECK(found_at(source, twice, "a.bin", 4096, 4096) == Samples{2, 8, 1, 7});
}

TEST_CASE("wildcards") {
  CHECK(matches_wildcards("", ""));
  CHECK(matches_wildcards("*", ""));
  CHECK(matches_wildcards("a*b?d", "a--b-d"));
  CHECK(matches_wildcards("*.lmdb", "x.lmdb.lmdb"));
  CHECK(matches_wildcards("***a", "ba"));
  CHECK(!matches_wildcards("a*b", "a--bc"));
  CHECK(!matches_wildcards("?", ""));
  CHECK(!matches_wildcards("a", "ab"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "*a";
  CHECK(!matches_wildcards(many + "b", std::string(4000, 'a')));
}
