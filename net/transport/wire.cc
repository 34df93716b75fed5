#include "net/transport/wire.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "cache/base/checksum.h"

namespace clairfs::wire {
namespace {

constexpr size_t kSealBytes = sizeof(uint64_t);

uint64_t checksum_of(std::span<const std::byte> bytes) {
  // It is only read.
  const iovec memory{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return xxh3_64({&memory, 1});
}

class Writer {
 public:
  template <class Number>
  void number(Number value) {
    for (size_t i = 0; i < sizeof(Number); ++i)
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
  }
  void flag(bool value) { number<uint8_t>(value ? 1 : 0); }
  void text(const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    for (const char c : value) bytes_.push_back(static_cast<std::byte>(c));
  }
  void ids(const std::vector<uint32_t>& list) {
    number(static_cast<uint32_t>(list.size()));
    for (const uint32_t id : list) number(id);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// After the first thing that is wrong everything reads as 0 and problem() says what it was.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Number>
  Number number() {
    if (bytes_.size() < sizeof(Number)) {
      wrong("it ends early");
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(Number); ++i) value |= std::to_integer<uint64_t>(bytes_[i]) << (8 * i);
    bytes_ = bytes_.subspan(sizeof(Number));
    return static_cast<Number>(value);
  }
  bool flag() { return up_to<uint8_t>(1, "a flag") != 0; }
  /// A number that must not exceed `most`.
  template <class Number>
  Number up_to(Number most, const char* what) {
    const auto value = number<Number>();
    if (value <= most) return value;
    wrong(what);
    return 0;
  }
  std::string text(size_t most) {
    const size_t length = up_to<uint32_t>(static_cast<uint32_t>(most), "a text is too long");
    if (length > bytes_.size()) {
      wrong("it ends early");
      return {};
    }
    std::string value;
    value.reserve(length);
    for (const std::byte b : bytes_.first(length)) value.push_back(static_cast<char>(b));
    bytes_ = bytes_.subspan(length);
    return value;
  }
  /// The length of a list whose entries take at least `entry` bytes each.
  size_t list(size_t entry) {
    const size_t length = up_to<uint32_t>(kMaxList, "a list is too long");
    if (length * entry <= bytes_.size()) return length;
    wrong("it ends early");
    return 0;
  }
  std::vector<uint32_t> ids() {
    std::vector<uint32_t> list_of(list(sizeof(uint32_t)));
    for (uint32_t& id : list_of) id = number<uint32_t>();
    return list_of;
  }
  void wrong(const char* what) {
    if (problem_ == nullptr) problem_ = what;
    bytes_ = {};
  }
  const char* problem() {
    if (problem_ == nullptr && !bytes_.empty()) problem_ = "something follows its end";
    return problem_;
  }

 private:
  std::span<const std::byte> bytes_;
  const char* problem_ = nullptr;
};

constexpr size_t kRequestBytes = 4 + 4 + 4 + 4 + 4 + 1 + 8 + 1;
constexpr size_t kReplyBytes = 4 + 1 + 1 + 4 + 8;
static_assert(kMaxList * kRequestBytes + 16 + kSealBytes <= kMaxMessage);
static_assert(kMaxText + kMaxName + 64 + kSealBytes <= kMaxMessage);

void put(Writer& out, const NodeCounters& c) {
  for (const uint64_t value :
       {c.pfs_bytes, c.pfs_opens, c.requested, c.bytes_in, c.served, c.bytes_out, c.late, c.failed})
    out.number(value);
}

void get(Reader& in, NodeCounters& c) {
  for (uint64_t* value :
       {&c.pfs_bytes, &c.pfs_opens, &c.requested, &c.bytes_in, &c.served, &c.bytes_out, &c.late, &c.failed})
    *value = in.number<uint64_t>();
}

void put(Writer& out, const Hello& m) {
  out.flag(m.wants_answer);
  out.flag(m.ready);
  out.number(m.incarnation);
  out.number(m.nodes);
  out.number(m.chunk_size);
  for (const uint64_t value : {m.catalog_identity, m.ram_capacity, m.nvme_capacity, m.plans})
    out.number(value);
  put(out, m.counters);
  out.text(m.host);
}

void get(Reader& in, Hello& m) {
  m.wants_answer = in.flag();
  m.ready = in.flag();
  m.incarnation = in.number<uint64_t>();
  m.nodes = in.number<uint32_t>();
  m.chunk_size = in.number<uint32_t>();
  for (uint64_t* value : {&m.catalog_identity, &m.ram_capacity, &m.nvme_capacity, &m.plans})
    *value = in.number<uint64_t>();
  get(in, m.counters);
  m.host = in.text(kMaxName);
}

void put(Writer& out, const Goodbye& m) {
  out.text(m.reason);
}
void get(Reader& in, Goodbye& m) {
  m.reason = in.text(kMaxText);
}
void put(Writer& out, const Refusal& m) {
  out.text(m.reason);
}
void get(Reader& in, Refusal& m) {
  m.reason = in.text(kMaxText);
}

void put(Writer& out, const Urgency& urgency) {
  out.number(static_cast<uint8_t>(urgency.kind));
  out.number(urgency.deadline);
}
void get(Reader& in, Urgency& urgency) {
  urgency.kind = Urgency::Kind{in.up_to<uint8_t>(2, "no such urgency")};
  urgency.deadline = in.number<uint64_t>();
}

void put(Writer& out, const ChunkRequests& m) {
  out.number(static_cast<uint32_t>(m.list.size()));
  for (const ChunkRequest& r : m.list) {
    for (const uint32_t value : {r.id, r.chunk.value, r.offset, r.length, r.transfer}) out.number(value);
    put(out, r.urgency);
    out.flag(r.home);
  }
}

void get(Reader& in, ChunkRequests& m) {
  m.list.resize(in.list(kRequestBytes));
  for (ChunkRequest& r : m.list) {
    for (uint32_t* value : {&r.id, &r.chunk.value, &r.offset, &r.length}) *value = in.number<uint32_t>();
    r.transfer = in.up_to<uint32_t>(kTransferNumbers - 1, "no such transfer number");
    get(in, r.urgency);
    r.home = in.flag();
    if (r.length == 0) in.wrong("it asks for nothing");
  }
}

void put(Writer& out, const ChunkReplies& m) {
  out.number(static_cast<uint32_t>(m.list.size()));
  for (const ChunkReply& r : m.list) {
    out.number(r.id);
    out.number(static_cast<uint8_t>(r.status));
    out.number(static_cast<uint8_t>(r.origin));
    out.number(r.service_us);
    out.number(r.checksum);
  }
}

void get(Reader& in, ChunkReplies& m) {
  m.list.resize(in.list(kReplyBytes));
  for (ChunkReply& r : m.list) {
    r.id = in.number<uint32_t>();
    r.status = ChunkReply::Status{in.up_to<uint8_t>(2, "no such status")};
    r.origin = Origin{in.up_to<uint8_t>(3, "no such origin")};
    r.service_us = in.number<uint32_t>();
    r.checksum = in.number<uint64_t>();
  }
}

void put(Writer& out, const Expedite& m) {
  put(out, m.urgency);
  out.ids(m.ids);
}
void get(Reader& in, Expedite& m) {
  get(in, m.urgency);
  m.ids = in.ids();
}
void put(Writer& out, const Probe& m) {
  out.ids(m.ids);
}
void get(Reader& in, Probe& m) {
  m.ids = in.ids();
}
void put(Writer& out, const ProbeAnswer& m) {
  out.ids(m.unknown);
}
void get(Reader& in, ProbeAnswer& m) {
  m.unknown = in.ids();
}

void put(Writer& out, const PlanEntry& m) {
  out.number(m.stamp);
  out.number(m.origin.value);
  out.flag(m.cancelled);
  out.text(m.name);
  out.text(m.text);
}

void get(Reader& in, PlanEntry& m) {
  m.stamp = in.number<uint64_t>();
  m.origin = NodeId(in.number<uint32_t>());
  m.cancelled = in.flag();
  m.name = in.text(kMaxName);
  m.text = in.text(kMaxText);
}

void put(Writer& out, const CatalogProgress& m) {
  out.number(m.entries);
}
void get(Reader& in, CatalogProgress& m) {
  m.entries = in.number<uint64_t>();
}

void put(Writer& out, const CatalogOffer& m) {
  out.number(m.bytes);
  out.number(m.identity);
}

void get(Reader& in, CatalogOffer& m) {
  m.bytes = in.number<uint64_t>();
  m.identity = in.number<uint64_t>();
}

void put(Writer& out, const CatalogRequest& m) {
  out.number(m.offset);
  out.number(m.length);
  out.number(m.transfer);
}

void get(Reader& in, CatalogRequest& m) {
  m.offset = in.number<uint64_t>();
  m.length = in.up_to<uint32_t>(kMaxCatalogPiece, "a piece is too long");
  m.transfer = in.up_to<uint32_t>(kTransferNumbers - 1, "no such transfer number");
}

/// The message of kind `index`, which counts the alternatives of Message.
template <size_t... kinds>
Message of_kind(size_t index, std::index_sequence<kinds...>) {
  Message message;
  ((index == kinds ? void(message.emplace<kinds>()) : void()), ...);
  return message;
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  Writer out;
  out.number(kVersion);
  out.number(static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& m) { put(out, m); }, message);
  auto bytes = out.take();
  seal(bytes);
  return bytes;
}

void seal(std::vector<std::byte>& message) {
  const uint64_t sum = checksum_of(message);
  for (size_t i = 0; i < kSealBytes; ++i) message.push_back(static_cast<std::byte>(sum >> (8 * i)));
}

Result<Message> decode(std::span<const std::byte> bytes) {
  const size_t length = bytes.size() - std::min(bytes.size(), kSealBytes);
  if (Reader(bytes.subspan(length)).number<uint64_t>() != checksum_of(bytes.first(length)))
    return Error{EBADMSG,
                 fmt::format("a message of {} bytes is damaged: its checksum is wrong", bytes.size())};
  Reader in(bytes.first(length));
  const auto version = in.number<uint16_t>();
  if (length >= sizeof(version) && version != kVersion) {
    return Error{EPROTONOSUPPORT, fmt::format("it speaks version {} of the protocol, this node version {}",
                                              version, kVersion)};
  }
  constexpr size_t kinds = std::variant_size_v<Message>;
  const size_t kind = in.up_to<uint8_t>(kinds - 1, "no such kind");
  Message message = of_kind(kind, std::make_index_sequence<kinds>());
  std::visit([&](auto& m) { get(in, m); }, message);
  if (const char* problem = in.problem(); problem != nullptr)
    return Error{EBADMSG, fmt::format("a message of {} bytes is malformed: {}", bytes.size(), problem)};
  return message;
}

}  // namespace clairfs::wire
