// PlanManager's reports for people and programs: its reading half.
#include <algorithm>
#include <cerrno>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"
#include "cache/base/units.h"
#include "plan/plan_manager.h"

namespace clairfs {
namespace {

// A line for each reader that has one.
std::string first_differences(const PlanRun& run) {
  std::string out;
  for (size_t rank = 0; rank < run.readers().size(); ++rank) {
    const auto first = run.reader(rank).tracker().status().first_difference;
    if (first) out += fmt::format("  first difference at {}\n", run.describe(rank, *first));
  }
  return out;
}

// The same of where they left the plan. A program that comes after the plan's end has not left it.
std::string departures(const PlanRun& run) {
  std::string out;
  for (size_t rank = 0; rank < run.readers().size(); ++rank) {
    const TrackerStatus status = run.reader(rank).tracker().status();
    if (!status.divergence) continue;
    const bool after_end = status.state == TrackerState::finished && !status.divergence->found;
    out += fmt::format("  {} {}\n", after_end ? "read in another order after its end:" : "left the plan at",
                       run.describe(rank, *status.divergence));
  }
  return out;
}

// Ranks that are followed by themselves: where each is.
std::string ranks_text(const PlanRun& run) {
  std::string out;
  for (size_t rank = 0; run.readers_apart() && rank < run.readers().size(); ++rank) {
    const TrackerStatus status = run.reader(rank).tracker().status();
    out += fmt::format("  {}  {}  epoch {}  position {}\n", run.name_of(rank), to_string(status.state),
                       status.high_water.epoch.value, status.high_water.position);
  }
  return out;
}

std::string count_text(const SampleIndex& index) {
  if (!index.is_stream()) return fmt::format("{} samples", index.size());
  return fmt::format("{} shards in {} stripes", index.numbered().size(), index.size());
}

std::string plan_text(const PlanRun& run, uint64_t ahead, const std::string& followed_instead) {
  const TrackerStatus status = run.status();
  std::string out = describe_plan(run.given()) + "\n";
  if (run.name() == kFoundPlan) out += "  " + run.how_found() + "\n";
  out += fmt::format(
      "  state {}  epoch {}  position {} of {}  high water {}  ahead {} samples  {:.0f} samples/s\n",
      to_string(status.state), status.high_water.epoch.value,
      status.state == TrackerState::finished ? status.high_water.position : status.position.position,
      run.epoch_length(), status.high_water.position, ahead, status.samples_per_second);
  out += fmt::format("  {} ({})  seen {} in order, {} out of order  realigned {}, suspended {} times  {}\n",
                     count_text(run.index()), run.index().format(), status.in_order, status.out_of_order,
                     status.realignments, status.suspensions, format_size(run.memory_bytes()));
  if (!followed_instead.empty()) out += "  followed instead: " + followed_instead + "\n";
  return out + ranks_text(run) + departures(run);
}

std::string making_text(const PlanMaking& making) {
  const auto outcome = making.outcome();
  return fmt::format("{}\n  state {}{}\n", format_plan(making.given()), state_of(making),
                     outcome && !*outcome ? "  " + outcome->error().message : "");
}

nlohmann::ordered_json making_json(const PlanMaking& making) {
  const auto outcome = making.outcome();
  nlohmann::ordered_json json;
  json["name"] = making.given().name;
  json["plan"] = nlohmann::ordered_json::parse(format_plan_json(making.given()));
  json["text"] = format_plan(making.given());
  json["state"] = outcome ? "failed" : "indexing";
  if (!outcome) json["percent"] = making.percent();
  if (outcome && !*outcome) json["error"] = outcome->error().message;
  return json;
}

nlohmann::ordered_json ranks_json(const PlanRun& run, const Staging& staging) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (size_t rank = 0; run.readers_apart() && rank < run.readers().size(); ++rank) {
    const TrackerStatus s = run.reader(rank).tracker().status();
    nlohmann::ordered_json& json = ranks.emplace_back();
    json["rank"] = run.training_rank(rank);
    if (const auto stream = run.stream(rank)) json["stream"] = *stream;
    json.update({{"state", to_string(s.state)},
                 {"epoch", s.high_water.epoch.value},
                 {"high_water", s.high_water.position},
                 {"ahead", staging.ahead(run.name(), rank)},
                 {"in_order", s.in_order},
                 {"out_of_order", s.out_of_order}});
  }
  return ranks;
}

// Of a reader that is suspended, if there is one: it tells why the plan is.
nlohmann::ordered_json divergence_json(const PlanRun& run) {
  nlohmann::ordered_json json;
  for (size_t rank = 0; rank < run.readers().size(); ++rank) {
    const TrackerStatus status = run.reader(rank).tracker().status();
    if (!status.divergence || (!json.is_null() && status.state != TrackerState::suspended)) continue;
    const Divergence& d = *status.divergence;
    json = {{"epoch", d.at.epoch.value}, {"position", d.at.position}};
    if (run.readers_apart()) json["rank"] = run.training_rank(rank);
    if (const auto stream = run.stream(rank)) json["stream"] = *stream;
    if (d.expected) json["expected"] = run.index().path(*d.expected);
    if (d.seen) json["seen"] = run.index().path(*d.seen);
    json["hint"] = d.hint;
    json["text"] = run.describe(rank, d);
    if (status.state == TrackerState::suspended) break;
  }
  return json;
}

bool has_bytes_of(const SampleIndex& index, uint32_t sample, FileId file) {
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
    const ByteRange range = index.range(sample, piece);
    if (range.file == file && range.length > 0) return true;
  }
  return false;
}

