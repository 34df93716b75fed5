#include "plan/plan_manager.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <tuple>

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "cache/base/escaped.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// The process that registers a plan through an xattr or the control file has another current directory than
// this one.
Status check_absolute(const PlanSpec& spec) {
  Status absolute;
  for_each_file(spec, [&](const char* key, const std::string& file) {
    if (is_relative_file(file))
      absolute = plan_error(key, file, "want an absolute path; 'clairfs plan' makes relative ones absolute");
  });
  return absolute;
}

// Lists that are read to be compared: in some ten milliseconds.
constexpr off_t kMostCompared = 64 << 20;

// Its bytes tell, since each rank may write the list anew before it registers it. Of one that is too large
// for that its times do, and of one that is gone nothing.
std::string identity_of_file(const std::string& path) {
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0) return "none";
  if (now.st_size <= kMostCompared) {
    if (const auto text = read_list_file(path))
      return fmt::format("{:x}", XXH3_64bits(text->data(), text->size()));
  }
  return fmt::format("{} {} {}.{} {}.{}", now.st_ino, now.st_size, now.st_mtim.tv_sec, now.st_mtim.tv_nsec,
                     now.st_ctim.tv_sec, now.st_ctim.tv_nsec);
}

std::string identity_of_files(const PlanSpec& spec, const DatasetSource& source) {
  std::string identity;
  for_each_file(spec, [&](const char* key, const std::string& file) {
    if (file.empty() || file.starts_with('[')) return;
    identity += fmt::format("{} {}\n", key, identity_of_file(source.list_path(file)));
  });
  return identity;
}

bool same_files(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() || a == b;
}

// Orders that a diagnosis compares with what readers opened, at most: seeds, and outputs of generators.
constexpr double kMostDiagnosed = double{1ULL << 32};

// "train" of "./train/": one folder, however it is written.
std::string plain_folder(std::string_view root) {
  std::string plain = std::filesystem::path(root).lexically_normal();
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain == "." ? "" : plain;
}

// The root is the folder that the plan was set on. Of two that differ one would be forgotten.
Status settle_root(PlanSpec& spec, std::string_view folder) {
  if (folder.empty()) return {};
  if (!spec.root.empty() && plain_folder(spec.root) != folder) {
    return Error{
        EINVAL, fmt::format("plan: two roots: root={}, and {} whose attribute was set; give no root=, or set "
                            "the plan on .clairfs/plan",
                            escaped(spec.root), escaped(folder))};
  }
  spec.root = folder;
  return {};
}

// All nodes have to number the samples alike.
std::string announced_text(const PlanRun& run) {
  PlanSpec spec = run.given();
  spec.index = identity_text(run.index());
  std::string text = format_plan(spec);
  return check_plan_size(text) ? text : format_plan(run.given());
}

}  // namespace

PlanManager::PlanManager(Deps deps)
    : deps_(std::move(deps)),
      plans_(deps_,
             {[this](const PlanRun& run) { return found_.is_placed(run); }, [this] { wake_planner(); }}),
      ahead_(deps_.dataset, deps_.place, deps_.clock),
      inference_({deps_.infer, deps_.dataset, deps_.clock, deps_.log,
                  [this](const FoundOrder& found) { return found_.follow(found); }, deps_.processes,
                  deps_.by_hand, deps_.when_idle}),
      found_(deps_, plans_, inference_) {
  found_.begin();
  inference_.begin();
  // Last: nothing would tell it to end if what comes next threw.
  if (!deps_.by_hand) planner_ = NamedThread("planner", [this] { plan_ahead(); });
}

void PlanManager::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  const std::vector<std::shared_ptr<PlanMaking>> makings = plans_.stop();
  wake_.notify_all();
  if (planner_.joinable()) planner_.join();
  for (const auto& making : makings) making->cancel();  // all before one is waited for
  inference_.stop();
  found_.stop();
  ahead_.stop();
}

