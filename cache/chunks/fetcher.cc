#include "cache/chunks/fetcher.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace clairfs {
namespace {

const Error kStopped{ECANCELED, "the mount is being shut down"};

}  // namespace

// A read from NVMe, which has its memory until it ends. It counts as under way beside its fetch.
struct Fetcher::NvmeRead final : OverdueThread::Task {
  explicit NvmeRead(FetchPtr f)
      : fetch(std::move(f)),
        store(*fetch->store),
        transit(std::exchange(fetch->nvme_transit, 0)),
        data(fetch->data) {}

  FetchPtr fetch;  // of who takes the read
  const size_t store;
  const uint64_t transit;
  ChunkRef data;  // of the read
};

Fetcher::Fetcher(const Deps& deps, bool verify_warm_files, Duration nvme_patience, size_t most_in_parts)
    : deps_(deps), most_in_parts_(most_in_parts), given_up_(deps.tiers.stores()) {
  if (!given_up_.empty()) {
    nvme_watch_.emplace("nvme-watch", nvme_patience, [this](const OverdueThread::TaskPtr& read) {
      give_up(static_cast<NvmeRead&>(*read));
    });
  }
  if (!verify_warm_files) return;
  unverified_ = std::vector<std::atomic<bool>>(deps_.catalog.size());
  for (auto& file : unverified_) file = true;
}

bool Fetcher::asks_others(FileId file, uint64_t offset) const {
  return deps_.transit.may_lose() && deps_.source.may_wait_for_others(file, offset);
}

void Fetcher::start(const FetchPtr& fetch) {
  if (const auto lacking = begin(fetch))
    deps_.transit.wait(*lacking, demand_of(fetch), [this, fetch] { return begin(fetch); });
}

// To whoever has the fetch now.
void Fetcher::demand_changed(const Demand& demand) {
  deps_.transit.demand_changed(demand);
  deps_.source.demand_changed(demand);
}

// Reserves memory and starts the transfer, unless there is no memory now: the answer is what lacks it.
std::optional<TransitClass> Fetcher::begin(const FetchPtr& fetch) {
  if (stopping_.load()) {
    fail(*fetch, kStopped);
    return std::nullopt;
  }
  const ChunkRange range = deps_.catalog.range(fetch->chunk);
  const ChunkTable::Settled settled = deps_.table.settle(*fetch);
  const bool hangs = settled.store && given_up_[*settled.store].load() > 0;
  fetch->store = hangs ? std::nullopt : settled.store;
  const bool may_wait = fetch->may_wait;
  promise_room(*fetch, settled.store.has_value(), settled.use);
  place_for_parts(*fetch);
  std::optional<Block> block;
  // What comes from NVMe comes in pages.
  if (fetch->keep == Tier::ram && !fetch->store) block = deps_.tiers.allocate_ram(fetch->chunk);
  const bool in_transit = !block;
  if (!in_transit) fetch->promised = Tier::none;
  const bool verifies = fetch->store && must_verify(range.file);
  if (in_transit) {
    TransitClass transit_class = may_wait                    ? TransitClass::others
                                 : !fetch->store || verifies ? TransitClass::source
                                                             : TransitClass::nvme;
    block = deps_.transit.reserve(range.length, transit_class);
    // Reads that hang may have all of the share of reads from NVMe, which those of other stores need, too.
    if (!block && transit_class == TransitClass::nvme && any_hangs()) {
      fetch->store.reset();
      transit_class = TransitClass::source;
      block = deps_.transit.reserve(range.length, transit_class);
    }
    if (!block) {
      take_back(*fetch);  // a fetch that waits holds no room
      return transit_class;
    }
    fetch->nvme_transit = transit_class == TransitClass::nvme ? block->capacity() : 0;
  }
  under_way_.fetch_add(1);
  fetch->data = ChunkRef(new ChunkData(std::move(*block), range.length, deps_.transit));
  fetch->others_transit = may_wait && in_transit ? fetch->data->block.capacity() : 0;
  if (!fetch->store) {
    const bool splits = !in_transit && !may_wait && may_split(range.file);
    if (!splits || !fetch_in_parts(fetch)) fetch_from_source(fetch);
  } else if (verifies) {
    verify(fetch);
  } else {
    fetch_from_nvme(fetch);
  }
  return std::nullopt;
}

