// The published simulator's way (see simulation.h): one worker after the other, batch by batch.
#include <algorithm>
#include <limits>

#include "plan/simulator/engine/engine.h"
#include "plan/simulator/policies/thread_clocks.h"

namespace clairfs {
namespace {

constexpr double kLongAgo = -std::numeric_limits<double>::infinity();

// A read that was worked out.
struct Read {
  Source source = Source::pfs;
  double end = 0;
};

// An entry of the staging buffer; without `read` the sample was passed over.
struct StagedSample {
  std::optional<Read> read;
  double mb = 0;
};

struct WorkerState {
  explicit WorkerState(uint32_t threads) : clocks(threads) {}

  ThreadClocks clocks;
  Cursor ahead;                     // the next sample to be read ahead
  std::deque<StagedSample> staged;  // those before `ahead` that were not consumed yet
  double staged_mb = 0;
  // When the last read of the PFS begins that was worked out, for the consumer and for the staging buffer.
  double demanded_from_pfs = kLongAgo;
  double prefetched_from_pfs = kLongAgo;
};

class ByWorker {
 public:
  ByWorker(const SimulationInput& input, Outcome& outcome)
      : in_(input),
        out_(outcome),
        window_(input.job, input.strategy.reorder),
        workers_(input.job.workers(), WorkerState(input.scenario.staging.threads)) {}

  Status run() {
    schedule_fills();
    double time = in_.strategy.preparation;
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      Status filled = fill_staging(w, time);
      if (!filled) return filled;
    }
    const uint64_t total = in_.job.steps() * in_.job.epochs();
    for (uint32_t epoch = 0; epoch < in_.job.epochs(); ++epoch) {
      const double begin = epoch == 0 ? 0 : time;
      for (uint64_t step = 0; step < in_.job.steps(); ++step) {
        const auto end = run_batch(epoch, step, time);
        if (!end) return end.error();
        time = *end;
        if (in_.progress) in_.progress(epoch * in_.job.steps() + step + 1, total);
      }
      out_.epoch_seconds.push_back(time - begin);
      window_.release_before(epoch + 1);
    }
    out_.runtime = time;
    return {};
  }

 private:
  // When each sample that is filled ahead will be there: g = N all the time.
  void schedule_fills() {
    for (const FillQueue& queue : in_.strategy.fills) {
      ThreadClocks clocks(queue.threads, in_.strategy.preparation);
      for (const uint32_t sample : queue.samples) {
        Holding* copy = in_.strategy.holdings.find(sample, queue.worker);
        const double mb = in_.sizes[sample];
        const double fetch = in_.model.fetch_pfs(mb, everybody_reads(in_.scenario, queue.threads));
        copy->available_at = not_after(clocks.work(fetch + in_.model.fill(mb, copy->storage)));
        out_.read_mb[size_t(Source::pfs)] += mb;
      }
    }
  }

  // Returns when all workers are done with the batch that they begin at `begin`.
  Result<double> run_batch(uint32_t epoch, uint64_t step, double begin) {
    const auto order = window_.get(epoch);
    if (!order) return order.error();
    batch_.assign(workers_.size(), WorkerBatch{{}, begin});
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      const WorkerShare& share = in_.job.share(w);
      const uint64_t first = std::min(step * share.step, share.count());
      const uint64_t last = std::min(first + share.step, share.count());
      double computing = 0;  // of the samples that are there, where it waits for the whole batch
      for (uint64_t k = first; k < last; ++k) {
        const uint32_t sample = share.sample(**order, k);
        const auto ready = request(w, Cursor{epoch, k}, sample, batch_[w].end);
        if (!ready) return ready.error();
        const double compute = in_.model.compute(in_.sizes[sample]);
        batch_[w].tally.compute += compute;
        const bool at_once = in_.scenario.computing == Computing::per_sample;
        batch_[w].end = *ready + (at_once ? compute : 0);
        computing += at_once ? 0 : compute;
      }
      batch_[w].end += computing;
    }
    return note_batch(batch_, out_);
  }

  // Worker `w` asks for a sample at `now`; returns when it has it.
  Result<double> request(uint32_t w, Cursor place, uint32_t sample, double now) {
    if (!in_.strategy.stalls) return now;
    WorkerState& worker = workers_[w];
    const std::optional<Read> staged = take_staged(worker, w, place);
    Read read = staged.value_or(Read{Source::pfs, std::numeric_limits<double>::infinity()});
    // A policy that reads everything once waits for the read that is under way.
    const bool joins = staged && in_.strategy.single_read;
    if (read.end > now && !joins) {
      const Read demanded = plan_demand(w, sample, now);
      if (demanded.end < read.end) {
        read = demanded;
        const Status noted = note_demand(w, place, sample, now, read);
        if (!noted) return noted.error();
      }
    }
    const double ready = std::max(now, read.end);
    batch_[w].tally.stall[size_t(read.source)] += ready - now;
    out_.delivered_mb[size_t(read.source)] += in_.sizes[sample];
    const Status filled = fill_staging(w, ready);
    if (!filled) return filled.error();
    return ready;
  }

