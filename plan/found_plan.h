// FoundPlan: the plan of an order that readers were found to follow, here or on another node of the job.
//
// It is a plan in the table as others are, with the name kFoundPlan, and there is one at a time. `inference`
// finds an order (follow()), or another node tells of one (take_over()). The plan begins where its reader is.
// It goes when its reader leaves it, when another node withdraws it before readers here follow it, when a
// user cancels it, when an epoch of it cannot be made, and when a registered plan has its files. A registered
// plan wins, unless its own readers have left it: then nothing is staged for it until they are back.
// run/found_in_job.h says what the nodes of a job tell each other.
//
// Locks. Its own is for the file of saved orders. PlanTable::submit_mutex guards its state, except what
// belongs to begin(), follow() and stop(). Its functions take that lock themselves, with two exceptions. The
// caller of give_way() and is_placed() holds it. is_over(), instead_of() and detect() need no lock; threads
// that answer FUSE requests call the first of these.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "plan/inference/inference.h"
#include "plan/inference/saved_orders.h"
#include "plan/plan_deps.h"
#include "plan/plan_table.h"
#include "plan/run/found_in_job.h"
#include "plan/run/plan_making.h"
#include "plan/run/plan_run.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// Thread-safe, but for begin(), follow() and stop(): for one thread at a time, in this order.
class FoundPlan {
 public:
  /// All outlive it. `plans` asks is_placed(), `inference` calls follow().
  FoundPlan(const PlanDeps& deps, PlanTable& plans, Inference& inference);
  /// Suggests the orders that earlier mounts have saved. Before `inference` begins.
  void begin();
  /// Saves the order with the epoch that its reader is in, and those of registered plans. Once `inference`
  /// has stopped.
  void stop();
  /// Saves the order of a plan that was registered: a job that is started again may forget to register.
  void save_registered(const PlanRun& registered);

  /// Puts an order that was found here in force: Inference::Deps::follow.
  bool follow(const FoundOrder& found);
  /// Carries out what another node has found, withdrawn or cancelled: PlanManager::take_over(). Errors: those
  /// of a text that is no plan.
  Status take_over(const PlanChange& change);

  /// A user cancels it, on all nodes that have it. It is not found again. Errors: ENOENT.
  Status cancel();
  /// A user wants no plans, or none in its folder: it may be found again, and other nodes keep it while their
  /// readers follow it. Errors: ENOENT.
  Status let_go();
  /// An epoch of it could not be made. No effect if it is not in force any more.
  void give_up(const std::shared_ptr<PlanRun>& found);
  /// If its reader has left it, the plan goes, and `inference` watches the reader again.
  void leave();

  /// Readers have left a registered plan: begins with what another node found, if nothing is followed here.
  void follow_word();
  /// If readers are back that had left a registered plan with its files, it gives way.
  void note_returns();
  /// A registered plan has come into force: it gives way if that has its files. REQUIRES:
  /// PlanTable::submit_mutex is held.
  void give_way(const PlanRun& registered);

  /// Whether a plan, this one or a registered one, has a part in the placement. REQUIRES: as give_way().
  bool is_placed(const PlanRun& run) const;
  /// Whether its epoch is over, which is then noted. `reader`: seen last. `went_on`: its readers have opened
  /// what the rest of the epoch does not account for.
  bool is_over(PlanRun& found, const PlanReader& reader, bool went_on = false);
  /// Describes for people the order that is followed instead of `registered`; empty if that plan is not set
  /// aside.
  std::string instead_of(const PlanRun& registered) const;
  /// PlanManager::detect().
  std::string detect(bool as_json) const;

 private:
  std::shared_ptr<PlanRun> run() const { return plans_.run(name_); }
  std::shared_ptr<PlanMaking> making() const { return plans_.making(name_); }
  /// The plan, if it is in force and a reader is following it here; else null.
  std::shared_ptr<PlanRun> followed() const;
  /// Null if the table has stopped. `place`: of the plan's ranks. `found_here`: what it is a plan of, if it
  /// is none that somebody has told of; so for the next two.
  std::shared_ptr<PlanMaking> make(const PlanSpec& spec, NodeId origin, JobPlace place,
                                   std::optional<FoundOrder> found_here = std::nullopt)
      REQUIRES(plans_.submit_mutex);
  Status finish(const PlanMaking& making, const Result<std::shared_ptr<PlanRun>>& made,
                const std::optional<FoundOrder>& found_here);
  void put_in_force(const std::shared_ptr<PlanRun>& run, NodeId origin,
                    const std::optional<FoundOrder>& found_here) REQUIRES(plans_.submit_mutex);
  void replay(PlanRun& found, std::span<const SeenOpen> opens) const;
  void drop() REQUIRES(plans_.submit_mutex);
  void let_go_of(const PlanRun& found) REQUIRES(plans_.submit_mutex);
  void begin_with_word() REQUIRES(plans_.submit_mutex);
  void withdraw() REQUIRES(plans_.submit_mutex);
  /// Another node's user has cancelled it.
  void cancel_here() REQUIRES(plans_.submit_mutex);
  /// Stages nothing for registered plans that are left, where the one that was found has files of them; all
  /// others are staged again. None: `found` is null.
  void set_aside(const PlanRun* found) REQUIRES(plans_.submit_mutex);
  /// Whether a registered plan that is not left has files of it.
  bool is_planned(const PlanRun& found) const;
  /// The same, also of one that is left here: on other nodes it may be followed.
  bool is_registered(const PlanRun& found) const;
  Status write_long_list(PlanSpec& found);
  void expect_again(PlanSpec order);
  void save(PlanSpec order);

  const PlanDeps& deps_;
  const std::string name_{kFoundPlan};
  PlanTable& plans_;      // self-synchronised
  Inference& inference_;  // self-synchronised
  FoundInJob job_found_ GUARDED_BY(plans_.submit_mutex);
  Mutex saved_mutex_;  // a leaf
  SavedOrders saved_orders_ GUARDED_BY(saved_mutex_);
  std::string list_file_;  // of the plan that was found, where its list is a file; of follow() and stop()
  uint64_t lists_ = 0;     // that were written; the same
};

}  // namespace clairfs
