#include "plan/plan_table.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

Error no_such_plan(const std::string& name) {
  return {ENOENT,
          fmt::format("there is no plan named '{}'; 'clairfs plan show MOUNT' lists them", escaped(name))};
}

std::vector<std::shared_ptr<PlanMaking>> PlanTable::stop() {
  // Nobody who holds it is then the last to have a making, whose thread may wait for it.
  MutexLock one_at_a_time(submit_mutex);
  MutexLock lock(mutex_);
  stopped_ = true;
  std::vector<std::shared_ptr<PlanMaking>> all = std::exchange(retired_, {});
  for (const auto& [name, making] : makings_) all.push_back(making);
  makings_.clear();
  return all;
}

std::shared_ptr<const PlanTable::Runs> PlanTable::runs() const {
  MutexLock lock(mutex_);
  return runs_;
}

std::shared_ptr<PlanRun> PlanTable::run(const std::string& name) const {
  const auto all = runs();
  const auto found = all->find(name);
  return found == all->end() ? nullptr : found->second;
}

std::shared_ptr<PlanMaking> PlanTable::making(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = makings_.find(name);
  return found == makings_.end() ? nullptr : found->second;
}

PlanTable::Makings PlanTable::makings() const {
  MutexLock lock(mutex_);
  return makings_;
}

bool PlanTable::await_makings(Duration patience) {
  bool any = false;
  for (const auto& [name, making] : makings()) {
    any = any || !making->outcome();
    (void)making->wait(patience);
  }
  // One that is not listed any more may have something to say yet.
  const MutexLock one_at_a_time(submit_mutex);
  return any;
}

std::shared_ptr<PlanMaking> PlanTable::begin(const PlanSpec& spec, NodeId origin, JobPlace place,
                                             PlanMaking::Finish finish, const std::string& files) {
  retire(spec.name);
  auto making = std::make_shared<PlanMaking>(spec, deps_.dataset, place, origin, std::move(finish), files);
  {
    MutexLock lock(mutex_);
    if (stopped_) return nullptr;
    makings_[spec.name] = making;
    if (const Status begun = making->start(); !begun) deps_.log.warn("{}", begun.error().message);
  }
  return making;
}

Status PlanTable::check_listed(const PlanMaking& making) const {
  const std::string& name = making.given().name;
  if (this->making(name).get() == &making) return {};
  return Error{ECANCELED, fmt::format("plan {} was cancelled or replaced before it was made", name)};
}

// Others that are over may go, once the lock is open again. One that is not would be waited for, maybe by its
// own thread.
bool PlanTable::retire(const std::string& name) {
  std::vector<std::shared_ptr<PlanMaking>> over;
  MutexLock lock(mutex_);
  std::erase_if(retired_, [&](auto& retired) {
    if (!retired->outcome()) return false;
    over.push_back(std::move(retired));
    return true;
  });
  const auto found = makings_.find(name);
  if (found == makings_.end()) return false;
  found->second->cancel();
  retired_.push_back(std::move(found->second));
  makings_.erase(found);
  return true;
}

// What is to replace it says how it fares itself.
void PlanTable::list_failed(const PlanSpec& spec, NodeId origin, const Error& reason) {
  auto ended = std::make_shared<PlanMaking>(spec, deps_.dataset, deps_.place, origin, PlanMaking::Finish());
  ended->end(reason);
  MutexLock lock(mutex_);
  if (!stopped_) makings_.try_emplace(spec.name, std::move(ended));
}

void PlanTable::replace_runs(const std::function<void(Runs&)>& change) {
  {
    MutexLock lock(mutex_);
    auto copy = std::make_shared<Runs>(*runs_);
    change(*copy);
    count_ = copy->size();
    deps_.metrics.plans_active.set(static_cast<int64_t>(copy->size()));
    runs_ = std::move(copy);
  }
  calls_.changed();
}

void PlanTable::list(const std::shared_ptr<PlanRun>& made) {
  const std::string& name = made->name();
  if (run(name)) {
    deps_.log.info("plan {} is replaced", name);
    deps_.staging.remove(name);
  }
  deps_.log.info("plan {}: {} samples; {}", name, made->index().size(), describe_plan(made->resolved()));
  replace_runs([&](Runs& runs) { runs[name] = made; });
}

void PlanTable::stage(const std::shared_ptr<PlanRun>& made) {
  place_chunks();  // before anything is fetched for the plan: else it would all come from the PFS
  deps_.staging.add(made);
}

void PlanTable::unlist(const std::string& name) {
  replace_runs([&](Runs& runs) { runs.erase(name); });
  deps_.staging.remove(name);
}

void PlanTable::drop(const std::string& name) {
  unlist(name);
  place_chunks();
  deps_.log.info("plan {} is cancelled", name);
}

void PlanTable::place_chunks() {
  if (deps_.placement == nullptr) return;
  PlacementManager::Plans plans;
  const auto all = runs();
  for (const auto& [name, run] : *all) {
    if (calls_.is_placed(*run)) plans.push_back(run);
  }
  deps_.placement->set_plans(plans);
}

uint64_t PlanTable::announce(const std::string& name, const std::string& text, bool withdrawn) {
  return deps_.announce ? deps_.announce({name, text, deps_.place.self, withdrawn}) : 0;
}

}  // namespace clairfs
