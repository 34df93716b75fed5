#include "plan/formats/shards/record_walk.h"

#include <cerrno>

#include "plan/formats/shards/tar_samples.h"
#include "tests/support/catch.h"
#include "tests/support/shard_bytes.h"

using namespace clairfs;

namespace {

using Places = std::vector<RecordPlace>;

struct Walked {
  Places records;
  std::string refused;
  uint64_t reads = 0;
  uint64_t bytes = 0;
};

Walked walk_through(std::unique_ptr<RecordWalk> walk, const std::string& shard) {
  Walked walked;
  while (!walk->done()) {
    REQUIRE(walk->wanted() > 0);
    REQUIRE(walk->next() + walk->wanted() <= shard.size());
    ++walked.reads;
    walked.bytes += walk->wanted();
    const Status taken = walk->take(std::string_view(shard).substr(walk->next(), walk->wanted()));
    if (!taken) {
      CHECK(taken.error().code == EINVAL);
      walked.refused = taken.error().message;
      break;
    }
  }
  walked.records = walk->records();
  return walked;
}

Walked tar(const std::string& shard) {
  return walk_through(walk_tar(shard.size()), shard);
}
Walked tfrecord(const std::string& shard) {
  return walk_through(walk_tfrecord(shard.size()), shard);
}

}  // namespace

