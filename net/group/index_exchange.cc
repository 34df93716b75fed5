#include "net/group/index_exchange.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace clairfs {
namespace {

using Stage = wire::IndexState::Stage;

// How often who waits looks at the time, and whether it is still wanted.
constexpr auto kIndexWait = std::chrono::milliseconds(20);

// More than the index of any file: ten billion records. What is more is damaged.
constexpr uint64_t kMostIndexBytes = 1ULL << 37;

}  // namespace

void IndexExchange::serve(const IndexStore& store) {
  MutexLock lock(mutex_);
  store_ = &store;
}

void IndexExchange::stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

std::vector<NodeId> IndexExchange::others() const {
  std::vector<NodeId> nodes;
  for (uint32_t i = 0; i < deps_.transport.size(); ++i) {
    const NodeId node(i);
    const PeerState state = deps_.membership.state(node);
    // One that is late may be busy with this very index. Waits are bounded by themselves.
    const bool there = state == PeerState::alive || state == PeerState::late;
    if (node != deps_.transport.self() && there) nodes.push_back(node);
  }
  return nodes;
}

bool IndexExchange::ended(const IndexWork& work) const {
  MutexLock lock(mutex_);
  return stopped_ || work.cancelled();
}

Result<Mapping> IndexExchange::fetch(uint64_t index, IndexWork& work) {
  {
    MutexLock lock(mutex_);
    searches_[index] = {};
    searches_[index].began = deps_.clock.now();
  }
  auto image = search(index, work);
  MutexLock lock(mutex_);
  // A node that asks before the store knows is told that it is being made.
  searches_[index] = {};
  searches_[index].over = true;
  return image;
}

Result<Mapping> IndexExchange::search(uint64_t index, IndexWork& work) {
  std::optional<TimePoint> asked;
  std::optional<NodeId> encoder;
  for (;;) {
    if (ended(work)) return Error{ECANCELED, "index: no longer wanted"};
    const TimePoint now = deps_.clock.now();
    if (!asked || now - *asked >= options_.ask_period(deps_.transport.size())) {
      inquire(index);
      asked = now;
    }
    const Step step = next_step(index, work);
    if (step.next == Next::encode && (encoder != step.giver || asked == now)) {
      encoder = step.giver;
      (void)deps_.transport.send(step.giver, wire::encode(wire::IndexRequest{index}));
    }
    if (step.next == Next::make) return Error{ENOENT, "index: no other node has it"};
    if (step.next == Next::fetch) {
      auto image = fetch_from(step, index, work);
      if (image) return image;
      continue;
    }
    MutexLock lock(mutex_);
    changed_.wait_for(lock, kIndexWait);
  }
}

void IndexExchange::inquire(uint64_t index) {
  const auto bytes = wire::encode(wire::IndexInquiry{index});
  for (const NodeId node : others()) (void)deps_.transport.send(node, bytes);
}

// The nearest first; none in a job in which one node may send to all.
std::vector<NodeId> IndexExchange::above() const {
  std::vector<NodeId> nodes;
  if (deps_.transport.size() <= options_.branches + 1) return nodes;
  for (uint32_t node = deps_.transport.self().value; node > 0; nodes.push_back(NodeId(node)))
    node = (node - 1) / options_.branches;
  return nodes;
}

// The step that one node's answer allows; `make`: none.
IndexExchange::Step IndexExchange::step_with(const Search& search, NodeId node, TimePoint now) const {
  const PeerState peer = deps_.membership.state(node);
  if (peer != PeerState::alive && peer != PeerState::late) return {};
  const auto found = search.answers.find(node);
  if (found == search.answers.end())
    return now - search.began < options_.answer_patience ? Step{Next::wait, node, 0} : Step{};
  const auto& [state, got_on, failed] = found->second;
  if (failed) return {};
  if (state.stage == Stage::here && state.bytes > 0) return {Next::fetch, node, state.bytes};
  if (state.stage == Stage::none || now - got_on >= options_.patience) return {};
  return {state.stage == Stage::here ? Next::encode : Next::wait, node, 0};
}

