#include "plan/simulator/model/performance_model.h"

#include <algorithm>

namespace clairfs {
namespace {

double per_thread(const ThroughputTable& table, uint32_t threads) {
  return table.at(threads) / threads;
}

}  // namespace

PerformanceModel::PerformanceModel(const Scenario& scenario) : scenario_(scenario) {
  const StorageClass& staging = scenario.staging;
  const ThroughputTable& staging_write = staging.write.empty() ? staging.read : staging.write;
  write_ = std::max(1 / scenario.preprocess, 1 / per_thread(staging_write, staging.threads));
  for (const StorageClass& storage : scenario.classes) {
    const double rate = scenario.reads == ReadSharing::divided ? per_thread(storage.read, storage.threads)
                                                               : storage.read.at(storage.threads);
    Class& seconds = classes_.emplace_back();
    seconds.latency = storage.latency;
    seconds.local = 1 / rate;
    seconds.peer = 1 / std::min(scenario.network, rate);
    if (scenario.fills == FillCost::processed) {
      seconds.fill = write_;
    } else if (!storage.write.empty()) {
      seconds.fill = 1 / per_thread(storage.write, storage.threads);
    }
  }
}

double PerformanceModel::fetch_pfs(double mb, const PfsLoad& load) const {
  const double link = scenario_.pfs_network;  // of one worker
  double rate = 0;
  switch (scenario_.pfs_sharing) {
    case PfsSharing::per_thread:
      rate = std::min(link, scenario_.pfs.at(load.workers) / load.workers);
      break;
    case PfsSharing::per_worker:
      rate = std::min(link, scenario_.pfs.at(load.workers) / load.workers) / load.own_threads;
      break;
    case PfsSharing::per_reader:
      rate = std::min(link / load.own_threads, scenario_.pfs.at(load.threads) / load.threads);
      break;
  }
  return scenario_.pfs_latency + mb / rate;
}

double PerformanceModel::fetch_peer(double mb, uint32_t storage) const {
  const Class& seconds = classes_[storage];
  return scenario_.network_latency + seconds.latency + mb * seconds.peer;
}

double PerformanceModel::fetch_local(double mb, uint32_t storage) const {
  const Class& seconds = classes_[storage];
  return seconds.latency + mb * seconds.local;
}

}  // namespace clairfs
