#include "plan/simulator/model/job_order.h"

#include <algorithm>
#include <cerrno>
#include <cmath>

#include <fmt/format.h>

#include "cache/base/escaped.h"

namespace clairfs {
namespace {

// The first half of the workers gets a quarter of what each of the others gets.
constexpr uint64_t kSmallShare = 1;
constexpr uint64_t kLargeShare = 4;

Result<std::unique_ptr<Sampler>> sampler_of(const Scenario& scenario, uint64_t samples) {
  SamplerSpec spec;
  spec.sampler = scenario.sampler;
  spec.n = samples;
  spec.world = scenario.workers;
  spec.seed = std::to_string(scenario.seed);
  if (scenario.sampler == "nopfs") {
    spec.batch = static_cast<uint32_t>(scenario.batch);
    spec.drop_last = scenario.drop_last;
  } else if (scenario.sampler != "torch.distributed") {
    return Error{EINVAL, fmt::format("job.sampler: '{}' is none of nopfs, torch.distributed",
                                     escaped(scenario.sampler))};
  }
  auto sampler = make_sampler(spec);
  if (!sampler) return Error{sampler.error().code, "job." + sampler.error().message};
  return sampler;
}

// A worker that takes the positions from `first` to `last` of every batch.
WorkerShare range_share(const Scenario& scenario, uint64_t samples, uint64_t first, uint64_t last) {
  const uint64_t run = last - first;
  const uint64_t rest = scenario.drop_last ? 0 : samples % scenario.batch;
  const uint64_t tail = std::min(run, rest > first ? rest - first : 0);
  return WorkerShare{{.count = samples / scenario.batch * run + tail,
                      .start = first,
                      .stride = scenario.batch,
                      .run = std::max<uint64_t>(run, 1)},
                     std::max<uint64_t>(run, 1)};
}

std::vector<WorkerShare> imbalanced_shares(const Scenario& scenario, uint64_t samples) {
  const uint64_t small = scenario.workers / 2;
  const uint64_t total = small * kSmallShare + (scenario.workers - small) * kLargeShare;
  std::vector<WorkerShare> shares;
  uint64_t parts = 0;
  for (uint64_t worker = 0; worker < scenario.workers; ++worker) {
    const uint64_t first = scenario.batch * parts / total;
    parts += worker < small ? kSmallShare : kLargeShare;
    shares.push_back(range_share(scenario, samples, first, scenario.batch * parts / total));
  }
  return shares;
}

Result<std::vector<WorkerShare>> uniform_shares(const Scenario& scenario, const Sampler& sampler) {
  const bool strided = scenario.sampler == "torch.distributed";
  if (strided && scenario.batch % scenario.workers != 0) {
    return Error{EINVAL,
                 fmt::format("job.batch: {} is no multiple of job.workers = {}, as torch.distributed needs",
                             scenario.batch, scenario.workers)};
  }
  std::vector<WorkerShare> shares;
  for (uint32_t worker = 0; worker < scenario.workers; ++worker) {
    WorkerShare share{sampler.slice(Epoch(0), TrainingRank(worker)), 1};
    share.step = strided ? scenario.batch / scenario.workers : share.slice.run;
    if (strided && scenario.drop_last) share.slice.count -= share.slice.count % share.step;
    shares.push_back(share);
  }
  return shares;
}

}  // namespace

Result<JobOrder> JobOrder::make(const Scenario& scenario, uint64_t samples) {
  auto sampler = sampler_of(scenario, samples);
  if (!sampler) return sampler.error();
  JobOrder job;
  job.epochs_ = scenario.epochs;
  job.samples_ = samples;
  switch (scenario.distribution) {
    case Distribution::uniform: {
      auto shares = uniform_shares(scenario, **sampler);
      if (!shares) return shares.error();
      job.shares_ = std::move(*shares);
      break;
    }
    case Distribution::whole:
      job.shares_.assign(scenario.workers, range_share(scenario, samples, 0, scenario.batch));
      break;
    case Distribution::imbalanced:
      job.shares_ = imbalanced_shares(scenario, samples);
      break;
  }
  job.sampler_ = std::move(*sampler);
  for (const WorkerShare& share : job.shares_) {
    job.steps_ = std::max(job.steps_, (share.count() + share.step - 1) / share.step);
  }
  if (job.steps_ == 0) return Error{EINVAL, "job.batch: with drop_last there is not one batch"};
  return job;
}

uint64_t JobOrder::epoch_length() const {
  uint64_t length = 0;
  for (const WorkerShare& share : shares_) length += share.count();
  return length;
}

Result<EpochOrder> JobOrder::order(uint32_t epoch) {
  const auto made = sampler_->order(Epoch(epoch));
  if (!made) return made.error();
  EpochOrder order(made->size());
  for (uint64_t position = 0; position < order.size(); ++position) order[position] = (*made)[position];
  return order;
}

Result<const EpochOrder*> OrderWindow::get(uint32_t epoch) {
  while (first_ + orders_.size() <= epoch) {
    const auto next = static_cast<uint32_t>(first_ + orders_.size());
    auto order = job_.order(next);
    if (!order) return order.error();
    if (reorder_) reorder_(next, *order);
    orders_.push_back(std::make_unique<const EpochOrder>(std::move(*order)));
  }
  return orders_[epoch - first_].get();
}

void OrderWindow::release_before(uint32_t epoch) {
  while (first_ < epoch && !orders_.empty()) {
    orders_.pop_front();
    ++first_;
  }
}

}  // namespace clairfs
