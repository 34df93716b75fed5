#include "plan/offline/preview.h"

#include <utility>

#include "plan/formats/scanned_dataset.h"
#include "plan/sequence/plan_sampler.h"
#include "plan/spec/keys.h"

namespace clairfs {

Result<PlanPreview> preview_plan(PlanSpec given, uint32_t nodes, Logger& log) {
  const std::string root = std::exchange(given.root, "");
  if (root.empty() && given.n == 0) {
    return plan_error("root", "", "missing; want root=DIR, or n=SAMPLES alone for an order of numbers");
  }
  Result<PlanSpec> spec = resolve_plan(std::move(given), nodes);
  if (!spec) return spec.error();

  DatasetSource source;
  std::shared_ptr<const SampleIndex> index;
  if (!root.empty()) {
    Result<DatasetSource> scanned = scan_dataset(root, log);
    if (!scanned) return scanned.error();
    source = std::move(*scanned);
    auto made = make_sample_index(*spec, source);
    if (!made) return made.error();
    index = std::move(*made);
  }
  const SampleIndex* const numbered = index ? &index->numbered() : nullptr;
  const uint32_t n = numbered != nullptr ? numbered->size() : static_cast<uint32_t>(spec->n);
  auto sampler = make_plan_sampler(*spec, n, source, numbered);
  if (!sampler) return sampler.error();
  auto sequence = AccessSequence::make(std::move(*spec), std::move(*sampler), index);
  if (!sequence) return sequence.error();
  const uint32_t samples = index ? index->size() : n;
  return PlanPreview{std::move(source), std::move(index), samples, std::move(*sequence)};
}

}  // namespace clairfs