// The first node above that gets on or has it.
IndexExchange::Step IndexExchange::step_above(const Search& search, TimePoint now) const {
  const bool small = std::any_of(search.answers.begin(), search.answers.end(), [&](const auto& answer) {
    const auto& [state, got_on, failed] = answer.second;
    return !failed && state.stage == Stage::here && state.bytes > 0 && state.bytes <= options_.direct_bytes;
  });
  if (small) return {};
  for (const NodeId node : above()) {
    const Step step = step_with(search, node, now);
    if (step.next != Next::make) return step;
  }
  return {};
}

IndexExchange::Step IndexExchange::next_step(uint64_t index, IndexWork& work) {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  Search& search = searches_.at(index);
  Step step = step_above(search, now);
  if (step.next != Next::make) {
    const auto answer = search.answers.find(step.giver);
    if (answer != search.answers.end()) work.note(answer->second.state.percent, 100);
    return step;
  }
  for (const NodeId node : others()) {
    const auto found = search.answers.find(node);
    if (found == search.answers.end()) {
      if (step.next == Next::make && now - search.began < options_.answer_patience) step.next = Next::wait;
      continue;
    }
    const auto& [state, got_on, failed] = found->second;
    if (failed) continue;
    if (state.stage == Stage::here && state.bytes > 0) return {Next::fetch, node, state.bytes};
    if (state.stage == Stage::none || now - got_on >= options_.patience) continue;
    if (step.next == Next::encode) continue;
    step.next = state.stage == Stage::here ? Next::encode : Next::wait;
    step.giver = node;
    work.note(state.percent, 100);
  }
  search.over =
      step.next == Next::make;  // with the decision: else another could be told that nobody makes it
  return step;
}

Result<Mapping> IndexExchange::fetch_from(const Step& step, uint64_t index, IndexWork& work) {
  auto made = ImageFetch::make({deps_.transport, deps_.numbers, deps_.clock, step.giver,
                                [index](uint64_t offset, uint32_t length, TransferNumber transfer) {
                                  return wire::IndexRequest{index, offset, length, transfer};
                                },
                                [this] { changed_.notify_all(); }},
                               options_, step.bytes);
  if (!made) {
    MutexLock lock(mutex_);
    searches_.at(index).answers[step.giver].failed = true;
    return made.error();
  }
  const std::shared_ptr<ImageFetch> image = std::move(*made);
  {
    MutexLock lock(mutex_);
    searches_.at(index).image = image;
  }
  image->ask_for_more();
  for (;;) {
    const ImageFetch::State state = image->state();
    if (state.complete) return image->take();
    if (ended(work) || given_up(step, index, state)) break;
    work.note(state.percent, 100);
    MutexLock lock(mutex_);
    changed_.wait_for(lock, kIndexWait);
  }
  image->give_up();
  MutexLock lock(mutex_);
  Search& search = searches_.at(index);
  search.image = nullptr;
  search.answers[step.giver].failed = true;
  return Error{EIO, "index: a node that has it did not send it"};
}

bool IndexExchange::given_up(const Step& step, uint64_t index, const ImageFetch::State& state) const {
  const bool silent = deps_.clock.now() - state.heard >= options_.patience;
  const PeerState giver = deps_.membership.state(step.giver);
  if (state.error || silent || giver == PeerState::dead || giver == PeerState::left) return true;
  MutexLock lock(mutex_);
  const auto& answers = searches_.at(index).answers;
  const auto now = answers.find(step.giver);
  return now != answers.end() && now->second.state.stage == Stage::none;
}

void IndexExchange::on_state(NodeId from, const wire::IndexState& state) {
  if (state.bytes > kMostIndexBytes) return;
  MutexLock lock(mutex_);
  const auto search = searches_.find(state.index);
  if (search == searches_.end() || search->second.over) return;
  const auto [answer, first] = search->second.answers.try_emplace(from);
  if (first || answer->second.state != state) answer->second.got_on = deps_.clock.now();
  answer->second.state = state;
  changed_.notify_all();
}

void IndexExchange::on_inquiry(NodeId from, const wire::IndexInquiry& inquiry) {
  (void)deps_.transport.send(from, wire::encode(answer(from, inquiry.index)));
}

