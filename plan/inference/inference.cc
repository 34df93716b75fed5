#include "plan/inference/inference.h"

#include <algorithm>
#include <cmath>
#include <future>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pthread.h>
#include <sched.h>

#include "cache/base/printable.h"

namespace clairfs {
namespace {

// When the recorder is full the readers are let alone for so long.
constexpr auto kRest = std::chrono::minutes(10);

// Threads whose environment is looked at: all ranks of a job have the same.
constexpr size_t kAsked = 8;

// A job's processors are for the job.
void run_when_idle() {
  const sched_param none = {};
  ::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &none);
}

/// Whether a folder is another, or lies in it.
bool is_in(std::string_view folder, std::string_view other) {
  if (other.empty()) return true;
  return folder.starts_with(other) && (folder.size() == other.size() || folder[other.size()] == '/');
}

/// The plan as a user would have registered it.
std::string line_of(const FoundOrder& found) {
  PlanSpec plan = found.plan;
  plan.name = PlanSpec().name;
  plan.epochs = plan.first_epoch = plan.start_sample = 0;
  return format_plan(plan);
}

std::string chance_text(double log_chance) {
  return fmt::format("1 in 10^{:.0f}", -log_chance / std::log(10.0));
}

}  // namespace

Inference::Inference(Parts parts)
    : parts_(std::move(parts)),
      recorder_([this] { wake(&Due::look); }),
      search_(
          parts_.dataset, [this] { return stopping_ || readers_ != looked_at_; },
          parts_.mode == InferMode::full ? OrderSearch::Shuffles::all : OrderSearch::Shuffles::usual) {}

void Inference::begin() {
  if (parts_.mode == InferMode::off) return;
  ++readers_;
  recorder_.restart(true);
  thread_ = NamedThread("inference", [this] { run(); });
}

void Inference::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    hurry_search();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// A mount that ends does not wait until a processor is idle. By root only: others may not leave SCHED_IDLE.
void Inference::hurry_search() {
  const sched_param none = {};
  if (searching_) ::pthread_setschedparam(*searching_, SCHED_OTHER, &none);
}

void Inference::wake(bool Due::*what) {
  const MutexLock lock(mutex_);
  due_.*what = true;
  changed_.notify_all();
}

void Inference::note(ThreadId thread, FileId file, Access kind) {
  recorder_.note(thread, file, kind, parts_.clock.now());
}

void Inference::restart() {
  if (parts_.mode == InferMode::off) return;
  recorder_.restart(true);
}

void Inference::displaced() {
  {
    const MutexLock lock(mutex_);
    in_force_ = false;
    found_.reset();
  }
  restart();
}

void Inference::epoch_over() {
  restart();
}

void Inference::left() {
  wake(&Due::left);
}

bool Inference::is_refused(const PlanSpec& plan) const {
  return std::any_of(refused_.begin(), refused_.end(), [&](const Family& family) {
    return family.sampler == plan.sampler && (is_in(family.root, plan.root) || is_in(plan.root, family.root));
  });
}

void Inference::refuse() {
  const MutexLock lock(mutex_);
  if (found_) {
    // Who reads folder after folder goes on with the next one.
    const std::string& root = found_->plan.root;
    const size_t slash = found_->plan.sampler == "torch.sequential" ? root.rfind('/') : std::string::npos;
    refused_.push_back({slash == std::string::npos ? root : root.substr(0, slash), found_->plan.sampler});
  }
  in_force_ = false;
}

void Inference::run() {
  for (;;) {
    Due due;
    {
      MutexLock lock(mutex_);
      while (!due_.look && !due_.left && !stopping_) {
        if (recorder_.on()) {
          changed_.wait(lock);
        } else if (changed_.wait_for(lock, kRest) == std::cv_status::timeout) {
          lock.unlock();
          restart();
          lock.lock();
        }
      }
      if (stopping_) return;
      due = std::exchange(due_, {});
    }
    if (due.left) {
      parts_.leave();
      const MutexLock lock(mutex_);
      in_force_ = false;
    }
    look();
  }
}

