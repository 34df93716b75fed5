#include "net/transport/wire.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;
using namespace clairfs::wire;

namespace {

std::vector<Message> examples() {
  Hello hello;
  hello.wants_answer = true;
  hello.ready = true;
  hello.incarnation = 0x1122334455667788;
  hello.nodes = 8;
  hello.chunk_size = 4 << 20;
  hello.catalog_identity = ~0ULL;
  hello.ram_capacity = 1;
  hello.nvme_capacity = 2;
  hello.plans = 3;
  hello.staging = 4;
  hello.page_cache = 5;
  hello.warm = 6;
  hello.counters = {1, 2, 3, 4, 5, 6, 7, 8};
  hello.host = "node017";
  return {hello,
          Goodbye{"bye"},
          Refusal{""},
          ChunkRequests{
              {{1, ChunkId(2), 3, 4, 5, {Priority::Kind::prefetch, 6}, true, true},
               {7, ChunkId(8), 0, 1, kTransferNumbers - 1, {Priority::Kind::background, ~0ULL}, false}}},
          ChunkRequests{},
          ChunkReplies{{{9, ChunkReply::Status::failed, Origin::pfs, 10, 11}, {}}},
          Reprioritize{{Priority::Kind::prefetch, 4}, {1, 2, 3}},
          Probe{{4}},
          ProbeAnswer{{}, 0},
          ProbeAnswer{{5}, 6000},
          PlanEntry{12, NodeId(3), true, "train", ""},
          PlanEntry{13, NodeId(0), false, "default", std::string(kMaxText, 'x')},
          CatalogProgress{1000000},
          CatalogOffer{77, 78},
          CatalogRequest{79, 80, 81},
          IndexInquiry{~0ULL},
          IndexState{1, IndexState::Stage::here, 100, 2, 3},
          IndexRequest{82, 83, 84, 85}};
}

constexpr size_t kSealBytes = 8;

/// What a faulty program would send: other bytes under a right checksum.
std::vector<std::byte> sealed(std::span<const std::byte> body) {
  std::vector<std::byte> bytes(body.begin(), body.end());
  seal(bytes);
  return bytes;
}

std::vector<std::byte> body_of(const Message& message) {
  const auto bytes = encode(message);
  return {bytes.begin(), bytes.end() - kSealBytes};
}

/// One up to the end, or each after its length: what fuzz_wire.cc takes.
std::vector<Message> messages_in(std::span<const std::byte> bytes) {
  std::vector<Message> list;
  if (const auto whole = decode(sealed(bytes))) {
    list.push_back(*whole);
    return list;
  }
  while (bytes.size() >= 2) {
    const size_t length = std::to_integer<size_t>(bytes[0]) | std::to_integer<size_t>(bytes[1]) << 8;
    bytes = bytes.subspan(2);
    REQUIRE(length <= bytes.size());
    const auto message = decode(sealed(bytes.first(length)));
    REQUIRE(message);
    list.push_back(*message);
    bytes = bytes.subspan(length);
  }
  return list;
}

}  // namespace

TEST_CASE("every message reads back as it was written") {
  for (const Message& message : examples()) {
    const auto bytes = encode(message);
    CHECK(bytes.size() <= kMaxMessage);
    const auto read = decode(bytes);
    REQUIRE(read);
    CHECK(*read == message);
  }
}

TEST_CASE("only a hello that wants no answer stands alone, whatever the bytes") {
  for (const Message& message : examples()) CHECK(!stands_alone(encode(message)));
  const auto hello = encode(Hello());
  CHECK(stands_alone(hello));
  for (size_t length = 0; length < 4; ++length) CHECK(!stands_alone(std::span(hello).first(length)));
}

TEST_CASE("the longest lists fit a message") {
  ChunkRequests requests;
  requests.list.resize(kMaxList, {1, ChunkId(2), 3, 4, 5, {}, false});
  CHECK(encode(requests).size() <= kMaxMessage);
  ChunkReplies replies;
  replies.list.resize(kMaxList);
  CHECK(encode(replies).size() <= kMaxMessage);
  CHECK(*decode(encode(replies)) == Message(replies));
}

