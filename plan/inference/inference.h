// Inference: finds out by itself what readers follow, where no plan was registered.
//
// Opens are recorded (watched/access_recorder.h), and compared with the orders that are likely
// (search/order_search.h) when 12 opens were seen, and again after half as many more, and so on, but at 48 on
// the way; where there are several readers, each after half as many more of its own; and two seconds after an
// open. An order that is certain (chance/fit.h) becomes a plan with the name kFoundPlan. It is a plan of the
// epoch that was seen; once the next one is seen to follow on, it is one of all epochs. A reader that leaves
// it is watched again.
//
// Of files whose records can be numbered (watched/record_files.h) each READ is recorded as an open is, with
// its pages. Which record it shows is found out when it is looked at.
//
// Several readers at once are told apart by the programs that they are (readers/process_tree.h). A plan that
// was found is one reader's; README.md says what becomes of the others.
//
// Two threads. `inference` sleeps until something is to be done, and then starts `order-search`, which runs
// when no core has anything else to do (SCHED_IDLE) and takes no lock that a reader needs. stop() waits for
// `inference`; a search that gets no processor is left behind, with what it uses. A look for which there is
// not enough memory is given up. Tests take the turns of `inference` themselves, at times that they choose.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/chunks/tier_policy.h"
#include "cache/tasks/alarm.h"
#include "cache/tasks/idle_pace.h"
#include "cache/tasks/idle_thread.h"
#include "cache/tasks/step_thread.h"
#include "plan/inference/readers/process_tree.h"
#include "plan/inference/search/order_search.h"
#include "plan/inference/search/reader_search.h"
#include "plan/inference/watched/access_recorder.h"
#include "plan/inference/watched/record_files.h"

namespace clairfs {

enum class InferMode : uint8_t {
  off,    ///< nothing is recorded
  cheap,  ///< the orders of search/candidates.h, and shuffles with usual values of torch.manual_seed()
  full    ///< the same and all other shuffles of torch: hundreds of core-seconds
};

/// How a plan was found, for people.
std::string how_found(const FoundOrder& found);

/// Thread-safe, but for begin(), step() and stop().
class Inference {
 public:
  struct Deps {
    InferMode mode = InferMode::off;
    DatasetSource dataset;
    const Clock& clock;
    Logger& log;
    /// Puts a plan in force, with what opens_of() has seen of its reader, and says so by in_force(); answers
    /// whether it was. From thread `inference`, which may wait.
    std::function<bool(const FoundOrder&)> follow;
    ProcessTree::LookUp processes = facts_of_process;
    bool by_hand = false;   ///< there is no thread `inference`: its owner calls step()
    bool when_idle = true;  ///< searches run as said above; else as any other thread, since somebody waits
  };

  explicit Inference(Deps deps);
  ~Inference() { stop(); }
  /// Begins to watch. Once; without effect if it is off.
  void begin();
  void stop();
  /// A turn of thread `inference`: takes a look if one is due at `now`, and waits for it.
  Turn step(TimePoint now);

  /// Whether note() has any effect: a load without order.
  bool watches() const { return recorder_.on(); }
  /// A thread opened a file of which no registered plan says when, or read `length` bytes of it.
  void note(ThreadId thread, FileId file, Access kind, uint64_t offset = 0, uint64_t length = 0);
  /// There may be another saved index, or a file whose records that plan tells: READs of such files are
  /// watched as opens are.
  void know_records(const PlanSpec& plan);
  /// The reader of the plan that was found went on in its order.
  void note_in_order(TimePoint now) {
    tree_.note_in_order(now);
    recorder_.note_in_order();
  }

  /// The opens of a program since the last plan, in the order of time; of all programs if it is none.
  std::vector<SeenOpen> opens_of(const Program& program) const;
  /// A plan comes into force for readers of that program; for all readers if it is none.
  void follow(const Program& program) { tree_.follow(program, deps_.clock.now()); }
  /// It is in force: forgets what its readers opened, and returns that as opens_of() does.
  std::vector<SeenOpen> forget(const Program& program);
  /// Forgets what was opened of some files: it belonged to a plan.
  void forget_files(const std::function<bool(FileId)>& of);
  /// Whether a thread that reads now is one of those. Costs a look into a table.
  bool is_reader(ThreadId thread) { return tree_.is_reader(thread, deps_.clock.now()); }
  /// Whether the plan that was found is another reader's, which still reads.
  bool follows_another(const Program& program) const {
    return tree_.follows_another(program, deps_.clock.now());
  }
  /// The recorded opens belong to a plan now.
  void restart();
  /// The plan that was found is in force no more: a registered one has its files.
  void displaced();
  /// A plan comes into force, which was found here or on another node of the job; `order` stands for it. To
  /// be called before anybody can end it. The one before, of other samples, may be followed again.
  void in_force(FoundOrder found, OrderId order);
  /// The plan that was found is about to end, or to be replaced. `epoch`: its reader was there.
  void ends(Epoch epoch);
  /// The reader has come to the end of the epoch that was planned. Without effect if another plan than that
  /// is in force.
  void epoch_over(OrderId order);
  /// The reader went another way, and the plan that was found is in force no more.
  void left();
  /// The user does not want a plan that was in force: no order of that sampler is followed again in its
  /// folder, those in it and those that hold it.
  void refuse(const PlanSpec& plan);
  /// Whether a plan is such an order.
  bool refuses(const PlanSpec& plan) const;
  /// Readers may follow that order: it is tried before any other. `now`: they are there, so they are looked
  /// at anew. Without effect if it is off.
  void suggest(Suggestion suggestion, bool now);