// With other memory, and from where its chunk is now.
void Fetcher::begin_again(const FetchPtr& fetch) {
  fetch->data = ChunkRef();
  take_back(*fetch);
  start(fetch);
}

void Fetcher::promise_room(Fetch& fetch, bool on_nvme, const Use& use) {
  fetch.keep = deps_.tiers.promise_room(fetch.chunk, on_nvme, use);
  fetch.promised = fetch.keep;
  fetch.owed = false;
}

// A chunk for NVMe, which takes whole ones, may come in parts if RAM can take it instead. It will be on NVMe
// as late as its copy is made: so that is owed when it is here.
void Fetcher::place_for_parts(Fetch& fetch) const {
  if (fetch.keep != Tier::nvme || fetch.may_wait) return;
  const ChunkRange range = deps_.catalog.range(fetch.chunk);
  if (!may_split(range.file) || !deps_.table.splits(fetch, range.length)) return;
  fetch.owed = deps_.tiers.swap_place(fetch.chunk);
  if (fetch.owed) fetch.keep = fetch.promised = Tier::ram;
}

// The room that was promised to the fetch is not needed any more.
void Fetcher::take_back(Fetch& fetch) {
  deps_.tiers.take_back(fetch.chunk, std::exchange(fetch.promised, Tier::none));
}

// Whether a read of some store does.
bool Fetcher::any_hangs() const {
  return std::any_of(given_up_.begin(), given_up_.end(), [](const auto& reads) { return reads.load() > 0; });
}

bool Fetcher::must_verify(FileId file) const {
  return !unverified_.empty() && unverified_[file.index()].load();
}

// An empty fetch reads nothing but compares the file with the catalog. With another ctime the file stays
// unverified: other chunks of it may be on NVMe, too. Then the fetch begins again, with memory of the class
// of those that wait for NVMe: it has waited for the source until now.
void Fetcher::verify(const FetchPtr& fetch) {
  FetchRequest request;
  request.file = deps_.catalog.range(fetch->chunk).file;
  request.demand = demand_of(fetch);
  request.done = [this, fetch, file = request.file](const Fetched& outcome) {
    if (outcome.failure() == FetchFailure::other_ctime) {
      deps_.tiers.forget(*fetch->store, fetch->chunk);
      return fetch_without_nvme(fetch);
    }
    if (!outcome) return finish(fetch, outcome);
    unverified_[file.index()] = false;
    begin_again(fetch);
    under_way_.fetch_sub(1);
  };
  deps_.source.start(std::move(request));
}

void Fetcher::fetch_from_nvme(const FetchPtr& fetch) {
  const auto read = std::make_shared<NvmeRead>(fetch);
  under_way_.fetch_add(1);
  nvme_watch_->add(read);
  deps_.tiers.read(read->store, fetch->chunk, read->data->block.all(),
                   [this, read](const Status& status) { read_ended(*read, status); });
}

// The fetch begins again, and those that wait for memory of other reads.
void Fetcher::give_up(NvmeRead& read) {
  if (given_up_[read.store].fetch_add(1) == 0) deps_.tiers.tell_of_hang(read.store);
  deps_.transit.read_hangs(read.transit);
  const FetchPtr fetch = std::move(read.fetch);
  begin_again(fetch);
  deps_.transit.wake();
  under_way_.fetch_sub(1);
}

void Fetcher::read_ended(NvmeRead& read, const Status& status) {
  deps_.transit.leave(TransitClass::nvme, read.transit);
  if (!read.take()) {
    deps_.transit.hung_read_ended(read.transit);
    given_up_[read.store].fetch_sub(1);
    return ended(std::move(read.data));
  }
  const FetchPtr fetch = std::move(read.fetch);
  read.data = ChunkRef();
  if (status) {
    finish(fetch, Origin::nvme);
  } else {
    fetch_without_nvme(fetch);
  }
  under_way_.fetch_sub(1);
}

