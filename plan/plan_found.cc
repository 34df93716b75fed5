// PlanManager: the plan that was found, here or on another node of the job.
#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "cache/base/own_file.h"
#include "plan/formats/list_text.h"
#include "plan/plan_manager.h"

namespace clairfs {

std::shared_ptr<PlanRun> PlanManager::followed_found() const {
  auto found = plans_.run(std::string(kFoundPlan));
  if (!found || found->is_over() || found->status().state != TrackerState::following) return nullptr;
  return found;
}

bool PlanManager::follow_found(const FoundOrder& found) {
  PlanSpec spec = found.plan;
  spec.name = kFoundPlan;
  if (const Status written = write_long_list(spec); !written) {
    deps_.log.info("plan {} is not followed: {}", kFoundPlan, written.error().message);
    return false;
  }
  std::shared_ptr<PlanMaking> making;
  {
    MutexLock one_at_a_time(plans_.submit_mutex);
    // Also at the end of its epoch: its reader begins the next one.
    if (plans_.run(spec.name) && inference_.follows_another(found.program)) return false;
    const auto followed = followed_found();
    // Another node may have told of it meanwhile.
    if (followed && same_order(followed->given(), spec)) return true;
    found_here_ = found;
    making = begin(spec, deps_.place.node, job_found_.place_of(found));
  }
  if (!making) return false;
  const std::optional<Status> made = making->wait(deps_.index_patience);
  if (made && *made) {
    expect_again(std::move(spec));
    return true;
  }
  if (made) deps_.log.info("plan {} is not followed: {}", kFoundPlan, made->error().message);
  MutexLock one_at_a_time(plans_.submit_mutex);
  if (plans_.making(spec.name) == making) plans_.retire(spec.name);
  found_here_.reset();
  return false;
}

void PlanManager::suggest_saved_orders() {
  auto orders = saved_orders_.load();
  if (!orders) {
    deps_.log.warn("orders that were found before are not known: {}", orders.error().message);
    return;
  }
  for (PlanSpec& order : *orders) inference_.suggest({std::move(order), 0, true}, false);
}

// Of the next job that reads so, in this mount or a later one.
void PlanManager::expect_again(PlanSpec order) {
  inference_.suggest({order}, false);
  if (const Status saved = saved_orders_.add(std::move(order)); !saved)
    deps_.log.warn("an order that was found is not saved: {}", saved.error().message);
}

// Under another name than the last one, or the two plans would be the same.
Status PlanManager::write_long_list(PlanSpec& found) {
  if (check_plan_size(format_plan(found))) return {};
  if (deps_.order_file.empty()) return Error{E2BIG, "its list is too long for a plan"};
  const std::string lines = array_to_lines(found.list);
  found.list = fmt::format("{}.{}", deps_.order_file, ++found_lists_);
  if (!found_list_.empty()) ::unlink(found_list_.c_str());
  found_list_ = found.list;
  return save_own_file(found.list, std::as_bytes(std::span(lines)));
}

// A plan that this node has told of is also begun with again, when its readers have left the one that was
// found since.
void PlanManager::put_found_in_force(const std::shared_ptr<PlanRun>& run, NodeId origin) {
  const bool own = origin == deps_.place.node && found_here_;
  const bool told = own && run->of_job() && job_found_.found(run->given());
  FoundOrder found{.plan = run->given(), .node = deps_.place.node.value, .told_by = origin};
  if (own) found = *std::exchange(found_here_, std::nullopt);
  const Program reader = found.program;
  const std::vector<SeenOpen> seen = inference_.opens_of(reader);
  replay(*run, seen);         // so it begins where its reader is
  inference_.follow(reader);  // first, so that nothing that others open counts against it
  set_aside(run.get());       // so that there is room
  run->set_how_found(how_found(found));
  inference_.in_force(std::move(found), run->reader().order());
  plans_.list(run);
  const std::vector<SeenOpen> all = inference_.forget(reader);
  replay(*run, std::span(all).subspan(std::min(seen.size(), all.size())));  // what came meanwhile
  plans_.stage(run);
  if (told) plans_.announce(run->name(), format_plan(run->given()));
}

// Its reader is watched anew.
void PlanManager::leave_found() {
  MutexLock one_at_a_time(plans_.submit_mutex);
  const std::string name(kFoundPlan);
  const auto found = plans_.run(name);
  if (!found || found->status().state != TrackerState::suspended) return;
  drop(name);
  inference_.left();
  const auto withdrawn = found->of_job() ? job_found_.left(found->given()) : std::nullopt;
  if (withdrawn) {
    plans_.announce(name, format_plan(*withdrawn), true);
  } else {
    follow_word();
  }
}

void PlanManager::follow_word() {
  const std::string name(kFoundPlan);
  if (deps_.infer == InferMode::off || plans_.run(name)) return;
  const auto making = plans_.making(name);
  if (making && !making->outcome()) return;
  const auto& word = job_found_.word();
  if (!word || job_found_.has_left(word->plan) || inference_.refuses(word->plan)) return;
  begin(word->plan, word->origin, deps_.place);
}

// What this node said itself has been carried out, but not if an older word of another came in between: the
// last word that is told is the same on all nodes, and so is the one that holds here.
Status PlanManager::take_over_found(const PlanChange& change) {
  const bool own = change.origin == deps_.place.node;
  const std::string name(kFoundPlan);
  if (change.withdrawn) {
    withdraw_found();
    return {};
  }
  if (change.text.empty()) {
    job_found_.cancelled();
    if (!own) cancel_found();
    return {};
  }
  auto spec = parse_plan(change.text);
  if (!spec) return refuse(spec.error());
  spec->name = name;
  const auto found = plans_.run(name);
  const bool was_placed = found && is_placed(*found);
  const bool wanted = job_found_.told(*spec, change.origin) && !own && deps_.infer != InferMode::off &&
                      !inference_.refuses(*spec);
  if (found && is_placed(*found) != was_placed) plans_.place_chunks();
  if (!wanted || followed_found()) return {};
  const auto making = plans_.making(name);
  if (making && same_order(making->given(), *spec) && !making->outcome()) return {};
  begin(*spec, change.origin, deps_.place);
  return {};
}

std::string PlanManager::detect(bool as_json) const {
  const auto found = plans_.run(std::string(kFoundPlan));
  const OrderId listed = found ? found->reader().order() : OrderId();
  return as_json ? inference_.json(listed) : inference_.text(listed);
}

void PlanManager::cancel_found() {
  const std::string name(kFoundPlan);
  if (const auto making = plans_.making(name); making && making->place().nodes > 1) plans_.retire(name);
  const auto found = plans_.run(name);
  if (!found || !found->of_job()) return;
  drop(name);
  inference_.refuse(found->given());
}

// By who means all plans, or those of a folder: it may be found again. Other nodes keep it while their
// readers follow it.
Status PlanManager::let_found_go() {
  MutexLock one_at_a_time(plans_.submit_mutex);
  const std::string name(kFoundPlan);
  const bool was_making = plans_.retire(name);
  const auto found = plans_.run(name);
  if (!found && was_making) return {};
  if (!found) return no_such_plan(name);
  let_go_of(*found);
  return {};
}

void PlanManager::let_go_of(const PlanRun& found) {
  drop(found.name());
  inference_.displaced();
  const auto withdrawn = found.of_job() ? job_found_.left(found.given()) : std::nullopt;
  if (withdrawn) plans_.announce(found.name(), format_plan(*withdrawn), true);
}

// If this node did it there is no word any more, and its readers are watched anew already.
void PlanManager::withdraw_found() {
  const std::string name(kFoundPlan);
  const auto found = plans_.run(name);
  const bool was_placed = found && is_placed(*found);
  job_found_.cancelled();
  const auto making = plans_.making(name);
  if (making && making->origin() != deps_.place.node) plans_.retire(name);
  if (!was_placed) return;
  if (followed_found()) return plans_.place_chunks();
  drop(name);
  inference_.displaced();
}

namespace {

// A registered plan of a few of its samples only may be missed: then both are followed.
bool has_files_of(const PlanRun& registered, const PlanRun& found) {
  constexpr uint32_t kLooks = 64;
  const SampleIndex& index = found.index();
  for (uint32_t look = 0; look < kLooks; ++look) {
    const auto sample = static_cast<uint32_t>(uint64_t{index.size()} * look / kLooks);
    if (index.range_count(sample) == 0) continue;
    const ByteRange range = index.range(sample, 0);
    if (!registered.samples_of(range.file, range.offset, std::max<uint64_t>(range.length, 1)).empty())
      return true;
  }
  return false;
}

}  // namespace

bool PlanManager::is_planned(const PlanRun& found) const {
  const auto all = plans_.runs();
  return std::any_of(all->begin(), all->end(), [&](const auto& entry) {
    const auto& [name, run] = entry;
    return name != kFoundPlan && !run->is_left() && has_files_of(*run, found);
  });
}

bool PlanManager::is_registered(const PlanRun& found) const {
  const auto all = plans_.runs();
  return std::any_of(all->begin(), all->end(), [&](const auto& entry) {
    return entry.first != kFoundPlan && has_files_of(*entry.second, found);
  });
}

void PlanManager::set_aside(const PlanRun* found) {
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) {
    if (name == kFoundPlan) continue;
    const bool shares = found != nullptr && has_files_of(*run, *found);
    if (shares) run->set_watched(true);  // first: also who is back by now is to be noticed
    const bool aside = shares && run->is_left();
    if (run->set_aside(aside) == aside) continue;
    if (aside) {
      deps_.staging.remove(name);
    } else {
      deps_.staging.add(run);
    }
  }
}