TEST_CASE("tfrecord: frames, with the checksum of each length") {
  REQUIRE(crc32c_bitwise("123456789") == 0xe3069283U);  // RFC 3720's polynomial
  const std::string large(100'000, 'x');
  const std::string shard = frame("one") + frame("") + frame(large) + frame("four");
  const Walked walked = tfrecord(shard);
  CHECK(walked.refused.empty());
  CHECK(walked.records == Places{{0, 19}, {19, 16}, {35, 100'016}, {100'051, 20}});
  CHECK(tfrecord("").records.empty());
  CHECK(tfrecord_frame(frame_head(77)).value() == 93);
  CHECK(!tfrecord_frame(frame_head(UINT64_MAX)));
}

TEST_CASE("tfrecord: what is none is refused") {
  CHECK_THAT(tfrecord("\x1f\x8b\x08 a gzip file").refused, Contains("compressed"));
  CHECK_THAT(tfrecord("short").refused, Contains("cut off"));
  CHECK_THAT(tfrecord(frame("one") + "short").refused, Contains("cut off"));
  CHECK_THAT(tfrecord(frame("one") + frame_head(1000) + "rest").refused, Contains("cut off"));
  CHECK_THAT(tfrecord(frame_head(UINT64_MAX - 15) + "rest").refused, Contains("no TFRecord"));
  std::string wrong = frame("one") + frame("two");
  wrong[19] ^= 1;  // the second length
  CHECK_THAT(tfrecord(wrong).refused, Contains("damaged at byte 19"));
}

TEST_CASE("walk: of large records the headers are read, and of small ones all in large pieces") {
  std::string large;
  for (int i = 0; i < 30; ++i) large += frame(std::string(110'000, 'x'));
  const Walked hops = tfrecord(large);
  CHECK(hops.records.size() == 30);
  CHECK(hops.bytes <= 30 * 4096);
  std::string small;
  for (int i = 0; i < 30'000; ++i) small += frame(std::string(100, 'x'));
  const Walked all = tfrecord(small);
  CHECK(all.records.size() == 30'000);
  CHECK(all.bytes < small.size() + all.reads * 128);
  CHECK(all.reads < 20);
}

TEST_CASE("tar: members with one key that follow each other are a sample") {
  const std::string shard = tar_member("a.jpg", std::string(1000, 'a')) + tar_member("a.cls", "7") +
                            tar_member("README", "no dot") + tar_member("b.jpg", "") +
                            tar_member("d/", "", '5') + tar_member("d/b.jpg", std::string(512, 'b')) +
                            tar_member("link.jpg", "", '2') + tar_member("a.txt", "again") +
                            tar_member("c.seg.png", std::string(513, 'c')) + tar_end();
  const Walked walked = tar(shard);
  CHECK(walked.refused.empty());
  CHECK(walked.records == Places{{512, 1537}, {4096, 0}, {5120, 512}, {6656, 5}, {7680, 513}});
}

TEST_CASE("tar: long names of GNU tar and pax, prefixes, large sizes") {
  const std::string name(300, 'n');
  const std::string gnu = tar_member("././@LongLink", name + ".x" + '\0', 'L');
  const std::string binary("\x80\0\0\0\0\0\0\0\0\0\0\x03", 12);
  const std::string pax = pax_record("path", name + ".z") + pax_record("size", "600");
  const std::string shard = gnu + tar_header(name, octal(2), '0') + padded("ab") + gnu +
                            tar_header("else", binary, '0') + padded("abc") +
                            tar_header("x.jpg", octal(1), '0', "folder") + padded("p") +
                            tar_header("x.jpg", octal(1), '0', "other") + padded("q") +
                            tar_member("pax", pax, 'x') + tar_header("x", octal(0), '0') +
                            padded(std::string(600, 'z')) + tar_member("g", pax_record("comment", "-"), 'g') +
                            with_checksum(tar_header("\xff.jpg", octal(3)), true) + padded("old") + tar_end();
  const Walked walked = tar(shard);
  INFO(walked.refused);
  CHECK(walked.refused.empty());
  REQUIRE(walked.records.size() == 5);
  CHECK(walked.records[0].length ==
        512 + 3 + 512 + 512 + 512);  // both of the long name, and its header between
  std::vector<std::string> rest;
  for (size_t i = 1; i < 5; ++i)
    rest.push_back(shard.substr(walked.records[i].offset, walked.records[i].length));
  CHECK(rest == std::vector<std::string>{"p", "q", std::string(600, 'z'), "old"});
}

TEST_CASE("tar: a pax header that is larger than a read") {
  const std::string pax =
      pax_record("SCHILY.xattr.user.x", std::string(100'000, 'v')) + pax_record("path", "p.x");
  const Walked walked =
      tar(tar_member("pax", pax, 'x') + tar_member("q.x", "12") + tar_member("p.y", "3") + tar_end());
  INFO(walked.refused);
  REQUIRE(walked.records.size() == 1);
  CHECK(walked.records[0].length == 512 + 512 + 1);
}

TEST_CASE("tar: the end may be missing, and the last block be short") {
  CHECK(tar(tar_member("a.x", "1")).records == Places{{512, 1}});
  CHECK(tar(tar_header("a.x", octal(1)) + "1").records == Places{{512, 1}});
  CHECK(tar(tar_end()).records.empty());
  CHECK(tar(tar_member("a.x", "1") + tar_end() + "what follows the end is not looked at").records.size() ==
        1);
}

TEST_CASE("tar: what has no ranges, or is damaged, is refused with the cause") {
  const std::string good = tar_member("a.x", "1");
  CHECK_THAT(tar("\x1f\x8b" + std::string(1000, 'x')).refused, Contains("compressed"));
  CHECK_THAT(tar("\x28\xb5\x2f\xfd" + std::string(1000, 'x')).refused, Contains("compressed"));
  CHECK_THAT(tar(std::string(1000, 'x')).refused, Contains("no tar archive"));
  CHECK_THAT(tar(good + std::string(512, 'x')).refused, Contains("damaged at byte 1024"));
  CHECK_THAT(tar(good + "xyz").refused, Contains("cut off"));
  CHECK_THAT(tar(tar_header("a.x", octal(1000)) + padded("1")).refused, Contains("cut off"));
  CHECK_THAT(tar(tar_header("a.x", octal(077777777777))).refused, Contains("cut off"));
  CHECK_THAT(tar(good + tar_header("a.x", std::string(12, '\xff'))).refused, Contains("damaged"));
  CHECK_THAT(tar(good + tar_header("a.x", '\x80' + std::string(11, '\x7f'))).refused, Contains("damaged"));
  CHECK_THAT(tar(good + tar_header("a.x", "000000000089")).refused, Contains("damaged"));
  CHECK_THAT(tar(tar_member("s.x", "1", 'S')).refused, Contains("sparse"));
  const auto with_pax = [&](const std::string& pax, char type = 'x') {
    return tar(tar_member("pax", pax, type) + good + tar_end()).refused;
  };
  CHECK_THAT(with_pax(pax_record("GNU.sparse.major", "1")), Contains("sparse"));
  CHECK_THAT(with_pax(pax_record("path", "x.y"), 'g'), Contains("global"));
  CHECK_THAT(with_pax(pax_record("size", "99999999999999999999")), Contains("damaged pax"));
  CHECK_THAT(with_pax(pax_record("size", "9223372036854775807")), Contains("cut off"));
  CHECK_THAT(with_pax("99 path=x\n"), Contains("damaged pax"));
  CHECK_THAT(with_pax("3 x"), Contains("damaged pax"));
  CHECK_THAT(with_pax("0 x=y\n"), Contains("damaged pax"));
  CHECK_THAT(with_pax("18446744073709551615 x=y\n"), Contains("damaged pax"));
  CHECK_THAT(tar(tar_header("pax", octal(2 << 20), 'x') + std::string(3 << 20, ' ')).refused,
             Contains("bytes of header"));
}

TEST_CASE("tar: keys of samples are WebDataset's") {
  const auto key = [](const char* name) { return std::string(tar_sample_key(name).value_or("-")); };
  CHECK(key("a.jpg") == "a");
  CHECK(key("a.seg.png") == "a");
  CHECK(key("d.e/a.jpg") == "d.e/a");
  CHECK(key("./a.jpg") == "./a");
  CHECK(key("d.e/a") == "-");
  CHECK(key("a") == "-");
  CHECK(key(".hidden") == "-");
  CHECK(key("d/.hidden") == "d/");
  CHECK(key("d.e/.hidden") == "-");
  CHECK(key("c/d.e/.hidden") == "-");
  CHECK(key("/.hidden") == "/");
  CHECK(key("a.") == "a");
  CHECK(key("__key__") == "-");
  CHECK(key("__meta__/a.jpg") == "-");
  CHECK(key("__a.jpg") == "__a");
}
