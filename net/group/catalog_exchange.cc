#include "net/group/catalog_exchange.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "cache/base/units.h"

namespace clairfs {
namespace {

// More than any catalog (four billion entries of a hundred bytes); what is more is damaged.
constexpr uint64_t kMostBytes = 1ULL << 40;

// An image that came damaged is fetched again; when it is damaged every time the giver's own is.
constexpr int kTries = 3;

// How often who waits looks at the time.
constexpr auto kLook = std::chrono::milliseconds(100);

// Requests of a node that may wait for their pieces: many times its window.
constexpr size_t kMostWaiting = 64;

}  // namespace

CatalogExchange::CatalogExchange(const Deps& deps, const CatalogExchangeOptions& options)
    : deps_(deps), options_(options), heard_(deps.clock.now()) {}

CatalogExchange::~CatalogExchange() = default;

void CatalogExchange::tell_progress(uint64_t entries) {
  const auto bytes = wire::encode(wire::CatalogProgress{entries});
  for (uint32_t i = 0; i < deps_.transport.size(); ++i) {
    if (NodeId(i) != deps_.transport.self()) (void)deps_.transport.send(NodeId(i), bytes);
  }
}

void CatalogExchange::publish(std::shared_ptr<const Catalog> catalog) {
  {
    MutexLock lock(mutex_);
    published_ = std::move(catalog);
  }
  for (uint32_t i = 0; i < deps_.transport.size(); ++i) {
    if (NodeId(i) != deps_.transport.self()) on_hello_without(NodeId(i));
  }
}

std::optional<wire::CatalogOffer> CatalogExchange::offer() const {
  MutexLock lock(mutex_);
  if (!published_) return std::nullopt;
  return wire::CatalogOffer{published_->image().size(), published_->identity()};
}

void CatalogExchange::on_hello_without(NodeId from) {
  if (deps_.transport.self() != kScanner) return;
  if (const auto what = offer()) (void)deps_.transport.send(from, wire::encode(*what));
}

void CatalogExchange::on_request(NodeId from, const wire::CatalogRequest& request) {
  if (give(from, request)) return;
  auto& waiting = waiting_[from];
  const bool repeated = !waiting.try_emplace(request.transfer, request).second;
  if (waiting.size() > kMostWaiting) waiting.erase(waiting.begin());
  if (!repeated) return;
  std::optional<wire::CatalogProgress> waits_too;
  {
    MutexLock lock(mutex_);
    if (!error_) waits_too = wire::CatalogProgress{entries_};
  }
  if (waits_too) (void)deps_.transport.send(from, wire::encode(*waits_too));
}

// False if it is not here yet.
bool CatalogExchange::give(NodeId to, const wire::CatalogRequest& request) {
  std::shared_ptr<const Catalog> catalog;
  std::shared_ptr<ImageFetch> fetch;
  {
    MutexLock lock(mutex_);
    catalog = published_;
    fetch = fetch_;
  }
  std::shared_ptr<const void> owner = catalog;
  std::span<const std::byte> bytes;
  if (catalog) {
    const auto image = catalog->image();
    if (request.offset > image.size() || request.length > image.size() - request.offset)
      return true;  // it never is
    bytes = image.subspan(request.offset, request.length);
  } else {
    auto came = fetch ? fetch->copy(request.offset, request.length) : std::nullopt;
    if (!came) return false;
    // The image itself goes when it turns out to be damaged, whatever the network is doing.
    const auto copy = std::make_shared<const std::vector<std::byte>>(std::move(*came));
    bytes = *copy;
    owner = copy;
  }
  if (!answered_.note(to, request.transfer)) return true;
  // The network only reads it.
  iovec memory{const_cast<std::byte*>(bytes.data()), bytes.size()};
  deps_.transport.send_bulk(to, request.transfer, {memory}, [owner](const Status&) {});
  return true;
}

// To those that asked for it before.
void CatalogExchange::give_what_came() {
  for (auto& entry : waiting_) {
    const NodeId to = entry.first;
    const bool here = is_here(to);
    std::erase_if(entry.second, [&](const auto& request) { return !here || give(to, request.second); });
  }
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
}

void CatalogExchange::on_progress(NodeId from, const wire::CatalogProgress& progress) {
  MutexLock lock(mutex_);
  if (from == giver_) giver_heard_ = deps_.clock.now();
  if (from != kScanner) return;
  entries_ = progress.entries;
  heard_ = deps_.clock.now();
  changed_.notify_all();
}

void CatalogExchange::on_offer(NodeId from, const wire::CatalogOffer& offer) {
  if (from != kScanner || offer.bytes == 0 || offer.bytes > kMostBytes) return;
  {
    MutexLock lock(mutex_);
    if (taken_ || error_) return;  // it comes again and again, whether the pieces do or not
    changed_.notify_all();
    if (offer.bytes > options_.most_memory) {
      error_ = no_memory_for_catalog("the catalog that node 0 offers", offer.bytes, options_.most_memory);
      return;
    }
    heard_ = deps_.clock.now();
    taken_ = offer;
    fetch_from(giver_of(deps_.transport.self()));
  }
  if (const auto fetch = this->fetch()) fetch->ask_for_more();
}

// Nothing is asked for yet. Gives the fetch that it replaces.
std::shared_ptr<ImageFetch> CatalogExchange::fetch_from(NodeId giver) {
  auto fetch = ImageFetch::make({deps_.transport, deps_.numbers, deps_.clock, giver,
                                 [](uint64_t offset, uint32_t length, TransferNumber transfer) {
                                   return wire::CatalogRequest{offset, length, transfer};
                                 },
                                 [this] {
                                   give_what_came();
                                   changed_.notify_all();
                                 }},
                                options_, taken_->bytes);
  if (!fetch) {
    error_ = fetch.error();
    return nullptr;
  }
  giver_ = giver;
  giver_heard_ = deps_.clock.now();
  return std::exchange(fetch_, std::move(*fetch));
}

// As far as this node knows.
bool CatalogExchange::is_here(NodeId node) const {
  const PeerState state = deps_.membership.state(node);
  return state == PeerState::joining || state == PeerState::alive;
}

bool CatalogExchange::giver_fails(TimePoint now) const {
  if (!fetch_ || giver_ == kScanner) return false;
  const ImageFetch::State state = fetch_->state();
  if (state.complete) return false;
  return state.error || !is_here(giver_) ||
         now - std::max(giver_heard_, state.heard) > options_.giver_patience;
}

NodeId CatalogExchange::next_giver() const {
  const NodeId above = giver_of(deps_.transport.self());
  return giver_ == above && above != kScanner ? giver_of(above) : kScanner;
}

std::shared_ptr<ImageFetch> CatalogExchange::fetch() const {
  MutexLock lock(mutex_);
  return fetch_;
}

// Nobody waits for it any more.
void CatalogExchange::end_fetch() {
  std::shared_ptr<ImageFetch> ended;
  {
    MutexLock lock(mutex_);
    ended.swap(fetch_);
  }
  if (ended) ended->give_up();
}

void CatalogExchange::tick(TimePoint now) {
  give_what_came();
  std::shared_ptr<ImageFetch> failed;
  {
    MutexLock lock(mutex_);
    if (!error_ && giver_fails(now)) failed = fetch_from(next_giver());
  }
  if (failed) failed->give_up();
  if (const auto fetch = this->fetch()) fetch->tick(now);
}

void CatalogExchange::fail(const Error& error) {
  MutexLock lock(mutex_);
  if (!error_) error_ = error;
  changed_.notify_all();
}

Result<std::shared_ptr<const Catalog>> CatalogExchange::await(const std::function<void(uint64_t)>& progress) {
  for (int tries = 1;; ++tries) {
    auto image = await_image(progress);
    if (!image) {
      end_fetch();
      return image.error();
    }
    auto catalog = Catalog::adopt(std::move(*image));
    if (catalog && take_over(*catalog)) return catalog;
    end_fetch();  // others get nothing more of it; after that it may go
    if (tries == kTries) return catalog ? Error{EBADMSG, "it is not the one that node 0 offered"} : catalog;
    {
      MutexLock lock(mutex_);
      fetch_from(kScanner);
    }
    if (const auto again = fetch()) again->ask_for_more();
  }
}

// What others still want of it they get from the catalog. False if it is not the one that was offered.
bool CatalogExchange::take_over(const std::shared_ptr<const Catalog>& catalog) {
  {
    MutexLock lock(mutex_);
    if (catalog->identity() != taken_->identity) return false;
    published_ = catalog;
  }
  end_fetch();
  return true;
}

Result<Mapping> CatalogExchange::await_image(const std::function<void(uint64_t)>& progress) {
  MutexLock lock(mutex_);
  heard_ = deps_.clock.now();
  for (;;) {
    const ImageFetch::State state = fetch_ ? fetch_->state() : ImageFetch::State();
    if (state.error && !error_ && giver_ == kScanner) {  // else another is asked with the next tick
      error_ =
          Error{state.error->code, "the catalog could not be fetched from node 0: " + state.error->message};
    }
    if (error_) return *error_;
    if (state.complete) return fetch_->take();
    if (deps_.clock.now() - std::max(heard_, state.heard) > options_.patience) {
      error_ = Error{ETIMEDOUT, fmt::format("node 0 was silent for {} while it should have sent the catalog",
                                            format_duration(options_.patience))};
      continue;
    }
    changed_.wait_for(lock, kLook);
    const uint64_t entries = entries_;
    lock.unlock();
    progress(entries);
    lock.lock();
  }
}

}  // namespace clairfs
