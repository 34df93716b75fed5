#include "fs/control/history.h"

#include <cinttypes>
#include <cstdio>
#include <sstream>

#include <fmt/format.h>

namespace clairfs {
namespace {

constexpr const char* kNames =
    "seconds,pushed_bytes,ram_bytes,nvme_bytes,peer_bytes,pfs_bytes,source_bytes,stall_seconds,ahead_samples";

}  // namespace

HistoryRow history_row(const Metrics& metrics, double seconds, uint64_t ahead_samples) {
  return {seconds,
          metrics.staging_pushed_bytes.value(),
          metrics.bytes_ram.value(),
          metrics.bytes_nvme.value(),
          metrics.bytes_peer.value(),
          metrics.bytes_pfs.value(),
          metrics.pfs_bytes.value(),
          static_cast<double>(metrics.stall_ns.value()) * 1e-9,
          ahead_samples};
}

Duration History::add(const HistoryRow& row) {
  const MutexLock lock(mutex_);
  rows_.push_back(row);
  if (rows_.size() < kMost) return interval_;
  constexpr size_t kKept = kMost / 2 + 1;
  for (size_t at = 0; at < kKept; ++at) rows_[at] = rows_[2 * at];
  rows_.resize(kKept);
  return interval_ *= 2;
}

std::string History::csv() const {
  const MutexLock lock(mutex_);
  std::string text = std::string(kNames) + "\n";
  for (const HistoryRow& row : rows_) {
    text += fmt::format("{:.3f},{},{},{},{},{},{},{:.6f},{}\n", row.seconds, row.pushed_bytes, row.ram_bytes,
                        row.nvme_bytes, row.peer_bytes, row.pfs_bytes, row.source_bytes, row.stall_seconds,
                        row.ahead_samples);
  }
  return text;
}

std::optional<std::vector<HistoryRow>> parse_history(const std::string& csv) {
  std::istringstream lines(csv);
  std::string line;
  if (!std::getline(lines, line) || line != kNames) return std::nullopt;
  std::vector<HistoryRow> rows;
  while (std::getline(lines, line)) {
    HistoryRow& row = rows.emplace_back();
    const int fields = std::sscanf(
        line.c_str(),
        "%lf,%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%lf,%" SCNu64,
        &row.seconds, &row.pushed_bytes, &row.ram_bytes, &row.nvme_bytes, &row.peer_bytes, &row.pfs_bytes,
        &row.source_bytes, &row.stall_seconds, &row.ahead_samples);
    if (fields != 9) return std::nullopt;
  }
  return rows;
}

}  // namespace clairfs
