// The plans in force on this node: registered, prepared epoch by epoch, fed with what readers do.
//
// They are in a PlanTable. PlanManager decides on the registered ones, FoundPlan on the one that `inference`
// finds. PlanManager tells the plans that have the file of each access. It tells `inference` of an access
// that no plan explains, unless a registered plan that has not finished and is not left may have it.
//
// Threads. submit() and cancel() come from a thread that may wait (never one that answers FUSE requests: a
// plan's dataset may have to be read through the mount's own cache). Each plan is made on its own thread
// (PlanMaking): the call that registers it waits for that, but not for a long index. observe() comes from the
// threads that answer requests and costs about a microsecond. The planner thread makes epochs before they are
// needed and looks for the reason when a reader leaves its plan.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "plan/found_plan.h"
#include "plan/inference/inference.h"
#include "plan/plan_deps.h"
#include "plan/plan_table.h"
#include "plan/run/index_ahead.h"
#include "plan/run/plan_making.h"
#include "plan/run/plan_run.h"
#include "plan/staging/staging.h"
#include "plan/tracking/read_runs.h"

namespace clairfs {

/// The stock of a node of a job, besides its tiers' room.
struct NodeStock {
  StagingOptions page_cache;
  uint64_t warm_bytes = 0;  ///< of the dataset, in its tiers when it was mounted
};

/// A plan in a few words, for monitoring. No two have one name.
struct PlanBrief {
  enum class Making : uint8_t { none, indexing, failed };
  std::string name;
  TrackerState state = TrackerState::waiting;  ///< suspended as soon as one of its readers is
  uint64_t ahead = 0;                          ///< samples pushed ahead of the reader
  std::string divergence;  ///< where and why its reader left it, while it is suspended; may name files
  bool in_force = true;
  /// Of a text that is not in force, which it is to replace if another is. Failed is also one that was in
  /// force until an epoch could not be made.
  Making making = Making::none;
  std::string error{};             ///< why that failed; may name files
  std::string followed_instead{};  ///< the plan that was found for its reader, while that has left it; names
                                   ///< folders
};

/// Thread-safe.
class PlanManager {
 public:
  using Deps = PlanDeps;

  explicit PlanManager(Deps deps);
  ~PlanManager() { stop(); }
  /// Ends the planner and what is being made; plans stay as they are.
  void stop();

  /// A turn of the planner. False: there was nothing to do. For its thread, or for a test (Deps::by_hand).
  bool step_planner();
  /// The same of `inference`, at `now`.
  Turn step_inference(TimePoint now) { return inference_.step(now); }
  /// Waits for all that is being made, for an index no longer than `patience`. False: nothing was.
  bool await_makings(Duration patience) { return plans_.await_makings(patience); }

  /// Puts a plan in force. `folder`: the dataset folder whose xattr was set, which is the plan's root; a text
  /// that names another one is refused. The same text again changes nothing, unless the plan has finished:
  /// then it begins again. With list files that have changed since it is another text. Another text under the
  /// same name replaces the plan if it was registered on this node or has finished, and is refused otherwise:
  /// two nodes of a job want different things. The plan that it replaces stays in force until the new one is
  /// made. Returns the plan as it reads back; where a long index has to be made first the plan is not in
  /// force yet, and text() tells how far it is, or why it failed. Errors: always EINVAL; last_error() repeats
  /// the message.
  Result<std::string> submit(std::string_view text, std::string_view folder = "");
  /// One that was found is not found again. Errors: ENOENT when there is no such plan; last_error() repeats
  /// the message.
  Status cancel(const std::string& name);
  /// Cancels the plans whose root is this folder. One that was found goes as well, and its readers are
  /// watched again; so for all. Errors: ENODATA when there is none.
  Status cancel_folder(std::string_view folder);
  /// Cancels every plan. Errors: ENODATA when there is none; last_error() repeats the message, as for the one
  /// before.
  Status cancel_all();

  /// Carries out what was registered or cancelled on another node. What this node hears of its own, or of
  /// others too late, is older than what was carried out last by its stamp, and has no effect. Does not wait
  /// for what is made: text() tells what becomes of it. Errors: EINVAL for a text that is no plan.
  Status take_over(const PlanChange& change);

  /// Makes the index of a plan's samples and puts nothing in force: as IndexAhead::ask(). Errors: EINVAL for
  /// what is no plan; as there.
  Result<std::string> index(std::string_view text);

  /// A request of a thread for bytes of a file has arrived, or (length 0, Access::open) the file was opened.
  /// `sentinel`: the request is for the page of one (Staging::sentinels()), so it tells the sample of that
  /// plan, whatever else it asks for. Returns the use that the request is for, of the first plan that has
  /// one.
  Use observe(ThreadId thread, FileId file, uint64_t offset, uint64_t length, Access access,
              const SentinelOf& sentinel = {});

