// All reads in the order of time (see simulation.h): a queue of events, and what each sets going.
#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "plan/simulator/engine/engine.h"

namespace clairfs {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// An entry of the staging buffer.
struct Staged {
  uint32_t sample = 0;
  Cursor place;
  bool passed_over = false;  // left to the consumer
  bool wanted = false;       // the consumer waits for it
  Source source = Source::pfs;
  double end = kUnknown;  // when it is there; unknown while its thread waits for a copy
};

struct Consumer {
  uint64_t k = 0;     // next sample of the epoch
  uint64_t last = 0;  // one past the batch's last
  double asked_at = 0;
  double computing = 0;  // that waits for the whole batch
};

struct Worker {
  Consumer consumer;
  Cursor ahead;
  std::deque<Staged> staged;  // those before `ahead` that were not consumed yet; references stay valid
  double staged_mb = 0;
  uint32_t idle_threads = 0;
  uint32_t pfs_reads = 0;  // under way
};

// A worker that waits for a copy that is still to be filled.
struct Waiter {
  uint32_t worker = 0;
  uint32_t sample = 0;
  Staged* entry = nullptr;  // null: the consumer itself
};

struct Fill {
  size_t next = 0;  // of the queue's samples
};

enum class Kind : uint8_t { ask, deliver, demanded, ahead_done, pfs_done, filled };

struct Event {
  double time = 0;
  uint64_t number = 0;  // events of one time happen in the order in which they were made
  Kind kind = Kind::ask;
  uint32_t worker = 0;  // kFilled: number of the queue
  uint32_t sample = 0;
  Source source = Source::pfs;

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : number > other.number;
  }
};

class ByTime {
 public:
  ByTime(const SimulationInput& input, Outcome& outcome)
      : in_(input),
        out_(outcome),
        window_(input.job, input.strategy.reorder),
        workers_(input.job.workers()),
        fills_(input.strategy.fills.size()),
        waiters_(input.job.workers()) {}

  Status run() {
    epoch_begin_ = 0;
    for (Worker& worker : workers_) worker.idle_threads = in_.scenario.staging.threads;
    const double begin = in_.strategy.preparation;
    Status status = begin_batch(begin);
    for (uint32_t queue = 0; queue < fills_.size(); ++queue) {
      for (uint32_t thread = 0; thread < in_.strategy.fills[queue].threads; ++thread) fill_next(queue, begin);
    }
    for (uint32_t w = 0; status && w < workers_.size(); ++w) status = read_ahead(w, begin);
    while (status && !finished_) {
      const Event event = events_.top();
      events_.pop();
      status = handle(event);
    }
    return status;
  }

 private:
  void push(double time, Kind kind, uint32_t worker, uint32_t sample = 0, Source source = Source::pfs) {
    events_.push(Event{time, ++event_number_, kind, worker, sample, source});
  }

  Status handle(const Event& event) {
    switch (event.kind) {
      case Kind::ask:
        return ask(event.worker, event.time);
      case Kind::deliver:
        return deliver_staged(event.worker, event.time);
      case Kind::demanded:
        note_fetched(in_, event.worker, event.sample, event.time);
        return deliver(event.worker, event.sample, event.source, event.time);
      case Kind::ahead_done:
        note_fetched(in_, event.worker, event.sample, event.time);
        ++workers_[event.worker].idle_threads;
        return read_ahead(event.worker, event.time);
      case Kind::pfs_done:
        end_pfs_read(event.worker);
        return {};
      case Kind::filled:
        filled(event.worker, event.sample, event.time);
        fill_next(event.worker, event.time);
        return {};
    }
    return {};
  }

  // --- The filesystem.

  // Begins a read of the PFS; returns the seconds that it takes.
  double begin_pfs_read(uint32_t w, double mb, double now) {
    if (++workers_[w].pfs_reads == 1) ++pfs_clients_;
    ++pfs_reads_;
    const double seconds = in_.model.fetch_pfs(mb, {pfs_clients_, workers_[w].pfs_reads, pfs_reads_});
    push(now + seconds, Kind::pfs_done, w);
    out_.read_mb[size_t(Source::pfs)] += mb;
    return seconds;
  }

  void end_pfs_read(uint32_t w) {
    if (--workers_[w].pfs_reads == 0) --pfs_clients_;
    --pfs_reads_;
  }

  Status note_pfs_read(const PfsRead& read) {
    return in_.strategy.on_pfs_read ? in_.strategy.on_pfs_read(in_.strategy.holdings, read) : Status();
  }

  // --- Consumers.

