// What plans look like to people and programs: the reading half of PlanManager.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/printable.h"
#include "cache/base/units.h"
#include "plan/plan_manager.h"

namespace clairfs {
namespace {

std::string divergence_text(const PlanRun& run, const Divergence& d, const char* label) {
  return fmt::format("  {} epoch {} position {}: expected {}, saw {}{}{}\n", label, d.at.epoch.value,
                     d.at.position, printable(run.index().path(d.expected)),
                     printable(run.index().path(d.seen)), d.hint.empty() ? "" : ": ", d.hint);
}

std::string plan_text(const PlanRun& run, uint64_t ahead) {
  const TrackerStatus status = run.tracker().status();
  const Horizon horizon = run.horizon();
  std::string out = format_plan(run.given()) + "\n";
  out += fmt::format(
      "  state {}  epoch {}  position {} of {}  front {}  ahead {} samples  {:.0f} samples/s\n",
      to_string(status.state), status.front.epoch.value, status.position.position,
      horizon.epochs.front()->sequence->length(), status.front.position, ahead, status.samples_per_second);
  out += fmt::format(
      "  {} samples ({})  seen {} in order, {} out of order  realigned {}, suspended {} times  {}\n",
      run.index().size(), run.index().format(), status.in_order, status.out_of_order, status.realignments,
      status.suspensions, format_size(run.memory_bytes()));
  if (status.divergence) out += divergence_text(run, *status.divergence, "left the plan at");
  return out;
}

}  // namespace

std::string PlanManager::text() const {
  std::string out;
  const auto all = runs();
  for (const auto& [name, run] : *all) out += plan_text(*run, parts_.staging.ahead(name));
  return out;
}

Result<std::string> PlanManager::text(const std::string& name) const {
  const auto found = run(name);
  if (!found) return no_such_plan(name);
  return plan_text(*found, parts_.staging.ahead(name));
}

uint64_t PlanManager::least_source_bytes(uint64_t homeless_bytes) const {
  uint64_t once = 0, again = 0;
  const auto all = runs();
  for (const auto& [name, run] : *all) {
    once = std::max(once, run->dataset_bytes());
    again += (run->tracker().front().epoch.value - run->resolved().first_epoch) * homeless_bytes;
  }
  return once + again;
}

std::string PlanManager::json() const {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  const auto all = runs();
  for (const auto& [name, run] : *all) {
    const TrackerStatus s = run->tracker().status();
    Json plan;
    plan["name"] = name;
    plan["plan"] = Json::parse(format_plan_json(run->resolved()));
    plan["text"] = format_plan(run->given());
    plan["state"] = to_string(s.state);
    plan["epoch"] = s.front.epoch.value;
    plan["position"] = s.position.position;
    plan["front"] = s.front.position;
    plan["epoch_length"] = run->horizon().epochs.front()->sequence->length();
    plan["samples"] = run->index().size();
    plan["bytes"] = run->dataset_bytes();
    plan["passed"] = s.passed;
    plan["ahead"] = parts_.staging.ahead(name);
    plan["samples_per_second"] = s.samples_per_second;
    plan["in_order"] = s.in_order;
    plan["out_of_order"] = s.out_of_order;
    plan["realignments"] = s.realignments;
    plan["suspensions"] = s.suspensions;
    plan["memory_bytes"] = run->memory_bytes();
    if (s.divergence) {
      plan["divergence"] = {{"epoch", s.divergence->at.epoch.value},
                            {"position", s.divergence->at.position},
                            {"expected", run->index().path(s.divergence->expected)},
                            {"seen", run->index().path(s.divergence->seen)},
                            {"hint", s.divergence->hint}};
    }
    list.push_back(std::move(plan));
  }
  return list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string PlanManager::text_of_folder(std::string_view folder) const {
  const auto all = runs();
  for (const auto& [name, run] : *all) {
    if (run->given().root == folder) return format_plan(run->given());
  }
  return "";
}

Result<std::string> PlanManager::next(const std::string& name, uint64_t count) const {
  const auto found = run(name);
  if (!found) return no_such_plan(name);
  const Horizon horizon = found->horizon();
  const auto from = found->absolute(found->tracker().front());
  std::string out;
  if (!from) return out;
  for (uint64_t p = *from; p < std::min(horizon.end(), *from + count); ++p) {
    out += printable(found->index().path(horizon.sample_at(p))) + "\n";
  }
  return out;
}

Result<std::string> PlanManager::check(const std::string& name) const {
  const auto found = run(name);
  if (!found) return no_such_plan(name);
  const TrackerStatus s = found->tracker().status();
  const bool pass = s.out_of_order == 0 && s.in_order > 0;
  std::string out = s.in_order + s.out_of_order == 0 ? "nothing observed yet\n" : pass ? "pass\n" : "fail\n";
  out +=
      fmt::format("  {} samples passed, {} seen in order, {} out of order, {} repeated, longest stray {}\n",
                  s.passed, s.in_order, s.out_of_order, s.repeated, s.longest_stray);
  if (s.first_difference) out += divergence_text(*found, *s.first_difference, "first difference at");
  if (s.divergence) out += divergence_text(*found, *s.divergence, "left the plan at");
  return out;
}

std::string PlanManager::next_use(FileId file) const {
  const auto all = runs();
  for (const auto& [name, run] : *all) {
    const Horizon horizon = run->horizon();
    const auto front = run->absolute(run->tracker().front());
    const Catalog::Chunks chunks = parts_.dataset.catalog->chunks(file);
    if (!front || chunks.count == 0) continue;
    std::optional<uint64_t> next;
    for (uint32_t c = 0; c < chunks.count; ++c) {
      const auto use = horizon.next_use(ChunkId(chunks.first.value + c), *front);
      if (use && (!next || *use < *next)) next = use;
    }
    if (!next) continue;
    const PlanPosition place = run->place(*next);
    return fmt::format("plan={} epoch={} position={} in={}", name, place.epoch.value, place.position,
                       *next - *front);
  }
  return "";
}

std::string PlanManager::last_error() const {
  MutexLock lock(mutex_);
  return last_error_.empty() ? "" : last_error_ + "\n";
}

}  // namespace clairfs
