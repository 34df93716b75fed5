// Nodes of version 1 B-trees, as libhdf5 writes them and as nobody does.
#include "plan/formats/hdf5/tree_ahead.h"

#include <random>

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;
using namespace clairfs::hdf5;

namespace {

void number(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i));
}

/// A node with room for eight entries, whose keys have `coordinates`.
std::string node(int level, const std::vector<uint64_t>& below, int coordinates = 3) {
  std::string bytes = "TREE\x01";
  number(bytes, static_cast<uint64_t>(level), 1);
  number(bytes, below.size(), 2);
  number(bytes, UINT64_MAX, 8);
  number(bytes, UINT64_MAX, 8);
  for (size_t i = 0; i <= below.size(); ++i) {
    number(bytes, 5000, 4);
    number(bytes, 0, 4);
    for (int c = 1; c < coordinates; ++c) number(bytes, 7 * i, 8);
    number(bytes, 0, 8);
    if (i < below.size()) number(bytes, below[i], 8);
  }
  bytes.resize(24 + static_cast<size_t>(8 * (16 + 8 * coordinates) + 8 + 8 * coordinates), '\0');
  return bytes;
}

}  // namespace

TEST_CASE("hdf5: the nodes below one are found for keys of any number of coordinates") {
  const std::vector<uint64_t> below{4096, 800, 90000};
  for (int coordinates = 2; coordinates <= 33; ++coordinates)
    CHECK(nodes_below(node(1, below, coordinates), 100'000) == below);
}

TEST_CASE("hdf5: what is no inner node has none below") {
  const std::string good = node(2, {4096, 800});
  CHECK(nodes_below(node(0, {4096, 800}), 100'000).empty());
  CHECK(nodes_below(good, 4096).empty());  // beyond the end
  CHECK(nodes_below(good, 10).empty());
  CHECK(nodes_below(node(1, {0, 800}), 100'000).empty());
  CHECK(nodes_below("SNOD" + good.substr(4), 100'000).empty());
  for (size_t length = 0; length < good.size(); ++length)
    CHECK(nodes_below(std::string_view(good).substr(0, length), 100'000).size() <= 2);
  std::string many = good;
  many[6] = many[7] = '\xff';
  CHECK(nodes_below(many, 100'000).empty());
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    std::string damaged = good;
    for (int n = 0; n < 3; ++n) damaged[random() % damaged.size()] = static_cast<char>(random());
    for (const uint64_t child : nodes_below(damaged, 100'000)) REQUIRE(child <= 100'000 - damaged.size());
  }
}

TEST_CASE("hdf5: what lies below a node is read at once, and each node once") {
  const TempTree tree;
  const size_t size = node(0, {}).size();
  std::string file = node(2, {1 * size, 2 * size}) + node(1, {3 * size, 4 * size}) + node(1, {5 * size}) +
                     std::string(3 * size, 'x');
  std::ofstream(tree.at("x"), std::ios::binary) << file;
  DatasetSource source = scanned(tree);
  std::vector<size_t> asked;  // pieces at a time
  source.read_many = [&](std::span<const ByteRange> pieces) -> Result<std::vector<std::string>> {
    asked.push_back(pieces.size());
    std::vector<std::string> all;
    for (const ByteRange& piece : pieces) all.push_back(file.substr(piece.offset, piece.length));
    return all;
  };
  TreeAhead ahead(source, *source.catalog->find("x"));
  for (size_t i = 0; i < 6; ++i) {
    const auto read = ahead.read(i * size, size);
    REQUIRE(read);
    CHECK(*read == file.substr(i * size, size));
  }
  CHECK(asked == std::vector<size_t>{1, 2, 2, 1});
  // Read again, and in parts, it is right, too.
  CHECK(*ahead.read(0, size) == file.substr(0, size));
  CHECK(*ahead.read(size + 10, 20) == file.substr(size + 10, 20));
  CHECK(*ahead.read(2 * size - 10, 20) == file.substr(2 * size - 10, 20));

  source.read_many = [](std::span<const ByteRange>) -> Result<std::vector<std::string>> {
    return Error{EIO, "gone"};
  };
  CHECK(ahead.read(3 * size, size).error().code == EIO);

  // What nobody has asked for yet may be a wrong guess.
  source.read_many = [&](std::span<const ByteRange> pieces) -> Result<std::vector<std::string>> {
    if (pieces.size() > 1) return Error{EIO, "gone"};
    return std::vector<std::string>{file.substr(pieces[0].offset, pieces[0].length)};
  };
  TreeAhead guesses(source, *source.catalog->find("x"));
  CHECK(guesses.read(0, size).value() == file.substr(0, size));
  CHECK(guesses.read(size, size).value() == file.substr(size, size));
}