void Inference::look() {
  looked_at_ = readers_.load();
  const std::vector<SeenOpen> opens = recorder_.opens(AccessRecorder::kMost);
  if (opens.size() < last_look_) search_.begin();  // another reader
  last_look_ = opens.size();
  const std::optional<FoundOrder> found = search(opens);
  bool wanted = found.has_value();
  {
    const MutexLock lock(mutex_);
    orders_ = search_.orders();
    wanted = wanted && !is_refused(found->plan);
  }
  if (!wanted || !parts_.follow(*found)) {
    recorder_.look_at(
        std::max(opens.size() + opens.size() / 2, opens.size() + AccessRecorder::kFirstLook / 2));
    return;
  }
  parts_.log.info("plan {}: found after {} opens, by chance {}: {}", kFoundPlan, found->opens,
                  chance_text(found->log_chance), describe_plan(found->plan));
  search_.begin();
  last_look_ = 0;
  const MutexLock lock(mutex_);
  found_ = found;
  in_force_ = true;
}

std::optional<FoundOrder> Inference::search(const std::vector<SeenOpen>& opens) {
  std::optional<FoundOrder> before;
  {
    const MutexLock lock(mutex_);
    before = found_;
  }
  const ReaderFacts facts = facts_of(opens);
  std::optional<FoundOrder> found;
  std::promise<void> ended;  // the thread is there until the handle is forgotten
  NamedThread searching("order-search", [&] {
    run_when_idle();
    if (before && before->plan.epochs != 0) found = search_.follow_on(opens, *before);
    if (!found) found = search_.find(opens, facts, before);
    ended.set_value();
  });
  {
    const MutexLock lock(mutex_);
    searching_ = searching.native_handle();
    if (stopping_) hurry_search();
  }
  ended.get_future().wait();
  {
    const MutexLock lock(mutex_);
    searching_.reset();
  }
  searching.join();
  return found;
}

ReaderFacts Inference::facts_of(const std::vector<SeenOpen>& opens) const {
  std::vector<ThreadId> asked;
  ReaderFacts facts;
  for (auto open = opens.rbegin(); open != opens.rend() && asked.size() < kAsked; ++open) {
    if (std::find(asked.begin(), asked.end(), open->thread) != asked.end()) continue;
    asked.push_back(open->thread);
    const ReaderFacts one = facts_of_reader(open->thread);
    if (!facts.world) facts.world = one.world;
    for (const uint64_t seed : one.seeds) {
      if (std::find(facts.seeds.begin(), facts.seeds.end(), seed) == facts.seeds.end())
        facts.seeds.push_back(seed);
    }
  }
  return facts;
}

std::string Inference::how_found() const {
  const MutexLock lock(mutex_);
  if (!found_ || !in_force_) return "";
  std::string text =
      fmt::format("found after {} opens, by chance {}", found_->opens, chance_text(found_->log_chance));
  if (found_->node != 0)
    text += fmt::format("; this node has ranks {} and on", found_->node * found_->plan.ranks_per_node);
  return text;
}

std::string Inference::text() const {
  if (parts_.mode == InferMode::off) return "nothing is looked for: --infer off\n";
  const std::string how = how_found();
  const size_t seen = recorder_.count();
  const MutexLock lock(mutex_);
  if (!how.empty()) return line_of(*found_) + "\n  " + how + "\n";
  if (!recorder_.on() || seen > OrderSearch::kMostOpens)
    return fmt::format("no order known: {} opens seen, {:.0f} orders compared\n", seen, orders_);
  return fmt::format("{} opens seen, nothing certain yet: {:.0f} orders compared\n", seen, orders_);
}

std::string Inference::json() const {
  const std::string how = how_found();
  const size_t seen = recorder_.count();
  const MutexLock lock(mutex_);
  nlohmann::ordered_json json;
  const bool unknown = !recorder_.on() || seen > OrderSearch::kMostOpens;
  json["state"] = parts_.mode == InferMode::off ? "off"
                  : !how.empty()                ? "found"
                  : unknown                     ? "unknown"
                                                : "watching";
  json["opens"] = how.empty() ? seen : found_->opens;
  json["orders"] = orders_;
  if (!how.empty()) {
    json["plan"] = line_of(*found_);
    json["log10_chance"] = found_->log_chance / std::log(10.0);
    json["node"] = found_->node;
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace clairfs