std::string PlanManager::followed_instead_of(const PlanRun& run) const {
  const auto found = run.is_set_aside() ? plans_.run(std::string(kFoundPlan)) : nullptr;
  return found ? describe_plan(found->given()) : "";
}

// What was seen of them meanwhile belongs to their plan.
void PlanManager::note_returns() {
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) {
    if (!run->is_watched() || run->is_left()) continue;
    MutexLock one_at_a_time(plans_.submit_mutex);
    run->set_watched(false);
    deps_.log.info("plan {}: its reader is back", name);
    const auto found = plans_.run(std::string(kFoundPlan));
    inference_.forget_files([&run = *run](FileId file) { return !run.samples_of(file, 0, 1).empty(); });
    if (found && is_planned(*found)) let_go_of(*found);
  }
}

void PlanManager::replay(PlanRun& found, std::span<const SeenOpen> opens) const {
  if (opens.size() > OrderSearch::kMostOpens) opens = opens.last(OrderSearch::kMostOpens);
  for (const SeenOpen& open : opens) {
    const std::vector<uint32_t> samples = found.samples_of(open.file, open.offset(), open.length());
    if (!samples.empty()) found.offer(open.thread, samples, open.kind, deps_.clock.now());
  }
}

// A registered plan wins.
void PlanManager::displace_found(const PlanRun& registered) {
  const auto found = plans_.run(std::string(kFoundPlan));
  if (found && is_planned(*found)) {
    deps_.log.info("plan {} gives way to plan {}", kFoundPlan, registered.name());
    drop(found->name());
    inference_.displaced();
  } else if (!found) {
    inference_.restart();
  }
}

}  // namespace clairfs