// NVMe does not have the chunk any more.
void Fetcher::fetch_without_nvme(const FetchPtr& fetch) {
  deps_.tiers.lost_on_nvme(fetch->chunk);
  fetch->store.reset();
  take_back(*fetch);
  promise_room(*fetch, false, deps_.table.settle(*fetch).use);
  fetch_from_source(fetch);
}

void Fetcher::fetch_from_source(const FetchPtr& fetch) {
  const ChunkRange range = deps_.catalog.range(fetch->chunk);
  FetchRequest request;
  request.file = range.file;
  request.offset = range.offset;
  request.length = range.length;
  request.memory = fetch->data->block.slices(0, range.length);
  request.demand = demand_of(fetch);
  request.scope = fetch->may_wait ? FetchScope::anywhere : FetchScope::local_or_pfs;
  request.done = [this, fetch](const Fetched& outcome) { finish(fetch, outcome); };
  deps_.source.start(std::move(request));
}

// Whether a chunk of the file may come in parts now.
bool Fetcher::may_split(FileId file) const {
  return in_parts_.load() < most_in_parts_ && deps_.catalog.chunks(file).count > 1;
}

// False, and nothing happened: it is to come whole. Each part counts as under way.
bool Fetcher::fetch_in_parts(const FetchPtr& fetch) {
  const ChunkRange range = deps_.catalog.range(fetch->chunk);
  const std::vector<FetchPartPtr> parts = deps_.table.split(*fetch, range.length);
  if (parts.empty()) return false;
  under_way_.fetch_add(parts.size() - 1);
  in_parts_.fetch_add(1);
  for (const FetchPartPtr& part : parts) {
    FetchRequest request;
    request.file = range.file;
    request.offset = range.offset + part->piece.begin;
    request.length = part->piece.end - part->piece.begin;
    request.memory = fetch->data->block.slices(part->piece.begin, request.length);
    request.demand = {part, &part->demand};
    request.scope = FetchScope::local_or_pfs;  // so that no part can lose its memory
    request.rest = part != parts.front();
    request.with_next = part != parts.back();
    request.done = [this, fetch, part](const Fetched& outcome) { finish_part(fetch, *part, outcome); };
    deps_.source.start(std::move(request));
  }
  return true;
}

// The end of a part. It counts as under way until it has let go of the data, as those whom it answers have.
// The last one carries the fetch on.
void Fetcher::finish_part(const FetchPtr& fetch, FetchPart& part, const Fetched& outcome) {
  ChunkRef data = fetch->data;
  ChunkTable::PartEnded now = deps_.table.part_ended(*fetch, part, outcome.ok());
  for (const FetchWaiter& waiter : now.waiters) {
    if (outcome) {
      waiter.done(AcquiredChunk{data, *outcome, waiter.joined, 0});
    } else {
      waiter.done(outcome.error());
    }
  }
  now.waiters.clear();
  if (!now.last) return ended(std::move(data));
  in_parts_.fetch_sub(1);
  data = ChunkRef();
  if (!now.failed) return finish(fetch, outcome);
  ended(std::move(fetch->data));
}

// The promise ends before those who wait hear of the chunk: they may fetch more.
ChunkRef Fetcher::move_to_ram(Fetch& fetch, ChunkRef data) {
  data = deps_.tiers.moved_to_ram(fetch.chunk, std::move(data));
  if (deps_.tiers.in_ram(data)) fetch.promised = Tier::none;
  take_back(fetch);
  return data;
}

// The end of every transfer of a fetch.
void Fetcher::finish(const FetchPtr& fetch, const Fetched& outcome) {
  ChunkRef data = std::move(fetch->data);
  deps_.transit.leave(TransitClass::others, fetch->others_transit);
  if (outcome) {
    if (fetch->promised == Tier::ram) data = move_to_ram(*fetch, std::move(data));
    const bool to_nvme = fetch->keep == Tier::nvme;
    const bool written = to_nvme && deps_.tiers.count_write(data->block.capacity());
    publish(*fetch, data, *outcome);
    if (to_nvme) fetch->promised = Tier::none;  // the write takes it back
    if (written) {
      deps_.tiers.write(fetch->chunk, data);
    } else if (to_nvme) {
      deps_.tiers.write_later(fetch->chunk, data);
    }
  } else if (outcome.failure() == FetchFailure::memory_lost) {
    deps_.transit.lose(data);
    take_back(*fetch);
    deps_.table.keep_from_others(*fetch);  // so that this ends
    start(fetch);
  } else {
    take_back(*fetch);
    fail(*fetch, outcome.error());
  }
  ended(std::move(data));
}

