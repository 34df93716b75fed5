// No bytes, whoever made them, may crash the daemon or be taken for a catalog they are not.
#include "cache/catalog/image.h"

#include <cstring>
#include <random>
#include <string_view>

#include "cache/catalog/builder.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

using Bytes = std::vector<std::byte>;

SourceAttributes attributes(uint32_t mode, uint64_t size) {
  SourceAttributes out;
  out.mode = mode;
  out.size = size;
  return out;
}

Bytes small_image() {
  CatalogBuilder builder("/data", 100, 0);
  const FileId root = builder.add(FileId(0), "", attributes(S_IFDIR | 0755, 0));
  const FileId a = builder.add(root, "a", attributes(S_IFDIR | 0755, 0));
  const FileId b = builder.add(root, "b", attributes(S_IFDIR | 0700, 0));
  builder.set_incomplete();
  builder.add(root, "link", attributes(S_IFLNK | 0777, 0));
  builder.set_target("a/file");
  builder.add(a, "file", attributes(S_IFREG | 0644, 250));
  builder.add(a, "link", attributes(S_IFREG | 0644, 0));
  builder.add(b, "file", attributes(S_IFREG | 0600, 100));
  auto catalog = builder.finish(1, 2);
  REQUIRE(catalog.ok());
  return (*catalog)->serialize();
}

catalog_image::Header& header_of(Bytes& image) {
  return *reinterpret_cast<catalog_image::Header*>(image.data());
}
catalog_image::Row& row_of(Bytes& image, size_t i) {
  return reinterpret_cast<catalog_image::Row*>(image.data() + sizeof(catalog_image::Header))[i];
}

/// Makes the checksum right, and the identity too if only that is wrong.
bool accepted_after_sealing(Bytes& image) {
  header_of(image).checksum = catalog_image::checksum_of(image);
  const Status status = catalog_image::verify(image);  // on the heap, where a sanitizer sees each byte
  if (status) return true;
  if (status.error().message.find("wrong identity") == std::string::npos) return false;
  header_of(image).identity = catalog_image::identity_of(image);
  header_of(image).checksum = catalog_image::checksum_of(image);
  return catalog_image::verify(image).ok();
}

/// Calls everything and checks that nothing leads outside.
void walk(const Catalog& catalog) {
  const auto inside = [&](std::string_view text) {
    const auto* first = reinterpret_cast<const char*>(catalog.image().data());
    return text.data() >= first && text.data() + text.size() < first + catalog.image().size() &&
           text.data()[text.size()] == '\0';
  };
  uint64_t reached = 1;
  bool good = inside(catalog.source());
  for (FileId id(0); id.value < catalog.size(); ++id.value) {
    good = good && inside(catalog.name(id)) && catalog.parent(id).value <= id.value;
    good = good && catalog.find(catalog.path(id)) == id && catalog.attributes(id).st_size >= 0;
    if (catalog.kind(id) == Catalog::Kind::symlink) good = good && inside(catalog.symlink_target(id));
    if (catalog.kind(id) == Catalog::Kind::directory) reached += catalog.children(id).count;
  }
  for (ChunkId chunk(0); chunk.value < std::min(catalog.chunk_count(), 10000U); ++chunk.value) {
    const ChunkRange range = catalog.range(chunk);
    good = good && range.file.value < catalog.size() && range.length > 0 &&
           range.offset + range.length <= catalog.stamp(range.file).size;
  }
  CHECK(good);
  CHECK(reached == catalog.size());
}

}  // namespace

TEST_CASE("an image that is sent arrives as the same catalog") {
  const Bytes image = small_image();
  const auto catalog = Catalog::deserialize(image);
  REQUIRE(catalog.ok());
  CHECK((*catalog)->serialize() == image);
  CHECK((*catalog)->source() == "/data");
  CHECK((*catalog)->skipped_special() == 1);
  CHECK((*catalog)->unreadable() == 2);
  CHECK((*catalog)->chunk_count() == 4);
  CHECK((*catalog)->symlink_target((*catalog)->find("link").value()) == "a/file");
  CHECK((*catalog)->source_state((*catalog)->find("b").value()).incomplete);
  walk(**catalog);
}

