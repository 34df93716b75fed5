// The messages of nodes to each other.
//
// Every message is a version (2 bytes), a kind (1 byte) and the fields of one of the structs below,
// little-endian, without padding; a list or a string is preceded by its length. At the end stands the XXH3-64
// of all that precedes it, in every version: a flipped bit must not ask for another chunk under the same
// number, or make a node look as if it had no place in the job. Bytes from another node are untrusted all the
// same: decode() reads nothing outside them, takes no more memory than a small multiple of their length, and
// either understands all of them or none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cache/base/result.h"
#include "cache/base/types.h"
#include "cache/source/source.h"
#include "net/transport/transport.h"

namespace clairfs::wire {

/// Counted up with every change to what follows. All nodes of a job must speak the same.
inline constexpr uint16_t kVersion = 9;

/// Longest name of a host or a plan. Host names have at most 64 bytes on Linux; longer plan names are of no
/// use.
inline constexpr size_t kMaxName = 255;
/// Longest text of a plan or a reason: with everything around it, it must fit a message.
inline constexpr size_t kMaxText = 60000;
/// Entries of a list in one message: a thousand requests take 31 KB.
inline constexpr size_t kMaxList = 1000;
/// Longest piece of a catalog or an index that is sent at once: enough for the full bandwidth of a network,
/// and soon sent again where it is lost.
inline constexpr uint32_t kMaxPiece = 4U << 20;

/// A node's counters so far.
struct NodeCounters {
  uint64_t pfs_bytes = 0;  ///< read from the PFS
  uint64_t pfs_opens = 0;
  uint64_t requested = 0;  ///< chunks asked of other nodes
  uint64_t bytes_in = 0;   ///< of chunks from other nodes
  uint64_t served = 0;     ///< chunks sent to other nodes
  uint64_t bytes_out = 0;
  uint64_t late = 0;    ///< requests that were given up
  uint64_t failed = 0;  ///< requests that failed otherwise
  bool operator==(const NodeCounters&) const = default;
};

/// A node's description of itself, its first message and then one about every second.
struct Hello {
  bool wants_answer = false;      ///< "say at once who you are"
  bool ready = false;             ///< answers requests for chunks
  uint64_t incarnation = 0;       ///< larger after a restart, and after a stop that the node has noticed
  uint32_t nodes = 0;             ///< of the job
  uint32_t chunk_size = 0;        ///< bytes
  uint64_t catalog_identity = 0;  ///< 0: no catalog yet
  uint64_t ram_capacity = 0;      ///< bytes
  uint64_t nvme_capacity = 0;     ///< bytes
  uint64_t staging = 0;           ///< bytes of page cache ahead of readers
  uint64_t page_cache = 0;        ///< bytes of page cache for what plans keep there
  uint64_t warm = 0;              ///< bytes of the dataset on NVMe from an earlier mount
  uint64_t plans = 0;             ///< PlanRegister::digest()
  NodeCounters counters;
  std::string host;
  bool operator==(const Hello&) const = default;
};

/// The last word of a node.
struct Goodbye {
  std::string reason;  ///< empty: it was told to leave
  bool operator==(const Goodbye&) const = default;
};

/// "You cannot be part of this job", and why. The receiver ends.
struct Refusal {
  std::string reason;
  bool operator==(const Refusal&) const = default;
};

/// A piece of a chunk that the sender wants under a transfer number of its choice.
struct ChunkRequest {
  uint32_t id = 0;  ///< the asker's, for the reply
  ChunkId chunk;
  uint32_t offset = 0;  ///< within the chunk
  uint32_t length = 0;  ///< at least 1
  TransferNumber transfer = 0;
  Priority
      priority;  ///< a prefetch's deadline counts from now on, since nodes' clocks have nothing in common
  bool home = false;       ///< the asker takes the receiver for the chunk's home
  bool only_here = false;  ///< refused at once if the receiver would have to read it from its PFS
  bool operator==(const ChunkRequest&) const = default;
};
struct ChunkRequests {
  std::vector<ChunkRequest> list;
  bool operator==(const ChunkRequests&) const = default;
};

/// Answer to one ChunkRequest. The bytes follow (or came before) as a bulk transfer if `status` is ok.
struct ChunkReply {
  enum class Status : uint8_t { ok, not_here, failed };
  uint32_t id = 0;
  Status status = Status::ok;
  Origin origin = Origin::ram;  ///< where the sender had the bytes from
  uint32_t service_us = 0;      ///< time from the request's arrival to this reply
  uint64_t checksum = 0;        ///< XXH3-64 of the bytes asked for
  bool operator==(const ChunkReply&) const = default;
};
struct ChunkReplies {
  std::vector<ChunkReply> list;
  bool operator==(const ChunkReplies&) const = default;
};

/// "Raise these requests of mine to this priority."
struct Reprioritize {
  Priority priority;  ///< as in ChunkRequest
  std::vector<uint32_t> ids;
  bool operator==(const Reprioritize&) const = default;
};

/// "Are you there, and do you have these requests of mine?"
struct Probe {
  std::vector<uint32_t> ids;
  bool operator==(const Probe&) const = default;
};
/// "I am here; I have them all but these." Those were answered before, or never arrived.
struct ProbeAnswer {
  std::vector<uint32_t> unknown;
  /// How long a reader of the asker's has waited for the sender's PFS while that brought nothing for anybody,
  /// beyond what a slow PFS takes for the chunks that are being loaded.
  uint32_t stalled_ms = 0;
  bool operator==(const ProbeAnswer&) const = default;
};

/// A plan, or that it holds no more. Of two with one name the later stamp holds, then the larger origin, then
/// the cancelled one.
struct PlanEntry {
  uint64_t stamp = 0;
  NodeId origin;  ///< the node that registered, found or cancelled it
  bool cancelled = false;
  std::string name;
  std::string text;  ///< as registered; when cancelled empty, or the found plan that was withdrawn
  bool operator==(const PlanEntry&) const = default;
};

/// Of the node that scans: "I am still at it", entries so far. Of another: "I wait for that piece, too".
struct CatalogProgress {
  uint64_t entries = 0;
  bool operator==(const CatalogProgress&) const = default;
};
/// Of the node that scans: "I have the catalog": it can be asked for in pieces.
struct CatalogOffer {
  uint64_t bytes = 0;  ///< of the image
  uint64_t identity = 0;
  bool operator==(const CatalogOffer&) const = default;
};
/// Asks for bytes [offset, offset + length) of the image.
struct CatalogRequest {
  uint64_t offset = 0;
  uint32_t length = 0;  ///< at most kMaxPiece
  TransferNumber transfer = 0;
  bool operator==(const CatalogRequest&) const = default;
};

/// "How far are you with the index of that number?" (index_number())
struct IndexInquiry {
  uint64_t index = 0;
  bool operator==(const IndexInquiry&) const = default;
};
/// The answer. An index that is here can be asked for in pieces once its image is there, too.
struct IndexState {
  enum class Stage : uint8_t { none, making, here };
  uint64_t index = 0;
  Stage stage = Stage::none;
  uint32_t percent = 0;     ///< of what is to be read for it, while it is made
  uint64_t bytes_read = 0;  ///< so far
  uint64_t bytes = 0;       ///< of the image, if it is here; 0: it is not encoded now
  bool operator==(const IndexState&) const = default;
};
/// Asks for bytes [offset, offset + length) of the index's image. Without a length: for the image to be made,
/// of one node of those that have the index.
struct IndexRequest {
  uint64_t index = 0;
  uint64_t offset = 0;
  uint32_t length = 0;  ///< at most kMaxPiece
  TransferNumber transfer = 0;
  bool operator==(const IndexRequest&) const = default;
};

using Message = std::variant<Hello, Goodbye, Refusal, ChunkRequests, ChunkReplies, Reprioritize, Probe,
                             ProbeAnswer, PlanEntry, CatalogProgress, CatalogOffer, CatalogRequest,
                             IndexInquiry, IndexState, IndexRequest>;

/// At most kMaxMessage bytes. REQUIRES: strings and lists within the limits above.
std::vector<std::byte> encode(const Message& message);
/// Errors: EPROTONOSUPPORT: another version; EBADMSG: not a message, or damaged, with what is wrong.
Result<Message> decode(std::span<const std::byte> bytes);
/// A hello that wants no answer: nothing follows upon it soon. Of any bytes.
bool stands_alone(std::span<const std::byte> bytes);
/// Appends the checksum, as encode() does last. For tests that write messages by hand.
void seal(std::vector<std::byte>& message);

}  // namespace clairfs::wire
