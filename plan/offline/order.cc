#include "plan/offline/order.h"

#include <fmt/format.h>

#include "plan/offline/preview.h"
#include "plan/spec/keys.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

using Detail = PlanOrderRequest::Detail;

std::string ranges_of(const PlanPreview& preview, uint32_t sample) {
  std::string text;
  const SampleIndex& index = preview.index->numbered();
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
    const ByteRange range = index.range(sample, piece);
    text += fmt::format("{}{} {} {}", piece == 0 ? "" : "\n+", range.offset, range.length,
                        preview.source.catalog->path(range.file));
  }
  return text;
}

std::string detail_of(const PlanPreview& preview, Detail detail, uint32_t sample) {
  if (detail == Detail::path) return preview.index->numbered().path(sample);
  return detail == Detail::ranges ? ranges_of(preview, sample) : "";
}

}  // namespace

Status plan_order(const PlanOrderRequest& request, Logger& log, const PlanOrderSink& sink) {
  Result<PlanSpec> spec = parse_plan(request.plan);
  if (!spec) return spec.error();
  if (spec->root.empty() && request.detail != Detail::none) {
    return plan_error("root", "", "missing; want root=DIR, or n=SAMPLES alone for an order of numbers");
  }
  auto preview = preview_plan(std::move(*spec), 1, log);
  if (!preview) return preview.error();
  const auto samples = preview->sequence.rank_samples(request.epoch, request.rank);
  if (!samples) return samples.error();
  for (const uint32_t sample : *samples) {
    if (!sink(sample, detail_of(*preview, request.detail, sample))) break;
  }
  return {};
}

}  // namespace clairfs