Result<std::string> PlanManager::submit(std::string_view text, std::string_view folder) {
  auto spec = parse_plan(text);
  if (!spec) return refuse(spec.error()).error();
  if (spec->name == kFoundPlan)
    return refuse(plan_error("name", spec->name, "plans that were found have it; want another")).error();
  if (const Status one = settle_root(*spec, folder); !one) return refuse(one.error()).error();
  if (const Status absolute = check_absolute(*spec); !absolute) return refuse(absolute.error()).error();
  // Before anything of them is read, and outside the lock: their filesystem may hang.
  const std::string files = identity_of_files(*spec, deps_.dataset);
  const Result<std::shared_ptr<PlanMaking>> begun = [&] {
    MutexLock one_at_a_time(plans_.submit_mutex);
    return submit_here(*spec, files);
  }();
  if (!begun) return refuse(begun.error()).error();
  const std::optional<Status> made = *begun ? (*begun)->wait(deps_.index_patience) : Status();
  if (made && !*made) {
    MutexLock one_at_a_time(plans_.submit_mutex);
    if (plans_.making(spec->name) == *begun) plans_.retire(spec->name);
    return Error{EINVAL, made->error().message};  // which finish() has told already
  }
  if (!made) deps_.log.info("plan {}: its index is being made", spec->name);
  if (const auto registered = plans_.run(spec->name)) found_.save_registered(*registered);
  MutexLock lock(mutex_);
  last_error_.clear();
  return format_plan(*spec);
}

Result<std::string> PlanManager::index(std::string_view text) {
  const auto spec = parse_plan(text);
  if (!spec) return spec.error();
  if (const Status absolute = check_absolute(*spec); !absolute) return absolute.error();
  auto said = ahead_.ask(*spec);
  if (said && !said->starts_with("indexing ")) inference_.know_records(*spec);  // there is another one
  return said;
}

Status PlanManager::refuse(const Error& reason) {
  deps_.log.warn("plan refused: {}", reason.message);
  remember(reason);
  return Error{EINVAL, reason.message};
}

void PlanManager::remember(const Error& error) {
  MutexLock lock(mutex_);
  last_error_ = error.message;
}

Result<std::shared_ptr<PlanMaking>> PlanManager::submit_here(const PlanSpec& spec, const std::string& files) {
  if (const Status fits = check_plan_size(format_plan(spec)); !fits) return fits.error();
  const auto making = plans_.making(spec.name);
  const bool is_told_again = making && same_plan(making->given(), spec) && same_files(making->files(), files);
  if (is_told_again && !making->outcome()) return making;
  const auto existing = plans_.run(spec.name);
  // A job that ran to its end and is started again registers the same text, and begins anew.
  const bool over = existing && existing->status().state == TrackerState::finished;
  if (existing && !over) {
    const Word& last = words_[spec.name];
    if (same_plan(existing->given(), spec) && same_files(last.files, files)) {
      plans_.retire(spec.name);
      return std::shared_ptr<PlanMaking>();
    }
    const NodeId origin = last.origin;
    if (origin != deps_.place.self) {
      return Error{
          EINVAL,
          fmt::format("plan {} is in force with another text or list, registered on node {} ({}); give this "
                      "one another name, or cancel that one first",
                      spec.name, origin.value, describe_plan(existing->given()))};
    }
  }
  const auto begun = begin(spec, deps_.place.self, files);
  if (!begun) return Error{ESHUTDOWN, "plan: the mount is ending"};
  return begun;
}

std::shared_ptr<PlanMaking> PlanManager::begin(const PlanSpec& spec, NodeId origin,
                                               const std::string& files) {
  return plans_.begin(
      spec, origin, deps_.place,
      [this](const PlanMaking& ended, const auto& made) { return finish(ended, made); }, files);
}

// On the making's own thread. One that failed stays listed: whoever registered it may not have waited.
Status PlanManager::finish(const PlanMaking& making, const Result<std::shared_ptr<PlanRun>>& made) {
  const std::string& name = making.given().name;
  MutexLock one_at_a_time(plans_.submit_mutex);
  if (const Status listed = plans_.check_listed(making); !listed) return listed;
  if (!made) return refuse(made.error());
  put_in_force(*made);
  plans_.retire(name);
  found_.give_way(**made);
  words_[name].origin = making.origin();
  if (making.origin() == deps_.place.self) announce(name, announced_text(**made));
  words_[name].files = making.files();
  return {};
}

