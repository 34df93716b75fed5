#include "plan/formats/source_reads.h"

#include <cerrno>

#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint64_t kChunk = 64 << 10;
constexpr FileId kFile(1);

struct ReadsFixture {
  explicit ReadsFixture(uint64_t ram = 16 << 20) {
    cache = std::move(*ChunkCache::create({*catalog, source, {}, policy, metrics, log.logger()}, ram));
  }
  ~ReadsFixture() { CHECK(cache->stop(std::chrono::minutes(1))); }

  /// Whether each piece came, with the file's bytes.
  bool reads(const std::vector<ByteRange>& pieces) {
    const auto read = read_pieces(*cache, *catalog, source, pieces);
    if (!read || read->size() != pieces.size()) return false;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if ((*read)[i].size() != pieces[i].length) return false;
      for (uint64_t at = 0; at < pieces[i].length; ++at) {
        const auto byte = static_cast<unsigned char>((*read)[i][at]);
        if (byte != fake_byte(pieces[i].file, pieces[i].offset + at)) return false;
      }
    }
    return true;
  }

  CapturedLog log;
  Metrics metrics;
  FakeSource source{FakeSource::Answers::at_once};
  const std::shared_ptr<const Catalog> catalog = made_up_catalog({20 * kChunk + 5, 3 * kChunk}, kChunk);
  NextUsePolicy policy{*catalog};
  std::unique_ptr<ChunkCache> cache;
};

}  // namespace

TEST_CASE("pieces far apart are read alone, and nothing is kept of their chunks") {
  ReadsFixture f;
  std::vector<ByteRange> pieces;
  for (uint64_t chunk = 0; chunk < 20; ++chunk) pieces.push_back({kFile, chunk * kChunk + 4096, 4096});
  CHECK(f.reads(pieces));
  CHECK(f.source.bytes == 20 * 4096);
  CHECK(f.metrics.ram_chunks.value() == 0);
}

TEST_CASE("pieces that are all there is bring their chunks into a tier, and are read once") {
  ReadsFixture f;
  std::vector<ByteRange> pieces;
  for (uint64_t at = 0; at + 2 * 4096 <= 10 * kChunk; at += 3 * 4096) pieces.push_back({kFile, at, 2 * 4096});
  pieces.push_back({FileId(2), kChunk / 2, 2 * kChunk});  // over the ends of chunks
  pieces.push_back({kFile, 20 * kChunk, 5});
  CHECK(f.reads(pieces));
  CHECK(f.source.bytes == 13 * kChunk + 5);
  CHECK(f.metrics.ram_chunks.value() == 14);
  CHECK(f.reads({{kFile, 100, 4096}, {kFile, 9 * kChunk - 10, 20}}));  // from the tier
  CHECK(f.source.bytes == 13 * kChunk + 5);
}

TEST_CASE("what the source fails to read is an error, though other pieces came") {
  ReadsFixture f;
  f.source.fail_files.insert(FileId(2));
  for (const uint64_t length : {uint64_t{4096}, kChunk}) {
    const std::vector<ByteRange> pieces{{kFile, 0, 4096}, {FileId(2), 0, length}};
    const auto read = read_pieces(*f.cache, *f.catalog, f.source, pieces);
    REQUIRE(!read);
    CHECK(read.error().code == EIO);
  }
}
