// What other nodes say: whatever is understood has one spelling and stays within the limits that wire.h
// states, and the plans in it end up the same on every node, in whichever order they are heard.
//
// An input is messages one after the other, each after its length in two bytes and without its checksum,
// which is made right first: nobody guesses it, and a faulty program would send a right one.
#include <algorithm>
#include <span>
#include <tuple>
#include <vector>

#include "net/group/plan_register.h"
#include "net/transport/wire.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;

namespace {

/// What is allocated for a message may be a small multiple of its length: a request takes 48 bytes for 31.
constexpr size_t kMostPerByte = 4;

struct Limits {
  size_t bytes;

  void list(size_t count, size_t entry) const {
    fuzz::require(count <= wire::kMaxList && count * entry <= kMostPerByte * bytes, "lists are bounded");
  }
  void operator()(const wire::Hello& m) const {
    fuzz::require(m.host.size() <= wire::kMaxName, "names are short");
  }
  void operator()(const wire::Goodbye& m) const {
    fuzz::require(m.reason.size() <= wire::kMaxText, "texts are bounded");
  }
  void operator()(const wire::Refusal& m) const {
    fuzz::require(m.reason.size() <= wire::kMaxText, "texts are bounded");
  }
  void operator()(const wire::ChunkRequests& m) const {
    list(m.list.size(), sizeof(wire::ChunkRequest));
    for (const wire::ChunkRequest& r : m.list) {
      fuzz::require(r.length > 0 && r.transfer < kTransferNumbers, "a request asks for something");
      fuzz::require(r.priority.kind <= Priority::Kind::background, "priorities are known");
    }
  }
  void operator()(const wire::ChunkReplies& m) const {
    list(m.list.size(), sizeof(wire::ChunkReply));
    for (const wire::ChunkReply& r : m.list) {
      fuzz::require(r.status <= wire::ChunkReply::Status::failed, "statuses are known");
      fuzz::require(r.origin <= Origin::pfs, "origins are known");
    }
  }
  void operator()(const wire::Reprioritize& m) const {
    list(m.ids.size(), sizeof(uint32_t));
    fuzz::require(m.priority.kind <= Priority::Kind::background, "priorities are known");
  }
  void operator()(const wire::Probe& m) const { list(m.ids.size(), sizeof(uint32_t)); }
  void operator()(const wire::ProbeAnswer& m) const { list(m.unknown.size(), sizeof(uint32_t)); }
  void operator()(const wire::PlanEntry& m) const {
    fuzz::require(m.name.size() <= wire::kMaxName && m.text.size() <= wire::kMaxText, "plans are bounded");
  }
  void operator()(const wire::CatalogProgress&) const {}
  void operator()(const wire::CatalogOffer&) const {}
  void operator()(const wire::CatalogRequest& m) const {
    fuzz::require(m.length <= wire::kMaxPiece && m.transfer < kTransferNumbers, "pieces are bounded");
  }
  void operator()(const wire::IndexInquiry&) const {}
  void operator()(const wire::IndexState& m) const {
    fuzz::require(m.stage <= wire::IndexState::Stage::here && m.percent <= 100, "stages are known");
  }
  void operator()(const wire::IndexRequest& m) const {
    fuzz::require(m.length <= wire::kMaxPiece && m.transfer < kTransferNumbers, "pieces are bounded");
  }
};

bool same_bytes(const std::vector<std::byte>& a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// Checks one message; keeps it if it is a plan.
void check(std::span<const std::byte> body, std::vector<wire::PlanEntry>& plans) {
  std::vector<std::byte> bytes(body.begin(), body.end());
  (void)wire::decode(bytes);
  wire::seal(bytes);
  const auto message = wire::decode(bytes);
  if (!message) {
    const Error& error = message.error();
    fuzz::require(error.code == EBADMSG || error.code == EPROTONOSUPPORT, "a refusal has one of two codes");
    fuzz::require(!error.message.empty(), "a refusal says why");
    return;
  }
  fuzz::require(same_bytes(wire::encode(*message), bytes), "a message has one spelling");
  std::visit(Limits{bytes.size()}, *message);
  if (const auto* plan = std::get_if<wire::PlanEntry>(&*message)) plans.push_back(*plan);
}

/// Nodes never say two plans under one stamp, so those are left out; a board also has room for a thousand
/// only.
void check_board(std::vector<wire::PlanEntry> plans) {
  const auto stamp = [](const wire::PlanEntry& p) { return std::tie(p.name, p.stamp, p.origin); };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const auto& a, const auto& b) { return stamp(a) < stamp(b); });
  const auto same = [&](const auto& a, const auto& b) { return stamp(a) == stamp(b); };
  plans.erase(std::unique(plans.begin(), plans.end(), same), plans.end());
  PlanRegister one(NodeId(0));
  PlanRegister other(NodeId(1));
  for (const wire::PlanEntry& plan : plans) one.merge(plan);
  std::for_each(plans.rbegin(), plans.rend(), [&](const wire::PlanEntry& plan) { other.merge(plan); });
  fuzz::require(one.entries() == other.entries() && one.digest() == other.digest(),
                "the order does not matter");
  const auto mine = one.enter("mine", "seed=1");
  fuzz::require(!mine || other.merge(*mine), "a plan that is registered now holds everywhere");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto rest = std::as_bytes(std::span(data, size));
  std::vector<wire::PlanEntry> plans;
  check(rest, plans);  // also as one message, up to its end
  plans.clear();
  while (rest.size() >= 2) {
    const size_t length = std::to_integer<size_t>(rest[0]) | std::to_integer<size_t>(rest[1]) << 8;
    rest = rest.subspan(2);
    const auto bytes = rest.first(std::min(length, rest.size()));
    rest = rest.subspan(bytes.size());
    check(bytes, plans);
  }
  if (plans.size() < 100) check_board(std::move(plans));
  return 0;
}