Status PlanManager::take_over(const PlanChange& change) {
  if (change.name == kFoundPlan) {
    const Status taken = found_.take_over(change);
    return taken ? taken : refuse(taken.error());
  }
  MutexLock one_at_a_time(plans_.submit_mutex);
  const auto existing = plans_.run(change.name);
  Word& last = words_[change.name];
  if (change.stamp > 0 && std::tie(change.stamp, change.origin) <= std::tie(last.stamp, last.origin))
    return {};
  // A node says again what it has made anew: it has finished there, or its files are others.
  const bool anew = last.stamp > 0 && change.stamp > 0 && change.origin == last.origin;
  last = {change.origin, change.stamp};
  if (change.text.empty()) {
    plans_.retire(change.name);
    if (existing) plans_.drop(change.name);
    return {};
  }
  const auto spec = parse_plan(change.text);
  if (!spec) return refuse(spec.error());
  if (spec->name != change.name)
    return refuse({EINVAL, "a plan was announced under another name than its own"});
  const auto making = plans_.making(change.name);
  if (!anew && making && same_plan(making->given(), *spec) && !making->outcome()) return {};
  const bool over = existing && existing->status().state == TrackerState::finished;
  if (!anew && existing && !over && same_plan(existing->given(), *spec)) {
    plans_.retire(change.name);
    return {};
  }
  begin(*spec, change.origin);
  return {};
}

void PlanManager::put_in_force(const std::shared_ptr<PlanRun>& made) {
  if (made->of_records()) inference_.know_records(made->resolved());
  plans_.list(made);
  plans_.stage(made);
}

Status PlanManager::cancel(const std::string& name) {
  const Status cancelled = name == kFoundPlan ? found_.cancel() : cancel_registered(name);
  if (!cancelled) remember(cancelled.error());
  return cancelled;
}

Status PlanManager::cancel_registered(const std::string& name) {
  MutexLock one_at_a_time(plans_.submit_mutex);
  const bool was_making = plans_.retire(name);
  const bool in_force = plans_.run(name) != nullptr;
  if (!in_force && !was_making) return no_such_plan(name);
  if (in_force) plans_.drop(name);
  announce(name, "");
  return {};
}

void PlanManager::announce(const std::string& name, const std::string& text) {
  if (const uint64_t stamp = plans_.announce(name, text)) words_[name] = {deps_.place.self, stamp};
}

Status PlanManager::cancel_if(const std::function<bool(const PlanSpec&)>& wanted, const std::string& none) {
  bool any = false;
  const auto all = plans_.runs();
  const auto unnamed = [&](const std::string& name) {
    return name == kFoundPlan ? found_.let_go() : cancel(name);
  };
  for (const auto& [name, making] : plans_.makings()) {
    if (wanted(making->given())) any = unnamed(name).ok() || any;
  }
  for (const auto& [name, run] : *all) {
    if (wanted(run->given())) any = unnamed(name).ok() || any;
  }
  if (any) return {};
  const Error nothing{ENODATA, none};
  remember(nothing);
  return nothing;
}

Status PlanManager::cancel_folder(std::string_view folder) {
  return cancel_if([&](const PlanSpec& plan) { return plan.root == folder; },
                   fmt::format("no plan has the root '{}'", folder));
}

Status PlanManager::cancel_all() {
  return cancel_if([](const PlanSpec&) { return true; }, "no plan is in force");
}

// A plan that has the file, though not in the order of an access.
struct PlanManager::Unexplained {
  std::shared_ptr<PlanRun> run;
  std::vector<uint32_t> samples;
  Access kind;
  bool found;
  bool left;  // it was registered, and its readers went another way
  bool over;  // it was registered, and has finished
};

// An access, and what the plans make of it.
struct PlanManager::Seen {
  ThreadId thread;
  FileId file;
  uint64_t offset;
  uint64_t length;
  Access access;
  Access of_records;  // what it is to a plan of records
  const SentinelOf& sentinel;
  TimePoint now;
  Use use{};
  std::vector<Unexplained> unexplained{};
  bool explained = false;
  bool registered = false;     // a plan that was registered, and is neither left nor over, may have it
  bool by_registered = false;  // one that was registered explains it
};