// The first position from `high_water` on that touches the file. A file of records has very many chunks, but
// hardly ever has to be looked for further than this: a thread that answers the kernel asks.
std::optional<uint64_t> next_use_of(FileId file, const Catalog& catalog, const Timeline& timeline,
                                    uint64_t high_water) {
  constexpr uint64_t kSoon = 4096;
  const uint64_t soon = std::min(timeline.end(), high_water + kSoon);
  for (uint64_t position = high_water; position < soon; ++position) {
    if (has_bytes_of(timeline.index(), timeline.sample_at(position), file)) return position;
  }
  std::optional<uint64_t> next;
  const Catalog::Chunks chunks = catalog.chunks(file);
  for (uint32_t c = 0; c < chunks.count; ++c) {
    const auto use = timeline.next_use(ChunkId(chunks.first.value + c), high_water);
    if (use && (!next || *use < *next)) next = use;
  }
  return next;
}

}  // namespace

std::string state_of(const PlanMaking& making) {
  return making.outcome() ? "failed" : fmt::format("indexing {} %", making.percent());
}

std::string PlanManager::text() const {
  std::string out;
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all)
    out += plan_text(*run, deps_.staging.ahead(name), found_.instead_of(*run));
  for (const auto& [name, making] : plans_.makings()) out += making_text(*making);
  return out;
}

Result<std::string> PlanManager::text(const std::string& name) const {
  const auto found = plans_.run(name);
  const auto making = plans_.making(name);
  if (!found && !making) return no_such_plan(name);
  const auto in_force = [&] {
    return plan_text(*found, deps_.staging.ahead(name), found_.instead_of(*found));
  };
  return (found ? in_force() : "") + (making ? making_text(*making) : "");
}

Result<std::shared_ptr<PlanRun>> PlanManager::run_in_force(const std::string& name) const {
  if (auto found = plans_.run(name)) return found;
  if (const auto making = plans_.making(name)) {
    const auto outcome = making->outcome();
    if (outcome && !*outcome)
      return Error{EAGAIN, fmt::format("plan {} has failed: {}", escaped(name), outcome->error().message)};
    return Error{EAGAIN, fmt::format("plan {} is not in force yet: {}", escaped(name), state_of(*making))};
  }
  return no_such_plan(name);
}