  /// All plans for people: text, state, position, distance ahead, divergence. The control file's text.
  std::string text() const;
  /// The same of one plan. Errors: ENOENT.
  Result<std::string> text(const std::string& name) const;
  /// All plans as a JSON array.
  std::string json() const;
  std::vector<PlanBrief> briefs() const;
  /// The text of the plan whose root is `folder`, as registered; empty if there is none.
  std::string text_of_folder(std::string_view folder) const;
  /// The texts of all plans, as registered, one a line.
  std::string texts() const;
  /// The next `count` samples of a plan, one line each. No name: the only plan, or "default"; so for check().
  /// Errors: ENOENT; EAGAIN while it is made.
  Result<std::string> next(const std::string& given, uint64_t count) const;
  /// From now on all shuffles are searched for readers without a plan.
  void search_all_shuffles() { inference_.search_all_shuffles(); }
  /// Somebody waits for the orders that readers follow.
  void hurry_search() { inference_.hurry(); }
  /// The orders that readers seem to follow, with the line that registers each; for people, or as JSON.
  std::string detect(bool as_json) const { return found_.detect(as_json); }
  /// Predicted against observed so far: a line "pass" or "fail", and the figures. Errors: as next().
  Result<std::string> check(const std::string& given) const;
  /// When the file is read next: "plan=default epoch=3 position=1234 in=567", the last in samples, and
  /// " sample=train.lmdb[12345]" where samples are parts of files; empty if never as far as is known.
  std::string next_use(FileId file) const;
  /// The bytes that any cache has to read from the source for the epochs that the plans have begun, if the
  /// tiers can keep all of the bytes that the plans use but `homeless_bytes`: S less what the job's `nodes`
  /// had already, and (E-1) times what of these the page caches of the nodes cannot keep either. Plans are
  /// assumed to share their files, and the nodes to have had different parts of these. 0 without plans.
  uint64_t least_source_bytes(uint64_t homeless_bytes, const std::vector<NodeStock>& nodes) const;
  std::string last_error() const;
  /// Remembers why a plan was not taken, for last_error(). Always EINVAL: whatever it was, the plan as
  /// written cannot be taken.
  Status refuse(const Error& reason);
  bool any() const { return plans_.any(); }

 private:
  struct Unexplained;
  struct Seen;
  /// The two halves of observe(): what each plan makes of the access, and, unless a registered plan explains
  /// it, what those are told that do not.
  void offer(Seen& seen, const std::string& name, const std::shared_ptr<PlanRun>& run);
  static void leave_to_others(std::vector<Unexplained>& plans);
  void tell_unexplained(const Seen& seen);
  void follow_up(const std::shared_ptr<PlanRun>& run, Access access, const RankTrackers::Observed& observed);
  void wake_planner();
  void diagnose_later(const std::shared_ptr<PlanRun>& run);
  /// The making to be waited for, null if the plan is in force. `files`: as PlanMaking; so for begin().
  Result<std::shared_ptr<PlanMaking>> submit_here(const PlanSpec& spec, const std::string& files)
      REQUIRES(plans_.submit_mutex);
  /// Null if the manager is stopping.
  std::shared_ptr<PlanMaking> begin(const PlanSpec& spec, NodeId origin, const std::string& files = "")
      REQUIRES(plans_.submit_mutex);
  Status finish(const PlanMaking& making, const Result<std::shared_ptr<PlanRun>>& made);
  void put_in_force(const std::shared_ptr<PlanRun>& run) REQUIRES(plans_.submit_mutex);
  void announce(const std::string& name, const std::string& text) REQUIRES(plans_.submit_mutex);
  Status cancel_registered(const std::string& name);
  Status cancel_if(const std::function<bool(const PlanSpec&)>& wanted, const std::string& none);
  void remember(const Error& error);
  /// An epoch could not be made. The plan stays listed with the reason, as one that could not be made at all.
  void give_up(const std::shared_ptr<PlanRun>& run, const Error& reason);
  std::string name_or_only(const std::string& name) const;
  /// Errors: EAGAIN while it is made; ENOENT.
  Result<std::shared_ptr<PlanRun>> run_in_force(const std::string& name) const;
  void plan_ahead();
  void diagnose(PlanRun& run);

  /// What was last said of a name, and carried out here.
  struct Word {
    NodeId origin;  // where the plan was registered
    uint64_t stamp = 0;
    std::string files{};  // as PlanMaking, of the plan that was made; unknown once another node has spoken
  };

  const Deps deps_;

  PlanTable plans_;  // self-synchronised
  std::map<std::string, Word> words_ GUARDED_BY(plans_.submit_mutex);
  mutable Mutex mutex_;  // leaf
  CondVar wake_;
  std::string last_error_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<PlanRun>> to_diagnose_ GUARDED_BY(mutex_);
  bool pending_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> stopping_{false};
  ReadRuns read_runs_;   // self-synchronised
  IndexAhead ahead_;     // self-synchronised
  Inference inference_;  // self-synchronised
  FoundPlan found_;      // self-synchronised
  NamedThread planner_;
};

/// A plan that is being made or could not be made, for people: "indexing 12 %", "failed".
std::string state_of(const PlanMaking& making);

}  // namespace clairfs
