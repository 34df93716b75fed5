#include "cache/source/fetch_queue.h"

#include <climits>
#include <deque>
#include <iterator>

namespace clairfs {
namespace {

// How much of what one operation takes is used up.
struct Extent {
  uint64_t bytes = 0;
  size_t pieces = 0;

  bool has_room_for(const FetchRequest& request) const {
    return bytes + request.length <= FetchQueue::kMostBytes && pieces + request.memory.size() <= IOV_MAX;
  }
  void add(const FetchRequest& request) {
    bytes += request.length;
    pieces += request.memory.size();
  }
};

// The least urgent that is taken with a fetch of that priority.
Priority least_with(const Priority& most) {
  const bool prefetch = most.kind == Priority::Kind::prefetch;
  return {most.kind, prefetch ? most.deadline + FetchQueue::kMostLater : UINT64_MAX};
}

}  // namespace

void FetchQueue::add(Waiting fetch) {
  const FetchRequest& request = fetch.request;
  const Key key{request.demand->now(), fetch.arrival};
  keys_[request.demand.get()] = key;
  if (!fetch.alone) places_.try_emplace({request.file, request.offset}, request.demand.get());
  queue_.emplace(key, std::move(fetch));
}

void FetchQueue::demand_changed(const Demand& demand) {
  const auto found = keys_.find(&demand);
  if (found == keys_.end()) return;
  auto node = queue_.extract(found->second);
  node.key().first = found->second.first = demand.now();
  queue_.insert(std::move(node));
}

// The least urgent that is taken with such a fetch. With one for which a reader waits come prefetches:
// readers who wait go on behind it, and those before it are the blocks of others who wait as well.
Priority FetchQueue::least_beside(const Priority& most) const {
  const auto next = queue_.lower_bound(Key{Priority{Priority::Kind::prefetch, 0}, 0});
  const bool soon = most.is_demand() && next != queue_.end() && !next->first.first.is_background();
  return least_with(soon ? next->first.first : most);
}

// The most urgent fetch, or the one where the last operation ended if the most urgent one is a prefetch, lies
// further on in that file and can wait for it.
FetchQueue::Queue::iterator FetchQueue::next_to_take() {
  const auto most = queue_.begin();
  const auto [file, end] = ended_;
  const Waiting& fetch = most->second;
  const bool further = !fetch.alone && fetch.request.file == file && fetch.request.offset > end;
  if (!further || most->first.first.kind != Priority::Kind::prefetch) return most;
  const auto place = places_.find(ended_);
  if (place == places_.end()) return most;
  const auto next = with(place->second);
  return next->first.first <= least_with(most->first.first) ? next : most;
}

std::vector<FetchQueue::Waiting> FetchQueue::take_first(uint64_t along) {
  const Priority most = first();
  const Priority beside = least_beside(most);
  Extent extent;
  std::deque<Waiting> taken;
  taken.push_back(take(next_to_take()));
  extent.add(taken.front().request);
  const bool alone = taken.front().alone;
  // What is as urgent is not left out for prefetches, nor for what comes along.
  for (const bool all : {false, true}) {
    const Priority least = all ? beside : least_with(most);
    const auto fits = [&](Queue::iterator next) {
      if (alone || next == queue_.end() || !extent.has_room_for(next->second.request)) return false;
      const bool comes_along = all && next->second.request.rest && next->second.request.length <= along;
      return next->first.first <= least || comes_along;
    };
    for (auto next = before(taken.front().request); fits(next); next = before(taken.front().request)) {
      extent.add(next->second.request);
      taken.push_front(take(next));
    }
    for (auto next = after(taken.back().request); fits(next); next = after(taken.back().request)) {
      extent.add(next->second.request);
      taken.push_back(take(next));
    }
  }
  const FetchRequest& last = taken.back().request;
  ended_ = {last.file, last.offset + last.length};
  return {std::make_move_iterator(taken.begin()), std::make_move_iterator(taken.end())};
}

std::vector<FetchQueue::Waiting> FetchQueue::take_all() {
  std::vector<Waiting> all;
  for (auto& [key, fetch] : queue_) all.push_back(std::move(fetch));
  queue_.clear();
  keys_.clear();
  places_.clear();
  return all;
}

FetchQueue::Waiting FetchQueue::take(Queue::iterator at) {
  Waiting fetch = std::move(at->second);
  queue_.erase(at);
  const Demand* demand = fetch.request.demand.get();
  keys_.erase(demand);
  const auto place = places_.find({fetch.request.file, fetch.request.offset});
  if (place != places_.end() && place->second == demand) places_.erase(place);
  return fetch;
}

FetchQueue::Queue::iterator FetchQueue::with(const Demand* demand) {
  return queue_.find(keys_.at(demand));
}

FetchQueue::Queue::iterator FetchQueue::after(const FetchRequest& request) {
  const auto place = places_.find({request.file, request.offset + request.length});
  return place == places_.end() ? queue_.end() : with(place->second);
}

FetchQueue::Queue::iterator FetchQueue::before(const FetchRequest& request) {
  auto place = places_.lower_bound({request.file, request.offset});
  if (place == places_.begin()) return queue_.end();
  --place;
  const auto found = with(place->second);
  const FetchRequest& earlier = found->second.request;
  const bool adjacent = earlier.file == request.file && earlier.offset + earlier.length == request.offset;
  return adjacent ? found : queue_.end();
}

}  // namespace clairfs
