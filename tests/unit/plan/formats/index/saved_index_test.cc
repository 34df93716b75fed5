#include "plan/formats/index/saved_index.h"

#include <cerrno>
#include <cstring>
#include <random>

#include "tests/unit/plan/formats/index/index_fixture.h"

using namespace clairfs;

namespace {

std::vector<uint32_t> found_at(const SampleIndex& index, FileId file, uint64_t offset, uint64_t length) {
  std::vector<uint32_t> found;
  index.samples_of(file, offset, length, [&](uint32_t sample) { found.push_back(sample); });
  return found;
}

std::string refusal(std::span<const std::byte> image, const IndexKey& key,
                    const std::shared_ptr<const Catalog>& catalog, IndexOrigin origin = IndexOrigin::here) {
  const auto decoded = decode_index(image, key, catalog, origin);
  REQUIRE(!decoded);
  CHECK(decoded.error().code == EBADMSG);
  return decoded.error().message;
}

bool mentions(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an index reads back as it was, whatever lies where") {
  std::mt19937 rng(GENERATE(range(0, 40)));
  const auto below = [&](uint64_t bound) { return rng() % bound; };
  std::vector<uint64_t> sizes(1 + below(4));
  for (uint64_t& size : sizes) size = below(4) == 0 ? uint64_t{6} << 32 : below(500);
  const auto catalog = PackedFiles(sizes).catalog();
  const auto random_range = [&] {
    const uint64_t f = below(sizes.size());
    const uint64_t offset = below(sizes[f] + 1);
    return ByteRange{FileId(static_cast<uint32_t>(f) + 1), offset,
                     std::min<uint64_t>(below(60), sizes[f] - offset)};
  };
  RecordTableBuilder builder(catalog, "hdf5");
  const bool one_each = below(2) == 0;
  for (uint64_t samples = below(80); samples > 0; --samples) {
    REQUIRE(builder.add_sample());
    for (uint64_t left = one_each ? 1 : below(4); left > 0; --left)
      REQUIRE(builder.add_range(random_range()));
  }
  for (uint64_t left = below(5); left > 0; --left) REQUIRE(builder.share(random_range()));
  if (below(2) == 0) builder.set_read_block(4096);
  const bool reads_on = below(2) == 0 && builder.set_read_on({FileId(1), 10, 100}, 65536).ok();
  CAPTURE(reads_on);
  const auto table = builder.finish();

  IndexKey key{"hdf5", "dataset=/x", {}};
  for (uint32_t f = 0; f < sizes.size(); ++f) key.files.insert(key.files.begin(), FileId(f + 1));
  const auto image = encode_index(*table, key, *catalog);
  const auto decoded = decode_index(image, key, catalog);
  REQUIRE(decoded);
  check_equal(**decoded, *table);
  const std::span<const std::byte> bytes = image;
  const size_t source_end = kIndexStartBytes + sizeof(uint64_t) + catalog->source().size();
  CHECK(*indexed_source(bytes.first(source_end)) == catalog->source());
  CHECK(!indexed_source(bytes.first(source_end - 1)));
  CHECK(encode_index(**decoded, key, *catalog) == image);
  for (int i = 0; i < 50; ++i) {
    const ByteRange at = random_range();
    REQUIRE(found_at(**decoded, at.file, at.offset, at.length) ==
            found_at(*table, at.file, at.offset, at.length));
  }
}

TEST_CASE("an index that is cut off, or of which a bit is another, is refused") {
  const auto catalog = PackedFiles({1000}).catalog();
  const IndexKey key{"lmdb", "keys=cursor", {FileId(1)}};
  const auto image = encode_index(*records_in_f0(catalog, 5, 100), key, *catalog);
  for (size_t size = 0; size < image.size(); ++size)
    REQUIRE(!decode_index(std::span(image).first(size), key, catalog));
  for (size_t at = 0; at < image.size(); ++at) {
    auto damaged = image;
    damaged[at] ^= std::byte{16};
    REQUIRE(!decode_index(damaged, key, catalog));
  }
  auto longer = image;
  longer.push_back(std::byte{0});
  CHECK(mentions(refusal(longer, key, catalog), "checksum"));
  CHECK(mentions(refusal(std::as_bytes(std::span("a text of more than so many bytes")), key, catalog),
                 "not an index"));
}

TEST_CASE("an index is that of one source, one plan and unchanged files") {
  PackedFiles files({1000, 2000});
  const auto catalog = files.catalog();
  const IndexKey key{"lmdb", "keys=cursor", {FileId(1)}};
  const auto image = encode_index(*records_in_f0(catalog, 5, 100), key, *catalog);
  REQUIRE(decode_index(image, key, catalog));
  CHECK(mentions(refusal(image, {"hdf5", key.parameters, key.files}, catalog), "other samples"));
  CHECK(mentions(refusal(image, {"lmdb", "keys=decimal", key.files}, catalog), "other samples"));
  CHECK(mentions(refusal(image, {"lmdb", key.parameters, {FileId(2)}}, catalog), "other files"));
  CHECK(mentions(refusal(image, {"lmdb", key.parameters, {FileId(1), FileId(2)}}, catalog), "other samples"));

  const auto with = [&](auto change) {
    PackedFiles other = files;
    change(other);
    return other.catalog();
  };
  const auto elsewhere = with([](PackedFiles& f) { f.source = "/mnt/pfs"; });
  const auto inode = with([](PackedFiles& f) { f.files[0].inode = 99; });
  const auto ctime = with([](PackedFiles& f) { f.files[0].ctime_ns = 99; });
  const auto mtime = with([](PackedFiles& f) { f.files[0].mtime_ns = 99; });
  const auto size = with([](PackedFiles& f) { f.files[0].size = 1001; });
  const auto other_file = with([](PackedFiles& f) { f.files[1].size = 99; });
  CHECK(mentions(refusal(image, key, elsewhere), "another source"));
  for (const auto& changed : {inode, ctime, mtime, size})
    CHECK(mentions(refusal(image, key, changed), "f0 has changed since"));
  CHECK(decode_index(image, key, other_file));

  // Another node may have the source elsewhere, but no other bytes in it.
  for (const auto& same : {elsewhere, inode, ctime})
    CHECK(decode_index(image, key, same, IndexOrigin::other_node));
  for (const auto& changed : {mtime, size})
    CHECK(mentions(refusal(image, key, changed, IndexOrigin::other_node), "f0 has changed since"));
}

TEST_CASE("tables of other samples have other identities, those of the same have the same") {
  const auto catalog = PackedFiles({1000, 1000}).catalog();
  const auto table = records_in_f0(catalog, 5, 100);
  CHECK(table->identity() == records_in_f0(catalog, 5, 100)->identity());
  CHECK(table->identity() != records_in_f0(catalog, 4, 100)->identity());
  CHECK(table->identity() != records_in_f0(catalog, 5, 101)->identity());
  PackedFiles changed({1000, 1000});
  changed.files[0].mtime_ns = 99;
  CHECK(table->identity() != records_in_f0(changed.catalog(), 5, 100)->identity());
  RecordTableBuilder other_file(catalog, "lmdb");
  for (uint32_t i = 0; i < 5; ++i)
    REQUIRE(other_file.add_sample(ByteRange{FileId(2), i * uint64_t{100}, 100}));
  CHECK(table->identity() != other_file.finish()->identity());
}

TEST_CASE("an index has a name for each source and plan") {
  PackedFiles files({1000, 1000});
  const auto catalog = files.catalog();
  const IndexKey key{"lmdb", "keys=cursor", {FileId(1)}};
  const std::string name = saved_index_name(*catalog, key);
  CHECK(name.ends_with(".idx"));
  CHECK(name == saved_index_name(*catalog, key));
  CHECK(name != saved_index_name(*catalog, {"lmdb", "keys=decimal", {FileId(1)}}));
  CHECK(name != saved_index_name(*catalog, {"hdf5", "keys=cursor", {FileId(1)}}));
  CHECK(name != saved_index_name(*catalog, {"lmdb", "keys=cursor", {FileId(2)}}));
  files.source = "/elsewhere";
  CHECK(name != saved_index_name(*files.catalog(), key));
}
