// PlanManager: the plan that was found, here or on another node of the job.
#include <cerrno>
#include <span>

#include <fmt/format.h>
#include <unistd.h>

#include "cache/base/own_file.h"
#include "plan/formats/list_text.h"
#include "plan/plan_manager.h"

namespace clairfs {

std::shared_ptr<PlanRun> PlanManager::followed_found() const {
  auto found = run(std::string(kFoundPlan));
  if (!found || found_over_ || found->status().state != TrackerState::following) return nullptr;
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
    MutexLock one_at_a_time(submit_mutex_);
    // Also at the end of its epoch: its reader begins the next one.
    if (run(spec.name) && inference_.follows_another(found.program)) return false;
    const auto followed = followed_found();
    // Another node may have told of it meanwhile.
    if (followed && same_order(followed->given(), spec)) return true;
    found_reader_ = found.program;
    making = begin(spec, deps_.place.node, job_found_.place_of(found));
  }
  if (!making) return false;
  const std::optional<Status> made = making->wait(deps_.index_patience);
  if (made && *made) return true;
  if (made) deps_.log.info("plan {} is not followed: {}", kFoundPlan, made->error().message);
  MutexLock one_at_a_time(submit_mutex_);
  if (this->making(spec.name) == making) retire(spec.name);
  return false;
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

void PlanManager::put_found_in_force(const std::shared_ptr<PlanRun>& run, NodeId origin) {
  const bool own = origin == deps_.place.node;
  const bool told = own && run->of_job() && job_found_.found(run->given());
  const Program reader = own ? found_reader_ : Program();
  replay_opens(*run, reader);
  inference_.follow(reader);  // first, so that nothing that others open counts against it
  put_in_force(run);
  found_over_ = false;
  inference_.forget(reader);
  if (!own) inference_.adopt(run->given(), deps_.place.node, origin);
  if (told) announce(run->name(), format_plan(run->given()));
}

// Its reader is watched anew.
void PlanManager::leave_found() {
  MutexLock one_at_a_time(submit_mutex_);
  const std::string name(kFoundPlan);
  const auto found = run(name);
  if (!found || found->status().state != TrackerState::suspended) return;
  drop(name);
  inference_.left();
  const auto withdrawn = found->of_job() ? job_found_.left(found->given()) : std::nullopt;
  if (withdrawn) {
    announce(name, format_plan(*withdrawn), true);
  } else if (const auto& word = job_found_.word();
             word && !job_found_.has_left(word->plan) && !inference_.refuses(word->plan)) {
    begin(word->plan, word->origin, deps_.place);
  }
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
  const auto found = run(name);
  const bool was_placed = found && is_placed(*found);
  const bool wanted = job_found_.told(*spec, change.origin) && !own && deps_.infer != InferMode::off &&
                      !inference_.refuses(*spec);
  if (found && is_placed(*found) != was_placed) place_chunks();
  if (!wanted || followed_found()) return {};
  const auto making = this->making(name);
  if (making && same_order(making->given(), *spec) && !making->outcome()) return {};
  begin(*spec, change.origin, deps_.place);
  return {};
}

void PlanManager::cancel_found() {
  const std::string name(kFoundPlan);
  if (const auto making = this->making(name); making && making->place().nodes > 1) retire(name);
  const auto found = run(name);
  if (!found || !found->of_job()) return;
  drop(name);
  inference_.refuse(found->given());
}

// By who means all plans, or those of a folder: it may be found again. Other nodes keep it while their
// readers follow it.
Status PlanManager::let_found_go() {
  MutexLock one_at_a_time(submit_mutex_);
  const std::string name(kFoundPlan);
  const bool was_making = retire(name);
  const auto found = run(name);
  if (!found && was_making) return {};
  if (!found) return no_such_plan(name);
  drop(name);
  inference_.displaced();
  const auto withdrawn = found->of_job() ? job_found_.left(found->given()) : std::nullopt;
  if (withdrawn) announce(name, format_plan(*withdrawn), true);
  return {};
}

// If this node did it there is no word any more, and its readers are watched anew already.
void PlanManager::withdraw_found() {
  const std::string name(kFoundPlan);
  const auto found = run(name);
  const bool was_placed = found && is_placed(*found);
  job_found_.cancelled();
  const auto making = this->making(name);
  if (making && making->origin() != deps_.place.node) retire(name);
  if (!was_placed) return;
  if (followed_found()) return place_chunks();
  drop(name);
  inference_.displaced();
}

// Whether a registered plan has files of one that was found. A registered plan of a few of its samples only
// may be missed: then both are followed.
bool PlanManager::is_planned(const PlanRun& found) const {
  constexpr uint32_t kLooks = 64;
  const SampleIndex& index = found.index();
  const auto all = runs();
  for (uint32_t look = 0; look < kLooks; ++look) {
    const auto sample = static_cast<uint32_t>(uint64_t{index.size()} * look / kLooks);
    if (index.range_count(sample) == 0) continue;
    const FileId file = index.range(sample, 0).file;
    for (const auto& [name, run] : *all) {
      if (name != kFoundPlan && !run->samples_of(file, 0, 1).empty()) return true;
    }
  }
  return false;
}

// So the plan begins where its reader is.
void PlanManager::replay_opens(PlanRun& found, const Program& reader) {
  for (const SeenOpen& open : inference_.opens_of(reader)) {
    const std::vector<uint32_t> samples = found.samples_of(open.file, 0, 1);
    if (!samples.empty()) found.offer(open.thread, samples, open.kind, deps_.clock.now());
  }
}

// A registered plan wins.
void PlanManager::displace_found(const PlanRun& registered) {
  const auto found = run(std::string(kFoundPlan));
  if (found && is_planned(*found)) {
    deps_.log.info("plan {} gives way to plan {}", kFoundPlan, registered.name());
    drop(found->name());
    inference_.displaced();
  } else if (!found) {
    inference_.restart();
  }
}

}  // namespace clairfs