  // The sample's entry, which leaves the staging buffer; nothing if it was passed over or not reached.
  std::optional<Read> take_staged(WorkerState& worker, uint32_t w, Cursor place) {
    if (worker.staged.empty()) {
      worker.ahead = place;
      worker.ahead.advance(in_.job.share(w).count());
      return std::nullopt;
    }
    const StagedSample entry = worker.staged.front();
    worker.staged.pop_front();
    worker.staged_mb -= entry.mb;
    return entry.read;
  }

  // What reading the sample for its consumer would be like.
  Read plan_demand(uint32_t w, uint32_t sample, double now) const {
    const double mb = in_.sizes[sample];
    if (in_.strategy.single_read) {
      if (const auto kept = soonest_option(in_, w, sample, now)) {
        return {kept->source, std::max(now, kept->available_at) + kept->seconds + in_.model.write(mb)};
      }
    }
    Read best{Source::pfs, now + in_.model.fetch_pfs(mb, pfs_load(w, now, 1))};
    for (const auto& option : {local_option(in_, w, sample, now), peer_option(in_, w, sample, now)}) {
      if (option && now + option->seconds < best.end) best = {option->source, now + option->seconds};
    }
    best.end += in_.model.write(mb);
    return best;
  }

  Status note_demand(uint32_t w, Cursor place, uint32_t sample, double now, const Read& read) {
    if (read.source == Source::pfs) workers_[w].demanded_from_pfs = now;
    return note_read(w, place, sample, read);
  }

  Status note_read(uint32_t w, Cursor place, uint32_t sample, const Read& read) {
    out_.read_mb[size_t(read.source)] += in_.sizes[sample];
    note_fetched(in_, w, sample, read.end);
    if (read.source != Source::pfs || !in_.strategy.on_pfs_read) return {};
    return in_.strategy.on_pfs_read(in_.strategy.holdings, PfsRead{place.epoch, place.k, sample, read.end});
  }

  // Works out reads for the staging buffer for as long as there is room; none begins before `now`.
  Status fill_staging(uint32_t w, double now) {
    if (!in_.strategy.reads_ahead) return {};
    WorkerState& worker = workers_[w];
    const WorkerShare& share = in_.job.share(w);
    if (share.count() == 0) return {};
    worker.clocks.not_before(now);
    while (worker.ahead.epoch < in_.job.epochs()) {
      const auto order = window_.get(worker.ahead.epoch);
      if (!order) return order.error();
      const uint32_t sample = share.sample(**order, worker.ahead.k);
      const double mb = in_.sizes[sample];
      if (worker.staged_mb + mb > in_.scenario.staging.capacity) return {};
      const double start = worker.clocks.next_start();
      const std::optional<Read> read = plan_ahead(w, sample, start);
      if (read) {
        worker.clocks.finish(read->end);
        if (read->source == Source::pfs) worker.prefetched_from_pfs = start;
        worker.staged_mb += mb;
        Status noted = note_read(w, worker.ahead, sample, *read);
        if (!noted) return noted;
      }
      worker.staged.push_back({read, read ? mb : 0});
      worker.ahead.advance(share.count());
    }
    return {};
  }

  // Reading the sample ahead from `start` on; nothing if the policy leaves it to the consumer.
  std::optional<Read> plan_ahead(uint32_t w, uint32_t sample, double start) const {
    const double mb = in_.sizes[sample];
    const double pfs = in_.model.fetch_pfs(mb, pfs_load(w, start, in_.scenario.staging.threads));
    std::optional<Option> kept;
    if (in_.strategy.single_read) {
      kept = soonest_option(in_, w, sample, start);
    } else {
      kept = local_option(in_, w, sample, kNotYet);
      if (in_.strategy.ahead_from_peers) {
        const auto peer = peer_option(in_, w, sample, kNotYet);
        if (peer && (!kept || peer->seconds < kept->seconds)) kept = peer;
      }
      const bool late = kept && (kept->available_at > start || pfs < kept->seconds);
      if (late && in_.strategy.ahead_from_pfs) kept.reset();
    }
    if (kept) {
      return Read{kept->source, std::max(start, kept->available_at) + kept->seconds + in_.model.write(mb)};
    }
    if (!in_.strategy.ahead_from_pfs) return std::nullopt;
    return Read{Source::pfs, start + pfs + in_.model.write(mb)};
  }

  // g: this worker and those with a read of the PFS that begins at `time` or later; each with as many
  // threads.
  PfsLoad pfs_load(uint32_t w, double time, uint32_t threads) const {
    uint32_t clients = 1;
    for (uint32_t other = 0; other < workers_.size(); ++other) {
      const WorkerState& worker = workers_[other];
      if (other != w && std::max(worker.demanded_from_pfs, worker.prefetched_from_pfs) >= time) ++clients;
    }
    return {clients, threads, clients * threads};
  }

  const SimulationInput& in_;
  Outcome& out_;
  OrderWindow window_;
  std::vector<WorkerState> workers_;
  std::vector<WorkerBatch> batch_;  // by worker
};

}  // namespace

Status simulate_by_worker(const SimulationInput& input, Outcome& outcome) {
  return ByWorker(input, outcome).run();
}

}  // namespace clairfs