uint64_t PlanManager::least_source_bytes(uint64_t homeless_bytes, const std::vector<NodeStock>& nodes) const {
  uint64_t once = 0, again = 0, warm = 0;
  for (const NodeStock& node : nodes) warm += node.warm_bytes;
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) {
    once = std::max(once, run->dataset_bytes());
    uint64_t kept = 0;
    for (const NodeStock& node : nodes) kept += kept_between_epochs(node.page_cache, run->dataset_bytes());
    again += (run->status().high_water.epoch.value - run->resolved().first_epoch) *
             (homeless_bytes - std::min(homeless_bytes, kept));
  }
  return once - std::min(once, warm) + again;
}

std::string PlanManager::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) {
    const TrackerStatus s = run->status();
    nlohmann::ordered_json plan;
    plan["name"] = name;
    plan["plan"] = nlohmann::ordered_json::parse(format_plan_json(run->resolved()));
    plan["text"] = format_plan(run->given());
    plan["state"] = to_string(s.state);
    plan["epoch"] = s.high_water.epoch.value;
    plan["position"] = s.position.position;
    plan["high_water"] = s.high_water.position;
    plan["epoch_length"] = run->epoch_length();
    plan["samples"] = run->index().size();
    if (run->index().is_stream()) plan["shards"] = run->index().numbered().size();
    plan["bytes"] = run->dataset_bytes();
    plan["passed"] = s.passed;
    plan["ahead"] = deps_.staging.ahead(name);
    plan["samples_per_second"] = s.samples_per_second;
    plan["in_order"] = s.in_order;
    plan["out_of_order"] = s.out_of_order;
    plan["realignments"] = s.realignments;
    plan["suspensions"] = s.suspensions;
    plan["memory_bytes"] = run->memory_bytes();
    if (name == kFoundPlan) plan["found"] = run->how_found();
    if (run->readers_apart()) plan["ranks"] = ranks_json(*run, deps_.staging);
    if (auto divergence = divergence_json(*run); !divergence.is_null())
      plan["divergence"] = std::move(divergence);
    if (std::string instead = found_.instead_of(*run); !instead.empty())
      plan["followed_instead"] = std::move(instead);
    list.push_back(std::move(plan));
  }
  for (const auto& [name, making] : plans_.makings()) list.push_back(making_json(*making));
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::vector<PlanBrief> PlanManager::briefs() const {
  std::vector<PlanBrief> briefs;
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) {
    PlanBrief brief{name, run->status().state, deps_.staging.ahead(name), ""};
    for (size_t rank = 0; rank < run->readers().size(); ++rank) {
      const TrackerStatus status = run->reader(rank).tracker().status();
      if (status.state != TrackerState::suspended) continue;
      brief.state = TrackerState::suspended;
      if (status.divergence && brief.divergence.empty())
        brief.divergence = "left the plan at " + run->describe(rank, *status.divergence);
    }
    brief.followed_instead = found_.instead_of(*run);
    // One that was found is taken out of force at once: nobody has to be told.
    if (name == kFoundPlan && brief.state == TrackerState::suspended)
      brief = {name, TrackerState::waiting, 0, ""};
    briefs.push_back(std::move(brief));
  }
  for (const auto& [name, making] : plans_.makings()) {
    const auto outcome = making->outcome();
    if ((outcome && *outcome) || (outcome && name == kFoundPlan)) continue;
    auto brief = std::find_if(briefs.begin(), briefs.end(),
                              [&, &of = name](const PlanBrief& of_run) { return of_run.name == of; });
    if (brief == briefs.end()) brief = briefs.insert(briefs.end(), {name, {}, 0, "", false});
    brief->making = outcome ? PlanBrief::Making::failed : PlanBrief::Making::indexing;
    if (outcome) brief->error = outcome->error().message;
  }
  return briefs;
}

std::string PlanManager::text_of_folder(std::string_view folder) const {
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) {
    if (run->given().root == folder) return format_plan(run->given());
  }
  for (const auto& [name, making] : plans_.makings()) {
    if (making->given().root == folder && !making->outcome()) return format_plan(making->given());
  }
  return "";
}

