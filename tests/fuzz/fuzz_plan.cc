// The plan parser, both spellings: whatever is accepted is shown and read back as the same plan.
#include <cstdint>
#include <string_view>

#include "plan/spec/plan_spec.h"
#include "tests/fuzz/fuzzing.h"

using namespace clairfs;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto spec = parse_plan(fuzz::text_of(data, size));
  if (!spec) {
    fuzz::require(!spec.error().message.empty(), "a refusal says why");
    return 0;
  }
  const auto again = parse_plan(format_plan(*spec));
  fuzz::require(again.ok() && *again == *spec, "a plan reads back as it is shown");
  // Bytes that are no UTF-8 are replaced in JSON, so the plan may differ, and may not be one any more.
  const auto json = parse_plan(format_plan_json(*spec));
  fuzz::require(json.ok() || json.error().code != 0, "JSON is read or refused");
  for (const uint32_t nodes : {1U, 3U, 64U}) {
    const auto resolved = resolve_plan(*spec, nodes);
    if (!resolved) continue;
    fuzz::require(resolved->world != 0 && resolved->ranks_per_node != 0, "a resolved plan has ranks");
    fuzz::require(resolved->world % resolved->ranks_per_node == 0, "ranks divide among nodes");
  }
  return 0;
}