TEST_CASE("a truncated or lengthened message is refused") {
  for (const Message& message : examples()) {
    auto bytes = body_of(message);
    for (size_t length = 0; length < std::min<size_t>(bytes.size(), 300); ++length) {
      const auto read = decode(sealed(std::span(bytes).first(length)));
      REQUIRE(!read);
      CHECK(read.error().code == EBADMSG);
      CHECK(!decode(std::span(bytes).first(length)));
    }
    bytes.push_back(std::byte{0});
    CHECK(!decode(sealed(bytes)));
  }
}

TEST_CASE("a flipped bit is noticed, wherever it is") {
  for (const Message& message : examples()) {
    auto bytes = encode(message);
    for (size_t bit = 0; bit < std::min<size_t>(8 * bytes.size(), 4000); ++bit) {
      const auto flip = static_cast<std::byte>(1U << bit % 8);
      bytes[bit / 8] ^= flip;
      const auto read = decode(bytes);
      REQUIRE(!read);
      CHECK(read.error().code == EBADMSG);  // not "another version", which would end a node
      bytes[bit / 8] ^= flip;
    }
    CHECK(decode(bytes).ok());
  }
}

TEST_CASE("another version is told from rubbish") {
  auto bytes = body_of(Goodbye{});
  bytes[0] = std::byte{kVersion + 1};
  bytes = sealed(bytes);
  CHECK(decode(bytes).error().code == EPROTONOSUPPORT);
  CHECK(decode(bytes).error().message.find("version " + std::to_string(kVersion)) != std::string::npos);
}

TEST_CASE("what no node would say is refused") {
  const auto refused = [](const Message& message) {
    const auto read = decode(encode(message));
    return !read && read.error().code == EBADMSG;
  };
  CHECK(refused(ChunkRequests{{{1, ChunkId(2), 3, 0, 5, {}, false}}}));
  CHECK(refused(ChunkRequests{{{1, ChunkId(2), 3, 4, kTransferNumbers, {}, false}}}));
  CHECK(refused(ChunkRequests{{{1, ChunkId(2), 3, 4, 5, {Priority::Kind{3}, 0}, false}}}));
  CHECK(refused(Reprioritize{{Priority::Kind{3}, 0}, {1}}));
  CHECK(refused(ChunkReplies{{{1, ChunkReply::Status{9}, Origin::ram, 0, 0}}}));
  CHECK(refused(ChunkReplies{{{1, ChunkReply::Status::ok, Origin{4}, 0, 0}}}));
  CHECK(refused(Goodbye{std::string(kMaxText + 1, 'x')}));
  CHECK(refused(PlanEntry{1, NodeId(0), false, std::string(kMaxName + 1, 'x'), ""}));
  CHECK(refused(Probe{std::vector<uint32_t>(kMaxList + 1)}));
  CHECK(refused(IndexState{1, IndexState::Stage{3}, 0, 0, 0}));
  CHECK(refused(IndexState{1, IndexState::Stage::making, 101, 0, 0}));
  CHECK(refused(IndexRequest{1, 0, kMaxPiece + 1, 0}));
}

TEST_CASE("random and damaged bytes under a right checksum are understood or refused") {
  std::mt19937 random(5);
  size_t understood = 0;
  const auto all = examples();
  for (int i = 0; i < 200000; ++i) {
    std::vector<std::byte> bytes;
    if (i % 2 == 0) {
      bytes.resize(random() % 200);
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      if (bytes.size() > 3) {
        bytes[0] = std::byte{kVersion};
        bytes[1] = std::byte{0};
        bytes[2] = static_cast<std::byte>(random() % 17);
      }
    } else {
      bytes = body_of(all[random() % all.size()]);
      for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
    }
    seal(bytes);
    const auto read = decode(bytes);
    if (!read) continue;
    ++understood;
    CHECK(encode(*read) == bytes);  // one way to say a thing
  }
  CHECK(understood > 10000);
}

TEST_CASE("what the fuzzer begins with are messages of this version, of all kinds") {
  std::set<size_t> kinds;
  for (const auto& seed : std::filesystem::directory_iterator(CLAIRFS_SOURCE_DIR "/tests/fuzz/corpus/wire")) {
    INFO(seed.path().string());
    std::ifstream in(seed.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    for (const Message& message : messages_in(std::as_bytes(std::span<const char>(text))))
      kinds.insert(message.index());
  }
  CHECK(kinds.size() == std::variant_size_v<Message>);
}