// Plans may have a folder in common, as those of the training and the validation half of it: an access that
// is in order for one of them says nothing against the others. One that no plan explains says nothing against
// those whose order has not the sample, if that of another has. One that is left is told all the same of what
// the found plan explains: its readers may come back. What comes after the end of one is recorded from the
// beginning, since who begins there is found by that; it is followed only once that plan is left.
Use PlanManager::observe(ThreadId thread, FileId file, uint64_t offset, uint64_t length, Access access,
                         const SentinelOf& sentinel) {
  if (!any()) {
    if (inference_.watches()) inference_.note(thread, file, access, offset, length);
    return {};
  }
  const Access of_records = access == Access::read ? read_runs_.note(thread, file, offset, length) : access;
  Seen seen{thread, file, offset, length, access, of_records, sentinel, deps_.clock.now()};
  const auto all = plans_.runs();
  for (const auto& [name, run] : *all) offer(seen, name, run);
  if (seen.by_registered) return seen.use;
  leave_to_others(seen.unexplained);
  seen.registered = std::any_of(seen.unexplained.begin(), seen.unexplained.end(),
                                [](const Unexplained& of) { return !(of.found || of.left || of.over); });
  const bool watched = !seen.explained && !seen.registered && inference_.watches();
  if (watched) inference_.note(thread, file, access, offset, length);
  tell_unexplained(seen);
  return seen.use;
}

void PlanManager::offer(Seen& seen, const std::string& name, const std::shared_ptr<PlanRun>& run) {
  const bool found = name == kFoundPlan;
  if (found && found_.is_over(*run, run->reader())) return;
  if (seen.access == Access::read && run->of_records())
    deps_.staging.note_read(name, seen.file, seen.offset, seen.length);
  const bool sentinels = run->has(seen.sentinel.reader);
  std::vector<uint32_t> samples =
      sentinels ? std::vector{seen.sentinel.sample} : run->samples_of(seen.file, seen.offset, seen.length);
  if (samples.empty()) return;
  if (found && !inference_.is_reader(seen.thread)) return;  // another reader says nothing of it
  const Access kind = !sentinels && run->of_records() ? seen.of_records : seen.access;
  const RankTrackers::Observed observed = run->offer(seen.thread, samples, kind, seen.now);
  // Of a way that was left.
  if (observed.verdict == Tracker::Verdict::repeated && run->is_left()) return;
  if (observed.verdict == Tracker::Verdict::out_of_order) {
    if (found && found_.is_over(*run, run->reader(observed.rank), true)) return;
    const bool left = !found && run->is_left();
    const bool over = !found && !left && run->has_finished_by(observed.rank);
    seen.unexplained.push_back({run, std::move(samples), kind, found, left, over});
    return;
  }
  // A part of any other order lies in that of a plan that is left.
  const bool by_chance = !found && run->is_left_by(observed.rank);
  seen.explained = seen.explained || !by_chance;
  seen.by_registered = seen.by_registered || !(found || by_chance);
  if (found) inference_.note_in_order(seen.now);
  if (seen.use.order == OrderId() && observed.position.value_or(-1) >= 0)
    seen.use = {run->reader(observed.rank).order(), static_cast<uint64_t>(*observed.position)};
  if (observed.verdict == Tracker::Verdict::in_order) deps_.metrics.plan_observations_in_order.add();
  if (seen.access == Access::read && !sentinels) run->reader(observed.rank).note_read(seen.length);
  follow_up(run, seen.access, observed);
}

// An access says nothing against plans whose orders have not the sample, if that of another has. Nor does it
// belong to their readers, who keep nobody else from being looked for.
void PlanManager::leave_to_others(std::vector<Unexplained>& plans) {
  const auto may_be_of = [](const Unexplained& of) { return of.run->may_come_to(of.samples); };
  if (plans.size() < 2 || std::none_of(plans.begin(), plans.end(), may_be_of)) return;
  std::erase_if(plans, [&](const Unexplained& of) { return !of.left && !may_be_of(of); });
}

void PlanManager::tell_unexplained(const Seen& seen) {
  for (const auto& [run, samples, kind, found, left, over] : seen.unexplained) {
    if (seen.explained && !left) continue;
    if (left && !seen.explained && !seen.registered) run->set_watched(true);
    const RankTrackers::Observed observed = run->observe(seen.thread, samples, kind, seen.now);
    // What was recorded since its end is to be forgotten when its readers are back.
    const bool is_back = observed.verdict == Tracker::Verdict::in_order;
    if (over && (is_back || run->is_left())) run->set_watched(true);
    if (observed.verdict == Tracker::Verdict::out_of_order && !seen.explained)
      deps_.metrics.plan_observations_out_of_order.add();
    follow_up(run, seen.access, observed);
  }
}