  Status begin_batch(double now) {
    const auto order = window_.get(epoch_);
    if (!order) return order.error();
    order_ = *order;
    arrived_ = 0;
    batch_.assign(workers_.size(), WorkerBatch());
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      const WorkerShare& share = in_.job.share(w);
      Consumer& consumer = workers_[w].consumer;
      consumer.k = std::min(step_ * share.step, share.count());
      consumer.last = std::min(consumer.k + share.step, share.count());
      push(now, Kind::ask, w);
    }
    return {};
  }

  // All workers have arrived.
  Status end_batch(double now) {
    note_batch(batch_, out_);
    const uint64_t steps = in_.job.steps();
    if (in_.progress) in_.progress(epoch_ * steps + step_ + 1, steps * in_.job.epochs());
    if (++step_ == steps) {
      step_ = 0;
      ++epoch_;
      out_.epoch_seconds.push_back(now - epoch_begin_);
      epoch_begin_ = now;
      window_.release_before(epoch_);
      if (epoch_ == in_.job.epochs()) {
        out_.runtime = now;
        finished_ = true;
        return {};
      }
    }
    return begin_batch(now);
  }

  Status ask(uint32_t w, double now) {
    Worker& worker = workers_[w];
    Consumer& consumer = worker.consumer;
    if (consumer.k == consumer.last && consumer.computing > 0) {
      push(now + std::exchange(consumer.computing, 0), Kind::ask, w);
      return {};
    }
    if (consumer.k == consumer.last) {
      batch_[w].end = now;
      return ++arrived_ == workers_.size() ? end_batch(now) : Status();
    }
    consumer.asked_at = now;
    if (worker.staged.empty()) {  // reading ahead has not come as far
      worker.ahead = Cursor{epoch_, consumer.k};
      worker.ahead.advance(in_.job.share(w).count());
      return demand(w, in_.job.share(w).sample(*order_, consumer.k), now);
    }
    Staged& entry = worker.staged.front();
    if (entry.passed_over) {
      const uint32_t sample = entry.sample;
      worker.staged.pop_front();
      return demand(w, sample, now);
    }
    if (entry.end <= now) return deliver_staged(w, now);
    entry.wanted = true;
    if (entry.end != kUnknown) push(entry.end, Kind::deliver, w);
    return {};
  }

  Status deliver_staged(uint32_t w, double now) {
    Worker& worker = workers_[w];
    const Staged entry = worker.staged.front();
    worker.staged.pop_front();
    worker.staged_mb -= in_.sizes[entry.sample];
    return deliver(w, entry.sample, entry.source, now);
  }

  Status deliver(uint32_t w, uint32_t sample, Source source, double now) {
    Worker& worker = workers_[w];
    const double mb = in_.sizes[sample];
    batch_[w].tally.stall[size_t(source)] += now - worker.consumer.asked_at;
    const double compute = in_.model.compute(mb);
    batch_[w].tally.compute += compute;
    out_.delivered_mb[size_t(source)] += mb;
    ++worker.consumer.k;
    const bool at_once = in_.scenario.computing == Computing::per_sample;
    if (!at_once) worker.consumer.computing += compute;
    push(at_once ? now + compute : now, Kind::ask, w);
    return read_ahead(w, now);
  }

  // The consumer reads the sample itself.
  Status demand(uint32_t w, uint32_t sample, double now) {
    const double mb = in_.sizes[sample];
    if (const auto kept = choose_kept(w, sample, now, Source::pfs)) {
      if (kept->available_at == kUnknown) {
        waiters_[kept->holder].push_back({w, sample, nullptr});
      } else {
        finish_demand(w, sample, *kept, std::max(now, kept->available_at));
      }
      return {};
    }
    const double seconds = begin_pfs_read(w, mb, now);
    const double end = now + seconds + in_.model.write(mb);
    push(end, Kind::demanded, w, sample, Source::pfs);
    return note_pfs_read({epoch_, workers_[w].consumer.k, sample, end});
  }

  void finish_demand(uint32_t w, uint32_t sample, const Option& kept, double now) {
    const double mb = in_.sizes[sample];
    out_.read_mb[size_t(kept.source)] += mb;
    push(now + kept.seconds + in_.model.write(mb), Kind::demanded, w, sample, kept.source);
  }

  // --- The staging buffer.

  // Sets idle threads to work for as long as there is room.
  Status read_ahead(uint32_t w, double now) {
    if (!in_.strategy.reads_ahead) return {};
    Worker& worker = workers_[w];
    const WorkerShare& share = in_.job.share(w);
    while (worker.idle_threads > 0 && share.count() > 0 && worker.ahead.epoch < in_.job.epochs()) {
      const auto order = window_.get(worker.ahead.epoch);
      if (!order) return order.error();
      const uint32_t sample = share.sample(**order, worker.ahead.k);
      const double mb = in_.sizes[sample];
      if (worker.staged_mb + mb > in_.scenario.staging.capacity) return {};
      const Cursor place = worker.ahead;
      worker.ahead.advance(share.count());
      Status begun = begin_ahead(w, worker.staged.emplace_back(Staged{sample, place}), now);
      if (!begun) return begun;
    }
    return {};
  }

  Status begin_ahead(uint32_t w, Staged& entry, double now) {
    Worker& worker = workers_[w];
    const double mb = in_.sizes[entry.sample];
    const auto kept = choose_kept(w, entry.sample, now, Source::local);
    if (!kept && !in_.strategy.ahead_from_pfs) {
      entry.passed_over = true;
      return {};
    }
    --worker.idle_threads;
    worker.staged_mb += mb;
    if (!kept) {
      finish_ahead(w, entry, Source::pfs, begin_pfs_read(w, mb, now), now);
      return note_pfs_read({entry.place.epoch, entry.place.k, entry.sample, entry.end});
    }
    if (kept->available_at == kUnknown) {
      waiters_[kept->holder].push_back({w, entry.sample, &entry});
    } else {
      out_.read_mb[size_t(kept->source)] += mb;
      finish_ahead(w, entry, kept->source, kept->seconds, std::max(now, kept->available_at));
    }
    return {};
  }

  void finish_ahead(uint32_t w, Staged& entry, Source source, double fetch, double now) {
    entry.source = source;
    entry.end = now + fetch + in_.model.write(in_.sizes[entry.sample]);
    push(entry.end, Kind::ahead_done, w, entry.sample);
    if (entry.wanted) push(entry.end, Kind::deliver, w);
  }

  // The copy to read from, which may still be to come if the policy waits for such; nothing if the sample is
  // to come from the PFS. `peers`: kPfs if others' copies count in any case, else only if the policy reads
  // ahead from them.
  std::optional<Option> choose_kept(uint32_t w, uint32_t sample, double now, Source peers) const {
    if (in_.strategy.single_read) return soonest_option(in_, w, sample, now);
    const bool with_peers = peers == Source::pfs || in_.strategy.ahead_from_peers;
    std::optional<Option> kept = local_option(in_, w, sample, now);
    if (with_peers) {
      const auto peer = peer_option(in_, w, sample, now);
      if (peer && (!kept || peer->seconds < kept->seconds)) kept = peer;
    }
    // A worker that does not read from the PFS waits for what is being filled.
    if (!kept && !in_.strategy.ahead_from_pfs && !in_.strategy.fills.empty())
      kept = soonest_option(in_, w, sample, now);
    return kept;
  }

  // --- Filling storage classes.

  void fill_next(uint32_t queue_number, double now) {
    const FillQueue& queue = in_.strategy.fills[queue_number];
    Fill& fill = fills_[queue_number];
    if (fill.next == queue.samples.size()) return;
    const uint32_t sample = queue.samples[fill.next++];
    const double mb = in_.sizes[sample];
    const Holding* copy = in_.strategy.holdings.find(sample, queue.worker);
    const double fetch = begin_pfs_read(queue.worker, mb, now);
    push(now + fetch + in_.model.fill(mb, copy->storage), Kind::filled, queue_number, sample);
  }

  void filled(uint32_t queue_number, uint32_t sample, double now) {
    const uint32_t holder = in_.strategy.fills[queue_number].worker;
    in_.strategy.holdings.find(sample, holder)->available_at = not_after(now);
    std::vector<Waiter>& waiters = waiters_[holder];
    for (size_t at = 0; at < waiters.size();) {
      if (waiters[at].sample != sample) {
        ++at;
        continue;
      }
      const Waiter waiter = waiters[at];
      waiters[at] = waiters.back();
      waiters.pop_back();
      serve(waiter, now);
    }
  }

  void serve(const Waiter& waiter, double now) {
    const Option kept = *soonest_option(in_, waiter.worker, waiter.sample, now);
    if (waiter.entry == nullptr) {
      finish_demand(waiter.worker, waiter.sample, kept, now);
    } else {
      out_.read_mb[size_t(kept.source)] += in_.sizes[waiter.sample];
      finish_ahead(waiter.worker, *waiter.entry, kept.source, kept.seconds, now);
    }
  }

  const SimulationInput& in_;
  Outcome& out_;
  OrderWindow window_;
  std::vector<Worker> workers_;
  std::vector<Fill> fills_;                   // by queue
  std::vector<std::vector<Waiter>> waiters_;  // by the worker that fills

  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t event_number_ = 0;
  uint32_t pfs_clients_ = 0;  // workers that read
  uint32_t pfs_reads_ = 0;    // of all workers, under way
  uint32_t epoch_ = 0;
  uint64_t step_ = 0;
  const EpochOrder* order_ = nullptr;  // of epoch_
  uint32_t arrived_ = 0;               // at the barrier
  std::vector<WorkerBatch> batch_;     // by worker
  double epoch_begin_ = 0;
  bool finished_ = false;
};

}  // namespace

Status simulate_by_time(const SimulationInput& input, Outcome& outcome) {
  return ByTime(input, outcome).run();
}

}  // namespace clairfs