wire::IndexState IndexExchange::answer(NodeId from, uint64_t index) {
  MutexLock lock(mutex_);
  if (store_ == nullptr) return {index};
  const IndexStore::Progress progress = store_->progress(index);
  switch (progress.stage) {
    case IndexStore::Stage::none:
      return {index};
    case IndexStore::Stage::loading:
      return {index, Stage::making};  // whoever asks: loading waits for nobody
    case IndexStore::Stage::asking:
      return answer_while_asking(from, index);
    case IndexStore::Stage::making:
      return {index, Stage::making, progress.percent, progress.bytes_read, 0};
    case IndexStore::Stage::here:
      return image_state(index);
  }
  return {index};
}

// Two that ask each other must not wait for each other, nor both make it: the one with the lower number does.
// What it heard of the node that makes it is passed on, so that it counts as getting on.
wire::IndexState IndexExchange::answer_while_asking(NodeId from, uint64_t index) {
  const auto search = searches_.find(index);
  const bool over = search != searches_.end() && search->second.over;
  if (over || deps_.transport.self().value < from.value) {
    wire::IndexState said{index, Stage::making};
    if (search == searches_.end()) return said;
    if (search->second.image) {
      said.percent = search->second.image->state().percent;
      return said;
    }
    for (const auto& [node, heard] : search->second.answers) {
      if (heard.state.stage == Stage::making && heard.state.bytes_read > said.bytes_read) said = heard.state;
    }
    return said;
  }
  if (search != searches_.end()) {
    Answer& lower = search->second.answers[from];
    if (lower.state.stage == Stage::none) lower = {{index, Stage::making}, deps_.clock.now(), false};
  }
  return {index};
}

wire::IndexState IndexExchange::image_state(uint64_t index) const {
  const auto image = images_.find(index);
  if (image == images_.end()) return {index, Stage::here};
  if (!image->second.bytes) return {index, Stage::making, 100};
  return {index, Stage::here, 0, 0, image->second.bytes->size()};
}

// An inquiry goes to all nodes, and all that have the index would encode it.
void IndexExchange::want_image(NodeId from, uint64_t index) {
  {
    MutexLock lock(mutex_);
    if (store_ != nullptr && store_->progress(index).stage == IndexStore::Stage::here) {
      const auto [image, first] = images_.try_emplace(index);
      image->second.used = deps_.clock.now();
      if (first) deps_.post([this, from, index] { encode_for(from, index); });
    }
  }
  on_inquiry(from, {index});
}

void IndexExchange::encode_for(NodeId from, uint64_t index) {
  const IndexStore* store = nullptr;
  {
    MutexLock lock(mutex_);
    store = store_;
  }
  const auto bytes = std::make_shared<const std::vector<std::byte>>(store->image(index));
  {
    MutexLock lock(mutex_);
    images_.erase(index);
    if (!bytes->empty()) images_[index] = {bytes, deps_.clock.now()};
  }
  wire::IndexState said = answer(from, index);
  // There was no memory for it. A node that hears that it is here asks again.
  if (bytes->empty() && said.stage == Stage::here) said = {index};
  (void)deps_.transport.send(from, wire::encode(said));
}

void IndexExchange::on_request(NodeId from, const wire::IndexRequest& request) {
  if (request.length == 0) return want_image(from, request.index);
  std::shared_ptr<const std::vector<std::byte>> image;
  {
    MutexLock lock(mutex_);
    const auto found = images_.find(request.index);
    if (found != images_.end()) {
      image = found->second.bytes;
      found->second.used = deps_.clock.now();
    }
  }
  if (!image || request.offset > image->size() || request.length > image->size() - request.offset)
    return (void)deps_.transport.send(from, wire::encode(wire::IndexState{request.index}));
  if (!answered_.note(from, request.transfer)) return;
  // The network only reads it.
  iovec memory{const_cast<std::byte*>(image->data()) + request.offset, request.length};
  deps_.transport.send_bulk(from, request.transfer, {memory}, [image](const Status&) {});
}

void IndexExchange::tick(TimePoint now) {
  std::vector<std::shared_ptr<ImageFetch>> fetches;
  {
    MutexLock lock(mutex_);
    for (const auto& [index, search] : searches_) {
      if (search.image) fetches.push_back(search.image);
    }
    std::erase_if(images_, [&](const auto& image) {
      return image.second.bytes && now - image.second.used > options_.keep_image;
    });
  }
  for (const auto& fetch : fetches) fetch->tick(now);
}

}  // namespace clairfs
