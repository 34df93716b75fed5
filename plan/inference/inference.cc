#include "plan/inference/inference.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"
#include "plan/inference/seeds/default_generator.h"

namespace clairfs {
namespace {

// So long after a look comes the next, if anything was opened meanwhile: a reader that has opened enough may
// wait for something, or be one of few among the opens of another.
constexpr auto kSoon = std::chrono::seconds(2);

// When the recorder is full, or memory was short, the readers are let alone for so long.
constexpr auto kRest = std::chrono::minutes(10);

// Who has asked for what is found, and got nothing, asks again within that time.
constexpr auto kAwaited = std::chrono::minutes(1);

// Orders that are remembered: of a training and a validation set, and some more.
constexpr size_t kMostEarlier = 4;

bool has_same_samples(const PlanSpec& a, const PlanSpec& b) {
  return a.root == b.root && a.format == b.format && a.file == b.file;
}

// Whether a folder is another, or lies in it.
bool is_folder_in(std::string_view folder, std::string_view other) {
  if (other.empty()) return true;
  return folder.starts_with(other) && (folder.size() == other.size() || folder[other.size()] == '/');
}

// The plan as a user would have registered it; nothing if no line says it from the first epoch to the last.
std::optional<std::string> line_of(const FoundOrder& found) {
  if (is_of_epoch_seed(found.plan)) return std::nullopt;
  PlanSpec plan = found.plan;
  plan.name = PlanSpec().name;
  plan.forget_place();
  std::string line = format_plan(plan);
  return check_plan_size(line) ? std::optional(std::move(line)) : std::nullopt;
}

std::string why_no_line(const FoundOrder& found) {
  return is_of_epoch_seed(found.plan)
             ? "an order of this epoch only: no line registers it"
             : "a list that is read again and again, which is too long for a line: register it as a file";
}

std::string_view seen_as(const FoundOrder& found) {
  return found.plan.file.empty() ? "opens" : "reads of records";
}

std::string chance_text(double log_chance) {
  return fmt::format("1 in 10^{:.0f}", -log_chance / std::log(10.0));
}

}  // namespace

Inference::Searching::Searching(const DatasetSource& dataset, InferMode mode, bool when_idle)
    : orders(
          dataset,
          [this] {
            pace.keep([this] { return stopped(); });
            return stopped();
          },
          mode == InferMode::full ? OrderSearch::Shuffles::all : OrderSearch::Shuffles::usual, when_idle) {}

Inference::Inference(Deps deps)
    : deps_(std::move(deps)),
      records_(deps_.dataset),
      recorder_([this] { wake(); }),
      tree_(deps_.processes),
      search_(std::make_shared<Searching>(deps_.dataset, deps_.mode, deps_.when_idle)) {}

void Inference::begin() {
  if (deps_.mode == InferMode::off) return;
  recorder_.restart(true);
  alarm_.ring();  // saved indexes are looked for at once
  if (!deps_.by_hand)
    thread_.emplace("inference", alarm_, deps_.clock, [this](TimePoint now) { return step(now); });
}

void Inference::stop() {
  {
    const MutexLock lock(mutex_);
    search_->stopping = true;
    if (searching_ != nullptr) searching_->hurry();
  }
  if (thread_) thread_->stop();
}

void Inference::wake() {
  const MutexLock lock(mutex_);
  due_ = true;
  alarm_.ring();
}

void Inference::note(ThreadId thread, FileId file, Access kind, uint64_t offset, uint64_t length) {
  const TimePoint now = deps_.clock.now();
  tree_.note(thread, now);
  ReadPages pages;
  if (kind == Access::read && length > 0 && records_.watches(file)) {
    const auto read = records_.read(thread, file, offset, length);
    if (!read) return;  // goes on with what the thread has read
    pages = *read;
  }
  if (!recorder_.note(thread, file, kind, now, tree_.is_reader(thread, now), pages)) return;
  // The READs that go on from this one are of the same open.
  if (pages.count == 0 && records_.meet(file) && length > 0)
    (void)records_.read(thread, file, offset, length);
  if (noted_.load(std::memory_order_relaxed) || noted_.exchange(true)) return;
  alarm_.ring();
}

// A reader without a thread that can be told may be anybody.
bool Inference::is_in(ThreadId thread, const Program& program) const {
  return program.pid == 0 || thread.value == 0 || tree_.is_in(thread, program);
}

std::vector<SeenOpen> Inference::opens_of(const Program& program) const {
  std::vector<SeenOpen> opens = recorder_.opens();
  std::erase_if(opens, [&](const SeenOpen& open) { return !is_in(open.thread, program); });
  return opens;
}

std::vector<SeenOpen> Inference::forget(const Program& program) {
  if (deps_.mode == InferMode::off) return {};
  if (program.pid == 0) return recorder_.forget_all();
  std::unordered_set<uint32_t> theirs;
  for (const SeenOpen& open : recorder_.opens()) {
    if (is_in(open.thread, program)) theirs.insert(open.thread.value);
  }
  return recorder_.forget(theirs);
}

void Inference::restart() {
  if (deps_.mode == InferMode::off) return;
  recorder_.restart(true);
}

void Inference::forget_files(const std::function<bool(FileId)>& of) {
  if (deps_.mode == InferMode::off) return;
  std::unordered_set<uint32_t> files;
  for (const SeenOpen& open : recorder_.opens()) {
    if (of(open.file)) files.insert(open.file.value);
  }
  recorder_.forget_files(files);
}

void Inference::displaced() {
  {
    const MutexLock lock(mutex_);
    in_force_ = false;
    found_.reset();
  }
  follow(Program());
  restart();
}

void Inference::epoch_over(OrderId order) {
  {
    const MutexLock lock(mutex_);
    if (!in_force_ || order != order_) return;
    over_ = true;
  }
  restart();
}

void Inference::left() {
  {
    const MutexLock lock(mutex_);
    in_force_ = false;
    anew_ = true;
  }
  follow(Program());
  if (!recorder_.on()) restart();  // full of what others opened
  wake();
}

void Inference::search_all_shuffles() {
  if (deps_.mode == InferMode::off) return;
  {
    const MutexLock lock(mutex_);
    all_shuffles_ = anew_ = true;
  }
  wake();
}

void Inference::hurry() {
  search_->pace.suspend(steady_now() + kAwaited);
}

bool Inference::refuses(const PlanSpec& plan) const {
  const MutexLock lock(mutex_);
  return is_refused(plan);
}

bool Inference::is_refused(const PlanSpec& plan) const {
  return std::any_of(refused_.begin(), refused_.end(), [&](const Family& family) {
    return family.sampler == plan.sampler &&
           (is_folder_in(family.root, plan.root) || is_folder_in(plan.root, family.root));
  });
}

void Inference::refuse(const PlanSpec& plan) {
  // A reader of folder after folder goes on with the next one.
  const size_t slash = plan.sampler == "torch.sequential" ? plan.root.rfind('/') : std::string::npos;
  follow(Program());
  const MutexLock lock(mutex_);
  refused_.push_back({slash == std::string::npos ? plan.root : plan.root.substr(0, slash), plan.sampler});
  std::erase_if(earlier_, [this](const FoundOrder& one) REQUIRES(mutex_) { return is_refused(one.plan); });
  in_force_ = false;
}

void Inference::know_records(const PlanSpec& plan) {
  if (deps_.mode == InferMode::off) return;
  records_.know(plan);
  const MutexLock lock(mutex_);
  indexes_due_ = true;
  alarm_.ring();
}

void Inference::suggest(Suggestion suggestion, bool now) {
  if (deps_.mode == InferMode::off) return;
  records_.know(suggestion.order);
  const MutexLock lock(mutex_);
  if (suggested_.size() >= OrderSearch::kMostSuggestions) suggested_.erase(suggested_.begin());
  suggested_.push_back(std::move(suggestion));
  if (!now) return;
  search_->other_reader = true;  // what is searched for is known, maybe
  anew_ = due_ = true;
  alarm_.ring();
}

void Inference::in_force(FoundOrder found, OrderId order) {
  const MutexLock lock(mutex_);
  if (found_) earlier_.insert(earlier_.begin(), std::move(*found_));
  std::erase_if(earlier_, [&](const FoundOrder& one) { return has_same_samples(one.plan, found.plan); });
  if (earlier_.size() > kMostEarlier) earlier_.pop_back();
  found_ = std::move(found);
  order_ = order;
  in_force_ = true;
  over_ = outdated_ = false;
}

void Inference::ends(Epoch epoch) {
  const MutexLock lock(mutex_);
  if (found_ && found_->plan.epochs == 0) found_->plan.move_to(epoch.value);
}

// Where no look is due, one comes kSoon after something was noted; a full recorder rests first. So does one
// whose readers there is no memory to look at: they do without.
Turn Inference::step(TimePoint now) try {
  if (deps_.mode == InferMode::off || search_->stopping) return {};
  bool due = false;
  bool indexes_due = false;
  {
    const MutexLock lock(mutex_);
    indexes_due = std::exchange(indexes_due_, false);
    due = !indexes_due && std::exchange(due_, false);
  }
  if (indexes_due) {
    records_.look_for_indexes();
    return {true, {}};
  }
  const bool full = !recorder_.on();
  if (!due && !full && noted_) {
    if (!noted_at_) noted_at_ = now;
    if (now - *noted_at_ < kSoon) return {false, *noted_at_ + kSoon - now};
    due = true;
  }
  if (due) {
    noted_ = false;
    noted_at_.reset();
    full_at_.reset();
    look();
    return {true, {}};
  }
  if (!full) {
    full_at_.reset();
    return {};
  }
  if (!full_at_) full_at_ = now;
  if (now - *full_at_ < kRest) return {false, *full_at_ + kRest - now};
  full_at_.reset();
  restart();
  return {true, {}};
} catch (const std::bad_alloc&) {
  return let_alone("not enough memory");
} catch (const std::system_error& refused) {
  return let_alone(no_thread(refused).message);
}

Turn Inference::let_alone(const std::string& why) {
  deps_.log.warn("readers without a plan are let alone for {} minutes: {}", kRest.count(), why);
  if (search_->stopping) return {};  // a search that was left behind may go on
  search_->orders.look_is_over();
  records_.let_go();
  recorder_.restart(false);
  return {true, {}};
}

void Inference::look() {
  const uint64_t beginning = recorder_.beginnings();
  const std::vector<SeenOpen> opens = recorder_.opens();
  bool anew = beginning != looked_at_;
  {
    const MutexLock lock(mutex_);
    anew = std::exchange(anew_, false) || anew;
    if (std::exchange(all_shuffles_, false)) search_->orders.search_all_shuffles();
  }
  if (anew) {
    search_->orders.begin();
    interrupted_at_ = 0;
  }
  looked_at_ = beginning;
  std::optional<FoundOrder> found = search(opens);
  if (search_->stopping) return;
  {
    const MutexLock lock(mutex_);
    orders_ = search_->orders.orders();
    // Nothing was forgotten since: these are opens of after the epoch.
    const bool after = over_ && recorder_.beginnings() == beginning;
    if (!found && after && opens.size() >= OrderSearch::kTelling) outdated_ = true;
  }
  if (found) found->program = tree_.program_of(found->threads);
  if (!found || refuses(found->plan) || !deps_.follow(*found)) {
    // Everybody together may not have been looked at: they wait for a plan's reader, or there are none.
    const size_t next = search_->orders.look_at(OrderSearch::kEverybody);
    const size_t more = std::max(opens.size() / 2, AccessRecorder::kFirstLook);
    recorder_.look_at(next > opens.size() ? next : opens.size() + more);
    if (search_->other_reader) wake();
    return;
  }
  deps_.log.info("plan {}: found after {} {}, by chance {}: {}", kFoundPlan, found->opens, seen_as(*found),
                 chance_text(found->log_chance), describe_plan(found->plan));
  search_->orders.begin();
  records_.let_go();  // the plan has its own hold on them
}

std::optional<FoundOrder> Inference::search(const std::vector<SeenOpen>& opens) {
  std::optional<FoundOrder> before;
  std::vector<FoundOrder> earlier;
  {
    const MutexLock lock(mutex_);
    before = found_;
    earlier = earlier_;
    search_->other_reader = search_->all_likely = false;  // what is suggested is known from here on
    for (Suggestion& suggestion : std::exchange(suggested_, {}))
      search_->orders.suggest(std::move(suggestion));
  }
  const auto readers = std::make_shared<const std::vector<WatchedReaders>>(
      watched_readers(tree_, opens, [&](const Readers& one) { return !waits(one.program); }));
  const bool due = std::any_of(readers->begin(), readers->end(), [&](const WatchedReaders& one) {
    return one.readers.opens >= search_->orders.look_at(number_of(one.readers));
  });
  if (!due) return std::nullopt;
  for (auto& [place, numberings] : records_.numbered(opens, OrderSearch::kFewest))
    search_->orders.number_records(place, std::move(numberings));
  const auto found = std::make_shared<std::optional<FoundOrder>>();
  const auto looked_at = std::make_shared<std::vector<LookedAt>>();  // of the search until all_likely is set
  const auto starved = std::make_shared<bool>(false);                // of memory
  auto work = [search = search_, opens, readers, before, earlier, found, looked_at, starved] {
    const auto all_likely = [&] {
      for (const WatchedReaders& one : *readers) {
        const uint32_t number = number_of(one.readers);
        looked_at->push_back({number, search->orders.telling_at(number)});
      }
      search->all_likely = true;
    };
    try {
      *found = find_among(search->orders, opens, *readers, before, all_likely, earlier);
    } catch (const std::bad_alloc&) {
      *starved = true;
    }
    search->orders.look_is_over();
  };
  IdleThread thread("order-search", std::move(work), deps_.when_idle);
  {
    const MutexLock lock(mutex_);
    searching_ = &thread;
    if (search_->stopping) thread.hurry();
  }
  // Nothing is thrown before it is reset.
  while (!thread.is_over_within(kSoon)) {
    if (search_->all_likely && has_come(*looked_at)) search_->other_reader = true;
  }
  const bool ended = thread.wait();
  {
    const MutexLock lock(mutex_);
    searching_ = nullptr;
  }
  if (!ended) return std::nullopt;
  if (*starved) throw std::bad_alloc();  // here somebody catches it
  return *found;
}

bool Inference::waits(const Program& program) const {
  {
    const MutexLock lock(mutex_);
    if (!in_force_) return false;
  }
  return follows_another(program);
}

// Unlikely orders take seconds, on a busy machine minutes, in which a reader that is easily found would not
// be: one that is new, one that had opened too little, one that repeats what it has read. Programs may come
// all the time: so it is asked for them when half as much again was seen as the last time. Without memory
// nobody is seen to have come.
bool Inference::has_come(const std::vector<LookedAt>& known) try {
  const auto tells = [&](uint32_t number, size_t opens) {
    const auto at =
        std::find_if(known.begin(), known.end(), [&](const LookedAt& one) { return one.number == number; });
    if (at == known.end()) return number != OrderSearch::kEverybody;
    return opens >= at->telling_at;
  };
  const size_t seen = recorder_.count();
  if (tells(OrderSearch::kEverybody, seen)) return true;  // twice at most in a record
  if (seen < interrupted_at_ + interrupted_at_ / 2) return false;
  const std::vector<Readers> all = tree_.readers(recorder_.opens(), OrderSearch::kTelling);
  const bool come = std::any_of(all.begin() + 1, all.end(), [&](const Readers& one) {
    return !waits(one.program) && tells(number_of(one), one.opens);
  });
  if (come) interrupted_at_ = seen;
  return come;
} catch (const std::bad_alloc&) {
  return false;
}

std::string how_found(const FoundOrder& found) {
  std::string text = found.told_by ? fmt::format("found on node {}", found.told_by->value)
                                   : fmt::format("found after {} {}, by chance {}", found.opens,
                                                 seen_as(found), chance_text(found.log_chance));
  if (found.node != 0)
    text += fmt::format("; this node has ranks {} and on", found.node * found.plan.ranks_per_node);
  if (!found.description.empty()) text += "; it is " + found.description;
  return text;
}

bool Inference::is_told(OrderId listed) const {
  return found_ && in_force_ && listed == order_ && !outdated_;
}

std::string Inference::text(OrderId listed) const {
  if (deps_.mode == InferMode::off) return "nothing is looked for: --infer off\n";
  const size_t seen = recorder_.count();
  const MutexLock lock(mutex_);
  if (is_told(listed))
    return line_of(*found_).value_or(why_no_line(*found_)) + "\n  " + how_found(*found_) + "\n";
  if (!recorder_.on() || seen > OrderSearch::kMostOpens)
    return fmt::format("no order known: {} opens seen, {:.0f} orders compared\n", seen, orders_);
  return fmt::format("{} opens seen, nothing certain yet: {:.0f} orders compared\n", seen, orders_);
}

std::string Inference::json(OrderId listed) const {
  const size_t seen = recorder_.count();
  const MutexLock lock(mutex_);
  const bool told = is_told(listed);
  nlohmann::ordered_json json;
  const bool unknown = !recorder_.on() || seen > OrderSearch::kMostOpens;
  json["state"] = deps_.mode == InferMode::off ? "off" : told ? "found" : unknown ? "unknown" : "watching";
  json["opens"] = told ? found_->opens : seen;
  json["orders"] = orders_;
  if (told) {
    const std::optional<std::string> line = line_of(*found_);
    if (line) json["plan"] = *line;
    if (!found_->description.empty()) json["description"] = found_->description;
    json["node"] = found_->node;
    if (found_->told_by)
      json["told_by"] = found_->told_by->value;
    else
      json["log10_chance"] = found_->log_chance / std::log(10.0);
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace clairfs
