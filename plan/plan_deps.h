// PlanDeps: what all plans of a mount use. PlanChange: how a node tells the others of a plan.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/types.h"
#include "plan/formats/dataset.h"
#include "plan/inference/inference.h"
#include "plan/inference/readers/process_tree.h"
#include "plan/retention/placement_manager.h"
#include "plan/run/plan_run.h"
#include "plan/staging/staging.h"

namespace clairfs {

/// A plan that was registered, found or cancelled on some node of a job.
struct PlanChange {
  std::string name;
  std::string text;        ///< as format_plan() writes it; empty: cancelled
  NodeId origin;           ///< the node that says so; take_over() of a withdrawn plan: the one that found it
  bool withdrawn = false;  ///< the found plan `text` is not the job's: readers of some node have left it
  uint64_t stamp = 0;      ///< of two about one name the larger one holds, then the larger `origin`; 0: none
};

/// Objects outlive the plans.
struct PlanDeps {
  DatasetSource dataset;
  JobPlace place;
  Staging& staging;
  const Clock& clock;
  Metrics& metrics;
  Logger& log;
  /// Tells the other nodes; may be empty. Returns the stamp by which they know it, 0 if they are not told.
  /// Called with registrations locked, so it only queues; from the thread that submitted or cancelled.
  std::function<uint64_t(const PlanChange&)> announce{};
  PlacementManager* placement = nullptr;  ///< null on a single node
  /// How long a call that registers a plan waits for its index. The default is enough for some million
  /// records on a source that answers in a millisecond; other calls may have to wait for this one.
  Duration index_patience = std::chrono::seconds(2);
  /// Whether plans are found where none was registered. Each node of a job watches its own readers
  /// (plan/run/found_in_job.h).
  InferMode infer = InferMode::off;
  /// Where the order of a reader that repeats a list is written, if it is too long for a plan's text;
  /// empty: nowhere, and such an order is not followed. Each order has a number after that name: it is
  /// another plan. The folder is made when missing; the file goes when another is written, and with stop().
  std::string order_file{};
  /// Where orders that were found are saved for the next mount (SavedOrders); empty: nowhere.
  std::string saved_orders{};
  /// Looks up the processes that read; tests replace it.
  ProcessTree::LookUp processes = facts_of_process;
  /// There are no threads `planner` and `inference`: a test takes their turns, by PlanManager's
  /// step_planner() and step_inference().
  bool by_hand = false;
  /// Orders are searched for only while no core has anything else to do; a test waits for them.
  bool when_idle = true;
};

}  // namespace clairfs
