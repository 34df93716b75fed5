#include "net/transport/wire.h"

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <type_traits>
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

// Writes fields. What a Reader must check, it need not: only right messages are written.
class Writer {
 public:
  template <class Number>
  void number(Number value) {
    for (size_t i = 0; i < sizeof(Number); ++i)
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
  }
  template <class... Numbers>
  void numbers(const Numbers&... values) {
    (number(values), ...);
  }
  void flag(bool value) { number<uint8_t>(value ? 1 : 0); }
  void up_to(uint32_t value, uint32_t, const char*) { number(value); }
  template <class Enum>
  void choice(Enum value, Enum, const char*) {
    number(static_cast<uint8_t>(value));
  }
  void text(const std::string& value, size_t) {
    number(static_cast<uint32_t>(value.size()));
    for (const char c : value) bytes_.push_back(static_cast<std::byte>(c));
  }
  template <class Entry, class Visit>
  void list(const std::vector<Entry>& list, size_t, Visit visit) {
    number(static_cast<uint32_t>(list.size()));
    for (const Entry& entry : list) visit(entry);
  }
  void check(bool, const char*) {}
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads the same. After the first thing that is wrong everything reads as 0 and problem() says what it was.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Number>
  void number(Number& value) {
    value = 0;
    if (bytes_.size() < sizeof(Number)) return wrong("it ends early");
    uint64_t read = 0;
    for (size_t i = 0; i < sizeof(Number); ++i) read |= std::to_integer<uint64_t>(bytes_[i]) << (8 * i);
    bytes_ = bytes_.subspan(sizeof(Number));
    value = static_cast<Number>(read);
  }
  template <class... Numbers>
  void numbers(Numbers&... values) {
    (number(values), ...);
  }
  void flag(bool& value) {
    uint8_t read = 0;
    up_to(read, 1, "a flag");
    value = read != 0;
  }
  // A number that must not exceed `most`.
  template <class Number>
  void up_to(Number& value, uint32_t most, const char* what) {
    number(value);
    if (value <= most) return;
    wrong(what);
    value = 0;
  }
  template <class Enum>
  void choice(Enum& value, Enum last, const char* what) {
    uint8_t read = 0;
    up_to(read, static_cast<uint8_t>(last), what);
    value = Enum{read};
  }
  void text(std::string& value, size_t most) {
    uint32_t length = 0;
    up_to(length, static_cast<uint32_t>(most), "a text is too long");
    if (length > bytes_.size()) return wrong("it ends early");
    value.clear();
    value.reserve(length);
    for (const std::byte b : bytes_.first(length)) value.push_back(static_cast<char>(b));
    bytes_ = bytes_.subspan(length);
  }
  // Entries that take at least `entry_bytes` each.
  template <class Entry, class Visit>
  void list(std::vector<Entry>& list, size_t entry_bytes, Visit visit) {
    uint32_t length = 0;
    up_to(length, kMaxList, "a list is too long");
    if (length * entry_bytes > bytes_.size()) return wrong("it ends early");
    list.resize(length);
    for (Entry& entry : list) visit(entry);
  }
  void check(bool right, const char* what) {
    if (!right) wrong(what);
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

constexpr size_t kRequestBytes = 4 + 4 + 4 + 4 + 4 + 1 + 8 + 1 + 1;
constexpr size_t kReplyBytes = 4 + 1 + 1 + 4 + 8;
static_assert(kMaxList * kRequestBytes + 16 + kSealBytes <= kMaxMessage);
static_assert(kMaxText + kMaxName + 64 + kSealBytes <= kMaxMessage);

template <class Message, class Struct>
concept Is = std::same_as<std::remove_const_t<Message>, Struct>;

// The fields of each message in their order on the wire, for a Writer and a Reader alike.

void fields(auto& wire, Is<NodeCounters> auto& c) {
  wire.numbers(c.pfs_bytes, c.pfs_opens, c.requested, c.bytes_in, c.served, c.bytes_out, c.late, c.failed);
}

void fields(auto& wire, Is<Priority> auto& priority) {
  wire.choice(priority.kind, Priority::Kind::background, "no such priority");
  wire.number(priority.deadline);
}

void ids(auto& wire, auto& list) {
  wire.list(list, sizeof(uint32_t), [&](auto& id) { wire.number(id); });
}

void fields(auto& wire, Is<Hello> auto& m) {
  wire.flag(m.wants_answer);
  wire.flag(m.ready);
  wire.numbers(m.incarnation, m.nodes, m.chunk_size);
  wire.numbers(m.catalog_identity, m.ram_capacity, m.nvme_capacity, m.staging, m.page_cache, m.warm, m.plans);
  fields(wire, m.counters);
  wire.text(m.host, kMaxName);
}

void fields(auto& wire, Is<Goodbye> auto& m) {
  wire.text(m.reason, kMaxText);
}

void fields(auto& wire, Is<Refusal> auto& m) {
  wire.text(m.reason, kMaxText);
}

void fields(auto& wire, Is<ChunkRequests> auto& m) {
  wire.list(m.list, kRequestBytes, [&](auto& r) {
    wire.numbers(r.id, r.chunk.value, r.offset, r.length);
    wire.up_to(r.transfer, kTransferNumbers - 1, "no such transfer number");
    fields(wire, r.priority);
    wire.flag(r.home);
    wire.flag(r.only_here);
    wire.check(r.length > 0, "it asks for nothing");
  });
}

void fields(auto& wire, Is<ChunkReplies> auto& m) {
  wire.list(m.list, kReplyBytes, [&](auto& r) {
    wire.number(r.id);
    wire.choice(r.status, ChunkReply::Status::failed, "no such status");
    wire.choice(r.origin, Origin::pfs, "no such origin");
    wire.numbers(r.service_us, r.checksum);
  });
}

void fields(auto& wire, Is<Reprioritize> auto& m) {
  fields(wire, m.priority);
  ids(wire, m.ids);
}

void fields(auto& wire, Is<Probe> auto& m) {
  ids(wire, m.ids);
}

void fields(auto& wire, Is<ProbeAnswer> auto& m) {
  ids(wire, m.unknown);
  wire.number(m.stalled_ms);
}

void fields(auto& wire, Is<PlanEntry> auto& m) {
  wire.numbers(m.stamp, m.origin.value);
  wire.flag(m.cancelled);
  wire.text(m.name, kMaxName);
  wire.text(m.text, kMaxText);
}

void fields(auto& wire, Is<CatalogProgress> auto& m) {
  wire.number(m.entries);
}

void fields(auto& wire, Is<CatalogOffer> auto& m) {
  wire.numbers(m.bytes, m.identity);
}

void fields(auto& wire, Is<CatalogRequest> auto& m) {
  wire.number(m.offset);
  wire.up_to(m.length, kMaxPiece, "a piece is too long");
  wire.up_to(m.transfer, kTransferNumbers - 1, "no such transfer number");
}

void fields(auto& wire, Is<IndexInquiry> auto& m) {
  wire.number(m.index);
}

void fields(auto& wire, Is<IndexState> auto& m) {
  wire.number(m.index);
  wire.choice(m.stage, IndexState::Stage::here, "no such stage");
  wire.up_to(m.percent, 100, "more than all of it");
  wire.numbers(m.bytes_read, m.bytes);
}

void fields(auto& wire, Is<IndexRequest> auto& m) {
  wire.numbers(m.index, m.offset);
  wire.up_to(m.length, kMaxPiece, "a piece is too long");
  wire.up_to(m.transfer, kTransferNumbers - 1, "no such transfer number");
}

// The message of kind `index`, which counts the alternatives of Message.
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
  std::visit([&](const auto& m) { fields(out, m); }, message);
  auto bytes = out.take();
  seal(bytes);
  return bytes;
}

bool stands_alone(std::span<const std::byte> bytes) {
  constexpr size_t kKind = sizeof(kVersion);
  constexpr size_t kWantsAnswer = kKind + 1;  // the first field
  static const size_t hello = Message(Hello()).index();
  return bytes.size() > kWantsAnswer && std::to_integer<size_t>(bytes[kKind]) == hello &&
         bytes[kWantsAnswer] == std::byte{0};
}

void seal(std::vector<std::byte>& message) {
  const uint64_t sum = checksum_of(message);
  for (size_t i = 0; i < kSealBytes; ++i) message.push_back(static_cast<std::byte>(sum >> (8 * i)));
}

Result<Message> decode(std::span<const std::byte> bytes) {
  const size_t length = bytes.size() - std::min(bytes.size(), kSealBytes);
  uint64_t sum = 0;
  Reader(bytes.subspan(length)).number(sum);
  if (sum != checksum_of(bytes.first(length)))
    return Error{EBADMSG,
                 fmt::format("a message of {} bytes is damaged: its checksum is wrong", bytes.size())};
  Reader in(bytes.first(length));
  uint16_t version = 0;
  in.number(version);
  if (length >= sizeof(version) && version != kVersion) {
    return Error{EPROTONOSUPPORT, fmt::format("it speaks version {} of the protocol, this node version {}",
                                              version, kVersion)};
  }
  constexpr size_t kinds = std::variant_size_v<Message>;
  uint8_t kind = 0;
  in.up_to(kind, kinds - 1, "no such kind");
  Message message = of_kind(kind, std::make_index_sequence<kinds>());
  std::visit([&](auto& m) { fields(in, m); }, message);
  if (const char* problem = in.problem(); problem != nullptr)
    return Error{EBADMSG, fmt::format("a message of {} bytes is malformed: {}", bytes.size(), problem)};
  return message;
}

}  // namespace clairfs::wire