TEST_CASE("every flipped byte is detected") {
  Bytes image = small_image();
  for (size_t i = 0; i < image.size(); ++i) {
    for (const unsigned mask : {0x01U, 0x80U, 0xffU}) {
      image[i] ^= std::byte(mask);
      if (Catalog::deserialize(image).ok()) FAIL("byte " << i << " flipped by " << mask);
      image[i] ^= std::byte(mask);
    }
  }
  CHECK(Catalog::deserialize(image).ok());
}

TEST_CASE("every truncation and any excess is detected") {
  Bytes image = small_image();
  for (size_t length = 0; length < image.size(); ++length) {
    const auto cut = Catalog::deserialize(std::span(image).first(length));
    if (cut.ok()) FAIL("cut to " << length);
    if (cut.error().code != EBADMSG) FAIL("cut to " << length << ": " << cut.error().message);
  }
  image.push_back(std::byte(0));
  CHECK(!Catalog::deserialize(image));
}

TEST_CASE("lies with a right checksum are found out") {
  Bytes image = small_image();
  REQUIRE(accepted_after_sealing(image));
  SECTION("a name that leaves the source") {
    auto* const begin = reinterpret_cast<char*>(image.data());
    const std::string_view name = "link";
    std::memcpy(std::search(begin, begin + image.size(), name.begin(), name.end()), "../k", 4);
  }
  SECTION("a cycle") {
    row_of(image, 1).parent = 2;
  }
  SECTION("children before their parent") {
    row_of(image, 0).first_child = 0;
  }
  SECTION("a name out of range") {
    row_of(image, 3).name = 0xffffffff;
  }
  SECTION("chunks that are no whole pages") {
    row_of(image, 4).extra = 99;  // the number of chunks is right
  }
  SECTION("chunks above the largest") {
    row_of(image, 6).extra = 4096;  // likewise
  }
  SECTION("a target out of range") {
    row_of(image, 3).extra = 0xffffffff;
  }
  SECTION("a source out of range") {
    header_of(image).source = 1000;
  }
  SECTION("another name's order") {
    std::swap(row_of(image, 1).name, row_of(image, 2).name);
  }
  SECTION("the same name twice") {
    row_of(image, 2).name = row_of(image, 1).name;
  }
  SECTION("children of a file") {
    row_of(image, 4).mode = S_IFDIR | 0755;
  }
  SECTION("a device") {
    row_of(image, 4).mode = S_IFBLK | 0666;
  }
  SECTION("a size without chunks") {
    row_of(image, 4).size = 1ULL << 40;
  }
  SECTION("a negative size") {
    row_of(image, 4).size = ~0ULL;
  }
  SECTION("huge counts") {
    header_of(image).entries = 0xfffffffe;
  }
  SECTION("most entries") {
    header_of(image).entries = 0xffffffff;
  }
  SECTION("no entries") {
    header_of(image).entries = 0;
  }
  SECTION("huge characters") {
    header_of(image).characters = ~0ULL - 100;
  }
  SECTION("no chunk size") {
    header_of(image).chunk_size = 0;
  }
  SECTION("another chunk size") {
    header_of(image).chunk_size = 99;
  }
  SECTION("another sum") {
    header_of(image).total_bytes += 1;
  }
  SECTION("another count") {
    header_of(image).files += 1;
  }
  CHECK(!accepted_after_sealing(image));
}

TEST_CASE("random damage under a right checksum never leads outside the image") {
  const Bytes original = small_image();
  std::mt19937 random(20240501);
  size_t accepted = 0;
  for (int round = 0; round < 60000; ++round) {
    Bytes image = original;
    const unsigned changes = 1 + random() % 3;
    for (unsigned i = 0; i < changes; ++i) {
      const size_t at = offsetof(catalog_image::Header, bytes) +
                        random() % (image.size() - offsetof(catalog_image::Header, bytes));
      const unsigned kind = random() % 3;
      const unsigned value = kind == 0 ? random() % 256 : kind == 1 ? 0xff : 0;
      image[at] = std::byte(value);
    }
    if (!accepted_after_sealing(image)) continue;
    ++accepted;
    const auto catalog = Catalog::deserialize(image);
    REQUIRE(catalog.ok());
    walk(**catalog);
  }
  // Damage to times, owners and the like makes another valid catalog: the walk above did happen.
  CHECK(accepted > 1000);
  CHECK(accepted < 60000);
}
