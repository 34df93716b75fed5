#include "mount-helper/commands/timeline.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "plan/simulator/study/chart.h"

namespace clairfs {
namespace {

constexpr double kWidth = 1000;
constexpr double kChart = 200;     // height
constexpr double kAround = 110;    // a chart's title, axis and labels
constexpr double kMinutes = 1200;  // seconds from which on the axis has minutes

using Figure = std::function<double(const HistoryRow&)>;

// How much a figure went up a second, between each row and the one before.
Series rate(const char* label, const std::vector<HistoryRow>& rows, const Figure& figure) {
  Series series{label, {}};
  for (size_t at = 1; at < rows.size(); ++at) {
    const double span = std::max(rows[at].seconds - rows[at - 1].seconds, 1e-3);
    series.values.push_back((figure(rows[at]) - figure(rows[at - 1])) / span);
  }
  return series;
}

// In MiB. Nothing where there never were any.
void add_bytes(std::vector<Series>& all, const char* label, const std::vector<HistoryRow>& rows,
               uint64_t HistoryRow::*bytes) {
  if (rows.empty() || rows.back().*bytes == 0) return;
  all.push_back(
      rate(label, rows, [=](const HistoryRow& row) { return static_cast<double>(row.*bytes) / (1 << 20); }));
}

}  // namespace

std::string timeline(const std::vector<HistoryRow>& rows, const std::string& title) {
  const bool minutes = !rows.empty() && rows.back().seconds > kMinutes;
  LineAxis axis;
  for (size_t at = 1; at < rows.size(); ++at) axis.places.push_back(rows[at].seconds / (minutes ? 60 : 1));

  std::vector<Series> bytes;
  add_bytes(bytes, "from the RAM tier", rows, &HistoryRow::ram_bytes);
  add_bytes(bytes, "from NVMe", rows, &HistoryRow::nvme_bytes);
  add_bytes(bytes, "from other nodes", rows, &HistoryRow::peer_bytes);
  add_bytes(bytes, "from the PFS", rows, &HistoryRow::pfs_bytes);
  add_bytes(bytes, "pushed ahead", rows, &HistoryRow::pushed_bytes);
  if (!bytes.empty() && rows.back().pushed_bytes > 0) bytes.back().own = true;
  Series ahead{"of all plans", {}};
  for (size_t at = 1; at < rows.size(); ++at)
    ahead.values.push_back(static_cast<double>(rows[at].ahead_samples));
  const Series waiting = rate("on average", rows, [](const HistoryRow& row) { return row.stall_seconds; });

  Svg svg(kWidth, 3 * (kChart + kAround));
  double top = 0;
  const auto chart = [&](const std::string& name, std::vector<Series> series, const char* unit) {
    svg.text({20, top + 22}, name, {.size = 15, .bold = true});
    draw_lines(svg, {90, top + 50, 680, kChart}, axis, std::move(series),
               minutes ? "minutes since the mount began" : "seconds since the mount began", unit);
    top += kChart + kAround;
  };
  chart(title + ": what readers asked for, and what was pushed ahead of them", std::move(bytes), "MiB/s");
  chart("Samples ahead of the readers", {ahead}, "samples");
  chart("Readers that wait for data", {waiting}, "readers");
  return svg.document();
}

}  // namespace clairfs
