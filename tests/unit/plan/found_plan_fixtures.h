// The mounts that tests of the plan that was found look at. The tests take the turns of `planner` and
// `inference`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan_manager.h"
#include "tests/support/reader_model.h"
#include "tests/support/staging_fixture.h"
#include "tests/unit/plan/plans_by_hand.h"

namespace clairfs {

/// Node 1 of two.
struct NodeFixture {
  static constexpr uint32_t kFiles = 400;

  explicit NodeFixture(InferMode infer = InferMode::cheap)
      : staged(kFiles, 5000, "name=unknown format=files shuffle=false", 1 << 20, 1 << 20) {
    PlanManager::Deps deps{{}, {NodeId(1), 2}, *staged.staging, clock, staged.metrics, staged.log.logger()};
    deps.dataset.catalog = staged.catalog;
    deps.announce = [this](const PlanChange& change) {
      const MutexLock lock(mutex);
      announced.push_back(change);
      return uint64_t{0};
    };
    deps.infer = infer;
    deps.by_hand = true;
    deps.when_idle = false;
    plans.emplace(std::move(deps));
  }
  bool settle_until(const std::function<bool()>& until) { return settle_plans_until(*plans, clock, until); }
  bool told(const std::string& text, bool withdrawn = false, NodeId origin = NodeId(0)) {
    return plans->take_over({"auto", text, origin, withdrawn}).ok();
  }
  bool follows() {
    const auto briefs = plans->briefs();
    return std::any_of(briefs.begin(), briefs.end(), [](const PlanBrief& plan) {
      return plan.name == kFoundPlan && plan.state == TrackerState::following;
    });
  }
  bool has_plan(const std::string& name = "auto") { return plans->text(name).ok(); }
  bool in_force() { return plans->next("auto", 1).ok(); }
  std::vector<PlanChange> said() {
    const MutexLock lock(mutex);
    return announced;
  }
  /// Node 1's readers open samples [begin, end) of an order.
  void read(const std::string& order, uint32_t begin, uint32_t end) {
    auto sequence = plan_over(kFiles, order, 2);
    const auto samples = sequence.sequence(Epoch(0), NodeId(1));
    REQUIRE(samples);
    for (uint32_t i = begin; i < end; ++i) {
      const FileId file = staged.run->index().range(samples->sample_at(i), 0).file;
      plans->observe(ThreadId(7), file, 0, 0, Access::open);
    }
  }

  MovedClock clock;
  StagingFixture staged;
  Mutex mutex;
  std::vector<PlanChange> announced GUARDED_BY(mutex);
  std::optional<PlanManager> plans;
};

/// A single node, and programs that read there: processes 100, 200 and 300 with workers, 101 and 102 and so
/// on.
struct ReadersFixture {
  static constexpr uint32_t kFiles = 400;

  explicit ReadersFixture(InferMode infer = InferMode::cheap, const std::string& saved_orders = "",
                          bool by_hand = true)
      : staged(kFiles, 5000, "name=unknown format=files shuffle=false", 1 << 20, 1 << 20) {
    for (const uint32_t program : {100, 200, 300}) {
      processes[program] = {program, 1, program, 1, false};
      processes[program + 1] = {program + 1, program, program, 1, true};
      processes[program + 2] = {program + 2, program, program, 1, true};
    }
    const Clock& used = by_hand ? static_cast<const Clock&>(clock) : real_clock;
    PlanManager::Deps deps{{}, {NodeId(0), 1}, *staged.staging, used, staged.metrics, staged.log.logger()};
    deps.dataset.catalog = staged.catalog;
    deps.infer = infer;
    deps.saved_orders = saved_orders;
    deps.by_hand = by_hand;
    deps.when_idle = false;
    deps.processes = [this](uint32_t number) -> std::optional<ProcessFacts> {
      const MutexLock lock(mutex);
      ++asked;
      const auto found = processes.find(number);
      if (found == processes.end()) return std::nullopt;
      return found->second;
    };
    plans.emplace(std::move(deps));
  }
  bool settle() { return settle_plans(*plans, clock.time); }
  bool settle_until(const std::function<bool()>& condition) {
    return settle_plans_until(*plans, clock, condition);
  }
  void read(uint32_t thread, const std::string& order, uint32_t begin, uint32_t end, uint32_t epoch = 0) {
    auto sequence = plan_over(kFiles, order);
    const Samples samples = order_of(sequence, epoch);
    for (uint32_t i = begin; i < end; ++i)
      plans->observe(ThreadId(thread), staged.run->index().range(samples[i], 0).file, 0, 0, Access::open);
  }
  bool follows(const std::string& words) {
    return plans->next("auto", 1).ok() && plans->texts().find(words) != std::string::npos;
  }
  PlanBrief brief(const std::string& name) {
    for (const PlanBrief& brief : plans->briefs()) {
      if (brief.name == name) return brief;
    }
    return {};
  }
  uint64_t questions() {
    const MutexLock lock(mutex);
    return asked;
  }
  void end_program(uint32_t program) {
    const MutexLock lock(mutex);
    processes.erase(program);
  }

  MovedClock clock;
  const SteadyClock real_clock;
  StagingFixture staged;
  Mutex mutex;
  std::map<uint32_t, ProcessFacts> processes GUARDED_BY(mutex);
  uint64_t asked GUARDED_BY(mutex) = 0;  // for processes, at each look as well
  std::optional<PlanManager> plans;
};

}  // namespace clairfs