  /// All shuffles of torch are searched from now on, as with InferMode::full. Without effect if it is off.
  void search_all_shuffles();

  /// Somebody waits for what is found: for a minute busy cores do not hold the search back (IdlePace).
  void hurry();

  /// The orders that readers seem to follow, for people; for programs as JSON. `listed` stands for the found
  /// plan in the list of those in force, 0 for none: no other is told of as found.
  std::string text(OrderId listed) const;
  std::string json(OrderId listed) const;

 private:
  /// The state of a search, which may outlive this.
  struct Searching {
    Searching(const DatasetSource& dataset, InferMode mode, bool when_idle);
    bool stopped() const { return stopping || (other_reader && all_likely); }

    std::atomic<bool> stopping{false};
    // Another reader came since, or one has opened enough to tell more: likely orders are compared before
    // unlikely ones are any further.
    std::atomic<bool> other_reader{false};
    std::atomic<bool> all_likely{false};  // were compared
    IdlePace pace;                        // of all its threads
    OrderSearch orders;  // of one thread at a time: `order-search`, which `inference` waits for
  };
  /// Plans that the user refused, by folder and sampler.
  struct Family {
    std::string root;
    std::string sampler;
  };
  bool is_told(OrderId listed) const REQUIRES(mutex_);
  void look();
  Turn let_alone(const std::string& why);
  bool is_refused(const PlanSpec& plan) const REQUIRES(mutex_);
  std::optional<FoundOrder> search(const std::vector<SeenOpen>& opens);
  bool waits(const Program& program) const;  // for the reader of the plan that is in force
  /// A reader that is looked at, and the opens that may tell more of it.
  struct LookedAt {
    uint32_t number;
    size_t telling_at;
  };
  bool has_come(const std::vector<LookedAt>& known);
  void wake();
  bool is_in(ThreadId thread, const Program& program) const;

  const Deps deps_;
  RecordFiles records_;  // numbered() of `inference`
  AccessRecorder recorder_;
  ProcessTree tree_;
  const std::shared_ptr<Searching> search_;
  std::atomic<bool> noted_{false};     // something, since the last look
  uint64_t looked_at_ = 0;             // the recorder's beginning; of `inference`
  size_t interrupted_at_ = 0;          // opens seen when a search was given up; of `inference`
  std::optional<TimePoint> noted_at_;  // when it was seen that noted_ is set; of `inference`
  std::optional<TimePoint> full_at_;   // the same of a recorder that is full, or rests; of `inference`

  Alarm alarm_;                          // self-synchronised; a leaf
  mutable Mutex mutex_;                  // a leaf but for the alarm's; taken while the recorder's is held
  bool due_ GUARDED_BY(mutex_) = false;  // a look
  bool indexes_due_ GUARDED_BY(mutex_) = true;          // saved ones are to be looked for
  std::optional<FoundOrder> found_ GUARDED_BY(mutex_);  // the last one
  // Those before it, of other samples, as far as their readers came: one reader goes through several datasets
  // in turn, such as a training and a validation set. The last one first.
  std::vector<FoundOrder> earlier_ GUARDED_BY(mutex_);
  OrderId order_ GUARDED_BY(mutex_);  // of that plan
  bool in_force_ GUARDED_BY(mutex_) = false;
  bool over_ GUARDED_BY(mutex_) = false;          // its epoch
  bool outdated_ GUARDED_BY(mutex_) = false;      // and readers were seen to go on in no order that is known
  bool anew_ GUARDED_BY(mutex_) = false;          // all readers are due, however often they were looked at
  bool all_shuffles_ GUARDED_BY(mutex_) = false;  // are to be searched
  double orders_ GUARDED_BY(mutex_) = 0;
  std::vector<Suggestion> suggested_ GUARDED_BY(mutex_);  // since the last look
  std::vector<Family> refused_ GUARDED_BY(mutex_);
  IdleThread* searching_ GUARDED_BY(mutex_) = nullptr;  // `order-search`, while it is waited for
  std::optional<StepThread> thread_;                    // last
};

}  // namespace clairfs
