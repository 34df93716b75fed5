#include "plan/formats/hdf5/tree_ahead.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

namespace clairfs::hdf5 {
namespace {

// Of a node: signature, type, level, entries, and the addresses of both neighbours.
constexpr size_t kNodeHead = 24;
constexpr size_t kAddress = 8;
// Of a key: bytes and filter mask of a chunk. Then come its coordinates, the last of them within an element.
constexpr size_t kKeyHead = 8;
constexpr size_t kMostCoordinates = 33;  // H5S_MAX_RANK, and one more

// Held for a file at a time: the nodes of some million chunks. What is more is read when it is asked for.
constexpr size_t kMostHeld = 64 << 20;

template <class Number>
Number at(std::string_view node, size_t offset) {
  Number number{};
  std::memcpy(&number, node.data() + offset, sizeof number);
  return number;
}

// As the node is if its keys have so many coordinates; nothing if they cannot have.
std::vector<uint64_t> with_coordinates(size_t count, std::string_view node, uint64_t file_bytes) {
  const size_t key = kKeyHead + count * sizeof(uint64_t);
  const size_t entry = key + kAddress;
  const auto entries = at<uint16_t>(node, 6);
  if (node.size() < kNodeHead + key || (node.size() - kNodeHead - key) % entry != 0) return {};
  if (kNodeHead + entries * entry + key > node.size()) return {};
  std::vector<uint64_t> below;
  for (size_t i = 0; i <= entries; ++i) {
    const size_t begin = kNodeHead + i * entry;
    if (at<uint64_t>(node, begin + key - sizeof(uint64_t)) != 0) return {};
    if (i == entries) break;
    const auto child = at<uint64_t>(node, begin + key);
    if (child == 0 || child > file_bytes - node.size()) return {};
    below.push_back(child);
  }
  return below;
}

}  // namespace

std::vector<uint64_t> nodes_below(std::string_view node, uint64_t file_bytes) {
  const bool inner = node.size() > kNodeHead && node.size() <= file_bytes && node.starts_with("TREE\x01") &&
                     at<uint8_t>(node, 5) > 0;
  for (size_t count = 2; inner && count <= kMostCoordinates; ++count) {
    std::vector<uint64_t> below = with_coordinates(count, node, file_bytes);
    if (!below.empty()) return below;
  }
  return {};
}

Result<std::string> TreeAhead::read(uint64_t offset, uint64_t length) {
  auto found = ahead_.upper_bound(offset);
  if (found != ahead_.begin() &&
      std::prev(found)->first + std::prev(found)->second.size() >= offset + length) {
    --found;
    std::string bytes = found->second.substr(offset - found->first, length);
    // libhdf5 keeps what it has read.
    held_ -= found->second.size();
    ahead_.erase(found);
    if (Status below = read_below(bytes); !below) return below.error();
    return bytes;
  }
  const ByteRange piece{file_, offset, length};
  auto read = source_.read_all({&piece, 1});
  if (!read) return read.error();
  std::string bytes = std::move(read->front());
  if (Status below = read_below(bytes); !below) return below.error();
  return bytes;
}

Status TreeAhead::read_below(std::string_view node) {
  const std::vector<uint64_t> children = nodes_below(node, source_.catalog->stamp(file_).size);
  std::vector<ByteRange> pieces;
  for (const uint64_t child : children) {
    if (held_ + node.size() > kMostHeld) break;
    if (ahead_.count(child) != 0) continue;
    held_ += node.size();
    ahead_[child];
    pieces.push_back({file_, child, node.size()});
  }
  if (pieces.empty()) return {};
  auto read = source_.read_all(pieces);
  if (!read) {  // a wrong guess, perhaps
    for (const ByteRange& piece : pieces) ahead_.erase(piece.offset);
    held_ -= pieces.size() * node.size();
    return read.error().code == ECANCELED ? Status(read.error()) : Status();
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    held_ -= pieces[i].length - std::min<size_t>(pieces[i].length, (*read)[i].size());
    ahead_[pieces[i].offset] = std::move((*read)[i]);
  }
  return {};
}

}  // namespace clairfs::hdf5
