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

}  // namespace

CatalogExchange::CatalogExchange(Transport& transport, TransferNumbers& numbers, const Clock& clock,
                                 const CatalogExchangeOptions& options)
    : transport_(transport), numbers_(numbers), clock_(clock), options_(options), heard_(clock.now()) {}

CatalogExchange::~CatalogExchange() = default;

void CatalogExchange::tell_progress(uint64_t entries) {
  const auto bytes = wire::encode(wire::CatalogProgress{entries});
  for (uint32_t i = 0; i < transport_.size(); ++i) {
    if (NodeId(i) != transport_.self()) (void)transport_.send(NodeId(i), bytes);
  }
}

void CatalogExchange::publish(std::shared_ptr<const Catalog> catalog) {
  {
    MutexLock lock(mutex_);
    published_ = std::move(catalog);
  }
  for (uint32_t i = 0; i < transport_.size(); ++i) {
    if (NodeId(i) != transport_.self()) on_hello_without(NodeId(i));
  }
}

std::optional<wire::CatalogOffer> CatalogExchange::offer() const {
  MutexLock lock(mutex_);
  if (!published_) return std::nullopt;
  return wire::CatalogOffer{published_->image().size(), published_->identity()};
}

void CatalogExchange::on_hello_without(NodeId from) {
  if (const auto what = offer()) (void)transport_.send(from, wire::encode(*what));
}

void CatalogExchange::on_request(NodeId from, const wire::CatalogRequest& request) {
  std::shared_ptr<const Catalog> catalog;
  {
    MutexLock lock(mutex_);
    catalog = published_;
  }
  if (!catalog || request.offset > catalog->image().size() ||
      request.length > catalog->image().size() - request.offset)
    return;
  const auto bytes = catalog->image().subspan(request.offset, request.length);
  if (!answered_.note(from, request.transfer)) return;
  // The network only reads it.
  iovec memory{const_cast<std::byte*>(bytes.data()), bytes.size()};
  transport_.send_bulk(from, request.transfer, {memory}, [catalog](const Status&) {});
}

void CatalogExchange::on_progress(NodeId from, const wire::CatalogProgress& progress) {
  if (from != kScanner) return;
  MutexLock lock(mutex_);
  entries_ = progress.entries;
  heard_ = clock_.now();
  changed_.notify_all();
}

void CatalogExchange::on_offer(NodeId from, const wire::CatalogOffer& offer) {
  if (from != kScanner || offer.bytes == 0 || offer.bytes > kMostBytes) return;
  {
    MutexLock lock(mutex_);
    if (taken_ || error_) return;  // it comes again and again, whether the pieces do or not
    heard_ = clock_.now();
    take(offer);
    changed_.notify_all();
  }
  if (const auto fetch = this->fetch()) fetch->ask_for_more();
}

// What fetches the image. Not begun.
void CatalogExchange::take(const wire::CatalogOffer& offer) {
  auto fetch = ImageFetch::make({transport_, numbers_, clock_, kScanner,
                                 [](uint64_t offset, uint32_t length, TransferNumber transfer) {
                                   return wire::CatalogRequest{offset, length, transfer};
                                 },
                                 [this] { changed_.notify_all(); }},
                                options_, offer.bytes);
  if (!fetch) {
    error_ = fetch.error();
    return;
  }
  fetch_ = std::move(*fetch);
  taken_ = offer;
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
    if (catalog || tries == kTries) return catalog;
    {
      MutexLock lock(mutex_);
      if (const auto offer = std::exchange(taken_, std::nullopt)) take(*offer);
    }
    if (const auto again = fetch()) again->ask_for_more();
  }
}

Result<Mapping> CatalogExchange::await_image(const std::function<void(uint64_t)>& progress) {
  MutexLock lock(mutex_);
  heard_ = clock_.now();
  for (;;) {
    const ImageFetch::State state = fetch_ ? fetch_->state() : ImageFetch::State();
    if (state.error && !error_) {
      error_ =
          Error{state.error->code, "the catalog could not be fetched from rank 0: " + state.error->message};
    }
    if (error_) return *error_;
    if (state.complete) return fetch_->take();
    if (clock_.now() - std::max(heard_, state.heard) > options_.patience) {
      error_ = Error{ETIMEDOUT, fmt::format("rank 0 was silent for {} while it should have sent the catalog",
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