// Makes fetched bytes known and answers all who wait.
void Fetcher::publish(const Fetch& fetch, const ChunkRef& data, Origin origin) {
  const bool in_ram = deps_.tiers.in_ram(data);
  if (in_ram) deps_.metrics.ram_chunks.add(1);
  const ChunkTable::Published published = deps_.table.publish(fetch, data, in_ram);
  if (in_ram) {
    deps_.tiers.kept_in_ram(fetch.chunk, published.store, fetch.owed);
  } else {
    deps_.transit.add(fetch.chunk);
  }
  for (const FetchWaiter& waiter : published.waiters)
    waiter.done(AcquiredChunk{data, origin, waiter.joined, 0});
}

void Fetcher::fail(const Fetch& fetch, const Error& error) {
  for (const FetchWaiter& waiter : deps_.table.abandon(fetch)) waiter.done(error);
}

// The data is let go of first: after that the cache may be destroyed.
void Fetcher::ended(ChunkRef data) {
  data = ChunkRef();
  under_way_.fetch_sub(1);
}

// A range that is read through.
struct Fetcher::Range {
  explicit Range(Priority priority) : demand(priority) {}

  FileId file;
  uint64_t offset = 0;
  uint64_t length = 0;
  FetchScope scope = FetchScope::anywhere;
  AcquireDone done;
  const Demand demand;
  ChunkRef data;
};

void Fetcher::read_range(FileId file, uint64_t offset, uint64_t length, Priority priority,
                         const AcquireDone& done) {
  const auto range = std::make_shared<Range>(priority);
  range->file = file;
  range->offset = offset;
  range->length = length;
  if (!asks_others(file, offset)) range->scope = FetchScope::local_or_pfs;
  range->done = done;
  start_range(range);
}

void Fetcher::start_range(const std::shared_ptr<Range>& range) {
  if (const auto lacking = begin_range(range)) {
    deps_.transit.wait(*lacking, {range, &range->demand}, [this, range] { return begin_range(range); });
  }
}

std::optional<TransitClass> Fetcher::begin_range(const std::shared_ptr<Range>& range) {
  if (stopping_.load()) {
    range->done(kStopped);
    return std::nullopt;
  }
  const TransitClass transit_class =
      range->scope == FetchScope::anywhere ? TransitClass::others : TransitClass::source;
  auto block = deps_.transit.reserve(range->length, transit_class);
  if (!block) return transit_class;
  under_way_.fetch_add(1);
  range->data =
      ChunkRef(new ChunkData(std::move(*block), static_cast<uint32_t>(range->length), deps_.transit));
  FetchRequest request;
  request.file = range->file;
  request.offset = range->offset;
  request.length = range->length;
  request.memory = range->data->block.slices(0, range->length);
  request.demand = {range, &range->demand};
  request.scope = range->scope;
  request.done = [this, range](const Fetched& outcome) { finish_range(range, outcome); };
  deps_.source.start(std::move(request));
  return std::nullopt;
}

void Fetcher::finish_range(const std::shared_ptr<Range>& range, const Fetched& outcome) {
  ChunkRef data = std::move(range->data);
  if (range->scope == FetchScope::anywhere) deps_.transit.leave(TransitClass::others, data->block.capacity());
  if (outcome) {
    range->done(AcquiredChunk{data, *outcome, false, range->offset % deps_.catalog.chunk_size(range->file)});
  } else if (outcome.failure() == FetchFailure::memory_lost) {
    deps_.transit.lose(data);
    range->scope = FetchScope::local_or_pfs;
    start_range(range);
  } else {
    range->done(outcome.error());
  }
  ended(std::move(data));
}

void Fetcher::stop() {
  stopping_.store(true);
  deps_.source.stop();
  deps_.transit.wake();  // what waits is answered now
}

}  // namespace clairfs