// What an access asks for: staging goes on, the next epoch is made, or it is found out why the plan is lost.
void PlanManager::follow_up(const std::shared_ptr<PlanRun>& run, Access access,
                            const RankTrackers::Observed& observed) {
  const PlanReader& reader = run->reader(observed.rank);
  const bool lost = reader.tracker().wants_diagnosis();
  // A READ may tell that pages were taken back, also behind the high-water mark.
  if (access == Access::read || observed.moved) deps_.staging.wake();
  if (observed.moved && run->name() == kFoundPlan) (void)found_.is_over(*run, reader);
  const bool is_back = observed.moved && run->is_watched();
  if (!lost && !is_back && !reader.wants_preparation()) return;
  if (lost) return diagnose_later(run);
  wake_planner();
}

void PlanManager::wake_planner() {
  MutexLock lock(mutex_);
  pending_ = true;
  wake_.notify_all();
}

void PlanManager::diagnose_later(const std::shared_ptr<PlanRun>& run) {
  MutexLock lock(mutex_);
  const bool listed = std::find(to_diagnose_.begin(), to_diagnose_.end(), run) != to_diagnose_.end();
  if (!listed) to_diagnose_.push_back(run);
  pending_ = true;
  wake_.notify_all();
}

void PlanManager::plan_ahead() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      while (!pending_ && !stopping_) wake_.wait(lock);
      if (stopping_) return;
    }
    step_planner();
  }
}

bool PlanManager::step_planner() {
  std::vector<std::shared_ptr<PlanRun>> diverged;
  {
    MutexLock lock(mutex_);
    if (!std::exchange(pending_, false)) return false;
    diverged.swap(to_diagnose_);
  }
  const auto all = plans_.runs();
  bool epoch_began = false;
  for (const auto& [name, run] : *all) {
    const auto changed = run->prepare();
    if (!changed) {
      give_up(run, changed.error());
    } else if (*changed) {
      epoch_began = true;
      deps_.staging.wake();
    }
  }
  if (epoch_began && deps_.placement != nullptr) deps_.placement->begin_epoch();
  // One at a time is held, and let go of once it was looked at.
  for (auto& diverged_run : diverged) {
    const auto run = std::exchange(diverged_run, nullptr);
    diagnose(*run);
    // Enough may have been seen meanwhile, and nothing is any more.
    if (plans_.run(run->name()) == run && run->wants_diagnosis()) diagnose_later(run);
  }
  found_.note_returns();
  return true;
}

// Here only: every node finds out itself.
void PlanManager::give_up(const std::shared_ptr<PlanRun>& run, const Error& reason) {
  const std::string& name = run->name();
  deps_.log.error("plan {} ends: {}", name, reason.message);
  if (name == kFoundPlan) return found_.give_up(run);
  MutexLock one_at_a_time(plans_.submit_mutex);
  if (plans_.run(name) != run) return;
  plans_.drop(name);
  if (stopping_) return;
  remember(reason);
  plans_.list_failed(run->given(), words_[name].origin, reason);
}

void PlanManager::diagnose(PlanRun& run) {
  // Readers may leave plans faster than causes are found. Then a plan may be cancelled or replaced by now.
  const auto gone = [&] { return stopping_ || plans_.run(run.name()).get() != &run; };
  if (gone()) return;
  const PlanRun::Diagnosed diagnosed = run.diagnose_divergence(gone);
  for (const size_t rank : diagnosed.news) {
    const TrackerStatus status = run.reader(rank).tracker().status();
    if (!status.divergence) continue;
    const std::string where = run.describe(rank, *status.divergence);
    if (status.state == TrackerState::finished) {
      deps_.log.info("plan {} is read in another order after its end: {}", run.name(), where);
    } else {
      deps_.log.warn("plan {} is suspended at {}", run.name(), where);
    }
  }
  if (run.name() == kFoundPlan) {
    found_.leave();
  } else if (run.is_left()) {
    for (const PlanSpec& order : diagnosed.orders) inference_.suggest({order, kMostDiagnosed}, true);
    found_.follow_word();
  }
  deps_.staging.wake();
}

}  // namespace clairfs
