#include "plan/found_plan.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "cache/base/own_file.h"
#include "plan/formats/list_text.h"

namespace clairfs {
namespace {

// A registered plan of a few of its samples only may be missed: then both are followed. `counts`: of a sample
// of the one that was found, and those of the other that are the same.
template <class Counts>
bool has_any_of(const PlanRun& registered, const PlanRun& found, const Counts& counts) {
  constexpr uint32_t kLooks = 64;
  const SampleIndex& index = found.index();
  for (uint32_t look = 0; look < kLooks; ++look) {
    const auto sample = static_cast<uint32_t>(uint64_t{index.size()} * look / kLooks);
    if (index.range_count(sample) == 0) continue;
    const ByteRange range = index.range(sample, 0);
    const auto same = registered.samples_of(range.file, range.offset, std::max<uint64_t>(range.length, 1));
    if (!same.empty() && counts(sample, same)) return true;
  }
  return false;
}

bool has_files_of(const PlanRun& registered, const PlanRun& found) {
  return has_any_of(registered, found, [](uint32_t, const auto&) { return true; });
}

// Plans of the halves of a folder have all of its files, and no sample in common.
bool has_samples_of(const PlanRun& registered, const PlanRun& found) {
  return has_any_of(registered, found, [&](uint32_t sample, const std::vector<uint32_t>& same) {
    return found.may_come_to({&sample, 1}) && registered.may_come_to(same);
  });
}

// With the epoch that its reader is in: a job that is interrupted goes on there.
PlanSpec order_of(const PlanRun& run) {
  PlanSpec order = run.given();
  order.name = kFoundPlan;
  order.format = run.resolved().format;
  const bool of_one_epoch = order.epochs != 0 && order.epochs <= order.first_epoch + 1;
  if (!of_one_epoch) order.first_epoch = run.status().high_water.epoch.value;
  order.epochs_before = 0;  // of another process
  return order;
}

}  // namespace

FoundPlan::FoundPlan(const PlanDeps& deps, PlanTable& plans, Inference& inference)
    : deps_(deps),
      plans_(plans),
      inference_(inference),
      job_found_(deps_.place),
      saved_orders_(deps_.infer == InferMode::off ? "" : deps_.saved_orders,
                    std::string(deps_.dataset.catalog->source())) {}

void FoundPlan::begin() {
  auto orders = [this] {
    const MutexLock lock(saved_mutex_);
    return saved_orders_.load();
  }();
  if (!orders) {
    deps_.log.warn("orders that were found before are not known: {}", orders.error().message);
    return;
  }
  for (PlanSpec& order : *orders) inference_.suggest({std::move(order), 0, true}, false);
}

void FoundPlan::stop() {
  const auto all = plans_.runs();
  for (const auto& [name, plan] : *all) save(order_of(*plan));
  if (!list_file_.empty()) ::unlink(list_file_.c_str());
}

std::shared_ptr<PlanRun> FoundPlan::followed() const {
  auto found = run();
  if (!found || found->is_over() || found->status().state != TrackerState::following) return nullptr;
  return found;
}

bool FoundPlan::follow(const FoundOrder& found) {
  if (const auto last = run()) expect_again(order_of(*last));
  PlanSpec spec = found.plan;
  spec.name = name_;
  if (const Status written = write_long_list(spec); !written) {
    deps_.log.info("plan {} is not followed: {}", name_, written.error().message);
    return false;
  }
  std::shared_ptr<PlanMaking> begun;
  {
    MutexLock one_at_a_time(plans_.submit_mutex);
    // Also at the end of its epoch: its reader begins the next one.
    if (run() && inference_.follows_another(found.program)) return false;
    const auto before = followed();
    // Another node may have told of it meanwhile.
    if (before && same_order(before->given(), spec)) return true;
    begun = make(spec, deps_.place.self, job_found_.place_of(found), found);
  }
  if (!begun) return false;
  const std::optional<Status> made = begun->wait(deps_.index_patience);
  if (made && *made) {
    expect_again(std::move(spec));
    return true;
  }
  if (made) deps_.log.info("plan {} is not followed: {}", name_, made->error().message);
  MutexLock one_at_a_time(plans_.submit_mutex);
  if (making() == begun) plans_.retire(name_);
  return false;
}

// Of the next job that reads so, in this mount or a later one.
void FoundPlan::expect_again(PlanSpec order) {
  inference_.suggest({order}, false);
  save(std::move(order));
}

void FoundPlan::save_registered(const PlanRun& registered) {
  save(order_of(registered));
}

void FoundPlan::save(PlanSpec order) {
  const MutexLock lock(saved_mutex_);
  if (const Status saved = saved_orders_.add(std::move(order)); !saved)
    deps_.log.warn("an order that was found is not saved: {}", saved.error().message);
}

// Under another name than the last one, or the two plans would be the same.
Status FoundPlan::write_long_list(PlanSpec& found) {
  if (check_plan_size(format_plan(found))) return {};
  if (deps_.order_file.empty()) return Error{E2BIG, "its list is too long for a plan"};
  const std::string lines = array_to_lines(found.list);
  found.list = fmt::format("{}.{}", deps_.order_file, ++lists_);
  if (!list_file_.empty()) ::unlink(list_file_.c_str());
  list_file_ = found.list;
  return save_own_file(found.list, std::as_bytes(std::span(lines)));
}

std::shared_ptr<PlanMaking> FoundPlan::make(const PlanSpec& spec, NodeId origin, JobPlace place,
                                            std::optional<FoundOrder> found_here) {
  return plans_.begin(spec, origin, place,
                      [this, found = std::move(found_here)](const PlanMaking& ended, const auto& made) {
                        return finish(ended, made, found);
                      });
}

// On the making's own thread.
Status FoundPlan::finish(const PlanMaking& making, const Result<std::shared_ptr<PlanRun>>& made,
                         const std::optional<FoundOrder>& found_here) {
  MutexLock one_at_a_time(plans_.submit_mutex);
  if (const Status listed = plans_.check_listed(making); !listed) return listed;
  const Status wanted = !made                ? Status(made.error())
                        : is_planned(**made) ? Error{EEXIST, "a registered plan has these files"}
                                             : Status();
  // follow() takes it off the list. Nobody waits for any other, also not for what this node has said before.
  if (wanted) put_in_force(*made, making.origin(), found_here);
  if (wanted || !found_here) plans_.retire(name_);
  return wanted;
}

// A plan that this node has told of is also begun with again, when its readers have left the one that was
// found since.
void FoundPlan::put_in_force(const std::shared_ptr<PlanRun>& run, NodeId origin,
                             const std::optional<FoundOrder>& found_here) {
  const bool told = found_here && run->of_job() && job_found_.found(run->given());
  FoundOrder found{.plan = run->given(), .node = deps_.place.self.value, .told_by = origin};
  if (found_here) found = *found_here;
  const Program reader = found.program;
  const std::vector<SeenOpen> seen = inference_.opens_of(reader);
  replay(*run, seen);         // so it begins where its reader is
  inference_.follow(reader);  // first, so that nothing that others open counts against it
  set_aside(run.get());       // so that there is room
  run->set_how_found(how_found(found));
  if (const auto last = plans_.run(name_)) inference_.ends(last->status().high_water.epoch);
  inference_.in_force(std::move(found), run->reader().order());
  plans_.list(run);
  const std::vector<SeenOpen> all = inference_.forget(reader);
  replay(*run, std::span(all).subspan(std::min(seen.size(), all.size())));  // what came meanwhile
  plans_.stage(run);
  if (told) plans_.announce(name_, format_plan(run->given()));
}

void FoundPlan::replay(PlanRun& found, std::span<const SeenOpen> opens) const {
  if (opens.size() > OrderSearch::kMostOpens) opens = opens.last(OrderSearch::kMostOpens);
  for (const SeenOpen& open : opens) {
    const std::vector<uint32_t> samples = found.samples_of(open.file, open.offset(), open.length());
    if (!samples.empty()) found.offer(open.thread, samples, open.kind, deps_.clock.now());
  }
}

// The epoch of the plan that was found. Asked also before an access is offered: another thread may have seen
// the last sample a moment ago, and the first ones of the next epoch are none of this one, begun again. Not
// with its very last sample, while a worker is behind: the last ones of this epoch would seem to be those of
// a next one in the same order.
bool FoundPlan::is_over(PlanRun& found, const PlanReader& reader, bool went_on) {
  if (found.is_over()) return true;
  if (reader.tracker().state() != TrackerState::finished || found.status().state != TrackerState::finished)
    return false;
  if (!went_on && !found.seen_to_the_end()) return false;
  if (!found.set_over()) inference_.epoch_over(found.reader().order());
  return true;
}

void FoundPlan::leave() {
  MutexLock one_at_a_time(plans_.submit_mutex);
  const auto found = run();
  if (!found || found->status().state != TrackerState::suspended) return;
  drop();
  inference_.left();
  const auto withdrawn = found->of_job() ? job_found_.left(found->given()) : std::nullopt;
  if (withdrawn) {
    plans_.announce(name_, format_plan(*withdrawn), true);
  } else {
    begin_with_word();
  }
}

void FoundPlan::follow_word() {
  MutexLock one_at_a_time(plans_.submit_mutex);
  begin_with_word();
}

void FoundPlan::begin_with_word() {
  if (deps_.infer == InferMode::off || run()) return;
  const auto under_way = making();
  if (under_way && !under_way->outcome()) return;
  const auto& word = job_found_.word();
  if (!word || job_found_.has_left(word->plan) || inference_.refuses(word->plan)) return;
  make(word->plan, word->origin, deps_.place);
}

// What this node said itself has been carried out, but not if an older word of another came in between: the
// last word that is told is the same on all nodes, and so is the one that holds here.
Status FoundPlan::take_over(const PlanChange& change) {
  MutexLock one_at_a_time(plans_.submit_mutex);
  const bool own = change.origin == deps_.place.self;
  if (change.withdrawn) {
    withdraw();
    return {};
  }
  if (change.text.empty()) {
    job_found_.cancelled();
    if (!own) cancel_here();
    return {};
  }
  auto spec = parse_plan(change.text);
  if (!spec) return spec.error();
  spec->name = name_;
  const auto found = run();
  const bool was_placed = found && is_placed(*found);
  const bool wanted = job_found_.told(*spec, change.origin) && !own && deps_.infer != InferMode::off &&
                      !inference_.refuses(*spec);
  if (found && is_placed(*found) != was_placed) plans_.place_chunks();
  if (!wanted || followed()) return {};
  const auto under_way = making();
  if (under_way && same_order(under_way->given(), *spec) && !under_way->outcome()) return {};
  make(*spec, change.origin, deps_.place);
  return {};
}

// If this node did it there is no word any more, and its readers are watched anew already.
void FoundPlan::withdraw() {
  const auto found = run();
  const bool was_placed = found && is_placed(*found);
  job_found_.cancelled();
  const auto under_way = making();
  if (under_way && under_way->origin() != deps_.place.self) plans_.retire(name_);
  if (!was_placed) return;
  if (followed()) return plans_.place_chunks();
  drop();
  inference_.displaced();
}

void FoundPlan::cancel_here() {
  if (const auto under_way = making(); under_way && under_way->place().size > 1) plans_.retire(name_);
  const auto found = run();
  if (!found || !found->of_job()) return;
  drop();
  inference_.refuse(found->given());
}

Status FoundPlan::cancel() {
  MutexLock one_at_a_time(plans_.submit_mutex);
  const auto under_way = making();
  plans_.retire(name_);
  const auto found = run();
  if (!found && !under_way) return no_such_plan(name_);
  if (found) drop();
  inference_.refuse(found ? found->given() : under_way->given());
  const bool of_job = found ? found->of_job() : under_way->place().size > 1;
  if (!of_job) return {};
  job_found_.cancelled();
  plans_.announce(name_, "");
  return {};
}

Status FoundPlan::let_go() {
  MutexLock one_at_a_time(plans_.submit_mutex);
  const bool was_making = plans_.retire(name_);
  const auto found = run();
  if (!found && was_making) return {};
  if (!found) return no_such_plan(name_);
  let_go_of(*found);
  return {};
}

void FoundPlan::let_go_of(const PlanRun& found) {
  drop();
  inference_.displaced();
  const auto withdrawn = found.of_job() ? job_found_.left(found.given()) : std::nullopt;
  if (withdrawn) plans_.announce(name_, format_plan(*withdrawn), true);
}

void FoundPlan::give_up(const std::shared_ptr<PlanRun>& found) {
  MutexLock one_at_a_time(plans_.submit_mutex);
  if (run() != found) return;
  drop();
  inference_.displaced();
}

void FoundPlan::drop() {
  if (const auto found = run()) inference_.ends(found->status().high_water.epoch);
  plans_.unlist(name_);
  set_aside(nullptr);
  plans_.place_chunks();
  deps_.log.info("plan {} is cancelled", name_);
}

bool FoundPlan::is_planned(const PlanRun& found) const {
  const auto all = plans_.runs();
  return std::any_of(all->begin(), all->end(), [&](const auto& entry) {
    const auto& [name, run] = entry;
    return name != kFoundPlan && !run->is_left() && has_samples_of(*run, found);
  });
}

bool FoundPlan::is_registered(const PlanRun& found) const {
  const auto all = plans_.runs();
  return std::any_of(all->begin(), all->end(), [&](const auto& entry) {
    return entry.first != kFoundPlan && has_files_of(*entry.second, found);
  });
}

// The lock is the table's, which the analysis knows by another name where it was taken; so in give_way().
bool FoundPlan::is_placed(const PlanRun& run) const {
  plans_.submit_mutex.assert_held();
  if (run.name() != kFoundPlan) return true;
  return run.of_job() && job_found_.is_word(run.given()) && !is_registered(run);
}

void FoundPlan::set_aside(const PlanRun* found) {
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

std::string FoundPlan::instead_of(const PlanRun& registered) const {
  const auto found = registered.is_set_aside() ? run() : nullptr;
  return found ? describe_plan(found->given()) : "";
}

std::string FoundPlan::detect(bool as_json) const {
  const auto found = run();
  const OrderId listed = found ? found->reader().order() : OrderId();
  return as_json ? inference_.json(listed) : inference_.text(listed);
}

// What was seen of them meanwhile belongs to their plan.
void FoundPlan::note_returns() {
  const auto all = plans_.runs();
  for (const auto& [name, registered] : *all) {
    if (!registered->is_watched() || registered->is_left()) continue;
    MutexLock one_at_a_time(plans_.submit_mutex);
    registered->set_watched(false);
    deps_.log.info("plan {}: its reader is back", name);
    const auto found = run();
    inference_.forget_files(
        [&back = *registered](FileId file) { return !back.samples_of(file, 0, 1).empty(); });
    if (found && is_planned(*found)) let_go_of(*found);
  }
}

// A registered plan wins.
void FoundPlan::give_way(const PlanRun& registered) {
  plans_.submit_mutex.assert_held();
  const auto found = run();
  if (found && is_planned(*found)) {
    deps_.log.info("plan {} gives way to plan {}", name_, registered.name());
    drop();
    inference_.displaced();
  } else if (!found) {
    inference_.restart();
  }
}

}  // namespace clairfs
