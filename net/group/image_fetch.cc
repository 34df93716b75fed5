#include "net/group/image_fetch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

namespace clairfs {

ImageFetch::ImageFetch(Deps deps, const ImageFetchOptions& options, Mapping image)
    : deps_(std::move(deps)),
      options_(options),
      image_(std::move(image)),
      pieces_(0),
      missing_(0),
      heard_(deps_.clock.now()) {
  for (uint64_t offset = 0; offset < image_.size(); offset += options_.piece) to_ask_.push_back(offset);
  pieces_ = missing_ = to_ask_.size();
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
      length = static_cast<uint32_t>(std::min<uint64_t>(options_.piece, image_.size() - offset));
      transfer = deps_.numbers.next(deps_.giver);
      asked_[offset] = {transfer, deps_.clock.now()};
      memory = {image_.data() + offset, length};
    }
    deps_.transport.receive(
        deps_.giver, transfer, {memory},
        [self = shared_from_this(), offset](const Status& status) { self->piece_came(offset, status); });
    (void)deps_.transport.send(deps_.giver, wire::encode(deps_.request(offset, length, transfer)));
  }
}

void ImageFetch::piece_came(uint64_t offset, const Status& status) {
  {
    MutexLock lock(mutex_);
    asked_.erase(offset);
    if (!status && status.error().code == EBUSY) memory_lost_ = true;
    if (status) {
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
  {
    MutexLock lock(mutex_);
    for (auto& [offset, asked] : asked_) {
      if (now - asked.asked < options_.piece_patience) continue;
      asked.asked = now;
      late.push_back(asked.transfer);
    }
  }
  for (const TransferNumber transfer : late) deps_.transport.cancel(deps_.giver, transfer);
  ask_for_more();
}

ImageFetch::State ImageFetch::state() const {
  MutexLock lock(mutex_);
  return {missing_ == 0, static_cast<unsigned>(100 * (pieces_ - missing_) / pieces_), heard_, error_};
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
    for (const auto& [offset, asked] : asked_) under_way.push_back(asked.transfer);
  }
  for (const TransferNumber transfer : under_way) deps_.transport.cancel(deps_.giver, transfer);
}

}  // namespace clairfs
