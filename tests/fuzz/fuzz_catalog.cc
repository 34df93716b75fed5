// The saved catalog: whatever is accepted can be walked without leaving it, and is the image that was given.
//
// Checksum and identity are made right before the image is looked at: nobody guesses them, and a file of a
// faulty program would have right ones.
#include <cstring>
#include <vector>

#include "cache/catalog/catalog.h"
#include "cache/catalog/image.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;
using catalog_image::Header;

namespace {

void walk(const Catalog& catalog) {
  uint64_t chunks = 0;
  for (FileId id(0); id.value < catalog.size(); ++id.value) {
    const std::string path = catalog.path(id);
    fuzz::require(path.find("/../") == std::string::npos && !path.starts_with("/"), "paths stay inside");
    fuzz::require(catalog.find(path) == id, "an entry is found by its path");
    fuzz::require(catalog.attributes(id).st_ino == id.value + 1, "inode numbers follow from ids");
    switch (catalog.kind(id)) {
      case Catalog::Kind::directory: {
        const Catalog::Children children = catalog.children(id);
        for (uint32_t i = 0; i < children.count; ++i) {
          fuzz::require(catalog.parent(FileId(children.first.value + i)) == id, "children know their parent");
        }
        break;
      }
      case Catalog::Kind::file:
        chunks += catalog.chunks(id).count;
        break;
      case Catalog::Kind::symlink:
        fuzz::require(!catalog.symlink_target(id).empty(), "links lead somewhere");
        break;
    }
  }
  fuzz::require(chunks == catalog.chunk_count(), "chunks are those of the files");
  for (ChunkId chunk(0); chunk.value < std::min(catalog.chunk_count(), 1000U); ++chunk.value) {
    const ChunkRange range = catalog.range(chunk);
    fuzz::require(range.length > 0 && range.offset + range.length <= catalog.stamp(range.file).size,
                  "chunks lie in their files");
  }
}

std::span<std::byte> bytes_of(std::vector<uint64_t>& aligned, size_t size) {
  return {reinterpret_cast<std::byte*>(aligned.data()), size};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint64_t> aligned(size / 8 + 1);
  const std::span<std::byte> image = bytes_of(aligned, size);
  if (size > 0) std::memcpy(image.data(), data, size);
  if (size < sizeof(Header)) {
    fuzz::require(!Catalog::deserialize(image).ok(), "too short for a header");
    return 0;
  }
  auto& header = *reinterpret_cast<Header*>(image.data());
  header.magic = catalog_image::kMagic;
  header.version = catalog_image::kVersion;
  header.byte_order = catalog_image::kByteOrder;
  header.bytes = size;
  header.checksum = catalog_image::checksum_of(image);
  auto catalog = Catalog::deserialize(image);
  if (!catalog && catalog.error().message.find("identity") != std::string::npos) {
    header.identity = catalog_image::identity_of(image);
    header.checksum = catalog_image::checksum_of(image);
    catalog = Catalog::deserialize(image);
    fuzz::require(catalog.ok(), "only the identity was wrong");
  }
  if (!catalog) return 0;
  fuzz::require(std::memcmp((*catalog)->image().data(), image.data(), size) == 0, "the image is kept");
  walk(**catalog);
  return 0;
}