std::string PlanManager::texts() const {
  std::string texts;
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) texts += (texts.empty() ? "" : "\n") + format_plan(run->given());
  for (const auto& [name, making] : plans_.makings()) {
    if (!all->contains(name) && !making->outcome())
      texts += (texts.empty() ? "" : "\n") + format_plan(making->given());
  }
  return texts;
}

Result<std::string> PlanManager::next(const std::string& given, uint64_t count) const {
  const auto in_force = run_in_force(name_or_only(given));
  if (!in_force) return in_force.error();
  const auto& found = *in_force;
  std::string out;
  struct Way {
    Timeline timeline;
    uint64_t next;
  };
  std::vector<Way> ways;
  for (const auto& reader : found->readers()) {
    const Timeline timeline = reader->timeline();
    const uint64_t high_water = reader->tracker().high_water();
    if (timeline.covers(high_water)) ways.push_back({timeline, high_water});
  }
  // Ranks in turn.
  for (bool any = true; any && count > 0;) {
    any = false;
    for (Way& way : ways) {
      if (count == 0 || way.next >= way.timeline.end()) continue;
      out += escaped(found->index().path(way.timeline.sample_at(way.next++))) + "\n";
      any = true;
      --count;
    }
  }
  return out;
}

std::string PlanManager::name_or_only(const std::string& name) const {
  if (!name.empty()) return name;
  const auto all = plans_.runs();
  if (all->size() == 1) return all->begin()->first;
  // Beside one that was registered nobody means the one that was found.
  const bool two = all->size() == 2 && all->contains(std::string(kFoundPlan));
  if (!two) return "default";
  return all->begin()->first == kFoundPlan ? std::next(all->begin())->first : all->begin()->first;
}

Result<std::string> PlanManager::check(const std::string& given) const {
  const auto in_force = run_in_force(name_or_only(given));
  if (!in_force) return in_force.error();
  const auto& found = *in_force;
  const TrackerStatus s = found->status();
  std::string out = s.in_order + s.out_of_order == 0 ? "nothing observed yet\n"
                    : follows(s)                     ? "pass\n"
                                                     : "fail\n";
  out +=
      fmt::format("  {} samples passed, {} seen in order, {} out of order, {} repeated, longest stray {}\n",
                  s.passed, s.in_order, s.out_of_order, s.repeated, s.longest_stray);
  if (s.realignments > 0) {
    out += fmt::format("  found again {} since then {} seen in order, {} out of order\n",
                       s.realignments == 1 ? "1 time:" : fmt::format("{} times:", s.realignments),
                       s.in_order_since, s.out_of_order_since);
  }
  return out + first_differences(*found) + departures(*found);
}

// Of the reader that comes to it soonest.
std::string PlanManager::next_use(FileId file) const {
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) {
    struct Next {
      uint64_t in;
      PlanPosition place;
      uint32_t sample;
    };
    std::optional<Next> next;
    for (const auto& reader : run->readers()) {
      const Timeline timeline = reader->timeline();
      const uint64_t high_water = reader->tracker().high_water();
      if (!timeline.covers(high_water)) continue;
      const auto use = next_use_of(file, *deps_.dataset.catalog, timeline, high_water);
      if (use && (!next || *use - high_water < next->in))
        next = {*use - high_water, timeline.position_of(*use), timeline.sample_at(*use)};
    }
    if (!next) continue;
    std::string text = fmt::format("plan={} epoch={} position={} in={}", name, next->place.epoch.value,
                                   next->place.position, next->in);
    if (run->index().shares_files()) text += " sample=" + escaped(run->index().path(next->sample));
    return text;
  }
  return "";
}

std::string PlanManager::last_error() const {
  MutexLock lock(mutex_);
  return last_error_.empty() ? "" : last_error_ + "\n";
}

}  // namespace clairfs
