#include "plan/offline/order.h"

#include "plan/offline/preview.h"
#include "plan/spec/keys.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

Status plan_order(const PlanOrderRequest& request, Logger& log, const PlanOrderSink& sink) {
  Result<PlanSpec> spec = parse_plan(request.plan);
  if (!spec) return spec.error();
  if (spec->root.empty() && request.paths) {
    return plan_error("root", "", "missing; want root=DIR, or n=SAMPLES alone for an order of numbers");
  }
  auto preview = preview_plan(std::move(*spec), 1, log);
  if (!preview) return preview.error();
  const auto samples = preview->sequence.rank_samples(request.epoch, request.rank);
  if (!samples) return samples.error();
  for (const uint32_t sample : *samples) {
    if (!sink(sample, request.paths ? preview->index->path(sample) : "")) break;
  }
  return {};
}

}  // namespace clairfs
