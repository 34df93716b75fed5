#include "net/group/image_fetch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

namespace clairfs {
namespace {

// Of a node. It asks for a few at a time, and of these one may be overtaken by some that it asked for later.
constexpr size_t kMostAnswered = 64;

}  // namespace

bool AnsweredRequests::note(NodeId to, TransferNumber transfer) {
  std::deque<TransferNumber>& latest = latest_[to];
  if (std::find(latest.begin(), latest.end(), transfer) != latest.end()) return false;
  latest.push_back(transfer);
  if (latest.size() > kMostAnswered) latest.pop_front();
  return true;
}

ImageFetch::ImageFetch(Deps deps, const ImageFetchOptions& options, Mapping image)
    : deps_(std::move(deps)),
      options_(options),
      image_(std::move(image)),
      bytes_(image_.data(), image_.size()),
      pieces_(0),
      missing_(0),
      heard_(deps_.clock.now()) {
  for (uint64_t offset = 0; offset < image_.size(); offset += options_.piece) to_ask_.push_back(offset);
  pieces_ = missing_ = to_ask_.size();
  here_.resize(pieces_);
}

Result<std::shared_ptr<ImageFetch>> ImageFetch::make(Deps deps, const ImageFetchOptions& options,
                                                     uint64_t bytes) {
  auto image = Mapping::anonymous(bytes);
  if (!image) return image.error();
  return std::shared_ptr<ImageFetch>(new ImageFetch(std::move(deps), options, std::move(*image)));
}

ImageFetch::~ImageFetch() {
  MutexLock lock(mutex_);
  if (!memory_lost_) return;
  alignas(Mapping) std::array<std::byte, sizeof(Mapping)> never_destroyed;
  new (never_destroyed.data()) Mapping(std::move(image_));
}

void ImageFetch::ask_for_more() {
  for (;;) {
    uint64_t offset = 0;
    uint32_t length = 0;
    TransferNumber transfer = 0;
    iovec memory{};
    {
      MutexLock lock(mutex_);
      if (error_ || to_ask_.empty() || asked_.size() >= options_.window) return;
      offset = to_ask_.front();
      to_ask_.pop_front();
      length = length_at(offset);
      transfer = deps_.numbers.next(deps_.giver);
      const TimePoint now = deps_.clock.now();
      asked_[offset] = {transfer, now, now};
      memory = {image_.data() + offset, length};
    }
    deps_.transport.receive(
        deps_.giver, transfer, {memory},
        [self = shared_from_this(), offset](const Status& status) { self->piece_came(offset, status); });
    (void)deps_.transport.send(deps_.giver, wire::encode(deps_.request(offset, length, transfer)));
  }
}

uint32_t ImageFetch::length_at(uint64_t offset) const {
  return static_cast<uint32_t>(std::min<uint64_t>(options_.piece, image_.size() - offset));
}

void ImageFetch::piece_came(uint64_t offset, const Status& status) {
  {
    MutexLock lock(mutex_);
    asked_.erase(offset);
    if (!status && status.error().code == EBUSY) memory_lost_ = true;
    if (status) {
      here_[offset / options_.piece] = true;
      --missing_;
      heard_ = deps_.clock.now();
    } else if (status.error().code == ECANCELED) {
      to_ask_.push_front(offset);  // it was late
    } else if (!error_) {
      error_ = status.error();
    }
  }
  deps_.changed();
  if (status)
    ask_for_more();  // else with the next tick: what cannot be received fails at once, again and again
}

void ImageFetch::tick(TimePoint now) {
  std::vector<TransferNumber> late;
  std::vector<wire::Message> repeated;
  {
    MutexLock lock(mutex_);
    for (auto& [offset, piece] : asked_) {
      if (now - piece.began >= options_.piece_patience) {
        piece.began = piece.asked = now;
        late.push_back(piece.transfer);
      } else if (!error_ && now - piece.asked >= options_.repeat_after) {
        piece.asked = now;
        repeated.push_back(deps_.request(offset, length_at(offset), piece.transfer));
      }
    }
  }
  for (const auto& request : repeated) (void)deps_.transport.send(deps_.giver, wire::encode(request));
  for (const TransferNumber transfer : late) deps_.transport.cancel(deps_.giver, transfer);
  ask_for_more();
}

ImageFetch::State ImageFetch::state() const {
  MutexLock lock(mutex_);
  return {missing_ == 0, static_cast<unsigned>(100 * (pieces_ - missing_) / pieces_), heard_, error_};
}

std::optional<std::vector<std::byte>> ImageFetch::copy(uint64_t offset, uint32_t length) const {
  MutexLock lock(mutex_);
  if (offset > bytes_.size() || length > bytes_.size() - offset) return std::nullopt;
  for (uint64_t piece = offset / options_.piece; piece * options_.piece < offset + length; ++piece) {
    if (!here_[piece]) return std::nullopt;
  }
  const auto part = bytes_.subspan(offset, length);
  return std::vector<std::byte>(part.begin(), part.end());
}

Mapping ImageFetch::take() {
  MutexLock lock(mutex_);
  return std::move(image_);
}

void ImageFetch::give_up() {
  std::vector<TransferNumber> under_way;
  {
    MutexLock lock(mutex_);
    if (!error_) error_ = Error{ECANCELED, "given up"};
    bytes_ = {};
    for (const auto& [offset, asked] : asked_) under_way.push_back(asked.transfer);
  }
  for (const TransferNumber transfer : under_way) deps_.transport.cancel(deps_.giver, transfer);
}

}  // namespace clairfs
